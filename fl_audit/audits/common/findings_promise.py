"""The promise: what it stands for, what others would cost, what becomes of it, and what each record has by itself."""

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, assert_never

import numpy as np

from fl_audit.adjacency import Adjacency
from fl_audit.arrays import Floats
from fl_audit.data.randomisers import LaplacePixelation, RandomisedBits, RandomisedEdges, RecordRandomiser, pure_epsilon
from fl_audit.errors import InputError, require
from fl_audit.federation.findings import Findings, json_of
from fl_audit.federation.finished_run import FinishedRun, RunFacts
from fl_audit.federation.randomised import RecordClaim
from fl_audit.federation.run_tables import NORM_COLUMN
from fl_audit.mechanisms.contribution import AdaptiveClipping
from fl_audit.mechanisms.noise import InsideTraining, effective_noise_multiplier
from fl_audit.mechanisms.standpoint import Place, Standpoint
from fl_audit.privacy.accounting import Accountant, PrivacyProfile, account
from fl_audit.privacy.calibration import noise_multiplier_for
from fl_audit.privacy.claim import Claim
from fl_audit.privacy.events import RandomizedResponse, ReleaseEvent
from fl_audit.privacy.guarantee import Guarantee, guarantee
from fl_audit.privacy.scores import response_advantage
from fl_audit.privacy.targets import BeliefTarget
from fl_audit.statistics.advantage import clopper_pearson

_PROMISED = (
    "epsilon", "delta", "noise_multiplier", "belief_bound", "belief_bound_fixed", "advantage_bound",
    "advantage_bound_exact", "rho_alpha", "accountant", "adjacency",
)  # fmt: skip


@dataclass(frozen=True)
class PromiseNumbers:
    """What was promised."""

    guarantee: Guarantee | None  # the promise; None where nothing was promised
    rounds: int  # k, number of releases after the initial model
    # Probability with which a unit takes part in a round, or a record in a step of its client's private training.
    sampling_rate: float

    def to_json(self) -> dict[str, Any]:
        """Return the entry `guarantee`; what was not promised is None."""
        promise = self.guarantee
        promised = {name: None if promise is None else getattr(promise, name) for name in _PROMISED}
        return {"guarantee": json_of(promised | {"rounds": self.rounds, "sampling_rate": self.sampling_rate})}


def measure_promise(run: FinishedRun, _: Findings) -> PromiseNumbers:
    """Return what was promised."""
    promise = run.facts.guarantee
    rate = run.facts.game.law.sampling_rate if promise is None else promise.sampling_rate
    return PromiseNumbers(promise, run.facts.game.rounds, rate)


BELIEFS = (0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 0.99)


@dataclass(frozen=True)
class OtherPromise:
    """What one promise takes."""

    belief: float  # nobody becomes surer than this, but for a chance of delta
    epsilon: float  # what it amounts to at the delta of the run
    noise_multiplier: float  # the noise that keeps it


@dataclass(frozen=True)
class OtherPromises:
    """What is promised, of which others are looked at when the report is drawn."""

    claim: Claim

    def to_json(self) -> dict[str, Any]:
        """Return no entry: all of it follows from the promise."""
        return {}

    @property
    def accountant(self) -> Accountant:
        """Who accounts for the other promises: another where the run's own accountant bounds no belief."""
        own = self.claim.accountant
        return Accountant.RDP_CLASSIC if own is Accountant.RDP else own

    @property
    def each(self) -> tuple[OtherPromise, ...]:
        """The promises that can be kept by noise, the surest insider last."""
        return _promises(replace(self.claim, accountant=self.accountant))


@lru_cache(maxsize=8)
def _promises(claim: Claim) -> tuple[OtherPromise, ...]:
    found = []
    for belief in BELIEFS:
        if belief <= claim.prior:
            continue
        try:
            promise = guarantee(claim.with_noise(noise_multiplier_for(BeliefTarget(belief), claim)))
        except InputError:
            continue
        if promise.noise_multiplier is not None:
            found.append(OtherPromise(belief, promise.epsilon, promise.noise_multiplier))
    return tuple(found)


def measure_other_promises(run: FinishedRun, _: Findings) -> OtherPromises | None:
    """Return the promise whose alternatives can be looked at; None where that takes too long."""
    promise = run.facts.guarantee
    if promise is None or promise.noise_multiplier is None:
        return None
    # A loss distribution of sampled releases takes seconds for each promise.
    slow = promise.accountant is Accountant.PLD and promise.claim.profile.gaussian_mu is None
    return None if slow else OtherPromises(promise.claim)


MOST_POINTS = 25  # with more clients than this, epsilon is worked out for so many numbers of them


@dataclass(frozen=True)
class Left:
    """What is left of noise and promise against one adversary."""

    clients: int  # clients who put their noise together, the insider among them; 0 for the server, which knows none
    noise_multiplier: float  # the noise multiplier that it faces
    epsilon: float  # the epsilon that remains, at the delta of the promise and by its accountant


@dataclass(frozen=True)
class ColludersNumbers:
    """What is left against 1 to m - 1 clients, and against the server."""

    groups: tuple[Left, ...]
    server: Left

    def to_json(self) -> dict[str, Any]:
        """Return the entry `colluders`."""
        return {"colluders": json_of(self)}


def measure_colluders(run: FinishedRun, _: Findings) -> ColludersNumbers | None:
    """Return what colluders leave of the noise; None where clients add none."""
    facts = run.facts
    law = facts.game.law
    # Noise inside a client's own training protects its records alone: nothing is left of it or taken off it.
    if not facts.has_promise or not law.clients_add_noise or isinstance(law.noise, InsideTraining):
        return None
    most = facts.game.clients - 1
    counts = np.unique(np.linspace(1, most, min(most, MOST_POINTS)).round().astype(int))
    groups = tuple(_left(facts, Standpoint(colluders=int(count) - 1)) for count in counts)
    return ColludersNumbers(groups, _left(facts, Standpoint(Place.SERVER)))


def _left(facts: RunFacts, standpoint: Standpoint) -> Left:
    """Return what is left against whoever looks from a standpoint."""
    promise, law = facts.guarantee, facts.game.law
    assert promise is not None, "what was not promised does not shrink"
    claim = replace(promise.claim, events=law.events(facts.game.rounds, standpoint))
    epsilon = account(claim.profile, claim.accountant, claim.delta)
    return Left(standpoint.known_shares, effective_noise_multiplier(law.noise, standpoint), epsilon)


@dataclass(frozen=True)
class ClippingNumbers:
    """What adaptive clipping did."""

    first_norm: float  # norm of the first round
    last_norm: float  # median over worlds of the norm of the last one
    sum_noise_multiplier: float  # of the sum of updates
    count_noise_multiplier: float  # of the count of updates within the norm
    noise_multiplier: float  # of both releases together

    def to_json(self) -> dict[str, Any]:
        """Return the entry `clipping`."""
        return {"clipping": json_of(self)}


def measure_clipping(run: FinishedRun, _: Findings) -> ClippingNumbers | None:
    """Return what adaptive clipping did; None where the norm is fixed."""
    law, rounds = run.facts.game.law, run.tables.rounds
    if not isinstance(law.clipping, AdaptiveClipping) or NORM_COLUMN not in rounds:
        return None
    last = rounds.loc[rounds["round"] == rounds["round"].max(), NORM_COLUMN]
    z, standpoint = run.facts.effective_noise_multiplier, run.facts.game.standpoint
    return ClippingNumbers(
        first_norm=law.clipping_norm,
        last_norm=float(last.median()),
        sum_noise_multiplier=z,
        count_noise_multiplier=z * law.clipping.bit_noise,
        noise_multiplier=law.promised_multiplier(standpoint),
    )


ACCOUNTANT = "pure epsilon"  # sums the epsilons of independent releases; there is no delta
_COLUMNS = ("record_log_odds", "other_log_odds")


@dataclass(frozen=True)
class MeasuredAdvantage:
    """How well the optimal test told two records apart in the worlds of a run."""

    # Share of worlds in which it named the first record where this was randomised, less the share in which it named it
    # where the other one was: from -1 to 1.
    advantage: float
    low: float  # lower end of its interval, from two Clopper-Pearson intervals, one for each share
    high: float  # its upper end
    worlds: int  # number of worlds
    confidence: float  # least probability with which the interval covers


@dataclass(frozen=True)
class PairPromise:
    """What can be told of one record and another."""

    differing: int  # number of features in which they differ
    epsilon: float  # the largest log-odds, in nats
    advantage: float  # the largest advantage of whoever sees the randomised record and knows both
    is_exact: bool  # whether that is an equation, or an upper bound
    measured: MeasuredAdvantage | None  # what the optimal test achieved; None where nothing was drawn


@dataclass(frozen=True)
class RecordPromise:
    """What each record is promised by itself."""

    randomiser: RecordRandomiser  # what owners do to their records
    epsilon: float  # of one feature: a bit, a pair of nodes, or so many changed pixels, in nats
    counted: int  # how many features the paper adds up
    counted_epsilon: float  # the sum of their epsilons
    whole_epsilon: float  # the largest log-odds of any two records
    pair: PairPromise | None  # of one record of the run and another; None where no other can be compared with it

    def to_json(self) -> dict[str, Any]:
        """Return the entry `record_promise`."""
        told = {"randomiser": self.randomiser.kind, "accountant": ACCOUNTANT, "delta": 0.0}
        return {"record_promise": json_of(self) | told | {"unit": unit_of(self.randomiser)}}


def unit_of(randomiser: RecordRandomiser) -> str:
    """Return the name of what one epsilon of a randomiser is about."""
    match randomiser:
        case RandomisedBits():
            return "feature"
        case RandomisedEdges():
            return "pair of nodes"
        case LaplacePixelation():
            changed = randomiser.neighbourhood
            return f"change of {changed} pixel{'s' * (changed != 1)}"
        case _:
            assert_never(randomiser)


def advantage_of(events: tuple[ReleaseEvent, ...]) -> float:
    """Return the largest advantage of whoever sees some releases, the total variation; 0 of no release.

    That of randomised bits is a closed form. Others come from a pessimistic privacy loss distribution, and are never
    too small.
    """
    match events:
        case ():
            return 0.0
        case (RandomizedResponse(epsilon, count),):
            return response_advantage(epsilon, count)
        case _:
            return PrivacyProfile(events, Adjacency.REPLACE_RECORD).advantage()


def measured_advantage(of_first: Floats, of_second: Floats, confidence: float) -> MeasuredAdvantage:
    """Return the advantage of the test that names the first record where its log-odds are above 0.

    That test is optimal: where the log-odds are 0 both records are as probable, and whatever it names there adds
    nothing to the difference of the two shares.

    Parameters
    ----------
    of_first, of_second
        Log-odds of the first record against the second in worlds where the first was randomised, and in as many where
        the second was, (worlds,), at least one.
    confidence
        Above 0 and below 1. Either share has an interval that misses with half of the rest.

    Raises
    ------
    InputError
        If there is no world, or not equally many of both.
    """
    worlds = len(of_first)
    alike = worlds == len(of_second) and worlds > 0
    require(alike, f"{worlds} and {len(of_second)} log-odds: accepted are equally many")
    counts = [int(np.count_nonzero(log_odds > 0)) for log_odds in (of_first, of_second)]
    first, second = (clopper_pearson(count, worlds, (1 + confidence) / 2) for count in counts)
    advantage = (counts[0] - counts[1]) / worlds
    return MeasuredAdvantage(advantage, first[0] - second[1], first[1] - second[0], worlds, confidence)


def measure_record_promise(run: FinishedRun, _: Findings) -> RecordPromise | None:
    """Return what each record is promised by itself; None where records are not randomised."""
    if (claim := run.facts.record_claim) is None:
        return None
    randomiser, shape = claim.randomiser, claim.shape
    return RecordPromise(
        randomiser=randomiser,
        epsilon=randomiser.epsilon,
        counted=_counted(claim),
        counted_epsilon=pure_epsilon(randomiser.counted_events(shape)),
        whole_epsilon=pure_epsilon(randomiser.whole_events(shape)),
        pair=None if claim.pair is None else _pair(claim, claim.pair, run),
    )


def _counted(claim: RecordClaim) -> int:
    """Return how many releases the paper adds up, where each has an epsilon or none has."""
    match claim.randomiser:
        case RandomisedBits():
            return math.prod(claim.shape)
        case RandomisedEdges():
            return claim.shape[-1] - 1
        case LaplacePixelation():
            return math.prod(claim.shape) // claim.randomiser.block**2
        case _:
            assert_never(claim.randomiser)


def measured_of_pair(run: FinishedRun, confidence: float) -> MeasuredAdvantage | None:
    """Return what the optimal test achieved in a run, at any confidence; None where nothing was drawn.

    Parameters
    ----------
    run, confidence
        A finished run whose records are randomised, and the confidence, above 0 and below 1.
    """
    table = run.tables.worlds
    if not all(column in table for column in _COLUMNS):
        return None
    of_first, of_second = (table[column].to_numpy(dtype=np.float64) for column in _COLUMNS)
    return measured_advantage(of_first, of_second, confidence)


def _pair(claim: RecordClaim, pair: tuple[ReleaseEvent, ...], run: FinishedRun) -> PairPromise:
    assert claim.differing is not None, "a pair differs in some number of features, or in none"
    measured = measured_of_pair(run, run.facts.confidence)
    is_exact = isinstance(claim.randomiser, RandomisedBits)
    return PairPromise(claim.differing, pure_epsilon(pair), advantage_of(pair), is_exact, measured)
