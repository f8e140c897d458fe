"""Losses of one model gathered into cells, and bootstrap draws of them.

A bootstrap resamples each set with replacement, which amounts to drawing how often each loss occurs. Where there are
many losses, neighbouring ones share a cell, and the number of losses in each cell is drawn instead; these numbers
follow the multinomial law that resampling implies. A cell holds at most a hundredth of the losses beyond it in either
set, so an error rate changes by at most a hundredth of itself across a cell, far less than it varies from draw to
draw. With up to 4000 losses every distinct loss has a cell of its own and nothing is lost.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fl_audit.arrays import Floats, Integers
from fl_audit.evidence.star.empirical_star import threshold_counts
from fl_audit.evidence.star.epsilon_star import epsilon_star_gaussian

_ALL_APART = 4000
_FINENESS = 100
_AT_ONCE = 2**19
_CONSTANT = 1e-12


@dataclass(frozen=True)
class LossCells:
    """Losses of both sets in cells, in the order of the losses."""

    # `members`, `population`: numbers of losses in each cell, shape (cells,).
    members: Integers
    population: Integers
    # `member_means`, `population_means`: their means, shape (cells,); 0 where a cell has none.
    member_means: Floats
    population_means: Floats


def gather(member_losses: Floats, population_losses: Floats) -> LossCells:
    """Gather the losses of one model into cells.

    Parameters
    ----------
    member_losses
        Losses on training records, finite, shape (m,).
    population_losses
        Losses on a sample of the population, finite, shape (p,).
    """
    counts = threshold_counts(member_losses, population_losses)
    own = np.diff(counts.members, prepend=0)
    ends = np.flatnonzero(counts.last) + 1
    if counts.thresholds.size > _ALL_APART:
        wanted = [
            np.searchsorted(ranks, tail_ranks(total, _FINENESS), side="left") + 1
            for ranks, total in ((counts.members, counts.member_total), (counts.population, counts.population_total))
        ]
        # A cell ends where its last value does, so that equal losses stay together.
        ends = np.unique(ends[np.searchsorted(ends, np.concatenate([*wanted, [counts.thresholds.size]]))])
    starts = np.concatenate([[0], ends[:-1]])
    members = np.add.reduceat(own, starts)
    population = ends - starts - members
    sums = np.add.reduceat(counts.thresholds * own, starts)
    others = np.add.reduceat(counts.thresholds * (1 - own), starts)
    means = [total / np.maximum(number, 1) for total, number in ((sums, members), (others, population))]
    return LossCells(members, population, means[0], means[1])


def parametric_draws(
    cells: LossCells, delta: float, shift: float, cut: float, replicates: int, rng: np.random.Generator
) -> Floats:
    """Return the parametric Epsilon* of bootstrap draws, shape (replicates,).

    The losses of each draw are normalised by the extremes of that draw.

    Parameters
    ----------
    cells
        As `gather` returns them.
    delta, shift, cut
        As for `parametric_epsilon_star`.
    replicates
        Number of draws.
    rng
        Source of the draws.
    """
    found = []
    for members, population in _draws(cells, replicates, rng):
        drawn = ((members, cells.member_means), (population, cells.population_means))
        low = np.minimum.reduce([np.where(n > 0, x, np.inf).min(axis=1) for n, x in drawn])
        high = np.maximum.reduce([np.where(n > 0, x, -np.inf).max(axis=1) for n, x in drawn])
        span = np.where(high > low, high - low, 1.0)[:, None]
        laws = []
        for numbers, losses in drawn:
            used = np.flatnonzero(numbers.any(axis=0))
            laws.append(_fit(numbers[:, used], np.clip((losses[used] - low[:, None]) / span, 0, 1) + shift))
        (mean_1, std_1), (mean_0, std_0) = laws
        found.append(epsilon_star_gaussian(mean_1, std_1, mean_0, std_0, delta, cut))
    return np.concatenate(found)


def _draws(cells: LossCells, replicates: int, rng: np.random.Generator) -> Iterator[tuple[Integers, Integers]]:
    """Yield counts of resampled sets, shapes (some, cells), until there are `replicates`."""
    step = max(1, _AT_ONCE // cells.members.size)
    m, p = int(cells.members.sum()), int(cells.population.sum())
    for start in range(0, replicates, step):
        some = min(step, replicates - start)
        members = rng.multinomial(m, cells.members / m, size=some)
        population = rng.multinomial(p, cells.population / p, size=some)
        yield members.astype(np.int64), population.astype(np.int64)


def _fit(numbers: Integers, shifted: Floats) -> tuple[Floats, Floats]:
    """Return mean and standard deviation of the scores of each draw."""
    scores = -(shifted + np.log(-np.expm1(-shifted)))
    total = numbers.sum(axis=1)
    mean = (numbers * scores).sum(axis=1) / total
    std = np.sqrt((numbers * (scores - mean[:, None]) ** 2).sum(axis=1) / total)
    return mean, np.where(std < _CONSTANT, 0.0, std)


def tail_ranks(total: int, fineness: int) -> Integers:
    """Return ranks from 1 to `total`: every rank near the ends, and fewer and fewer towards the middle.

    Parameters
    ----------
    total
        At least 1.
    fineness
        The step between ranks is their distance from the nearer end over this number, and at least 1.
    """
    ranks, rank = [1], 1
    while rank <= total // 2:
        ranks.append(rank)
        rank += max(1, rank // fineness)
    lower = np.array(ranks, dtype=np.int64)
    return np.unique(np.concatenate([lower, total - lower + 1]))
