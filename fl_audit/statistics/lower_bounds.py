"""Compute lower bounds on epsilon from the scores of any attack, with their assumptions and largest possible values.

A higher score means that D was used more likely; log-odds are the best scores. The bounds are on the epsilon of
(epsilon, delta)-DP in both directions (D against D' and D' against D) at the given delta. Scores must be independent,
and identically distributed within each group. All methods except `gaussian-shift` choose a threshold and a direction on
a fifth of the scores and measure on the others (`score_split`). These methods depend only on ranks and accept infinite
scores.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, assert_never

import numpy as np
from numpy.typing import NDArray

from fl_audit.array_types import Floats, finite, in_one_axis
from fl_audit.errors import InputError, require
from fl_audit.html_tables import html_table
from fl_audit.privacy.gaussian import gdp_epsilon
from fl_audit.statistics.lower_bound_methods import BoundMethod, ScoreDistribution
from fl_audit.statistics.lower_bound_warnings import gaussian_tradeoff_warnings, normality_warnings
from fl_audit.statistics.score_split import ScoreSplit, number_of_splits, number_that_chooses, split_scores
from fl_audit.statistics.shift_bound import detectable_shift, gaussian_shift
from fl_audit.statistics.threshold_bounds import CountsAboveThreshold, bound_of, chosen_rule
from fl_audit.value_checks import choice, require_number

_DETECTION_POWER = 0.9
_NEAR_CEILING = 0.95
_CEILING = "the largest epsilon that this method certifies with so many scores, however well they separate"
_DETECTABLE = (
    "the smallest true epsilon that would be certified to exceed 0 with probability 0.9; this method has no ceiling"
)


@dataclass(frozen=True)
class LowerBound:
    """A lower bound on epsilon, with its confidence, its assumption, its limit of detection and warnings."""

    epsilon: float  # the bound, at least 0; 0 certifies nothing
    method: BoundMethod  # method of the bound
    delta: float  # delta at which epsilon is bounded
    # Smallest probability with which the true epsilon is at or above `epsilon` if the assumption holds.
    confidence: float
    assumption: str  # assumption of the bound, in words
    # The **ceiling** of the method: the bound of perfectly separated scores. `gaussian-shift` has no ceiling; there it
    # is the smallest true epsilon that would be certified to exceed 0 with probability 0.9, infinite if there is none.
    limit_of_detection: float
    limit_meaning: str  # meaning of `limit_of_detection` in words
    members: int  # number of scores of trials with D, including those that chose the threshold
    nonmembers: int  # number of scores of trials with D', including those that chose the threshold
    warnings: tuple[str, ...] = ()  # warnings on the assumption or the bound, in words; may be empty

    def __str__(self) -> str:
        return (
            f"epsilon at least {self.epsilon:.4g} at delta {self.delta:g} with confidence {self.confidence:g}, by "
            f"{self.method} from {self.members:,} and {self.nonmembers:,} scores; limit of detection "
            f"{self.limit_of_detection:.4g}"
        )

    def _repr_html_(self) -> str:
        rows = [
            ("epsilon at least", f"{self.epsilon:.4g}"),
            ("at delta", f"{self.delta:g}"),
            ("confidence", f"{self.confidence:g}"),
            ("limit of detection", f"{self.limit_of_detection:.4g}"),
            ("scores of members and non-members", f"{self.members:,} and {self.nonmembers:,}"),
        ]
        return html_table(rows, f"Lower bound on epsilon, {self.method}", (self.assumption, *self.warnings))


def bound_json(bound: LowerBound) -> dict[str, Any]:
    """Return a lower bound as a dictionary of JSON values; infinite numbers are None."""
    head = {"epsilon": finite(bound.epsilon), "delta": bound.delta, "method": str(bound.method)}
    limit = {"limit_of_detection": finite(bound.limit_of_detection), "limit_meaning": bound.limit_meaning}
    conditions = {"assumption": bound.assumption, "warnings": list(bound.warnings)}
    return head | {"confidence": bound.confidence} | limit | conditions


def epsilon_lower_bound(
    member_scores: NDArray[np.floating],
    nonmember_scores: NDArray[np.floating],
    delta: float,
    confidence: float = 0.95,
    method: BoundMethod = BoundMethod.CLOPPER_PEARSON,
) -> LowerBound:
    """Return a lower bound on epsilon at delta from the scores of an attack on trials with D and with D'.

    If a group has a single score, the bound is 0.

    Parameters
    ----------
    member_scores
        Scores of the trials with D, shape (n1,), at least one, no NaN. All methods except `gaussian-shift` accept
        infinite scores.
    nonmember_scores
        Scores of the trials with D', shape (n0,), under the same conditions.
    delta
        Delta at which epsilon is bounded, at least 0 and below 1. `gdp` and `gaussian-shift` refuse 0, because the
        epsilon of a Gaussian mechanism is infinite there.
    confidence
        Confidence of the bound, above 0.5 and below 1.
    method
        Method that computes the bound.

    Raises
    ------
    InputError
        If a number is out of its range, a group is empty, or a score is not a number. `gaussian-shift` also raises it
        for infinite scores, and if each group is constant but their values differ.

    Examples
    --------
    >>> scores = np.arange(100.0)
    >>> round(epsilon_lower_bound(scores + 100, scores, 0.0).epsilon, 2)
    3.05
    >>> epsilon_lower_bound(scores, scores, 0.0).epsilon
    0.0
    """
    return _bound(choice(BoundMethod, "method", method), _splits_of(member_scores, nonmember_scores), delta, confidence)


def _bound(method: BoundMethod, splits: "_Splits", delta: float, confidence: float) -> LowerBound:
    require_number("delta is", delta, "numbers from 0 to below 1")
    require_number("confidence is", confidence, "numbers above 0.5 and below 1")
    members = splits.members
    nonmembers = splits.nonmembers
    level = 1 - confidence
    if method.needs is not ScoreDistribution.ANY:
        reason = "at 0 the epsilon of a Gaussian mechanism is infinite"
        require(delta > 0, f"delta is {delta}: accepted by {method} are numbers above 0 and below 1; {reason}")
    match method:
        case BoundMethod.CLOPPER_PEARSON | BoundMethod.ORDER_STATISTIC:
            epsilon = _by_threshold(method, splits, delta, level)
            warnings = tuple[str, ...]()
        case BoundMethod.GDP:
            epsilon = _by_threshold(method, splits, delta, level)
            warnings = gaussian_tradeoff_warnings(members, nonmembers)
        case BoundMethod.GAUSSIAN_SHIFT:
            epsilon = gdp_epsilon(delta, gaussian_shift(members, nonmembers, confidence).low)
            warnings = normality_warnings(members, nonmembers)
        case _:
            assert_never(method)
    n1 = int(members.size)
    n0 = int(nonmembers.size)
    limit = bound_limit(method, n1, n0, delta, confidence)
    meaning = _DETECTABLE if method is BoundMethod.GAUSSIAN_SHIFT else _CEILING
    warnings += _reach(method, epsilon, limit, min(n1, n0))
    return LowerBound(epsilon, method, delta, confidence, method.assumption, limit, meaning, n1, n0, warnings)


def all_bounds(
    member_scores: Floats, nonmember_scores: Floats, delta: float, confidence: float, distribution: ScoreDistribution
) -> tuple[LowerBound, ...]:
    """Return the lower bounds on epsilon of all methods that are valid for the known distribution of the scores.

    They are in the order of `BoundMethod`. `gdp` and `gaussian-shift` are left out at delta 0, where the epsilon of a
    Gaussian mechanism is infinite. `gaussian-shift` is also left out if it does not accept the scores.

    Parameters
    ----------
    member_scores
        Scores of the trials with D, shape (n1,), at least one, no NaN.
    nonmember_scores
        Scores of the trials with D', shape (n0,), at least one, no NaN.
    delta
        Delta at which epsilon is bounded, at least 0 and below 1.
    confidence
        Confidence of each bound, above 0.5 and below 1.
    distribution
        What is known about the distribution of the scores.

    Raises
    ------
    InputError
        In the cases of `epsilon_lower_bound`. There is no error if `gaussian-shift` alone does not accept the scores.
    """
    methods = [
        method
        for method in BoundMethod
        if method.is_valid_under(distribution) and (delta > 0 or method.needs is ScoreDistribution.ANY)
    ]
    bounds, refused = _accepted(methods, _splits_of(member_scores, nonmember_scores), delta, confidence)
    for method, error in refused.items():
        if method is not BoundMethod.GAUSSIAN_SHIFT:
            raise error
    return bounds


def applicable_bounds(
    member_scores: NDArray[np.floating], nonmember_scores: NDArray[np.floating], delta: float, confidence: float
) -> tuple[LowerBound, ...]:
    """Return the bounds of all methods that accept these scores, even if their assumptions may not hold.

    Parameters
    ----------
    member_scores
        Scores of the trials with D, shape (n1,), at least one, no NaN.
    nonmember_scores
        Scores of the trials with D', shape (n0,), at least one, no NaN.
    delta
        Delta at which epsilon is bounded, at least 0 and below 1.
    confidence
        Confidence of each bound, above 0.5 and below 1.

    Raises
    ------
    InputError
        If no method accepts these scores.
    """
    bounds, refused = _accepted(BoundMethod, _splits_of(member_scores, nonmember_scores), delta, confidence)
    if not bounds:
        first = next(iter(refused.values()))
        raise first
    return bounds


def _accepted(
    methods: Iterable[BoundMethod], splits: "_Splits", delta: float, confidence: float
) -> tuple[tuple[LowerBound, ...], dict[BoundMethod, InputError]]:
    """Return the bounds of the methods that accept the scores, and the errors of the other methods."""
    bounds = []
    refused = {}
    for method in methods:
        try:
            bounds.append(_bound(method, splits, delta, confidence))
        except InputError as error:
            refused[method] = error
    return tuple(bounds), refused


@lru_cache(maxsize=1024)
def bound_limit(method: BoundMethod, members: int, nonmembers: int, delta: float, confidence: float) -> float:
    """Return the largest lower bound on epsilon that a method can give for the given numbers of scores.

    The method `gaussian-shift` has no largest bound. For it, the result is the smallest true epsilon at which its lower
    bound exceeds 0 with probability 0.9.

    Parameters
    ----------
    method
        Method that computes the bound.
    members
        Number of scores of trials with D, at least 1.
    nonmembers
        Number of scores of trials with D', at least 1.
    delta
        Delta at which epsilon is bounded, at least 0 and below 1; above 0 for `gdp` and `gaussian-shift`.
    confidence
        Confidence of the bound, above 0.5 and below 1.
    """
    level = 1 - confidence
    if method is BoundMethod.GAUSSIAN_SHIFT:
        return gdp_epsilon(delta, detectable_shift(members, nonmembers, 0.0, level, _DETECTION_POWER))
    if min(members, nonmembers) < 2:
        return 0.0
    n1, n0 = (n - number_that_chooses(n) for n in (members, nonmembers))
    perfect = (CountsAboveThreshold(n1, n1, 0, n0), CountsAboveThreshold(n0, n0, 0, n1))
    return max(bound_of(method, counts, delta, level) for counts in perfect)


def _checked(scores: NDArray[np.floating], group: str) -> Floats:
    """Return scores as float64 of one axis; raise `InputError` if there are none or one is NaN."""
    array = np.asarray(in_one_axis(scores), dtype=np.float64)
    require(array.ndim == 1, f"scores of {group} have {array.ndim} axes: accepted is one axis")
    require(array.size > 0, f"scores of {group} are empty: accepted is at least one score")
    wrong = np.flatnonzero(np.isnan(array))
    if wrong.size:
        require(False, f"score {wrong[0]} of {group} is nan: accepted are numbers")
    return array


@dataclass(frozen=True, eq=False)
class _Splits:
    """The scores of members and nonmembers, and their random splits; all bound methods use the same splits."""

    members: Floats
    nonmembers: Floats
    of: Callable[[bool], list[ScoreSplit]]  # splits, given whether equal scores get different ranks


def _splits_of(member_scores: NDArray[np.floating], nonmember_scores: NDArray[np.floating]) -> _Splits:
    """Return the checked scores with their random splits.

    One part of a split chooses a threshold, and the other part measures its error rates.
    """
    members = _checked(member_scores, "members")
    nonmembers = _checked(nonmember_scores, "nonmembers")

    @lru_cache
    def of(break_ties: bool) -> list[ScoreSplit]:
        numbers = range(number_of_splits(members, nonmembers))
        return [split_scores(members, nonmembers, break_ties, number) for number in numbers]

    return _Splits(members, nonmembers, of)


def _by_threshold(method: BoundMethod, scores: _Splits, delta: float, level: float) -> float:
    """Return the median of a bound over random splits; 0 if a group has one score, or all scores are equal."""
    if min(scores.members.size, scores.nonmembers.size) < 2:
        return 0.0
    splits = scores.of(method is BoundMethod.ORDER_STATISTIC)
    if splits[0].values < 2:
        return 0.0
    return float(
        np.median([bound_of(method, chosen_rule(method, split, delta, level), delta, level) for split in splits])
    )


def _reach(method: BoundMethod, epsilon: float, limit: float, fewest: int) -> tuple[str, ...]:
    """Return a warning, alone in a tuple, if the bound is limited by the number of scores; otherwise ().

    `limit` is the largest bound that these numbers of scores can give, and `fewest` the size of the smaller group.
    """
    if fewest < 2:
        return ("a group has a single score: nothing can be certified",)
    if method is BoundMethod.GAUSSIAN_SHIFT:
        return ()
    if limit == 0:
        return ("too few scores: nothing could be certified even if they separated perfectly",)
    if math.isfinite(limit) and epsilon >= _NEAR_CEILING * limit:
        return (f"the bound is at its ceiling {limit:.3g}: more scores may certify more",)
    return ()
