"""Findings on the guarantee: its alternatives, colluding clients, adaptive clipping, and randomised records."""

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, assert_never

import numpy as np

from fl_audit.adjacency import Adjacency
from fl_audit.array_types import Floats
from fl_audit.data.randomizers import LaplacePixelation, LocalRandomizer, RandomisedBits, RandomisedEdges, pure_epsilon
from fl_audit.errors import InputError, require
from fl_audit.federation.findings import Findings, json_of
from fl_audit.federation.finished_run import FinishedRun, RunDescription
from fl_audit.federation.randomised_records import RecordGuaranteeEvents
from fl_audit.federation.run_tables import NORM_COLUMN
from fl_audit.mechanisms.contribution import AdaptiveClipping
from fl_audit.mechanisms.effective_noise import effective_noise_multiplier
from fl_audit.mechanisms.noises.base import NoiseOrigin
from fl_audit.mechanisms.threat_model import Adversary, ThreatModel
from fl_audit.privacy.accounting import Accountant, PrivacyProfile, account
from fl_audit.privacy.calibration import noise_multiplier_for
from fl_audit.privacy.claim import Claim
from fl_audit.privacy.events import RandomizedResponse, ReleaseEvent
from fl_audit.privacy.guarantee import Guarantee, derive_guarantee
from fl_audit.privacy.guarantee_line import GUARANTEE_NAMES, guarantee_values
from fl_audit.privacy.identifiability_bounds import response_advantage
from fl_audit.privacy.targets import BeliefTarget
from fl_audit.statistics.advantage import AdvantageInterval, clopper_pearson

_BOUNDS = (
    "noise_multiplier", "belief_bound", "belief_bound_fixed", "advantage_bound", "advantage_bound_exact", "rho_alpha",
)  # fmt: skip


@dataclass(frozen=True)
class GuaranteeFinding:
    """The claimed guarantee of a run, with its number of rounds and its sampling rate."""

    guarantee: Guarantee | None  # the guarantee; None if nothing was claimed
    rounds: int  # number of releases after the initial model
    # Probability with which a unit takes part in a round (for DP-SGD at the clients, a record in a local step).
    sampling_rate: float

    def to_json(self) -> dict[str, Any]:
        """Return this finding as JSON values in a dict with the one key `guarantee`, for `summary.json`.

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
    guarantee = run.facts.guarantee
    rate = run.facts.federation.mechanism.sampling_rate if guarantee is None else guarantee.sampling_rate
    return GuaranteeFinding(guarantee, run.facts.federation.rounds, rate)


# Belief bounds of the alternative guarantees.
BELIEFS = (0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 0.99)


@dataclass(frozen=True)
class BeliefBoundGuarantee:
    """A guarantee with a given bound on the posterior belief in D, and the noise multiplier that achieves it."""

    belief: float  # bound on the posterior belief in D, which is exceeded with probability at most delta
    epsilon: float  # epsilon of the guarantee, at the delta of the run
    noise_multiplier: float  # noise multiplier that achieves the guarantee


@dataclass(frozen=True)
class AlternativeGuaranteesInput:
    """The claim of a run, from which alternative guarantees with other bounds on the posterior belief are computed."""

    claim: Claim

    def to_json(self) -> dict[str, Any]:
        """Return an empty dict, since `summary.json` does not contain the alternative guarantees."""
        return {}

    @property
    def accountant(self) -> Accountant:
        """The accountant of the alternative guarantees: that of the run, or `rdp-classic` if the run uses `rdp`."""
        own = self.claim.accountant
        return Accountant.RDP_CLASSIC if own is Accountant.RDP else own

    @property
    def each(self) -> tuple[BeliefBoundGuarantee, ...]:
        """The alternative guarantees, ordered by increasing bound on the posterior belief.

        Bounds that no noise multiplier achieves are left out.
        """
        return _guarantees(replace(self.claim, accountant=self.accountant))


@lru_cache(maxsize=8)
def _guarantees(claim: Claim) -> tuple[BeliefBoundGuarantee, ...]:
    found = []
    for belief in BELIEFS:
        if belief <= claim.prior:
            continue
        try:
            guarantee = derive_guarantee(claim.with_noise(noise_multiplier_for(BeliefTarget(belief), claim)))
        except InputError:
            continue
        if guarantee.noise_multiplier is not None:
            found.append(BeliefBoundGuarantee(belief, guarantee.epsilon, guarantee.noise_multiplier))
    return tuple(found)


def measure_other_guarantees(run: FinishedRun, _: Findings) -> AlternativeGuaranteesInput | None:
    """Return the claim of a run, from which a report later computes alternative guarantees.

    None if the run claims no guarantee by Gaussian noise, or if computing the alternatives takes too long, as for
    sampled releases with accountant `pld`.
    """
    guarantee = run.facts.guarantee
    if guarantee is None or guarantee.noise_multiplier is None:
        return None
    # A loss distribution of sampled releases takes seconds for each guarantee.
    slow = guarantee.accountant is Accountant.PLD and guarantee.claim.profile.gaussian_mu is None
    return None if slow else AlternativeGuaranteesInput(guarantee.claim)


MOST_POINTS = 25  # largest number of coalition sizes for which epsilon is computed


@dataclass(frozen=True)
class GuaranteeAgainstAdversary:
    """The effective noise multiplier and epsilon against one adversary.

    The effective noise is the noise that this adversary does not know.
    """

    clients: int  # number of clients whose noise the adversary knows, including the insider; 0 for the server
    noise_multiplier: float  # noise multiplier of the noise that the adversary does not know
    epsilon: float  # epsilon against the adversary, at the delta and by the accountant of the guarantee


@dataclass(frozen=True)
class ColludersFinding:
    """The effective noise and epsilon against coalitions of 1 to m - 1 of the m clients, and against the server.

    The effective noise is the noise that the adversary does not know, since each client knows the noise that it added.
    """

    groups: tuple[GuaranteeAgainstAdversary, ...]  # one entry for each coalition size, in ascending order
    server: GuaranteeAgainstAdversary

    def to_json(self) -> dict[str, Any]:
        """Return this finding as JSON values in a dict with the one key `colluders`, for `summary.json`."""
        return {"colluders": json_of(self)}


def measure_colluders(run: FinishedRun, _: Findings) -> ColludersFinding | None:
    """Return the effective noise and epsilon against coalitions of clients and against the server.

    The effective noise is the noise that the adversary does not know. None without a guarantee, or if the clients do
    not add the noise in shares.
    """
    facts = run.facts
    mechanism = facts.federation.mechanism
    # Noise inside a client's own training protects its records alone: nothing is left of it or taken off it.
    if not facts.has_guarantee or mechanism.noise.origin is not NoiseOrigin.CLIENTS:
        return None
    most = facts.federation.clients - 1
    counts = np.unique(np.linspace(1, most, min(most, MOST_POINTS)).round().astype(int))
    groups = tuple(_left(facts, ThreatModel(colluders=int(count) - 1)) for count in counts)
    return ColludersFinding(groups, _left(facts, ThreatModel(Adversary.SERVER)))


def _left(facts: RunDescription, threat_model: ThreatModel) -> GuaranteeAgainstAdversary:
    """Return the effective noise multiplier and epsilon against the adversary of `threat_model`.

    The effective noise is the noise that this adversary does not know.
    """
    guarantee, mechanism = facts.guarantee, facts.federation.mechanism
    assert guarantee is not None, "what was not claimed does not shrink"
    claim = replace(guarantee.claim, events=mechanism.events(facts.federation.rounds, threat_model))
    epsilon = account(claim.profile, claim.accountant, claim.delta)
    return GuaranteeAgainstAdversary(
        threat_model.known_shares, effective_noise_multiplier(mechanism.noise, threat_model), epsilon
    )


@dataclass(frozen=True)
class AdaptiveClippingFinding:
    """The clipping norm of the first and last round, and the noise multipliers, of a run with adaptive clipping."""

    first_norm: float  # clipping norm of the first round
    last_norm: float  # median over trials of the clipping norm of the last round
    sum_noise_multiplier: float  # noise multiplier of the released sum of updates
    count_noise_multiplier: float  # noise multiplier of the released count of updates within the clipping norm
    noise_multiplier: float  # noise multiplier of both releases together

    def to_json(self) -> dict[str, Any]:
        """Return this finding as JSON values in a dict with the one key `clipping`, for `summary.json`."""
        return {"clipping": json_of(self)}


def measure_clipping(run: FinishedRun, _: Findings) -> AdaptiveClippingFinding | None:
    """Return the clipping norms and noise multipliers of a run with adaptive clipping; None if the norm is fixed."""
    mechanism, rounds = run.facts.federation.mechanism, run.tables.rounds
    if not isinstance(mechanism.clipping, AdaptiveClipping) or NORM_COLUMN not in rounds:
        return None
    last = rounds.loc[rounds["round"] == rounds["round"].max(), NORM_COLUMN]
    z, threat_model = run.facts.effective_noise_multiplier, run.facts.federation.threat_model
    return AdaptiveClippingFinding(
        first_norm=mechanism.clipping_norm,
        last_norm=float(last.median()),
        sum_noise_multiplier=z,
        count_noise_multiplier=z * mechanism.clipping.bit_noise,
        noise_multiplier=mechanism.claimed_multiplier(threat_model),
    )


ACCOUNTANT = "pure epsilon"  # accountant that adds the epsilons of independent releases, with delta 0
_COLUMNS = ("record_log_odds", "other_log_odds")


@dataclass(frozen=True)
class RecordPairLocalDP:
    """The local DP guarantee for telling one record from another: epsilon, allowed and measured advantage."""

    differing: int  # number of features in which the two records differ
    epsilon: float  # largest log-likelihood ratio between the two records, in nats
    advantage: float  # largest advantage TPR - FPR in telling the two records apart, given the randomised one
    is_exact: bool  # whether `advantage` is exact; otherwise it is an upper bound
    measured: AdvantageInterval | None  # measured advantage of the optimal test; None if no trials were drawn


@dataclass(frozen=True)
class LocalDPFinding:
    """The local DP guarantee of records that their owners randomise before the training.

    It has the epsilon of one feature, of all features together, and between any two records.
    """

    local_randomizer: LocalRandomizer  # the randomisation of the records
    epsilon: float  # epsilon of one unit (a bit, a pair of nodes, or a number of changed pixels), in nats
    counted: int  # number of units over which the paper on this randomizer composes
    counted_epsilon: float  # sum of their epsilons, in nats
    whole_epsilon: float  # epsilon between any two records, in nats
    # The guarantee for one record of the run and another record; None if there is no pair to compare.
    pair: RecordPairLocalDP | None

    def to_json(self) -> dict[str, Any]:
        """Return this finding as JSON values in a dict with the one key `record_guarantee`, for `summary.json`."""
        told = {"local_randomizer": self.local_randomizer.kind, "accountant": ACCOUNTANT, "delta": 0.0}
        return {"record_guarantee": json_of(self) | told | {"unit": unit_of(self.local_randomizer)}}


def unit_of(local_randomizer: LocalRandomizer) -> str:
    """Return a noun phrase for the unit that a local randomizer's epsilon protects, such as "feature"."""
    match local_randomizer:
        case RandomisedBits():
            return "feature"
        case RandomisedEdges():
            return "pair of nodes"
        case LaplacePixelation():
            changed = local_randomizer.neighbourhood
            return f"change of {changed} pixel{'s' * (changed != 1)}"
        case _:
            assert_never(local_randomizer)


def advantage_of(events: tuple[ReleaseEvent, ...]) -> float:
    """Return the largest membership advantage (total variation distance) that some releases allow; 0 without releases.

    For a single release of randomised bits the value is exact. Otherwise it is an upper bound from a pessimistic
    privacy loss distribution.
    """
    match events:
        case ():
            return 0.0
        case (RandomizedResponse(epsilon, count),):
            return response_advantage(epsilon, count)
        case _:
            return PrivacyProfile(events, Adjacency.REPLACE_RECORD).advantage()


def measured_advantage(of_first: Floats, of_second: Floats, confidence: float) -> AdvantageInterval:
    """Return the measured advantage TPR - FPR of the optimal test between two records, with a confidence interval.

    The test names the first record if the log-odds are above 0. TPR and FPR are the shares of trials with the first and
    with the second record in which the test names the first record.

    Parameters
    ----------
    of_first
        Log-odds of the first record against the second in trials with the first record, shape (trials,), at least one.
    of_second
        Log-odds of the first record against the second in as many trials with the second record, shape (trials,).
    confidence
        Confidence of the interval, above 0 and below 1. The intervals of TPR and FPR each have half of the error
        probability.

    Raises
    ------
    InputError
        If there is no trial, or the numbers of trials differ.
    """
    trials = len(of_first)
    alike = trials == len(of_second) and trials > 0
    require(alike, f"{trials} and {len(of_second)} log-odds: accepted are equally many")
    counts = [int(np.count_nonzero(log_odds > 0)) for log_odds in (of_first, of_second)]
    first, second = (clopper_pearson(count, trials, (1 + confidence) / 2) for count in counts)
    advantage = (counts[0] - counts[1]) / trials
    return AdvantageInterval(trials, advantage, first[0] - second[1], first[1] - second[0], confidence)


def measure_record_guarantee(run: FinishedRun, _: Findings) -> LocalDPFinding | None:
    """Return the local DP guarantee of the records of a run; None if the records are not randomised."""
    if (claim := run.facts.record_claim) is None:
        return None
    local_randomizer, shape = claim.local_randomizer, claim.shape
    return LocalDPFinding(
        local_randomizer=local_randomizer,
        epsilon=local_randomizer.epsilon,
        counted=_counted(claim),
        counted_epsilon=pure_epsilon(local_randomizer.counted_events(shape)),
        whole_epsilon=pure_epsilon(local_randomizer.whole_events(shape)),
        pair=None if claim.pair is None else _pair(claim, claim.pair, run),
    )


def _counted(claim: RecordGuaranteeEvents) -> int:
    """Return the number n of randomised values of a record, if its epsilon is n times that of one value.

    These are all bits of a record, all possible edges of a node, or all blocks of an image. Bernau et al. 2019 add up
    the epsilons of these values.
    """
    match claim.local_randomizer:
        case RandomisedBits():
            return math.prod(claim.shape)
        case RandomisedEdges():
            return claim.shape[-1] - 1
        case LaplacePixelation():
            return math.prod(claim.shape) // claim.local_randomizer.block**2
        case _:
            assert_never(claim.local_randomizer)


def measured_of_pair(run: FinishedRun, confidence: float) -> AdvantageInterval | None:
    """Return the measured advantage of the optimal test between two records; None if no trials were drawn.

    Parameters
    ----------
    run
        A finished run whose records are randomised.
    confidence
        Confidence of the interval, above 0 and below 1.
    """
    table = run.tables.trials
    if not all(column in table for column in _COLUMNS):
        return None
    of_first, of_second = (table[column].to_numpy(dtype=np.float64) for column in _COLUMNS)
    return measured_advantage(of_first, of_second, confidence)


def _pair(claim: RecordGuaranteeEvents, pair: tuple[ReleaseEvent, ...], run: FinishedRun) -> RecordPairLocalDP:
    assert claim.differing is not None, "a pair differs in some number of features, or in none"
    measured = measured_of_pair(run, run.facts.confidence)
    is_exact = isinstance(claim.local_randomizer, RandomisedBits)
    return RecordPairLocalDP(claim.differing, pure_epsilon(pair), advantage_of(pair), is_exact, measured)
