"""What each record is promised by itself, where owners randomise their records before anything is trained on them."""

import math
from dataclasses import asdict, dataclass
from typing import Any, assert_never

import numpy as np
from numpy.typing import NDArray

from fl_audit.adjacency import Adjacency
from fl_audit.data.randomisers import LaplacePixelation, RandomisedBits, RandomisedEdges, RecordRandomiser, pure_epsilon
from fl_audit.errors import require
from fl_audit.evidence.belief.advantage import clopper_pearson
from fl_audit.game.record_pair import RecordClaim
from fl_audit.privacy.events import RandomizedResponse, ReleaseEvent
from fl_audit.privacy.profile import PrivacyProfile
from fl_audit.privacy.randomised_response import response_advantage
from fl_audit.report.contents import Findings, RunContents
from fl_audit.report.finished_run import FinishedRun
from fl_audit.report.law_words import randomiser_text
from fl_audit.report.section import Entry, Section
from fl_audit.report.sections.promise import COMPUTED
from fl_audit.report.wording import number_text, percent, plural

ACCOUNTANT = "pure epsilon"
"""Sums the epsilons of independent releases; there is no delta."""

_COLUMNS = ("record_log_odds", "other_log_odds")


@dataclass(frozen=True)
class MeasuredAdvantage:
    """How well the optimal test told two records apart in the worlds of a run.

    Parameters
    ----------
    advantage
        Share of worlds in which it named the first record where this was randomised, less the share in which it named
        it where the other one was: from -1 to 1.
    low, high
        Interval from two Clopper-Pearson intervals, one for each share, that hold together.
    worlds
        Number of worlds.
    confidence
        Least probability with which the interval covers.
    """

    advantage: float
    low: float
    high: float
    worlds: int
    confidence: float


@dataclass(frozen=True)
class PairPromise:
    """What can be told of one record and another.

    Parameters
    ----------
    differing
        Number of features in which they differ.
    epsilon
        The largest log-odds, in nats.
    advantage
        The largest advantage of whoever sees the randomised record and knows both.
    is_exact
        Whether that is an equation, or an upper bound.
    measured
        What the optimal test achieved; None where nothing was drawn.
    """

    differing: int
    epsilon: float
    advantage: float
    is_exact: bool
    measured: MeasuredAdvantage | None


@dataclass(frozen=True)
class RecordPromise:
    """What each record is promised by itself.

    Parameters
    ----------
    randomiser
        What owners do to their records.
    epsilon
        Of one feature: a bit, a pair of nodes, or so many changed pixels, in nats.
    counted, counted_epsilon
        How many features the paper adds up, and the sum.
    whole_epsilon
        The largest log-odds of any two records.
    pair
        Of one record of the run and another; None where no other can be compared with it.
    """

    randomiser: RecordRandomiser
    epsilon: float
    counted: int
    counted_epsilon: float
    whole_epsilon: float
    pair: PairPromise | None

    def to_json(self) -> dict[str, Any]:
        """Return the entry `record_promise`."""
        told = {
            "randomiser": self.randomiser.kind,
            "accountant": ACCOUNTANT,
            "delta": 0.0,
            "epsilon": self.epsilon,
            "unit": _words(self.randomiser).one,
            "counted": self.counted,
            "counted_epsilon": self.counted_epsilon,
            "whole_epsilon": self.whole_epsilon,
            "pair": None if self.pair is None else asdict(self.pair),
        }
        return {"record_promise": told}


@dataclass(frozen=True)
class _Words:
    """How the report speaks of what a randomiser works on."""

    one: str
    differing: str
    counted: str
    whole: str


def _words(randomiser: RecordRandomiser) -> _Words:
    match randomiser:
        case RandomisedBits():
            return _Words("feature", "features", "all features", "records that differ in all features")
        case RandomisedEdges():
            whole = "graphs that differ in all pairs of nodes"
            return _Words("pair of nodes", "pairs of nodes", "all pairs of one node", whole)
        case LaplacePixelation():
            changed = plural(randomiser.neighbourhood, "pixel")
            return _Words(f"change of {changed}", "pixels", "all released values", "a black image and a white one")
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


def measured_advantage(
    of_first: NDArray[np.float64], of_second: NDArray[np.float64], confidence: float
) -> MeasuredAdvantage:
    """Return the advantage of the test that names the first record where its log-odds are above 0.

    That test is optimal: where the log-odds are 0 both records are as probable, and whatever it names there adds
    nothing to the difference of the two shares.

    Parameters
    ----------
    of_first, of_second
        Log-odds of the first record against the second, where the first, or the second, was randomised, (worlds,), at
        least one world.
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


def _measure(run: FinishedRun, _: Findings) -> RecordPromise | None:
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


def _sentence(numbers: RecordPromise, _: RunContents) -> str:
    one, what = _words(numbers.randomiser).one, randomiser_text(numbers.randomiser)
    own, whole = number_text(numbers.epsilon, 3), number_text(numbers.whole_epsilon, 3)
    return (
        f"Before anything was trained, every owner {what}, once. So whatever anybody sees later, evidence about one "
        f"{one} stays within a factor of e to the {own}, and about a whole record within e to the {whole}."
    )


def _entries(numbers: RecordPromise, _: RunContents) -> list[Entry]:
    words, independent = _words(numbers.randomiser), "draws of the owners are independent, and labels are not hidden"
    found = [
        Entry(f"Epsilon of one {words.one} (nats)", numbers.epsilon, ACCOUNTANT, COMPUTED,
              "chosen before the run", independent),
        Entry(f"Epsilon counted over {words.counted} (nats)", numbers.counted_epsilon, ACCOUNTANT, COMPUTED,
              f"{numbers.counted:,} times that of one, as Bernau et al. 2019 count", independent),
        Entry("Epsilon of any two records (nats)", numbers.whole_epsilon, ACCOUNTANT, COMPUTED,
              f"largest log-odds, of {words.whole}", independent),
    ]  # fmt: skip
    return found if numbers.pair is None else found + _pair_entries(numbers, numbers.pair, independent)


def _pair_entries(numbers: RecordPromise, pair: PairPromise, independent: str) -> list[Entry]:
    words, bound = _words(numbers.randomiser), "" if pair.is_exact else ", at most"
    between = f"between one record and another that differ in {pair.differing:,} {words.differing}"
    formula = "P(B > d/2) - P(B < d/2), B binomial over the d features that differ"
    method = formula if pair.is_exact else "total variation, from a pessimistic privacy loss distribution"
    found = [
        Entry(f"Epsilon of the pair{bound} (nats)", pair.epsilon, ACCOUNTANT, COMPUTED,
              f"largest log-odds, {between}", independent),
        Entry(f"Advantage on one randomised record{bound}", pair.advantage, ACCOUNTANT, COMPUTED,
              f"{method}; {between}", f"{independent}; both records are known"),
    ]  # fmt: skip
    if (measured := pair.measured) is None:
        return found
    interval = f"{number_text(measured.low, 3)} to {number_text(measured.high, 3)} at {percent(measured.confidence)}"
    return [
        *found,
        Entry("Advantage on one randomised record, measured", measured.advantage, ACCOUNTANT, interval,
              "share of worlds in which the log-odds named the record that was randomised, less the share in which "
              "they named it where the other one was; two Clopper-Pearson intervals",
              f"{plural(measured.worlds, 'world')}, each with draws of its own"),
    ]  # fmt: skip


def _console(numbers: RecordPromise, _: RunContents) -> list[tuple[str, str]]:
    words, randomiser = _words(numbers.randomiser), numbers.randomiser.kind
    own, counted, whole = (
        number_text(epsilon, 3) for epsilon in (numbers.epsilon, numbers.counted_epsilon, numbers.whole_epsilon)
    )
    text = (
        f"{randomiser}, epsilon {own} for one {words.one}; {counted} over {words.counted}, {whole} for any two records"
    )
    return [("Each record", text)]


RECORD_PROMISE = Section(
    numbers=RecordPromise,
    keys=("record_promise",),
    measure=_measure,
    heading="What each record is promised by itself",
    entries=_entries,
    sentence=_sentence,
    console=_console,
)
