"""Derive the guarantee of a claim: epsilon, and bounds on belief, advantage and membership attacks.

Functions raise `InputError` for numbers out of range.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import assert_never

from scipy.special import expit

from fl_audit.adjacency import Adjacency, Relation
from fl_audit.html_tables import html_table
from fl_audit.privacy.accounting import Accountant, account
from fl_audit.privacy.claim import Claim
from fl_audit.privacy.gaussian import require_epsilon
from fl_audit.privacy.guarantee_line import fit_of_all, mu_text
from fl_audit.privacy.identifiability_bounds import SignalToNoiseAdaptivity, gaussian_advantage, rho_alpha, rho_beta
from fl_audit.privacy.reconstruction_bounds import reconstruction_bound

_LARGEST_EXPONENT = 709.0  # the exponential of a larger number overflows float64


@dataclass(frozen=True)
class Guarantee:
    """Guarantee of a claim: epsilon by the claim's accountant, and bounds on belief and advantage.

    Parameters
    ----------
    claim
        The claim to which the guarantee refers.
    epsilon
        Epsilon by the accountant at the delta of the claim, in nats.
    mu
        Gaussian-DP parameter without sampling, sqrt(k) / z for k rounds with noise multiplier z. With sampling, it is
        that of a unit that is known to have participated in every release; `gdp_mu` takes sampling into account. It is
        infinite if the noise of an event is not Gaussian.
    belief_bound
        Bound on the adversary's belief in the true training set. The belief exceeds it with probability at most delta.
        The bound takes into account whether sensitivities depend on earlier releases, as `claim` states. By
        `rdp-classic` and `rdp` it is `rho_beta` of the epsilon of `rdp-classic`. By `gdp` and `pld` it follows from the
        tail of the log-odds (module `identifiability_bounds`).
    belief_bound_fixed
        The same bound if no round's sensitivity depends on earlier releases. It is at most `belief_bound`, and equal to
        it by `rdp-classic` and `rdp`.
    rho_alpha
        Advantage score of Bernau et al. 2021 (theorem 3) for epsilon and delta, if the accountant is `rdp-classic`, as
        in that paper; otherwise None. It bounds the advantage only if the noise is calibrated by the paper's Eq. (1).
    advantage_bound_exact
        Largest advantage TPR - FPR of any attack, the total variation distance delta(0). It does not depend on the
        accountant.
    others
        Further claims that hold at the same time, e.g. for clients with other sampling rates; every bound is the
        largest over all claims.
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
        """All claims that hold at the same time, for example one for each sampling rate of the clients.

        The first is the claim of the reported epsilon.
        """
        return (self.claim, *self.others)

    def reconstruction_bound(self, chance: float) -> float | None:
        """Return the largest success probability of a reconstruction attack whose baseline success is `chance`, 0 to 1.

        The baseline is the success probability without any release. None if the noise is scaled to one pair D, D',
        because such noise gives no guarantee for other records.
        """
        if self.claim.sensitivities is SignalToNoiseAdaptivity.FIXED:
            return None
        return max(reconstruction_bound(claim, chance) for claim in self.claims)

    @property
    def gdp_mu(self) -> float:
        """Gaussian-DP parameter that fits the whole privacy profile, sampling included, as in the guarantee's text.

        It is the smallest mu for which a Gaussian mechanism gives away no less at any delta from 1e-7 on. Without
        sampling, it equals `mu` if the noise is Gaussian. `gdp_regret` is the error of the fit.
        """
        return fit_of_all(self.claims).mu

    @property
    def gdp_regret(self) -> float:
        """Error of the fit of `gdp_mu`, from 0 to 1; it is 0 if the mechanism is exactly Gaussian."""
        return fit_of_all(self.claims).regret

    @property
    def advantage_bound(self) -> float:
        """Bound on the advantage of membership attacks; the same number as `advantage_bound_exact`.

        The score `rho_alpha` is not used, because it does not bound the advantage for all noise.
        """
        return self.advantage_bound_exact

    @property
    def adjacency(self) -> Adjacency:
        """Adjacency of the claim."""
        return self.claim.adjacency

    @property
    def delta(self) -> float:
        """Delta of (epsilon, delta)-DP, and the probability with which the belief bound may be exceeded."""
        return self.claim.delta

    @property
    def prior(self) -> float:
        """Prior belief of the adversary in the true training set, above 0 and below 1."""
        return self.claim.prior

    @property
    def accountant(self) -> Accountant:
        """Accountant that computed epsilon."""
        return self.claim.accountant

    @property
    def noise_multiplier(self) -> float | None:
        """Noise multiplier z of the rounds: scale of the noise over the sensitivity; None without noise on sums."""
        return self.claim.noise_over_sensitivity

    @property
    def noise_over_clipping_norm(self) -> float | None:
        """Scale of the noise over the clipping norm, as in Opacus; None without noise on sums."""
        z = self.noise_multiplier
        return None if z is None else z * self.adjacency.sensitivity_of_sum(1.0)

    @property
    def rounds(self) -> int:
        """Number k of rounds."""
        return self.claim.rounds

    @property
    def sampling_rate(self) -> float:
        """Probability with which a unit participates in a round; 1 without sampling."""
        return self.claim.sampling_rate

    @property
    def remark(self) -> str:
        """Remark for reports if epsilon and belief come from looser Renyi bounds, because delta is very small.

        Otherwise the empty string.
        """
        if self.accountant is not Accountant.PLD or self.claim.profile.resolves(self.delta):
            return ""
        under = f"delta {self.delta:g} is under what the loss distributions of pld resolve"
        return f"{under}, so epsilon and belief are bounded from above by Renyi divergences"

    def __str__(self) -> str:
        noise = ""
        if self.noise_multiplier is not None:
            # A short form, because the adjacency is named before it.
            over = f"over the sensitivity ({self.adjacency.sensitivity_words.partition(',')[0]})"
            noise = f", noise multiplier {self.noise_multiplier:.6g} {over}"
        rate = "" if self.sampling_rate == 1 else f" at sampling rate {self.sampling_rate:g}"
        releases = "1 release" if self.rounds == 1 else f"{self.rounds} releases"
        remark = f" ({self.remark})" if self.remark else ""
        claim_text = (
            f"epsilon {self.epsilon:.4g} at delta {self.delta:g} by {self.accountant}, neighbours by {self.adjacency}"
        )
        noise = f"{noise}, {mu_text(self.gdp_mu, self.gdp_regret)}"
        bounds = f"belief at most {self.belief_bound:.4g}, advantage at most {self.advantage_bound_exact:.4g}"
        score = "" if self.rho_alpha is None else f", rho_alpha {self.rho_alpha:.4g}"
        return f"{claim_text}{noise}, {releases}{rate}, {bounds}{score}{remark}"

    def __repr__(self) -> str:
        return f"<Guarantee: {self}>"

    def _repr_html_(self) -> str:
        numbers = {
            "epsilon": self.epsilon,
            "at delta": self.delta,
            "mu, as mu-GDP": self.gdp_mu,
            "regret of mu (the error of its fit)": self.gdp_regret,
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
    """Derive the guarantee of a claim: epsilon, and bounds on belief and advantage.

    Raises `InputError` if the accountant does not support the events or this delta.

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
        belief_bound_fixed=_belief_bound(claim, epsilon, SignalToNoiseAdaptivity.FIXED),
        rho_alpha=rho_alpha(epsilon, claim.delta) if claim.accountant is Accountant.RDP_CLASSIC else None,
        advantage_bound_exact=profile.advantage(),
    )


def guarantee_of_all(claims: Sequence[Claim]) -> Guarantee:
    """Derive the guarantee of several claims that hold at the same time.

    The result is the guarantee of the claim with the largest epsilon, except that mu and every bound are the largest
    over all claims. Raises `InputError` if the accountant of a claim does not support its events.
    """
    guarantees = [derive_guarantee(claim) for claim in claims]
    bounds = ("mu", "belief_bound", "belief_bound_fixed", "advantage_bound_exact")
    largest = {name: max(getattr(guarantee, name) for guarantee in guarantees) for name in bounds}
    # `rho_alpha` grows with epsilon, so it is largest for the claim with the largest epsilon.
    return replace(max(guarantees, key=lambda guarantee: guarantee.epsilon), others=tuple(claims), **largest)


def _belief_bound(claim: Claim, epsilon: float, adaptivity: SignalToNoiseAdaptivity) -> float:
    match claim.accountant:
        case Accountant.RDP_CLASSIC:
            return rho_beta(epsilon, claim.prior)
        case Accountant.RDP:
            return rho_beta(account(claim.profile, Accountant.RDP_CLASSIC, claim.delta), claim.prior)
        case Accountant.GDP | Accountant.PLD:
            return claim.profile.belief_at(claim.delta, adaptivity)
        case _:
            assert_never(claim.accountant)


@dataclass(frozen=True)
class MembershipBounds:
    """Upper bounds on the advantage TPR - FPR of a membership attack, from the loosest to the tightest."""

    yeom: float  # e^epsilon - 1, for a guarantee with delta = 0; says nothing above 1, and may be infinite
    tradeoff: float  # (e^epsilon - 1 + 2 delta) / (e^epsilon + 1), up to 1
    exact: float  # the total variation delta(0): the best attack's advantage against the worst pair of neighbours


def yeom_bound(epsilon: float) -> float:
    """Return e^epsilon - 1, the bound on the membership advantage under epsilon-DP (Yeom et al. 2018, theorem 1).

    It holds for delta = 0 and replace adjacency; under (epsilon, delta)-DP the advantage may exceed it by up to delta.
    The bound says nothing if it is above 1 (epsilon above ln 2). Bernau et al. 2021 show it in figures 7d, 8d and 9d.
    Epsilon must be finite and at least 0.
    """
    require_epsilon(epsilon)
    return math.expm1(epsilon) if epsilon < _LARGEST_EXPONENT else math.inf


def _tradeoff_advantage_bound(epsilon: float, delta: float) -> float:
    """Return the largest advantage TPR - FPR under (epsilon, delta)-DP: (e^epsilon - 1 + 2 delta) / (e^epsilon + 1).

    Source: Kairouz, Oh & Viswanath 2015, theorem 2.1; for membership, Humphries et al. 2023.
    """
    return 1 - 2 * (1 - delta) * float(expit(-epsilon))


def membership_bounds(guarantee: Guarantee) -> MembershipBounds:
    """Return three bounds that a guarantee puts on the advantage of membership attacks.

    The adversary gets one unit, either from D or from the population. It compares the loss of the unit with the average
    training loss, which is not released. The bounds ignore that one record changes this average a little. Training sets
    have the same size in both cases. The bounds are therefore for replace adjacency, and an add-remove guarantee is
    first converted to replace.

    They hold on average over data sets drawn from the population, and only if every unit has the guarantee. Noise
    scaled to the local sensitivity of one pair gives other units no guarantee.

    `guarantee`: An add-remove guarantee is converted by group privacy. It gives (2 epsilon, (1 + e^epsilon) delta)-DP
    under replace, the Gaussian-DP parameter 2 mu (Dong, Roth & Su 2022), and at most twice the total variation
    distance.
    """
    match guarantee.adjacency.relation:
        case Relation.REPLACE:
            epsilon = guarantee.epsilon
            delta = guarantee.delta
            exact = guarantee.advantage_bound_exact
        case Relation.ADD_REMOVE:
            epsilon = 2 * guarantee.epsilon
            delta = guarantee.delta * (2 + yeom_bound(guarantee.epsilon))
            gaussian = gaussian_advantage(2 * guarantee.mu) if math.isfinite(guarantee.mu) else 1.0
            exact = min(gaussian, 2 * guarantee.advantage_bound_exact)
        case _:
            assert_never(guarantee.adjacency.relation)
    tradeoff = _tradeoff_advantage_bound(epsilon, delta) if delta < 1 else 1.0
    return MembershipBounds(yeom_bound(epsilon), tradeoff, exact)
