"""Hypotheses D and D' about a release, and the log-likelihood ratio between them.

Functions raise `InputError` for numbers out of range.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from scipy.special import ndtri_exp
from torch import Tensor

from fl_audit.array_types import Floats
from fl_audit.learning.stacked_layers import cached_rows
from fl_audit.value_checks import require_number


@dataclass(frozen=True)
class Hypotheses:
    """Sum of a round under D and under D' in each trial, split into shared and differing contributions.

    The difference of the two sums is computed from the differing contributions, which is more accurate than subtracting
    two large sums.
    """

    shared: Tensor  # sum of the contributions under both D and D', float32 (trials, parameters)
    present: Tensor  # contribution of the differing unit under D; float32 (trials, parameters)
    absent: Tensor  # contribution in its place under D'; float32 (trials, parameters)
    # Probability that the differing unit is in the sum, above 0 and up to 1; the observer knows the other participants.
    weight: float = 1.0
    # Log-likelihood ratios from side information, float64 (trials,) each: that `present` is in the sum, and that
    # `absent` is in it, each against the absence of both. None without side information.
    sides: tuple[Tensor, Tensor] | None = None

    def __post_init__(self) -> None:
        require_number("participation weight is", self.weight, "numbers above 0 and up to 1")

    @property
    def sensitivity(self) -> Floats:
        """Local sensitivity ||f(D) - f(D')|| in each trial, float64 (trials,), where f is the sum without noise."""
        return local_sensitivity(self.present, self.absent)

    def compare_with(self, release: Tensor) -> Iterator["ReleaseUnderHypotheses"]:
        """Compare a release with both hypotheses, and yield the comparisons of one group of trials after the other.

        `release` has shape (trials, parameters). A group is small enough for the cache.
        """
        tensors = (release, self.shared, self.present, self.absent)
        for rows in cached_rows(len(self.shared), self.shared.shape[1], on_card=self.shared.is_cuda):
            yield ReleaseUnderHypotheses(rows, *(tensor[rows].double() for tensor in tensors))


class LikelihoodRatioInput(NamedTuple):
    """Input of a likelihood ratio test: an observation, (trials, parameters), and two hypotheses about its mean."""

    observed: Tensor
    hypotheses: Hypotheses


@dataclass(frozen=True)
class ReleaseUnderHypotheses:
    """Releases of some trials, and the sums without noise that are expected under D and under D', all float64."""

    rows: slice  # positions of the trials in the batch of trials
    release: Tensor  # the releases, (rows, parameters)
    shared: Tensor  # the part of the sums that both hypotheses share, see `Hypotheses`, (rows, parameters)
    present: Tensor  # the contribution under D, see `Hypotheses`, (rows, parameters)
    absent: Tensor  # the contribution under D', see `Hypotheses`, (rows, parameters)

    @cached_property
    def residual(self) -> Tensor:
        """Release minus (f(D) + f(D'))/2, (rows, parameters), where f is the sum without noise.

        It equals the noise plus or minus half the difference of the two sums.
        """
        return self.release - (self.shared + (self.present + self.absent) / 2)

    @cached_property
    def difference(self) -> Tensor:
        """Difference f(D) - f(D') of the sums without noise, (rows, parameters)."""
        return self.present - self.absent


def local_sensitivity(present: Tensor, absent: Tensor) -> Floats:
    """Return the local sensitivity ||f(D) - f(D')|| of each trial, float64 (trials,), where f is the sum of a round.

    The client that holds the differing unit and the attacking client both call this function on equal tensors, so their
    results agree to the last bit.

    Shapes: `present` (trials, parameters), `absent` (trials, parameters).
    """
    portions = cached_rows(len(present), present.shape[1], on_card=present.is_cuda)
    norms = [(present[rows].double() - absent[rows].double()).norm(dim=1) for rows in portions]
    sensitivities: Floats = torch.cat(norms).cpu().numpy()
    return sensitivities


@dataclass(frozen=True)
class ReleaseLlrs:
    """Evidence for D against D' from one release in each of some trials.

    It consists of the log-likelihood ratio, and of the noise that each hypothesis implies along f(D) - f(D').
    """

    log_odds: Tensor  # log-likelihood ratio of D against D', float64 (rows,)
    # Normal scores, float64 (rows, 2): the standardised noise along the difference of the two contributions, if D was
    # used and if D' was used. The score of the true hypothesis is N(0, 1) for any earlier releases. NaN if the
    # contributions are equal.
    scores: Tensor


def gaussian_llr(
    comparison: ReleaseUnderHypotheses, agreement: Tensor, sigma: Tensor, distance: Tensor, hypotheses: Hypotheses
) -> ReleaseLlrs:
    """Return the log-likelihood ratios and normal scores of releases with noise N(0, sigma^2 I).

    If the differing unit always participates, the ratio is <r - (f(D) + f(D'))/2, f(D) - f(D')> / sigma^2 for the
    release r (Bernau et al. 2021, Lemma 1). If it participates with probability q, the ratio is h(l) - h(l') with h(x)
    = log((1 - q) + q e^x). Here l is the log-likelihood ratio of a sum that contains the unit's contribution under D,
    against a sum without the unit. Likewise l' is the ratio for the unit's contribution under D'.

    Shapes: `agreement` (rows,), `sigma` (rows,), `distance` (rows,).
    """
    weight = hypotheses.weight
    sides = None if hypotheses.sides is None else [side[comparison.rows] for side in hypotheses.sides]
    along = agreement / (sigma * distance)
    if weight == 1:
        half = distance / (2 * sigma)
        scores = torch.stack([along - half, along + half], dim=1)
        plain = agreement / sigma.square()
        return ReleaseLlrs(plain if sides is None else plain + sides[0] - sides[1], scores)
    residual = comparison.release - comparison.shared
    contributions = (comparison.present, comparison.absent)
    llrs = [
        ((residual - contribution / 2) * contribution).sum(dim=1) / sigma.square() for contribution in contributions
    ]
    if sides is not None:
        llrs = [llr + side for llr, side in zip(llrs, sides, strict=True)]
    means = [(contribution * comparison.difference).sum(dim=1) / (sigma * distance) for contribution in contributions]
    position = along + (means[0] + means[1]) / 2
    scores = torch.stack([_normal_score(position, mean, weight) for mean in means], dim=1)
    return ReleaseLlrs(mixed_llr(llrs[0], weight) - mixed_llr(llrs[1], weight), scores)


def mixed_llr(log_odds: Tensor, weight: float) -> Tensor:
    """Return log((1 - q) + q e^l), the log-likelihood ratio of "takes part with probability q" against "is absent"."""
    return torch.logaddexp(torch.full_like(log_odds, math.log1p(-weight)), math.log(weight) + log_odds)


def _normal_score(position: Tensor, mean: Tensor, weight: float) -> Tensor:
    """Return Phi^-1(F(`position`)) for the distribution function F of the mixture (1 - q) N(0, 1) + q N(`mean`, 1).

    `weight` is q. The smaller tail is used, for accuracy.
    """
    lower, upper = (
        torch.logaddexp(
            math.log1p(-weight) + torch.special.log_ndtr(sign * position),
            math.log(weight) + torch.special.log_ndtr(sign * (position - mean)),
        )
        for sign in (1, -1)
    )
    smaller = torch.minimum(lower, upper).cpu().numpy()
    score = torch.from_numpy(ndtri_exp(smaller)).to(position.device)
    return torch.where(lower <= upper, score, -score)
