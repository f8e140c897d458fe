"""What each record is promised by itself, where owners randomise their records before anything is trained on them."""

import math
from dataclasses import dataclass
from typing import Any, assert_never

import numpy as np

from fl_audit.adjacency import Adjacency
from fl_audit.arrays import Floats
from fl_audit.data.randomisers import LaplacePixelation, RandomisedBits, RandomisedEdges, RecordRandomiser, pure_epsilon
from fl_audit.errors import require
from fl_audit.evidence.belief.advantage import clopper_pearson
from fl_audit.evidence.findings.found import Findings, json_of
from fl_audit.evidence.finished_run import FinishedRun
from fl_audit.game.randomised import RecordClaim
from fl_audit.privacy.events import RandomizedResponse, ReleaseEvent
from fl_audit.privacy.profile import PrivacyProfile
from fl_audit.privacy.scores import response_advantage

ACCOUNTANT = "pure epsilon"  # sums the epsilons of independent releases; there is no delta


_COLUMNS = ("record_log_odds", "other_log_odds")


@dataclass(frozen=True)
class MeasuredAdvantage:
    """How well the optimal test told two records apart in the worlds of a run."""

    # Share of worlds in which it named the first record where this was randomised, less the share in which it named it
    # where the other one was: from -1 to 1.
    advantage: float
    # `low`, `high`: interval from two Clopper-Pearson intervals, one for each share, that hold together.
    low: float
    high: float
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
    # `counted`, `counted_epsilon`: how many features the paper adds up, and the sum.
    counted: int
    counted_epsilon: float
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
    require(
        worlds == len(of_second) and worlds > 0, f"{worlds} and {len(of_second)} log-odds: accepted are equally many"
    )
    counts = [int(np.count_nonzero(log_odds > 0)) for log_odds in (of_first, of_second)]
    first, second = (clopper_pearson(count, worlds, (1 + confidence) / 2) for count in counts)
    advantage = (counts[0] - counts[1]) / worlds
    return MeasuredAdvantage(advantage, first[0] - second[1], first[1] - second[0], worlds, confidence)


def measure_record_promise(run: FinishedRun, _: Findings) -> RecordPromise | None:
    """Return what each record is promised by itself; None where records are not randomised."""
    claim = run.facts.record_claim
    if claim is None:
        return None
    counted = claim.randomiser.counted_events(claim.shape)
    return RecordPromise(
        randomiser=claim.randomiser,
        epsilon=claim.randomiser.epsilon,
        counted=_counted(claim),
        counted_epsilon=pure_epsilon(counted),
        whole_epsilon=pure_epsilon(claim.randomiser.whole_events(claim.shape)),
        pair=None if claim.pair is None else _pair(claim, run),
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


def _pair(claim: RecordClaim, run: FinishedRun) -> PairPromise:
    assert claim.pair is not None, "asked only where there is a pair"
    assert claim.differing is not None, "a pair differs in some number of features, or in none"
    table, measured = run.tables.worlds, None
    if all(column in table for column in _COLUMNS):
        log_odds = [table[column].to_numpy(dtype=np.float64) for column in _COLUMNS]
        measured = measured_advantage(log_odds[0], log_odds[1], run.facts.confidence)
    return PairPromise(
        differing=claim.differing,
        epsilon=pure_epsilon(claim.pair),
        advantage=advantage_of(claim.pair),
        is_exact=isinstance(claim.randomiser, RandomisedBits),
        measured=measured,
    )
