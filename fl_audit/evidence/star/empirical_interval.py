"""A confidence interval of the empirical Epsilon* that holds for any two distributions of losses.

The largest ratio is reached where few losses decide, so resampling does not tell how far it is from the truth. Instead
both distribution functions are enclosed at once, at chosen ranks r of n losses. At the r-th smallest loss the function
is at least a low quantile of Beta(r, n + 1 - r), and just below that loss it is at most a high quantile (Clopper &
Pearson 1934). The probability of error is shared equally among all these bounds. Between two chosen ranks the function
can only rise, so the bounds enclose it there too. The interval holds the Epsilon* of every pair of distributions that
lies in the enclosure.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaincinv

from fl_audit.arrays import Flags, Floats
from fl_audit.errors import require
from fl_audit.evidence.star.empirical_star import EMPIRICAL_CUT, largest_ratio
from fl_audit.evidence.star.epsilon_star import require_cut, require_star_delta
from fl_audit.evidence.star.loss_cells import tail_ranks
from fl_audit.evidence.star.loss_samples import checked_pair

_FINENESS = 20


def empirical_interval(
    member_losses: ArrayLike,
    population_losses: ArrayLike,
    delta: float,
    cut: float = EMPIRICAL_CUT,
    confidence: float = 0.95,
) -> tuple[float, float]:
    """Return an interval that covers the true Epsilon* within the cut with at least the given confidence.

    Parameters
    ----------
    member_losses
        Losses on training records, shape (m,), at least one, finite and at least 0, independent and identically
        distributed.
    population_losses
        Losses on a sample of the population, shape (p,), likewise.
    delta
        From 0 to below 1.
    cut
        As for `empirical_epsilon_star`; with 0 the upper end is infinite.
    confidence
        Least probability with which the interval covers, above 0 and below 1.

    Returns
    -------
    tuple
        Lower and upper end in nats, at least 0. Where the losses prove that some threshold lies within the cut, the
        upper end is at most log((1 - cut - delta) / cut). Where they prove it of none, two cases remain possible. If
        no threshold lies within the cut, all thresholds count, so the upper end is infinite. If some does, only such
        thresholds count. The lower end holds in both cases: it is the smaller of the two.

    Raises
    ------
    InputError
        If a loss is negative or not finite, or a number or shape is not accepted.
    """
    require_star_delta(delta)
    require_cut(cut)
    require(0 < confidence < 1, f"confidence is {confidence}: accepted are numbers above 0 and below 1")
    members, population = checked_pair(member_losses, population_losses, at_least=1)
    require(members.ndim == 1, f"member losses have shape {members.shape}: accepted is one axis")
    bands = [_Band.of(losses, (1 - confidence) / 2) for losses in (members, population)]
    points = np.unique(np.concatenate([[-math.inf], *(band.losses for band in bands)]))
    rates = _Rates(*(band.at(points) for band in bands))
    inside, possible = rates.proven_within(cut), rates.possibly_within(cut)
    if cut == 0:
        return _log(rates.least(delta).max()), math.inf
    if inside.any():
        return _log(rates.least(delta)[inside].max()), _log(rates.clipped(cut).most(delta)[possible].max())
    # There may be a threshold within the cut, or none, and then all count: the lower end must hold in either case.
    return _log(min(rates.least(delta).max(), rates.least_within(cut, delta))), math.inf


@dataclass(frozen=True)
class _Rates:
    """Bounds of both distribution functions, each as (low, high); they hold from each threshold up to the next one."""

    members: tuple[Floats, Floats]
    population: tuple[Floats, Floats]

    def proven_within(self, cut: float) -> Flags:
        """Return which thresholds lie within the cut for all distributions in the enclosure."""
        (low_1, high_1), (low_0, high_0) = self.members, self.population
        return np.asarray((np.minimum(low_1, low_0) > cut) & (np.maximum(high_1, high_0) < 1 - cut), dtype=np.bool_)

    def possibly_within(self, cut: float) -> Flags:
        """Return which thresholds lie within the cut for some distributions in the enclosure."""
        (low_1, high_1), (low_0, high_0) = self.members, self.population
        return np.asarray((np.minimum(high_1, high_0) > cut) & (np.maximum(low_1, low_0) < 1 - cut), dtype=np.bool_)

    def clipped(self, cut: float) -> "_Rates":
        """Return the bounds that remain if the rates are known to lie within the cut."""
        one, zero = (
            (np.clip(low, cut, 1 - cut), np.clip(high, cut, 1 - cut)) for low, high in (self.members, self.population)
        )
        return _Rates(one, zero)

    def least_within(self, cut: float, delta: float) -> float:
        """Return a lower bound of the largest ratio within the cut, if there is any threshold within it.

        Suppose that a given threshold lies within the cut. As rates rise with the threshold, so do all larger
        thresholds whose rates are proven to be below 1 - cut, and all smaller ones whose rates are proven to be above
        the cut. All of them count, so the largest ratio is at least the best of theirs. It is not known which
        threshold lies within the cut, so the smallest of these values over all candidates is returned; infinity where
        no threshold can lie within the cut.
        """
        (low_1, high_1), (low_0, high_0) = self.members, self.population
        ratios = self.clipped(cut).least(delta)
        larger = np.where(np.maximum(high_1, high_0) < 1 - cut, ratios, 0.0)
        smaller = np.where(np.minimum(low_1, low_0) > cut, ratios, 0.0)
        best = (ratios, np.maximum.accumulate(larger[::-1])[::-1], np.maximum.accumulate(smaller))
        return float(np.maximum.reduce(best)[self.possibly_within(cut)].min(initial=math.inf))

    def least(self, delta: float) -> Floats:
        """Return the largest of the four ratios at each threshold, each ratio as small as the bounds allow."""
        (low_1, high_1), (low_0, high_0) = self.members, self.population
        pairs = ((1 - high_0, 1 - low_1), (low_1, high_0), (low_0, high_1), (1 - high_1, 1 - low_0))
        return largest_ratio(pairs, delta)

    def most(self, delta: float) -> Floats:
        """Return the largest of the four ratios at each threshold, each ratio as large as the bounds allow."""
        (low_1, high_1), (low_0, high_0) = self.members, self.population
        pairs = ((1 - low_0, 1 - high_1), (high_1, low_0), (high_0, low_1), (1 - low_1, 1 - high_0))
        return largest_ratio(pairs, delta)


@dataclass(frozen=True)
class _Band:
    """An enclosure of a distribution function: at each chosen loss at least `low`, just below it at most `high`."""

    losses: Floats
    low: Floats
    high: Floats

    @staticmethod
    def of(losses: Floats, level: float) -> "_Band":
        n = losses.size
        ranks = tail_ranks(n, _FINENESS)
        side = level / (2 * ranks.size)
        low = np.asarray(betaincinv(ranks, n + 1 - ranks, side), dtype=np.float64)
        high = np.asarray(1 - betaincinv(n + 1 - ranks, ranks, side), dtype=np.float64)
        return _Band(np.sort(losses)[ranks - 1], low, high)

    def at(self, points: Floats) -> tuple[Floats, Floats]:
        """Return bounds of the distribution function at points, shapes of `points`."""
        passed = np.searchsorted(self.losses, points, side="right")
        return np.append(0.0, self.low)[passed], np.append(self.high, 1.0)[passed]


def _log(ratio: float) -> float:
    return math.log(max(1.0, ratio))
