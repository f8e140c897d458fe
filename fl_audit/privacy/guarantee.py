"""Everything that a claim guarantees: epsilon, and bounds on belief, advantage and membership attacks.

Numbers out of their range raise `InputError`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import assert_never

from scipy.special import expit

from fl_audit.adjacency import Adjacency, Relation
from fl_audit.notebook import html_table
from fl_audit.privacy.accounting import Accountant, account
from fl_audit.privacy.claim import Claim
from fl_audit.privacy.gaussian import require_epsilon
from fl_audit.privacy.identifiability_bounds import SensitivityAdaptivity, gaussian_advantage, rho_alpha, rho_beta
from fl_audit.privacy.reconstruction import reconstruction_bound

_LARGEST_EXPONENT = 709.0  # above it the exponential is no float64


@dataclass(frozen=True)
class Guarantee:
    """Everything that a claim guarantees.

    Parameters
    ----------
    claim
        The claim that the guarantee refers to.
    epsilon
        The epsilon that the accountant reports at the delta of the claim, in nats.
    mu
        The Gaussian-DP parameter, for k rounds sqrt(k) / z: exact if no unit is sampled, otherwise that of a unit
        that is seen to take part every time; infinite where an event has noise of another kind.
    belief_bound
        Belief in the true data set that is passed with probability at most delta, under the sensitivities of the claim.
        `rdp-classic`: `rho_beta` of epsilon, which holds for adaptive sensitivities. `rdp`: the same, through the
        classic conversion of its Renyi divergences, since its own conversion bounds no belief. `gdp` and `pld`: the
        bound of `scores.gaussian_belief_bound`, or the same bound from the privacy loss distribution.
    belief_bound_fixed
        The belief bound that `gdp` and `pld` give where the sensitivities are fixed, which is smaller: the quantile of
        the distribution of the log-odds. Equal to `belief_bound` for the other accountants, which know no such
        distribution.
    rho_alpha
        The score of Bernau et al. 2021 (theorem 3) of epsilon and delta, beside `rdp-classic`, the accountant of that
        paper; None beside any other. It is a bound for noise that is calibrated by the classic formula, Eq. (1), only.
    advantage_bound_exact
        The largest advantage: the total variation, which always holds: 2 Phi(mu/2) - 1, or with sampling delta(0) of
        the privacy loss distribution, whatever the accountant.
    others
        Claims that hold at the same time, of clients whose sampling differs; the bounds are those of the worst.
    """

    claim: Claim
    epsilon: float
    mu: float
    belief_bound: float
    belief_bound_fixed: float
    rho_alpha: float | None
    advantage_bound_exact: float
    others: tuple[Claim, ...] = ()

    @property
    def claims(self) -> tuple[Claim, ...]:
        """All claims that hold at the same time, that of the reported epsilon first."""
        return (self.claim, *self.others)

    def reconstruction_bound(self, chance: float) -> float | None:
        """Return the largest success of a reconstruction whose success without the release is `chance`, from 0 to 1.

        See `reconstruction.reconstruction_bound`; None where noise follows one pair and protects no other record.
        """
        if self.claim.sensitivities is SensitivityAdaptivity.FIXED:
            return None
        return max(reconstruction_bound(claim, chance) for claim in self.claims)

    @property
    def advantage_bound(self) -> float:
        """The largest advantage, `advantage_bound_exact`, the only bound that holds for all noise."""
        return self.advantage_bound_exact

    @property
    def adjacency(self) -> Adjacency:
        """The relation between neighbours."""
        return self.claim.adjacency

    @property
    def delta(self) -> float:
        """The delta of (epsilon, delta)-DP, and the probability with which the belief bound may be exceeded."""
        return self.claim.delta

    @property
    def prior(self) -> float:
        """The insider's prior belief in the true data set."""
        return self.claim.prior

    @property
    def accountant(self) -> Accountant:
        """The accountant that reported epsilon."""
        return self.claim.accountant

    @property
    def noise_multiplier(self) -> float | None:
        """The noise multiplier z of the rounds, over the sensitivity; None without Gaussian noise."""
        return self.claim.noise_multiplier

    @property
    def noise_over_clipping_norm(self) -> float | None:
        """z of the noise on a sum over the clipping norm, as other libraries quote it; None without Gaussian noise."""
        z = self.noise_multiplier
        return None if z is None else z * self.adjacency.sensitivity_of_sum(1.0)

    @property
    def rounds(self) -> int:
        """The number of rounds k."""
        return self.claim.rounds

    @property
    def sampling_rate(self) -> float:
        """Probability with which a unit takes part in a round; 1 is always."""
        return self.claim.sampling_rate

    @property
    def remark(self) -> str:
        """A remark on the numbers, in one sentence; empty if there is none."""
        if self.accountant is not Accountant.PLD or self.claim.profile.resolves(self.delta):
            return ""
        under = f"delta {self.delta:g} is under what the loss distributions of pld resolve"
        return f"{under}, so epsilon and belief are bounded from above by Renyi divergences"

    def __str__(self) -> str:
        noise = ""
        if self.noise_multiplier is not None:
            # In short, for the neighbours are named before it.
            over = f"over the sensitivity ({self.adjacency.sensitivity_words.partition(',')[0]})"
            noise = f", noise multiplier {self.noise_multiplier:.6g} {over}"
        rate = "" if self.sampling_rate == 1 else f" at sampling rate {self.sampling_rate:g}"
        releases = "1 release" if self.rounds == 1 else f"{self.rounds} releases"
        remark = f" ({self.remark})" if self.remark else ""
        who = f"epsilon {self.epsilon:.4g} at delta {self.delta:g} by {self.accountant}, neighbours by {self.adjacency}"
        bounds = f"belief at most {self.belief_bound:.4g}, advantage at most {self.advantage_bound_exact:.4g}"
        score = "" if self.rho_alpha is None else f", rho_alpha {self.rho_alpha:.4g}"
        return f"{who}{noise}, {releases}{rate}, {bounds}{score}{remark}"

    def __repr__(self) -> str:
        return f"<Guarantee: {self}>"

    def _repr_html_(self) -> str:
        numbers = {
            "epsilon": self.epsilon,
            "at delta": self.delta,
            f"noise multiplier, over the sensitivity ({self.adjacency.sensitivity_words})": self.noise_multiplier,
            "the same over the clipping norm": self.noise_over_clipping_norm,
            "rounds": self.rounds,
            "sampling rate": self.sampling_rate,
            "belief at most": self.belief_bound,
            "advantage at most": self.advantage_bound_exact,
            "rho_alpha": self.rho_alpha,
        }
        rows = [(name, f"{value:.4g}") for name, value in numbers.items() if value is not None]
        remarks = [self.remark] if self.remark else []
        return html_table(rows, f"Guarantee: {self.adjacency}, by {self.accountant}", remarks)


def derive_guarantee(claim: Claim) -> Guarantee:
    """Return everything that a claim guarantees.

    Raises `InputError` if the accountant cannot account for the events, or not at this delta.

    Examples
    --------
    >>> from fl_audit.privacy.events import gaussian_rounds
    >>> claim = Claim(Adjacency.REPLACE_RECORD, gaussian_rounds(9.952, 30), 0.001, 0.5, Accountant.RDP_CLASSIC)
    >>> guarantee = derive_guarantee(claim)
    >>> round(guarantee.belief_bound, 3), round(guarantee.advantage_bound_exact, 3)
    (0.9, 0.217)
    """
    profile = claim.profile
    epsilon = account(profile, claim.accountant, claim.delta)
    return Guarantee(
        claim=claim,
        epsilon=epsilon,
        mu=claim.full_participation_mu,
        belief_bound=_belief_bound(claim, epsilon, claim.sensitivities),
        belief_bound_fixed=_belief_bound(claim, epsilon, SensitivityAdaptivity.FIXED),
        rho_alpha=rho_alpha(epsilon, claim.delta) if claim.accountant is Accountant.RDP_CLASSIC else None,
        advantage_bound_exact=profile.advantage(),
    )


def guarantee_of_all(claims: Sequence[Claim]) -> Guarantee:
    """Return the guarantee that holds under every claim: the largest epsilon, its claim, and the largest bounds.

    Raises `InputError` if the accountant of one cannot account for its events.
    """
    each = [derive_guarantee(claim) for claim in claims]
    bounds = ("mu", "belief_bound", "belief_bound_fixed", "advantage_bound_exact")
    largest = {name: max(getattr(one, name) for one in each) for name in bounds}
    # `rho_alpha` grows with epsilon, so that of the largest epsilon is the largest.
    return replace(max(each, key=lambda one: one.epsilon), others=tuple(claims), **largest)


def _belief_bound(claim: Claim, epsilon: float, sensitivities: SensitivityAdaptivity) -> float:
    match claim.accountant:
        case Accountant.RDP_CLASSIC:
            return rho_beta(epsilon, claim.prior)
        case Accountant.RDP:
            return rho_beta(account(claim.profile, Accountant.RDP_CLASSIC, claim.delta), claim.prior)
        case Accountant.GDP | Accountant.PLD:
            return claim.profile.belief_at(claim.delta, sensitivities)
        case _:
            assert_never(claim.accountant)


@dataclass(frozen=True)
class MembershipBounds:
    """Upper bounds on the advantage of a membership adversary, from the loosest to the tightest."""

    yeom: float  # e^epsilon - 1, for a guarantee with delta = 0; above 1 it says nothing, and it may be infinite
    tradeoff: float  # (e^epsilon - 1 + 2 delta) / (e^epsilon + 1), up to 1
    exact: float  # the total variation delta(0): what the best adversary achieves against the worst pair of neighbours


def yeom_bound(epsilon: float) -> float:
    """Return e^epsilon - 1, the bound on the membership advantage under epsilon-DP (Yeom et al. 2018, theorem 1).

    It needs delta = 0 and a guarantee for records that are replaced; under (epsilon, delta)-DP the advantage may exceed
    it by up to delta. Above 1 (epsilon above ln 2) it is no restriction. Bernau et al. 2021 draw it in figures 7d, 8d
    and 9d. Epsilon is at least 0 and finite; where the exponential overflows the bound is infinite.
    """
    require_epsilon(epsilon)
    return math.expm1(epsilon) if epsilon < _LARGEST_EXPONENT else math.inf


def _tradeoff_advantage_bound(epsilon: float, delta: float) -> float:
    """Return (e^epsilon - 1 + 2 delta) / (e^epsilon + 1), the best advantage that (epsilon, delta)-DP alone allows.

    The largest TPR - FPR in the region of error rates of Kairouz, Oh & Viswanath 2015, theorem 2.1; for membership
    Humphries et al. 2023. It holds for every adversary that tells two neighbours apart, the insider included.
    """
    return 1 - 2 * (1 - delta) * float(expit(-epsilon))


def membership_bounds(guarantee: Guarantee) -> MembershipBounds:
    """Return three bounds of a guarantee on an adversary that tells members from others of the population.

    They are the bound of Yeom et al., e^epsilon - 1; the bound that follows from (epsilon, delta)-DP; and the total
    variation of the worst pair of neighbours.

    The adversary gets one unit from D or from the population. Both answers belong to data sets of the same size, so the
    relevant neighbours are D and D with that unit replaced: a guarantee for units that are added or removed is
    converted. The adversary compares a loss with a threshold, the average training loss, which is no part of the
    release; the bounds ignore that this threshold moves by one record's share of a mean.

    The bounds hold on average over data sets drawn from the population, and only where every unit has the guarantee:
    noise scaled to the local sensitivity of one pair guarantees nothing to other units.

    Parameters
    ----------
    guarantee
        The claim over all rounds. Where its units are added or removed, a replacement has (2 epsilon, (1 + e^epsilon)
        delta)-DP and Gaussian parameter 2 mu by group privacy (Dong, Roth & Su 2022), and at most twice the total
        variation.
    """
    match guarantee.adjacency.relation:
        case Relation.REPLACE:
            epsilon, delta, exact = guarantee.epsilon, guarantee.delta, guarantee.advantage_bound_exact
        case Relation.ADD_REMOVE:
            epsilon = 2 * guarantee.epsilon
            delta = guarantee.delta * (2 + yeom_bound(guarantee.epsilon))
            gaussian = gaussian_advantage(2 * guarantee.mu) if math.isfinite(guarantee.mu) else 1.0
            exact = min(gaussian, 2 * guarantee.advantage_bound_exact)
        case _:
            assert_never(guarantee.adjacency.relation)
    tradeoff = _tradeoff_advantage_bound(epsilon, delta) if delta < 1 else 1.0
    return MembershipBounds(yeom_bound(epsilon), tradeoff, exact)
