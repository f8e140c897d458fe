"""Aggregates of losses from which Epsilon* (privacy risk) is computed without sending single losses to the server.

Parametric Epsilon* (Negoescu et al. 2023, section 3.1 and appendix 8.1) depends on the losses only through the smallest
and largest loss, by which they are normalised, and the number, mean and variance of the scores. Both can be aggregated
over owners of records: the extremes directly, and the moments by the formula of Chan, Golub and LeVeque (1983,
"Algorithms for computing the sample variance", Eq. 2.1), which is numerically stable, unlike sums of squares. An owner
first reports a `LossRange`. It then receives the range over all owners, and reports the `ScoreMoments` of its records.

All arrays are float64 of the same shape (...), the axes of the models, such as trials. If an owner has no record under
a model, its count there is 0, and its other values there are 0 and are ignored.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike

from fl_audit.array_types import Flags, Floats
from fl_audit.released_model.parametric_star import epsilon_star_gaussian, loss_scores
from fl_audit.released_model.star_methods import PARAMETRIC_CUT


@dataclass(frozen=True)
class LossRange:
    """Number of records, and their smallest and largest loss, under each model."""

    count: Floats  # number of records (...)
    low: Floats  # smallest loss (...), at least 0; 0 where there is no record
    high: Floats  # largest loss (...), at least 0; 0 where there is no record

    @property
    def is_sound(self) -> bool:
        """Return whether the values are valid: counts are non-negative integers, and 0 <= low <= high < infinity."""
        ordered = bool(np.all((self.low >= 0) & (self.low <= self.high) & np.isfinite(self.high)))
        return ordered and _are_counts(self.count)


@dataclass(frozen=True)
class ScoreMoments:
    """Number, mean and sum of squared deviations of the scores of records under each model."""

    count: Floats  # number of records (...)
    mean: Floats  # mean score (...); 0 where there is no record
    squares: Floats  # sum of squared deviations from `mean` (...), at least 0

    @property
    def is_sound(self) -> bool:
        """Return whether the values are valid: counts are integers from 0, all values finite, `squares` at least 0."""
        finite = bool(np.all(np.isfinite(self.mean) & np.isfinite(self.squares) & (self.squares >= 0)))
        return finite and _are_counts(self.count)

    @property
    def deviation(self) -> Floats:
        """Standard deviation of the scores (...), with denominator n; 0 where there is no record."""
        return np.asarray(np.sqrt(self.squares / np.maximum(self.count, 1.0)), dtype=np.float64)


Summary = TypeVar("Summary", LossRange, ScoreMoments)


def where_trained(summary: Summary, is_trained: Flags) -> Summary:
    """Return a summary of records with 0 in all fields for models that were not trained on them.

    Shapes: `is_trained` (...).
    """
    return type(summary)(*(np.where(is_trained, values, 0.0) for values in vars(summary).values()))


def range_of(losses: ArrayLike) -> LossRange:
    """Return the number, the smallest and the largest of losses under each model, shape (...).

    `losses` has shape (..., n), n at least 0.
    """
    values = np.asarray(losses, dtype=np.float64)
    shape = values.shape[:-1]
    n = values.shape[-1]
    if n == 0:
        return LossRange(np.zeros(shape), np.zeros(shape), np.zeros(shape))
    return LossRange(np.full(shape, float(n)), values.min(axis=-1), values.max(axis=-1))


def joint_range(ranges: Sequence[LossRange]) -> LossRange:
    """Return the number and the range of all owners' losses together, under each model.

    `ranges` holds the range of each owner, at least one.
    """
    counts = np.stack([owner_range.count for owner_range in ranges])
    low = np.where(counts > 0, np.stack([owner_range.low for owner_range in ranges]), np.inf).min(axis=0)
    high = np.where(counts > 0, np.stack([owner_range.high for owner_range in ranges]), -np.inf).max(axis=0)
    total = counts.sum(axis=0)
    return LossRange(total, np.where(total > 0, low, 0.0), np.where(total > 0, high, 0.0))


def moments_of(losses: ArrayLike, low: ArrayLike, high: ArrayLike) -> ScoreMoments:
    """Return the number, the mean and the sum of squared deviations of the loss scores of each model.

    `loss_scores` says how a loss becomes a score. If all scores of a model are equal, the mean is exactly their value
    and the sum of squares is exactly 0.

    `low`: Smaller losses are clipped to `low`.

    `high`: Larger losses are clipped to `high`.
    """
    values = np.asarray(losses, dtype=np.float64)
    shape = values.shape[:-1]
    bottom, top = (np.broadcast_to(np.asarray(end, dtype=np.float64), shape) for end in (low, high))
    count = np.full(shape, float(values.shape[-1]))
    if values.shape[-1] == 0:
        return ScoreMoments(count, np.zeros(shape), np.zeros(shape))
    clipped = np.clip(values, bottom[..., None], top[..., None])
    # `loss_scores` needs at least two losses, but an owner may have one record: `low` is appended, its score dropped.
    scores = loss_scores(np.concatenate([clipped, bottom[..., None]], axis=-1), bottom, top)[..., :-1]
    first = scores[..., :1]
    mean = first + (scores - first).mean(axis=-1, keepdims=True)
    return ScoreMoments(count, mean[..., 0], np.square(scores - mean).sum(axis=-1))


def joint_moments(owner_moments: Sequence[ScoreMoments]) -> ScoreMoments:
    """Return the moments of the scores of all owners together, under each model.

    `owner_moments` holds the moments of each owner, at least one; all scores were computed with the same range of
    losses. The formula is that of Chan, Golub and LeVeque 1983, Eq. 2.1.
    """
    total = owner_moments[0]
    for moments in owner_moments[1:]:
        count = total.count + moments.count
        share = moments.count / np.maximum(count, 1.0)
        # The mean of an owner without records is undefined and must be ignored.
        gap = np.where((total.count > 0) & (moments.count > 0), moments.mean - total.mean, 0.0)
        mean = np.where(total.count > 0, total.mean, moments.mean) + gap * share
        total = ScoreMoments(count, mean, total.squares + moments.squares + gap**2 * total.count * share)
    return total


def epsilon_star_of_moments(
    member_moments: ScoreMoments, population_moments: ScoreMoments, delta: float, cut: float = PARAMETRIC_CUT
) -> Floats:
    """Return the parametric Epsilon* of each model, shape (...), from moments of members' and the population's scores.

    A score is a transformed loss. The result equals that of `parametric_epsilon_star` for the same losses. It is NaN
    where the members or the population have fewer than two records.

    `population_moments`: Both must be computed with the same range of losses.
    """
    enough = (member_moments.count >= 2) & (population_moments.count >= 2)
    star = epsilon_star_gaussian(
        member_moments.mean, member_moments.deviation, population_moments.mean, population_moments.deviation, delta, cut
    )
    return np.where(enough, star, np.nan)


def _are_counts(values: Floats) -> bool:
    return bool(np.all((values >= 0) & np.isfinite(values) & (values == np.floor(values))))
