"""Intervals of Epsilon*, of kinds that were found to cover the truth.

For fits of normals and of mixtures the interval is the hull of the percentile and the reversed percentile bootstrap
intervals. Epsilon* of any sample is above 0, so percentiles alone never reach down to 0 where there is no leak, and
reversed percentiles alone are too low where the leak is large. A bootstrap resamples each set with replacement, which
amounts to drawing how often each loss occurs. Where there are many losses, neighbouring ones share a cell, and the
number of losses in each cell is drawn instead; these numbers follow the multinomial distribution that resampling
implies. A cell holds at most a hundredth of the losses beyond it in either set, so an error rate changes by at most a
hundredth of itself across a cell, far less than it varies from draw to draw. With up to 4000 losses every distinct loss
has a cell of its own and nothing is lost.

For the empirical form the interval holds for any two distributions of losses. The largest ratio is reached where few
losses decide, so resampling does not show how far it is from the truth. Instead both distribution functions are
enclosed at once, at chosen ranks r of n losses. At the r-th smallest loss the function is at least a low quantile of
Beta(r, n + 1 - r), and just below that loss it is at most a high quantile (Clopper & Pearson 1934). The probability of
error is shared equally among all these bounds. Between two chosen ranks the function can only rise, so the bounds
enclose it there too. The interval holds the Epsilon* of every pair of distributions within the enclosure.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaincinv

from fl_audit.array_types import Flags, Floats, Integers
from fl_audit.errors import require, require_number
from fl_audit.released_model.empirical_star import largest_ratio, threshold_counts
from fl_audit.released_model.epsilon_star import checked_pair, epsilon_star_gaussian, require_cut, require_star_delta
from fl_audit.released_model.methods import EMPIRICAL_CUT, PARAMETRIC_CUT

_ALL_APART = 4000
_CELL_FINENESS, _BAND_FINENESS = 100, 20
_AT_ONCE = 2**19
_CONSTANT = 1e-12


def hull_interval(value: float, draws: Floats, confidence: float) -> tuple[float, float]:
    """Return the hull of the percentile and the reversed percentile bootstrap intervals, cut off at 0.

    Parameters
    ----------
    value
        The estimate, at least 0, finite.
    draws
        Bootstrap estimates, shape (replicates,), which may be infinite.
    confidence
        Confidence of the interval, above 0 and below 1.
    """
    side = (1 - confidence) / 2
    low, high = (float(np.quantile(draws, p, method="inverted_cdf")) for p in (side, 1 - side))
    return max(0.0, min(low, 2 * value - high)), max(high, 2 * value - low)


class LossCells(NamedTuple):
    """Losses of one set in cells, in the order of the losses."""

    numbers: Integers  # number of losses in each cell, shape (cells,)
    means: Floats  # mean of the losses in each cell, shape (cells,); 0 where a cell has none


def gather(member_losses: Floats, population_losses: Floats) -> tuple[LossCells, LossCells]:
    """Gather the losses of members and of the population into common cells.

    Parameters
    ----------
    member_losses
        Losses of members under one model, finite, shape (m,).
    population_losses
        Losses of the population sample under the same model, finite, shape (p,).
    """
    counts = threshold_counts(member_losses, population_losses)
    own = np.diff(counts.members, prepend=0)
    ends = np.flatnonzero(counts.last) + 1
    if counts.thresholds.size > _ALL_APART:
        sets = ((counts.members, counts.member_total), (counts.population, counts.population_total))
        wanted = [np.searchsorted(ranks, _tail_ranks(total, _CELL_FINENESS), side="left") + 1 for ranks, total in sets]
        # A cell ends where its last value does, so that equal losses stay together.
        ends = np.unique(ends[np.searchsorted(ends, np.concatenate([*wanted, [counts.thresholds.size]]))])
    starts = np.concatenate([[0], ends[:-1]])
    members = np.add.reduceat(own, starts)
    sums = np.add.reduceat(counts.thresholds * own, starts)
    others = np.add.reduceat(counts.thresholds * (1 - own), starts)
    pairs = ((members, sums), (ends - starts - members, others))
    one, zero = (LossCells(numbers, total / np.maximum(numbers, 1)) for numbers, total in pairs)
    return one, zero


def parametric_draws(
    cells: tuple[LossCells, LossCells],
    delta: float,
    shift: float,
    replicates: int,
    rng: np.random.Generator,
    cut: float = PARAMETRIC_CUT,
) -> Floats:
    """Return the parametric Epsilon* of bootstrap draws, each normalised by its own extremes, shape (replicates,).

    Parameters
    ----------
    cells
        Cells of both sets of losses, as `gather` returns them.
    delta
        Delta of Epsilon*, as for `parametric_epsilon_star`.
    shift
        Number that is added to each normalised loss, as for `parametric_epsilon_star`.
    replicates
        Number of bootstrap draws, at least 1.
    rng
        Generator of the bootstrap draws.
    cut
        Stability cut, as for `parametric_epsilon_star`.
    """
    found, step = [], max(1, _AT_ONCE // cells[0].numbers.size)
    for start in range(0, replicates, step):
        some, totals = min(step, replicates - start), [(int(one.numbers.sum()), *one) for one in cells]
        drawn = [(rng.multinomial(n, numbers / n, size=some).astype(np.int64), x) for n, numbers, x in totals]
        low = np.minimum.reduce([np.where(n > 0, x, np.inf).min(axis=1) for n, x in drawn])
        high = np.maximum.reduce([np.where(n > 0, x, -np.inf).max(axis=1) for n, x in drawn])
        span = np.where(high > low, high - low, 1.0)[:, None]
        distributions = list[Floats]()
        for numbers, losses in drawn:
            used = np.flatnonzero(numbers.any(axis=0))
            distributions += _fit(numbers[:, used], np.clip((losses[used] - low[:, None]) / span, 0, 1) + shift)
        found.append(
            epsilon_star_gaussian(distributions[0], distributions[1], distributions[2], distributions[3], delta, cut)
        )
    return np.concatenate(found)


def _fit(numbers: Integers, shifted: Floats) -> tuple[Floats, Floats]:
    """Return mean and standard deviation of the scores of each draw."""
    scores = -(shifted + np.log(-np.expm1(-shifted)))
    total = numbers.sum(axis=1)
    mean = (numbers * scores).sum(axis=1) / total
    std = np.sqrt((numbers * (scores - mean[:, None]) ** 2).sum(axis=1) / total)
    return mean, np.where(std < _CONSTANT, 0.0, std)


def _tail_ranks(total: int, fineness: int) -> Integers:
    """Return ranks from 1 to `total`: every rank near the ends, and fewer and fewer towards the middle."""
    # The step between ranks is their distance from the nearer end over `fineness`, and at least 1.
    ranks, rank = [1], 1
    while rank <= total // 2:
        ranks.append(rank)
        rank += max(1, rank // fineness)
    lower = np.array(ranks, dtype=np.int64)
    return np.unique(np.concatenate([lower, total - lower + 1]))


def empirical_interval(
    member_losses: ArrayLike,
    population_losses: ArrayLike,
    delta: float,
    cut: float = EMPIRICAL_CUT,
    confidence: float = 0.95,
) -> tuple[float, float]:
    """Return an interval in nats that covers the true Epsilon* within the cut with at least the given confidence.

    Where the losses prove that some threshold lies within the cut, the upper end is at most log((1 - cut - delta) /
    cut). Where they prove it of none, two cases remain possible. If no threshold lies within the cut, all thresholds
    count, so the upper end is infinite. If some does, only such thresholds count. The lower end, at least 0, holds in
    both cases: it is the smaller of the two.

    Parameters
    ----------
    member_losses
        Losses on training records, shape (m,), at least one, finite and at least 0, independent and identically
        distributed.
    population_losses
        Losses on a sample of the population, shape (p,), at least one, finite and at least 0, independent and
        identically distributed.
    delta
        Delta of Epsilon*, at least 0 and below 1.
    cut
        Stability cut, as for `empirical_epsilon_star`; 0 makes the upper end infinite.
    confidence
        Least probability with which the interval covers, above 0 and below 1.

    Raises
    ------
    InputError
        If a loss is negative or not finite, or a number or shape is not accepted.
    """
    require_star_delta(delta)
    require_cut(cut)
    require_number("confidence is", confidence, "numbers above 0 and below 1")
    pair = checked_pair(member_losses, population_losses, at_least=1)
    require(pair[0].ndim == 1, f"member losses have shape {pair[0].shape}: accepted is one axis")
    bands = [_band(losses, (1 - confidence) / 2) for losses in pair]
    points = np.unique(np.concatenate([[-math.inf], *(losses for losses, _ in bands)]))
    # Of both distribution functions, shape (2, points), each bound holds from a threshold up to the next one.
    low, high = np.stack([ends[:, np.searchsorted(losses, points, side="right")] for losses, ends in bands], axis=1)
    least = _ratios(low, high, delta)
    if cut == 0:
        return _log(least.max()), math.inf
    proven, possible = _within(low, high, cut), _within(high, low, cut)
    if proven.any():
        most = _ratios(np.clip(high, cut, 1 - cut), np.clip(low, cut, 1 - cut), delta)
        return _log(least[proven].max()), _log(most[possible].max())
    # There may be a threshold within the cut, or none, and then all count: the lower end must hold in either case.
    return _log(min(least.max(), _least_within(low, high, cut, delta))), math.inf


def _band(losses: Floats, level: float) -> tuple[Floats, Floats]:
    """Return chosen losses, (ranks,), and an enclosure of the distribution function, (2, 1 + ranks)."""
    # Its two rows are what the function is at least from the loss before on, and what it is at most up to the next one.
    n = losses.size
    ranks = _tail_ranks(n, _BAND_FINENESS)
    side = level / (2 * ranks.size)
    low = np.append(0.0, betaincinv(ranks, n + 1 - ranks, side))
    high = np.append(1 - betaincinv(n + 1 - ranks, ranks, side), 1.0)
    return np.sort(losses)[ranks - 1], np.stack([low, high])


def _within(at_least: Floats, at_most: Floats, cut: float) -> Flags:
    """Return the thresholds that lie within the cut for all distributions; with exchanged bounds, for some of them."""
    return np.asarray((at_least.min(axis=0) > cut) & (at_most.max(axis=0) < 1 - cut), dtype=np.bool_)


def _ratios(over: Floats, under: Floats, delta: float) -> Floats:
    """Return the largest of the four ratios at each threshold, with one bound in numerators and one in denominators."""
    # Lower bounds over upper ones give each ratio as small as the enclosure allows, the reverse as large as it allows.
    (over_1, over_0), (under_1, under_0) = over, under
    pairs = ((1 - under_0, 1 - over_1), (over_1, under_0), (over_0, under_1), (1 - under_1, 1 - over_0))
    return largest_ratio(pairs, delta)


def _least_within(low: Floats, high: Floats, cut: float, delta: float) -> float:
    """Return a lower bound of the largest ratio within the cut, if there is any threshold within it."""
    # Suppose that a given threshold lies within the cut. As rates rise with the threshold, so do all larger thresholds
    # whose rates are proven to be below 1 - cut, and all smaller ones whose rates are proven to be above the cut. All
    # of them count, so the largest ratio is at least the best of theirs. It is not known which threshold lies within
    # the cut, so the smallest of these values over all candidates is returned; infinity where no threshold can lie
    # within.
    ratios = _ratios(np.clip(low, cut, 1 - cut), np.clip(high, cut, 1 - cut), delta)
    larger = np.where(high.max(axis=0) < 1 - cut, ratios, 0.0)
    smaller = np.where(low.min(axis=0) > cut, ratios, 0.0)
    best = (ratios, np.maximum.accumulate(larger[::-1])[::-1], np.maximum.accumulate(smaller))
    return float(np.maximum.reduce(best)[_within(high, low, cut)].min(initial=math.inf))


def _log(ratio: float) -> float:
    return math.log(max(1.0, ratio))
