"""Intervals of Epsilon* (privacy risk): bootstrap for fitted distributions, confidence interval for the empirical one.

For fits of normals and mixtures, the interval is the smallest one that covers the percentile and the reversed
percentile bootstrap intervals. Epsilon* of any sample is above 0, so without a leak the percentile interval never
includes 0, and with a large leak the reversed percentile interval is too low. A bootstrap resamples each set with
replacement, i.e. it draws how often each loss occurs. Many losses are first put into cells (bins), and the bootstrap
draws the number of losses in each cell, which has the same multinomial distribution as with resampling. In either set,
a cell holds at most a hundredth of the losses between the cell and the nearer end of the sorted losses. So an error
rate changes by at most 1 % across a cell, which is far less than its variation between bootstrap samples. With up to
4000 losses, every distinct loss has its own cell and binning loses nothing.

For the empirical Epsilon*, the confidence interval is valid for any two distributions of losses. Few losses decide the
largest ratio, so a bootstrap does not show its error. Instead a simultaneous confidence band of each distribution
function is computed at chosen ranks r of n losses. At the r-th smallest loss the distribution function is at least a
low quantile of Beta(r, n + 1 - r), and just below this loss it is at most a high quantile (Clopper & Pearson 1934). The
error probability is divided equally among all these bounds. Distribution functions never fall, so the bounds also hold
between two chosen ranks. The interval contains the Epsilon* of every pair of distribution functions within the bands.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaincinv

from fl_audit.array_types import Flags, Floats, Integers
from fl_audit.errors import require
from fl_audit.released_model.empirical_star import largest_ratio, threshold_counts
from fl_audit.released_model.parametric_star import (
    checked_pair,
    epsilon_star_gaussian,
    require_cut,
    require_star_delta,
    shifted_scores,
)
from fl_audit.released_model.star_methods import EMPIRICAL_CUT, PARAMETRIC_CUT
from fl_audit.value_checks import require_number

_ALL_APART = 4000
_CELL_FINENESS = 100
_BAND_FINENESS = 20
_AT_ONCE = 2**19
_CONSTANT = 1e-12


def hull_interval(value: float, draws: Floats, confidence: float) -> tuple[float, float]:
    """Return the smallest interval that covers the percentile and the reversed percentile bootstrap intervals.

    Its lower end is at least 0.

    Shapes: `draws` (replicates,).
    """
    side = (1 - confidence) / 2
    low, high = (float(np.quantile(draws, p, method="inverted_cdf")) for p in (side, 1 - side))
    return max(0.0, min(low, 2 * value - high)), max(high, 2 * value - low)


class LossCells(NamedTuple):
    """Losses of one set in cells (bins) in ascending order: the number and the mean of the losses in each cell."""

    numbers: Integers  # number of losses in each cell, shape (cells,)
    means: Floats  # mean of the losses in each cell, shape (cells,); 0 where a cell has none


def loss_cells(member_losses: Floats, population_losses: Floats) -> tuple[LossCells, LossCells]:
    """Put losses into cells (bins), and return the number and mean of losses in each cell.

    The first result is for the members, the second for the population. The cells of both are the same.

    Shapes: `member_losses` (m,), `population_losses` (p,).
    """
    counts = threshold_counts(member_losses, population_losses)
    is_member = np.diff(counts.members, prepend=0)
    ends = np.flatnonzero(counts.last) + 1
    if counts.thresholds.size > _ALL_APART:
        sets = ((counts.members, counts.member_total), (counts.population, counts.population_total))
        rank_ends = [
            np.searchsorted(ranks, _tail_ranks(total, _CELL_FINENESS), side="left") + 1 for ranks, total in sets
        ]
        # A cell ends where its last value does, so that equal losses stay together.
        ends = np.unique(ends[np.searchsorted(ends, np.concatenate([*rank_ends, [counts.thresholds.size]]))])
    starts = np.concatenate([[0], ends[:-1]])
    members = np.add.reduceat(is_member, starts)
    sums = np.add.reduceat(counts.thresholds * is_member, starts)
    population_sums = np.add.reduceat(counts.thresholds * (1 - is_member), starts)
    pairs = ((members, sums), (ends - starts - members, population_sums))
    members_cells, population_cells = (LossCells(numbers, total / np.maximum(numbers, 1)) for numbers, total in pairs)
    return members_cells, population_cells


def parametric_draws(
    cells: tuple[LossCells, LossCells],
    delta: float,
    shift: float,
    replicates: int,
    rng: np.random.Generator,
    cut: float = PARAMETRIC_CUT,
) -> Floats:
    """Return the parametric Epsilon* of bootstrap samples of losses, shape (replicates,).

    Each sample's losses are normalised by the smallest and largest loss of that sample.
    """
    values = []
    step = max(1, _AT_ONCE // cells[0].numbers.size)
    for start in range(0, replicates, step):
        samples = min(step, replicates - start)
        totals = [(int(cells_of_set.numbers.sum()), *cells_of_set) for cells_of_set in cells]
        samples_of_sets = [
            (rng.multinomial(n, numbers / n, size=samples).astype(np.int64), x) for n, numbers, x in totals
        ]
        low = np.minimum.reduce([np.where(n > 0, x, np.inf).min(axis=1) for n, x in samples_of_sets])
        high = np.maximum.reduce([np.where(n > 0, x, -np.inf).max(axis=1) for n, x in samples_of_sets])
        span = np.where(high > low, high - low, 1.0)[:, None]
        distributions = list[Floats]()
        for numbers, losses in samples_of_sets:
            used = np.flatnonzero(numbers.any(axis=0))
            distributions += _fit(numbers[:, used], np.clip((losses[used] - low[:, None]) / span, 0, 1) + shift)
        values.append(
            epsilon_star_gaussian(distributions[0], distributions[1], distributions[2], distributions[3], delta, cut)
        )
    return np.concatenate(values)


def _fit(numbers: Integers, shifted: Floats) -> tuple[Floats, Floats]:
    """Return mean and standard deviation of the scores of each bootstrap sample, (samples,) each.

    `numbers` has the number of losses in each cell, and `shifted` the normalised loss of each cell plus the shift.
    """
    scores = shifted_scores(shifted)
    total = numbers.sum(axis=1)
    mean = (numbers * scores).sum(axis=1) / total
    std = np.sqrt((numbers * (scores - mean[:, None]) ** 2).sum(axis=1) / total)
    return mean, np.where(std < _CONSTANT, 0.0, std)


def _tail_ranks(total: int, fineness: int) -> Integers:
    """Return ranks from 1 to `total`: all near both ends, and fewer towards the middle.

    The step between ranks is their distance from the nearer end divided by `fineness`, at least 1.
    """
    # The step between ranks is the distance from the nearer end divided by `fineness`, and at least 1.
    ranks = [1]
    rank = 1
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
    """Return a confidence interval, in nats, of a model's true Epsilon* within a stability cut.

    A threshold is within the cut if its FPR and FNR are above `cut` and below 1 - `cut`. If the losses prove that such
    a threshold exists, the upper end is at most log((1 - cut - delta) / cut). Otherwise Epsilon* may have to be taken
    over all thresholds, and the upper end is infinite.

    Shapes: `member_losses` (m,), `population_losses` (p,).
    """
    require_star_delta(delta)
    require_cut(cut)
    require_number("confidence is", confidence, "numbers above 0 and below 1")
    pair = checked_pair(member_losses, population_losses, at_least=1)
    require(pair[0].ndim == 1, f"member losses have shape {pair[0].shape}: accepted is one axis")
    bands = [_band(losses, (1 - confidence) / 2) for losses in pair]
    points = np.unique(np.concatenate([[-math.inf], *(losses for losses, _ in bands)]))
    # Bounds of both distribution functions, shape (2, points); each holds from its threshold up to the next one.
    low, high = np.stack([ends[:, np.searchsorted(losses, points, side="right")] for losses, ends in bands], axis=1)
    low_ratios = _ratios(low, high, delta)
    if cut == 0:
        return _log(low_ratios.max()), math.inf
    proven = _within(low, high, cut)
    possible = _within(high, low, cut)
    if proven.any():
        high_ratios = _ratios(np.clip(high, cut, 1 - cut), np.clip(low, cut, 1 - cut), delta)
        return _log(low_ratios[proven].max()), _log(high_ratios[possible].max())
    # Maybe some thresholds lie within the cut, or none, so that all are admitted: the lower end holds in both cases.
    return _log(min(low_ratios.max(), _least_within(low, high, cut, delta))), math.inf


def _band(losses: Floats, level: float) -> tuple[Floats, Floats]:
    """Return a confidence band for the distribution function of losses: some of the losses, and bounds between them.

    The losses are sorted, (ranks,). The bounds have the shape (2, 1 + ranks): lower ones in row 0, upper ones in row 1.
    Each bound holds from one of the losses to the next. All bounds hold together with probability at least 1 - `level`.
    """
    # Row 0: lower bound from the previous selected loss on. Row 1: upper bound up to the next selected loss.
    n = losses.size
    ranks = _tail_ranks(n, _BAND_FINENESS)
    side = level / (2 * ranks.size)
    low = np.append(0.0, betaincinv(ranks, n + 1 - ranks, side))
    high = np.append(1 - betaincinv(n + 1 - ranks, ranks, side), 1.0)
    return np.sort(losses)[ranks - 1], np.stack([low, high])


def _within(at_least: Floats, at_most: Floats, cut: float) -> Flags:
    """Return a mask of the thresholds at which both distribution functions certainly lie between `cut` and 1 - `cut`.

    If lower and upper bounds are exchanged, it is a mask of the thresholds at which they possibly do.
    """
    return np.asarray((at_least.min(axis=0) > cut) & (at_most.max(axis=0) < 1 - cut), dtype=np.bool_)


def _ratios(over: Floats, under: Floats, delta: float) -> Floats:
    """Return, at each threshold, a bound on the largest of the four ratios from which Epsilon* is computed.

    `over` and `under` are bounds on the two distribution functions. The result is an upper bound if `over` are upper
    and `under` are lower bounds; if they are exchanged, it is a lower bound.
    """
    over_1, over_0 = over
    under_1, under_0 = under
    pairs = ((1 - under_0, 1 - over_1), (over_1, under_0), (over_0, under_1), (1 - under_1, 1 - over_0))
    return largest_ratio(pairs, delta)


def _least_within(low: Floats, high: Floats, cut: float, delta: float) -> float:
    """Return a lower bound on the largest ratio of error rates at the thresholds that the stability cut keeps.

    The bound is infinite if the cut can keep no threshold.
    """
    # Suppose that a given threshold lies within the cut. Rates rise with the threshold, so all larger thresholds whose
    # rates are proven to be below 1 - cut also lie within it, and all smaller thresholds whose rates are proven to be
    # above the cut. So the largest ratio is at least the largest of their ratios. It is not known which threshold lies
    # within the cut, so the result is the smallest of these values over all candidates, or infinity without any.
    ratios = _ratios(np.clip(low, cut, 1 - cut), np.clip(high, cut, 1 - cut), delta)
    larger = np.where(high.max(axis=0) < 1 - cut, ratios, 0.0)
    smaller = np.where(low.min(axis=0) > cut, ratios, 0.0)
    best = (ratios, np.maximum.accumulate(larger[::-1])[::-1], np.maximum.accumulate(smaller))
    return float(np.maximum.reduce(best)[_within(high, low, cut)].min(initial=math.inf))


def _log(ratio: float) -> float:
    return math.log(max(1.0, ratio))
