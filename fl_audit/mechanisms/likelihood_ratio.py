"""Hypotheses D and D' about a release, and the evidence of a release for one against the other.

Each kind of noise computes the log-likelihood ratio of its releases (`fl_audit.mechanisms.noises`).

Functions raise `InputError` for numbers out of range.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from fl_audit.array_types import Floats
from fl_audit.learning.stacked_layers import cached_rows
from fl_audit.privacy.accounting_enums import VectorNorm
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

    def sensitivity_in(self, norm: VectorNorm) -> Floats:
        """Return the local sensitivity ||f(D) - f(D')|| of each trial, float64 (trials,), where f is the sum."""
        return local_sensitivity(self.present, self.absent, norm)

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


def local_sensitivity(present: Tensor, absent: Tensor, norm: VectorNorm = VectorNorm.L2) -> Floats:
    """Return the local sensitivity ||f(D) - f(D')|| of each trial, float64 (trials,), where f is the sum of a round.

    The client that holds the differing unit and the attacking client both call this function on equal tensors, so their
    results agree to the last bit.

    Shapes: `present` (trials, parameters), `absent` (trials, parameters).
    """
    portions = cached_rows(len(present), present.shape[1], on_card=present.is_cuda)
    norms = [(present[rows].double() - absent[rows].double()).norm(p=norm.order, dim=1) for rows in portions]
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


def mixed_llr(log_odds: Tensor, weight: float) -> Tensor:
    """Return log((1 - q) + q e^l), the log-likelihood ratio of "takes part with probability q" against "is absent"."""
    return torch.logaddexp(torch.full_like(log_odds, math.log1p(-weight)), math.log(weight) + log_odds)
