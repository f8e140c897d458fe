"""How Epsilon* depends on the number of losses it is computed from: its upward bias shrinks as they grow in number."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from fl_audit.arrays import Floats
from fl_audit.errors import require
from fl_audit.evidence.star.loss_samples import checked_pair

Estimator = Callable[[Floats, Floats, float], Floats]
"""Takes losses of members (models, m), of the population (models, p), and delta; returns Epsilon* (models,)."""

_AT_ONCE = 2**22


@dataclass(frozen=True)
class SizeEffect:
    """Epsilon* of subsets of one size."""

    size: int  # number of losses drawn from each set
    # `mean`, `std`: mean and standard deviation over the subsets, the latter with the denominator `subsets` - 1.
    mean: float
    std: float
    subsets: int  # how many were drawn


def sample_size_effect(
    member_losses: ArrayLike,
    population_losses: ArrayLike,
    delta: float,
    sizes: Sequence[int],
    subsets: int,
    estimator: Estimator,
    rng: np.random.Generator,
) -> tuple[SizeEffect, ...]:
    """Return mean and spread of Epsilon* over random subsets of each size, drawn without replacement.

    Parameters
    ----------
    member_losses, population_losses
        Losses at least 0, finite, shapes (m,) and (p,).
    delta
        From 0 to below 1.
    sizes
        Numbers of losses in a subset, each from 2 to the smaller of m and p. Subsets that hold most of a set vary less
        than new samples would.
    subsets
        Number of subsets of each size, at least 2.
    estimator, rng
        `parametric_epsilon_star` or `empirical_epsilon_star`; draws the subsets.

    Raises
    ------
    InputError
        If a number is out of its range, or as the estimator.
    """
    members, population = checked_pair(member_losses, population_losses)
    require(members.ndim == 1, f"member losses have shape {members.shape}: accepted is one axis")
    require(subsets >= 2, f"subsets is {subsets}: accepted are whole numbers from 2")
    most = min(members.size, population.size)
    found = []
    for size in sizes:
        require(2 <= size <= most, f"size is {size}: accepted are whole numbers from 2 to {most}")
        step = max(1, _AT_ONCE // size)
        values = []
        for start in range(0, subsets, step):
            drawn = [
                np.stack([rng.choice(losses, size, replace=False) for _ in range(min(step, subsets - start))])
                for losses in (members, population)
            ]
            values.append(estimator(drawn[0], drawn[1], delta))
        all_ = np.concatenate(values)
        found.append(SizeEffect(size, float(all_.mean()), float(all_.std(ddof=1)), subsets))
    return tuple(found)
