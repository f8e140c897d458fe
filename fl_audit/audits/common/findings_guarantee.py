"""Findings on the guarantee: other bounds on the belief, coalitions of clients, and adaptive clipping."""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from fl_audit.errors import InputError
from fl_audit.federation.findings import Findings, json_of
from fl_audit.federation.finished_run import FinishedRun
from fl_audit.federation.run_plan import RunPlan
from fl_audit.federation.run_tables import NORM_COLUMN
from fl_audit.mechanisms.contribution import AdaptiveClipping
from fl_audit.mechanisms.mechanism import effective_noise_multiplier
from fl_audit.mechanisms.noises.mechanism_noise import NoiseOrigin
from fl_audit.mechanisms.threat_model import Adversary, ThreatModel
from fl_audit.privacy.accounting import Accountant, account
from fl_audit.privacy.calibration import noise_multiplier_for
from fl_audit.privacy.claim import Claim
from fl_audit.privacy.guarantee import Guarantee, derive_guarantee
from fl_audit.privacy.guarantee_line import GUARANTEE_NAMES, guarantee_values
from fl_audit.privacy.targets import BeliefTarget

_BOUNDS = (
    "noise_multiplier",
    "belief_bound",
    "belief_bound_fixed",
    "advantage_bound",
    "advantage_bound_exact",
    "rho_alpha",
)


@dataclass(frozen=True)
class GuaranteeFinding:
    """The claimed guarantee of a run, with its number of rounds and its sampling rate."""

    guarantee: Guarantee | None  # the guarantee; None if nothing was claimed
    rounds: int  # number of releases after the initial model
    # Probability with which a unit takes part in a round (for DP-SGD at the clients, a record in a local step).
    sampling_rate: float

    def to_json(self) -> dict[str, Any]:
        """Return this finding as a dict with the one key `guarantee`, for `summary.json`.

        Without a claim, the values of the guarantee are None.
        """
        guarantee = self.guarantee
        line = (
            dict.fromkeys(GUARANTEE_NAMES)
            if guarantee is None
            else guarantee_values(guarantee.epsilon, guarantee.claims)
        )
        bounds = {name: None if guarantee is None else getattr(guarantee, name) for name in _BOUNDS}
        return {"guarantee": json_of(line | bounds | {"rounds": self.rounds, "sampling_rate": self.sampling_rate})}


def measure_guarantee(run: FinishedRun, _: Findings) -> GuaranteeFinding:
    """Return the claimed guarantee of a run, with its number of rounds and its sampling rate."""
    guarantee = run.plan.guarantee
    rate = run.plan.federation.mechanism.sampling_rate if guarantee is None else guarantee.sampling_rate
    return GuaranteeFinding(guarantee, run.plan.federation.rounds, rate)


# Belief bounds of the alternative guarantees.
BELIEFS = (0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 0.99)


@dataclass(frozen=True)
class GuaranteeForBelief:
    """A guarantee with a given bound on the posterior belief in D, and the noise multiplier that achieves it."""

    belief: float  # bound on the posterior belief in D, which is exceeded with probability at most delta
    epsilon: float  # epsilon of the guarantee, at the delta of the run
    noise_multiplier: float  # noise multiplier that achieves the guarantee


@dataclass(frozen=True)
class AlternativeGuarantees:
    """Alternative guarantees for the claim of a run: what it would guarantee with more or less noise.

    There is one alternative for each of several bounds on the posterior belief.
    """

    claim: Claim

    def to_json(self) -> dict[str, Any]:
        """Return an empty dict, since `summary.json` does not contain the alternative guarantees."""
        return {}

    @property
    def accountant(self) -> Accountant:
        """Accountant of the alternative guarantees: the run's accountant, but `rdp-classic` instead of `rdp`."""
        accountant = self.claim.accountant
        return Accountant.RDP_CLASSIC if accountant is Accountant.RDP else accountant

    @property
    def guarantees(self) -> tuple[GuaranteeForBelief, ...]:
        """Alternative guarantees, one for each bound on belief in `BELIEFS`, ascending.

        A bound is left out if no noise multiplier achieves it.
        """
        return _guarantees(replace(self.claim, accountant=self.accountant))


@lru_cache(maxsize=8)
def _guarantees(claim: Claim) -> tuple[GuaranteeForBelief, ...]:
    rows = []
    for belief in BELIEFS:
        if belief <= claim.prior:
            continue
        try:
            guarantee = derive_guarantee(claim.with_noise(noise_multiplier_for(BeliefTarget(belief), claim)))
        except InputError:
            continue
        if guarantee.noise_multiplier is not None:
            rows.append(GuaranteeForBelief(belief, guarantee.epsilon, guarantee.noise_multiplier))
    return tuple(rows)


def claim_for_alternative_guarantees(run: FinishedRun, _: Findings) -> AlternativeGuarantees | None:
    """Return the claim of a run, from which a report later computes the guarantees with other bounds on the belief.

    The result is None if the run claims no guarantee by noise on sums. It is also None if these guarantees would take
    too long to compute, as for sampled releases with the accountant `pld`.
    """
    guarantee = run.plan.guarantee
    if guarantee is None or guarantee.noise_multiplier is None:
        return None
    # The loss distribution of sampled releases takes seconds for each guarantee.
    slow = guarantee.accountant is Accountant.PLD and guarantee.claim.profile.gaussian_mu is None
    return None if slow else AlternativeGuarantees(guarantee.claim)


MOST_POINTS = 25  # largest number of coalition sizes for which epsilon is computed


@dataclass(frozen=True)
class GuaranteeAgainstAdversary:
    """The multiplier of the noise that an adversary does not know, and the epsilon against this adversary."""

    clients: int  # number of clients whose noise the adversary knows, including the insider; 0 for the server
    noise_multiplier: float  # noise multiplier of the noise that the adversary does not know
    epsilon: float  # epsilon against the adversary, at the delta and by the accountant of the guarantee


@dataclass(frozen=True)
class ColludersFinding:
    """Epsilon against coalitions of clients and against the server, and the noise that each of them does not know."""

    groups: tuple[GuaranteeAgainstAdversary, ...]  # one entry for each coalition size, in ascending order
    server: GuaranteeAgainstAdversary

    def to_json(self) -> dict[str, Any]:
        """Return this finding as a dict with the one key `colluders`, for `summary.json`."""
        return {"colluders": json_of(self)}


def measure_colluders(run: FinishedRun, _: Findings) -> ColludersFinding | None:
    """Return, for coalitions of clients and for the server, the noise that they do not know, and epsilon against them.

    None without a guarantee, or if the clients do not add the noise in shares.
    """
    plan = run.plan
    mechanism = plan.federation.mechanism
    # Noise inside a client's own training protects only its own records, so coalitions do not reduce it.
    if not plan.has_guarantee or mechanism.noise.origin is not NoiseOrigin.CLIENTS:
        return None
    most_colluders = plan.federation.clients - 1
    counts = np.unique(np.linspace(1, most_colluders, min(most_colluders, MOST_POINTS)).round().astype(int))
    groups = tuple(_left(plan, ThreatModel(colluders=int(count) - 1)) for count in counts)
    return ColludersFinding(groups, _left(plan, ThreatModel(Adversary.SERVER)))


def _left(plan: RunPlan, threat_model: ThreatModel) -> GuaranteeAgainstAdversary:
    guarantee = plan.guarantee
    mechanism = plan.federation.mechanism
    assert guarantee is not None, "what was not claimed does not shrink"
    claim = replace(guarantee.claim, events=mechanism.events(plan.federation.rounds, threat_model))
    epsilon = account(claim.profile, claim.accountant, claim.delta)
    return GuaranteeAgainstAdversary(
        threat_model.known_shares, effective_noise_multiplier(mechanism.noise, threat_model), epsilon
    )


@dataclass(frozen=True)
class AdaptiveClippingFinding:
    """The clipping norms of a run with adaptive clipping, in its first and last round, and its noise multipliers."""

    first_norm: float  # clipping norm of the first round
    last_norm: float  # median over trials of the clipping norm of the last round
    sum_noise_multiplier: float  # noise multiplier of the released sum of updates
    count_noise_multiplier: float  # noise multiplier of the released count of updates within the clipping norm
    noise_multiplier: float  # noise multiplier of both releases together

    def to_json(self) -> dict[str, Any]:
        """Return this finding as a dict with the one key `clipping`, for `summary.json`."""
        return {"clipping": json_of(self)}


def measure_clipping(run: FinishedRun, _: Findings) -> AdaptiveClippingFinding | None:
    """Return the clipping norms and noise multipliers of a run with adaptive clipping; None if the norm is fixed."""
    mechanism = run.plan.federation.mechanism
    rounds = run.tables.rounds
    if not isinstance(mechanism.clipping, AdaptiveClipping) or NORM_COLUMN not in rounds:
        return None
    last = rounds.loc[rounds["round"] == rounds["round"].max(), NORM_COLUMN]
    z = run.plan.effective_noise_multiplier
    threat_model = run.plan.federation.threat_model
    return AdaptiveClippingFinding(
        first_norm=mechanism.clipping_norm,
        last_norm=float(last.median()),
        sum_noise_multiplier=z,
        count_noise_multiplier=z * mechanism.clipping.bit_noise,
        noise_multiplier=mechanism.claimed_multiplier(threat_model),
    )
