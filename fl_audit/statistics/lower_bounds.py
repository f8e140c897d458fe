"""Compute lower bounds on epsilon from the scores of any attack, each with its assumption and its largest value.

A higher score means that D was used more likely; log-odds are the best scores. The bounds are on the epsilon of
(epsilon, delta)-DP in both directions (D against D' and D' against D) at the given delta. Scores must be independent,
and identically distributed within each group. All methods except `gaussian-shift` choose a threshold and a direction on
a fifth of the scores and measure on the others (`score_split`). They depend only on ranks and accept infinite scores.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, assert_never

import numpy as np
import scipy
from numpy.typing import NDArray
from scipy.special import ndtri

from fl_audit.array_types import Floats, finite, in_one_axis
from fl_audit.errors import InputError, choice, require, require_number
from fl_audit.html_tables import html_table
from fl_audit.privacy.gaussian import gdp_epsilon
from fl_audit.statistics.lower_bound_methods import BoundMethod, ScoreDistribution
from fl_audit.statistics.score_split import ScoreSplit, number_of_splits, number_that_chooses, split_scores
from fl_audit.statistics.shift_bound import detectable_shift, gaussian_shift
from fl_audit.statistics.threshold_bounds import Counts, bound_of, chosen_rule

_DETECTION_POWER = 0.9
_NEAR_CEILING = 0.95
# Approximate probability of each warning about continuous scores if the assumption holds. Warnings do not change a
# bound, and a bound without warnings may still err.
_FALSE_ALARM = 0.001
_LEAST, _LEAST_COUNT, _SHAPIRO_LIMIT = 8, 5, 5000
_DISTINCT_SHARE, _TAIL = 0.9, 0.1
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
    # Smallest probability with which the true epsilon is at or above `epsilon` if the assumption holds; for `bayes` the
    # posterior probability.
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
        """Return the bound as an HTML table, which a notebook shows."""
        rows = [
            ("epsilon at least", f"{self.epsilon:.4g}"),
            ("at delta", f"{self.delta:g}"),
            ("confidence" if self.method.has_confidence else "credibility", f"{self.confidence:g}"),
            ("limit of detection", f"{self.limit_of_detection:.4g}"),
            ("scores of members and non-members", f"{self.members:,} and {self.nonmembers:,}"),
        ]
        return html_table(rows, f"Lower bound on epsilon, {self.method}", (self.assumption, *self.warnings))


def bound_json(bound: LowerBound) -> dict[str, Any]:
    """Return a lower bound as a dictionary of JSON values; infinite numbers are None."""
    head = {"epsilon": finite(bound.epsilon), "delta": bound.delta, "method": str(bound.method)}
    limit = {"limit_of_detection": finite(bound.limit_of_detection), "limit_meaning": bound.limit_meaning}
    said = {"assumption": bound.assumption, "warnings": list(bound.warnings)}
    return head | {"confidence": bound.confidence} | limit | said


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
        Scores of the trials with D', shape (n0,), at least one, no NaN. All methods except `gaussian-shift` accept
        infinite scores.
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
        If a number is out of its range, a group is empty, a score is not a number, or the method cannot take the scores
        (`gaussian-shift`: infinite ones, or two groups that are constant at different values).

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
    members, nonmembers, level = splits.members, splits.nonmembers, 1 - confidence
    if method.needs is not ScoreDistribution.ANY:
        reason = "at 0 the epsilon of a Gaussian mechanism is infinite"
        require(delta > 0, f"delta is {delta}: accepted by {method} are numbers above 0 and below 1; {reason}")
    match method:
        case BoundMethod.CLOPPER_PEARSON | BoundMethod.ORDER_STATISTIC | BoundMethod.BAYES:
            epsilon, warnings = _by_threshold(method, splits, delta, level), tuple[str, ...]()
        case BoundMethod.GDP:
            epsilon = _by_threshold(method, splits, delta, level)
            warnings = _gaussian_tradeoff_warnings(members, nonmembers)
        case BoundMethod.GAUSSIAN_SHIFT:
            epsilon = gdp_epsilon(delta, gaussian_shift(members, nonmembers, confidence).low)
            warnings = _normality_warnings(members, nonmembers)
        case _:
            assert_never(method)
    n1, n0 = int(members.size), int(nonmembers.size)
    limit = bound_limit(method, n1, n0, delta, confidence)
    meaning = _DETECTABLE if method is BoundMethod.GAUSSIAN_SHIFT else _CEILING
    warnings += _reach(method, epsilon, limit, min(n1, n0))
    return LowerBound(epsilon, method, delta, confidence, method.assumption, limit, meaning, n1, n0, warnings)


def all_bounds(
    member_scores: Floats, nonmember_scores: Floats, delta: float, confidence: float, distribution: ScoreDistribution
) -> tuple[LowerBound, ...]:
    """Return the lower bounds on epsilon of all methods that are valid for the known distribution of the scores.

    They are in the order of `BoundMethod`.

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
        What is known about the distribution of the scores. At delta 0, `gdp` and `gaussian-shift` are left out, because
        the epsilon of a Gaussian mechanism is infinite there. `gaussian-shift` is also left out if it does not accept
        the scores.

    Raises
    ------
    InputError
        As in `epsilon_lower_bound`, except for scores that only `gdp` or `gaussian-shift` refuse.
    """
    found, splits = [], _splits_of(member_scores, nonmember_scores)
    for method in BoundMethod:
        if not method.is_valid_under(distribution) or (delta == 0 and method.needs is not ScoreDistribution.ANY):
            continue
        try:
            found.append(_bound(method, splits, delta, confidence))
        except InputError:
            if method is not BoundMethod.GAUSSIAN_SHIFT:
                raise
    return tuple(found)


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
    found, refusals, splits = [], [], _splits_of(member_scores, nonmember_scores)
    for method in BoundMethod:
        try:
            found.append(_bound(method, splits, delta, confidence))
        except InputError as error:
            refusals.append(error)
    if not found:
        raise refusals[0]
    return tuple(found)


@lru_cache(maxsize=1024)
def bound_limit(method: BoundMethod, members: int, nonmembers: int, delta: float, confidence: float) -> float:
    """Return the largest bound on epsilon that a method can give for the given numbers of scores.

    For `gaussian-shift`, which has no largest bound, it is the smallest true epsilon that would be certified to exceed
    0 with probability 0.9.

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
    perfect = (Counts(n1, n1, 0, n0), Counts(n0, n0, 0, n1))
    return max(bound_of(method, counts, delta, level) for counts in perfect)


def _checked(scores: NDArray[np.floating], who: str) -> Floats:
    """Return the scores as float64 of one axis; raise `InputError` if there are none or one is NaN.

    `who` names the group of scores in the message.
    """
    array = np.asarray(in_one_axis(scores), dtype=np.float64)
    require(array.ndim == 1, f"scores of {who} have {array.ndim} axes: accepted is one axis")
    require(array.size > 0, f"scores of {who} are empty: accepted is at least one score")
    wrong = np.flatnonzero(np.isnan(array))
    if wrong.size:
        require(False, f"score {wrong[0]} of {who} is nan: accepted are numbers")
    return array


@dataclass(frozen=True, eq=False)
class _Splits:
    """Scores of both groups with random splits of each into a part that chooses a threshold and a part that tests it.

    They are computed once for all methods.
    """

    members: Floats
    nonmembers: Floats
    of: Callable[[bool], list[ScoreSplit]]  # splits, given whether equal scores get different ranks


def _splits_of(member_scores: NDArray[np.floating], nonmember_scores: NDArray[np.floating]) -> _Splits:
    """Return the scores of both groups with random splits of each into a choosing and a testing part.

    The choosing part selects a threshold, and the testing part measures its error rates. Raises `InputError` if a group
    has no scores, or a score is NaN.
    """
    members, nonmembers = _checked(member_scores, "members"), _checked(nonmember_scores, "nonmembers")

    @lru_cache
    def of(break_ties: bool) -> list[ScoreSplit]:
        numbers = range(number_of_splits(members, nonmembers))
        return [split_scores(members, nonmembers, break_ties, number) for number in numbers]

    return _Splits(members, nonmembers, of)


def _by_threshold(method: BoundMethod, scores: _Splits, delta: float, level: float) -> float:
    """Return the median over random splits of the lower bound on epsilon by `method`, at error probability `level`.

    The bound is 0 if a group has only one score, or if all scores are equal.
    """
    if min(scores.members.size, scores.nonmembers.size) < 2:
        return 0.0
    splits = scores.of(method is BoundMethod.ORDER_STATISTIC)
    if splits[0].values < 2:
        return 0.0
    return float(np.median([bound_of(method, chosen_rule(method, one, delta, level), delta, level) for one in splits]))


def _reach(method: BoundMethod, epsilon: float, limit: float, fewest: int) -> tuple[str, ...]:
    """Return one warning if the number of scores, and not their separation, limits the bound; otherwise an empty tuple.

    `epsilon` is the bound, `limit` the largest bound that `method` can give for these numbers of scores, and `fewest`
    the number of scores in the smaller group.
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


def _normality_warnings(members: Floats, nonmembers: Floats) -> tuple[str, ...]:
    """Return warnings if the scores do not seem to be normal with the same standard deviation in both groups."""
    # Repeated values; Shapiro and Wilk's test in either group (D'Agostino and Pearson's above 5000 scores); Levene's
    # test about the median (Brown & Forsythe 1974). The three tests share a level of 0.001.
    found = list(_repeated(members, nonmembers, "normal scores do not repeat"))
    for scores, who in ((members, "members"), (nonmembers, "nonmembers")):
        if scores.size >= _LEAST and np.ptp(scores) > 0:
            test = scipy.stats.shapiro if scores.size <= _SHAPIRO_LIMIT else scipy.stats.normaltest
            # Over the largest magnitude, so that squares neither overflow nor vanish.
            p_value = float(test(scores / np.max(np.abs(scores))).pvalue)
            if p_value < _FALSE_ALARM / 3:
                found.append(f"scores of {who} are not normal (p = {p_value:.2g}): the bound may certify too much")
    if min(members.size, nonmembers.size) >= _LEAST and np.ptp(members) > 0 and np.ptp(nonmembers) > 0:
        scale = float(max(np.max(np.abs(members)), np.max(np.abs(nonmembers))))
        p_value = float(scipy.stats.levene(members / scale, nonmembers / scale, center="median").pvalue)
        if p_value < _FALSE_ALARM / 3:
            found.append(f"spreads of both groups differ (p = {p_value:.2g}): the bound may certify too much")
    return tuple(found)


def _gaussian_tradeoff_warnings(members: Floats, nonmembers: Floats) -> tuple[str, ...]:
    """Return warnings if the scores do not fit a Gaussian trade-off function.

    They fit it if one increasing function maps the log-likelihood ratios (D against D') of a Gaussian mechanism to the
    scores. The result is empty if no misfit is found.
    """
    # Repeated values; and whether Phi^-1(TPR) - Phi^-1(FPR) is the same at a false-positive rate of a tenth as at a
    # false-negative rate of a tenth, as it is everywhere on a Gaussian trade-off function. Depends on ranks alone.
    found = list(_repeated(members, nonmembers, "the log-odds of a Gaussian mechanism do not"))
    distance = _bend(np.sort(members), np.sort(nonmembers))
    if abs(distance) > -float(ndtri(_FALSE_ALARM / 2)):
        seen = f"the trade-off that the scores show is not Gaussian ({abs(distance):.1f} standard errors)"
        found.append(f"{seen}: if they are the best scores of the mechanism, the bound may certify too much")
    return tuple(found)


def _repeated(members: Floats, nonmembers: Floats, rule: str) -> tuple[str, ...]:
    """Return one warning if less than 90 % of the scores of both groups together are distinct; otherwise `()`.

    `rule` is the part of the message that says why repeated scores contradict the assumption of the method.
    """
    pooled = np.concatenate([members, nonmembers])
    distinct = int(np.unique(pooled).size)
    if distinct >= _DISTINCT_SHARE * pooled.size:
        return ()
    return (f"only {distinct} of {pooled.size} scores are distinct, but {rule}: the bound may certify too much",)


def _bend(members: Floats, nonmembers: Floats) -> float:
    """Return how far the trade-off of the scores is from a Gaussian one, in standard errors; 0 with few scores.

    It is Phi^-1(TPR) - Phi^-1(FPR) at FPR 0.1, minus the same at FNR 0.1. A Gaussian trade-off function has the same
    value everywhere.
    """
    thresholds = [np.quantile(nonmembers, 1 - _TAIL, method="lower"), np.quantile(members, _TAIL, method="lower")]
    high, low = max(thresholds), min(thresholds)
    difference, variance = 0.0, 0.0
    for scores, sign in ((members, 1), (nonmembers, -1)):
        counts = [scores.size - int(np.searchsorted(scores, t, side="right")) for t in (high, low)]
        if min(*counts, *(scores.size - count for count in counts)) < _LEAST_COUNT:
            return 0.0
        rare, common = (count / scores.size for count in counts)
        at_rare, at_common = float(ndtri(rare)), float(ndtri(common))
        steep_rare, steep_common = (math.exp(-z * z / 2) / math.sqrt(2 * math.pi) for z in (at_rare, at_common))
        difference += sign * (at_rare - at_common)
        variance += (
            rare * (1 - rare) / steep_rare**2
            + common * (1 - common) / steep_common**2
            - 2 * rare * (1 - common) / (steep_rare * steep_common)
        ) / scores.size
    return difference / math.sqrt(variance) if variance > 0 else 0.0
