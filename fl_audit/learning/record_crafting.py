"""Crafted records: inputs found by gradient descent so that their gradient has the effect that an audit needs.

The most revealing gradient is longer than the clipping norm, so that it has the largest possible influence, and
orthogonal to the sum of all other gradients, so that training on the other records does not shrink it (the design of
CANIFE, Maddock et al. 2023). Both properties can be differentiated with respect to the record's features, through the
gradient of the loss in the parameters. If a record is replaced by another, the sum changes most if their gradients are
opposite.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from fl_audit.errors import InputError, require
from fl_audit.learning import pass_budgets
from fl_audit.learning.microbatching import MicrobatchExamples
from fl_audit.learning.module_checks import said
from fl_audit.learning.stacked_model import StackedModel

_STEPS = 150  # of Adam
_RATE = 0.05  # step size of Adam, as a share of a feature's range
_MARGIN = 2.0  # length that is aimed at, over the clipping norm: a gradient that begins longer stays clipped longer
_NOTHING = 1e-12


@dataclass(frozen=True)
class FeatureBounds:
    """Bounds of the features of a record."""

    low: Tensor  # least value of every feature, float32 (*shape)
    high: Tensor  # largest value of every feature, float32 (*shape)
    # Whether a feature takes no values but its least and its largest, bool (*shape). The search moves it in between,
    # and rounds it before the model reads it, so that measurements are those of a record.
    binary: Tensor

    def to(self, device: torch.device) -> "FeatureBounds":
        """Return the bounds on a device."""
        return FeatureBounds(self.low.to(device), self.high.to(device), self.binary.to(device))

    def within(self, features: Tensor) -> Tensor:
        """Return features (n, *shape) clamped to the bounds."""
        return torch.minimum(torch.maximum(features, self.low), self.high)

    def rounded(self, features: Tensor) -> Tensor:
        """Return features as records have them; to a derivative it is as if nothing were rounded."""
        nearest = torch.where(features - self.low < self.high - features, self.low, self.high)
        return features + (torch.where(self.binary, nearest, features) - features).detach()


@dataclass(frozen=True)
class CraftingSetting:
    """Model, weights, clipping norm and feature bounds for which a record is crafted."""

    model: StackedModel  # the network
    models: Tensor  # weights at which gradients are looked at, float32 (m, parameters)
    clipping_norm: float  # C, above 0
    box: FeatureBounds  # values that features may have


class Candidates(NamedTuple):
    """Starting points of the search: features (n, *shape) in float32 and labels (n,) in int64."""

    features: Tensor
    labels: Tensor


class CraftedFeatures(NamedTuple):
    """A crafted record: features (*shape) and its class."""

    features: Tensor
    label: int


NoiseMeasurements = tuple[Tensor, Tensor]
"""For every candidate what is minimised, and its rank: of two candidates the one with the smaller rank is better."""


def craft_record(scene: CraftingSetting, others: Tensor, starts: Candidates) -> CraftedFeatures:
    """Return a record with a clipped gradient that is as orthogonal as possible to the sum over the other records.

    The search minimises the mean over the models of cos(g, S)^2 + max(0, 2 - ||g|| / C)^2. Of all records along its
    path it returns the one with the smallest mean |cos(g, S)| among those clipped at every model; if there is none, the
    one with the longest clipped gradient on average. Raises `InputError` if the model's gradient is not differentiable
    in the features.

    Parameters
    ----------
    scene
        Model, weights, clipping norm and feature bounds for which the record is crafted.
    others
        Sums S of the clipped gradients of all other records, float32 (m, parameters).
    starts
        Starting points of the search; their labels do not change.
    """

    def measure(gradients: Tensor) -> NoiseMeasurements:
        lengths = gradients.norm(dim=2) / scene.clipping_norm
        cosines = torch.nn.functional.cosine_similarity(gradients, others.unsqueeze(1), dim=2, eps=_NOTHING)
        wanted = (cosines.square() + (_MARGIN - lengths).clamp(min=0).square()).mean(0)
        # Below 1 where all are clipped, and from 1 to 2 where one is not.
        clipped = lengths.clamp(max=1).mean(0)
        return wanted, torch.where(lengths.amin(0) >= 1, cosines.abs().mean(0), 2 - clipped)

    return _search(scene, starts, measure)


def craft_opposite(scene: CraftingSetting, record: CraftedFeatures, starts: Candidates) -> CraftedFeatures:
    """Return the record with the clipped gradient farthest from that of a given record, for which it is substituted.

    Parameters
    ----------
    scene
        Setting of the search, as for `craft_record`, which raises the same errors.
    starts
        Starting points of the search; their labels do not change.
    record
        The record to be replaced.
    """
    features, labels = record.features.unsqueeze(0), torch.tensor([record.label], device=record.features.device)
    own = scene.model.clipped_sum(scene.models, features, labels, scene.clipping_norm).unsqueeze(1)

    def measure(gradients: Tensor) -> NoiseMeasurements:
        lengths = gradients.norm(dim=2, keepdim=True)
        clipped = gradients * (scene.clipping_norm / lengths.clamp(min=_NOTHING)).clamp(max=1)
        missing = 2 - (own - clipped).norm(dim=2) / scene.clipping_norm
        # Length beyond the clipping norm changes nothing at once, but keeps the record clipped later on.
        short = (_MARGIN - lengths.squeeze(2) / scene.clipping_norm).clamp(min=0)
        return (missing + 0.1 * short.square()).mean(0), missing.mean(0)

    return _search(scene, starts, measure)


def _search(
    scene: CraftingSetting, starts: Candidates, measure: Callable[[Tensor], NoiseMeasurements]
) -> CraftedFeatures:
    """Return the record of the lowest rank on all descent paths; starting points are split to fit in memory."""
    together = max(1, pass_budgets.GRADIENT_BUDGET // scene.models.numel())
    parts = map(Candidates, torch.split(starts.features, together), torch.split(starts.labels, together))
    record, rank = min((_descend(scene, part, measure) for part in parts), key=lambda one: one[1])
    require(math.isfinite(rank), "no record could be crafted: the gradients of the model are not finite")
    return record


def _descend(
    scene: CraftingSetting, starts: Candidates, measure: Callable[[Tensor], NoiseMeasurements]
) -> tuple[CraftedFeatures, float]:
    """Return the record of the lowest rank on the descent paths from some starting points, and its rank."""
    span = (scene.box.high - scene.box.low).clamp(min=0)
    # In units of the ranges, so that one step size does for all features.
    place = ((scene.box.within(starts.features) - scene.box.low) / span.clamp(min=_NOTHING)).requires_grad_()
    optimizer = torch.optim.Adam([place], lr=_RATE)
    best = torch.full((len(starts.labels),), torch.inf, device=place.device)
    kept = torch.empty_like(starts.features)
    for _ in range(_STEPS):
        try:
            with torch.enable_grad():
                features = scene.box.rounded(scene.box.low + place * span)
                # No name holds the gradients, so that their memory is free before the next step asks for as much.
                wanted, rank = measure(
                    scene.model.example_gradients(scene.models, MicrobatchExamples(features, starts.labels))
                )
                (place.grad,) = torch.autograd.grad(wanted.sum(), [place])
                del wanted
        except (RuntimeError, NotImplementedError) as error:
            raise InputError(
                f"no record can be crafted for this model, whose gradient is not differentiable in the features "
                f"({said(error)}): accepted for neighbour in [audit] are records of the data"
            ) from error
        rank, features = rank.detach(), features.detach()
        better = rank < best
        best, kept[better] = torch.where(better, rank, best), features[better]
        optimizer.step()
        with torch.no_grad():
            place.clamp_(0, 1)
    winner = int(best.argmin())
    return CraftedFeatures(kept[winner], int(starts.labels[winner])), float(best[winner])
