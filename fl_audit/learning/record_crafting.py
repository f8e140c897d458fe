"""Crafted records: artificial records whose features are found by gradient descent so that they reveal the most.

The most revealing gradient is longer than the clipping norm, so that it has the largest possible influence. It is
orthogonal to the sum of all other gradients, so that training on the other records does not shrink it (the design of
CANIFE, Maddock et al. 2023). Both properties can be differentiated with respect to the record's features, through the
gradient of the loss with respect to the parameters. If a record is replaced by another, the sum of gradients changes
most if the gradients of the two are opposite.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from fl_audit.errors import InputError, require
from fl_audit.learning import pass_budgets
from fl_audit.learning.microbatching import Microbatch
from fl_audit.learning.module_preparation import exception_text
from fl_audit.learning.stacked_model import StackedModel

_STEPS = 150  # number of steps of Adam
_RATE = 0.05  # step size of Adam, as a share of a feature's range
_MARGIN = 2.0  # desired gradient norm over the clipping norm; a longer gradient stays clipped longer during training
_NOTHING = 1e-12  # number that replaces a divisor of 0


@dataclass(frozen=True)
class FeatureBounds:
    """Smallest and largest value of each feature of a record."""

    low: Tensor  # smallest value of every feature, float32 (*shape)
    high: Tensor  # largest value of every feature, float32 (*shape)
    # Whether a feature has only two values, its smallest and its largest, bool (*shape). The search moves it between
    # them, and rounds it before the model reads it, so that the model only reads possible records.
    binary: Tensor

    def to(self, device: torch.device) -> "FeatureBounds":
        """Return the bounds on a device."""
        return FeatureBounds(self.low.to(device), self.high.to(device), self.binary.to(device))

    def clamped(self, features: Tensor) -> Tensor:
        """Return features (n, *shape), clamped to the bounds."""
        return torch.minimum(torch.maximum(features, self.low), self.high)

    def rounded(self, features: Tensor) -> Tensor:
        """Return features (n, *shape) in which binary ones are rounded to `low` or `high`, whichever is nearer.

        Gradients pass through the rounding unchanged.
        """
        nearest = torch.where(features - self.low < self.high - features, self.low, self.high)
        return features + (torch.where(self.binary, nearest, features) - features).detach()


@dataclass(frozen=True)
class CraftingProblem:
    """Setting in which an artificial record is crafted: model, weights, clipping norm and feature bounds."""

    model: StackedModel  # model that computes the gradients
    models: Tensor  # m weight vectors at which gradients are computed, float32 (m, parameters)
    clipping_norm: float  # clipping norm C (L2) of a gradient, above 0
    box: FeatureBounds  # smallest and largest values of the features


class CraftingStarts(NamedTuple):
    """Records at which the search for a crafted record starts: features float32 (n, *shape), and classes int64 (n,)."""

    features: Tensor
    labels: Tensor


class CraftedFeatures(NamedTuple):
    """An artificial record that was found by search: its features, (*shape), and its class."""

    features: Tensor
    label: int


LossAndRank = tuple[Tensor, Tensor]
"""Two tensors (n,) for n candidate records: the value that the search minimises, and a rank, of which lower is better.
"""


def craft_record(problem: CraftingProblem, other_sums: Tensor, starts: CraftingStarts) -> CraftedFeatures:
    """Return a record whose clipped gradient is as orthogonal as possible to the sum S over all other records.

    The search minimises the mean over the weight vectors of cos(g, S)^2 + max(0, 2 - ||g|| / C)^2, where g is the
    record's gradient. It returns one of the records that it visited. If some visited records are clipped at every
    weight vector, it returns the record among them with the smallest mean |cos(g, S)|. Otherwise it returns the record
    with the longest clipped gradient on average. Raises `InputError` if the model's gradient is not differentiable with
    respect to the features.

    Shapes: `other_sums` (m, parameters).
    """

    def measure(gradients: Tensor) -> LossAndRank:
        lengths = gradients.norm(dim=2) / problem.clipping_norm
        cosines = torch.nn.functional.cosine_similarity(gradients, other_sums.unsqueeze(1), dim=2, eps=_NOTHING)
        objective = (cosines.square() + (_MARGIN - lengths).clamp(min=0).square()).mean(0)
        # Below 1 where all are clipped, and from 1 to 2 where one is not.
        clipped = lengths.clamp(max=1).mean(0)
        return objective, torch.where(lengths.amin(0) >= 1, cosines.abs().mean(0), 2 - clipped)

    return _search(problem, starts, measure)


def craft_opposite(problem: CraftingProblem, record: CraftedFeatures, starts: CraftingStarts) -> CraftedFeatures:
    """Craft the record to replace a given one: the clipped gradients of both are as far apart as possible.

    Raises `InputError` if the model's gradient is not differentiable with respect to the features.
    """
    features, labels = record.features.unsqueeze(0), torch.tensor([record.label], device=record.features.device)
    record_sum = problem.model.clipped_sum(problem.models, features, labels, problem.clipping_norm).unsqueeze(1)

    def measure(gradients: Tensor) -> LossAndRank:
        lengths = gradients.norm(dim=2, keepdim=True)
        clipped = gradients * (problem.clipping_norm / lengths.clamp(min=_NOTHING)).clamp(max=1)
        missing = 2 - (record_sum - clipped).norm(dim=2) / problem.clipping_norm
        # Length beyond the clipping norm changes nothing at once, but keeps the record clipped later on.
        short = (_MARGIN - lengths.squeeze(2) / problem.clipping_norm).clamp(min=0)
        return (missing + 0.1 * short.square()).mean(0), missing.mean(0)

    return _search(problem, starts, measure)


def _search(
    problem: CraftingProblem, starts: CraftingStarts, measure: Callable[[Tensor], LossAndRank]
) -> CraftedFeatures:
    """Return the best record that gradient descent finds from all starts, which are divided to fit into memory.

    `measure` maps gradients (m, n, parameters) to two numbers for each of n records: the value that gradient descent
    minimises, and a rank. The best record has the lowest rank.
    """
    together = max(1, pass_budgets.GRADIENT_BUDGET // problem.models.numel())
    start_groups = map(CraftingStarts, torch.split(starts.features, together), torch.split(starts.labels, together))
    record, rank = min(
        (_descend(problem, start_group, measure) for start_group in start_groups), key=lambda result: result[1]
    )
    require(math.isfinite(rank), "no record could be crafted: the gradients of the model are not finite")
    return record


def _descend(
    problem: CraftingProblem, starts: CraftingStarts, measure: Callable[[Tensor], LossAndRank]
) -> tuple[CraftedFeatures, float]:
    """Return the record of lowest rank on the descent paths from some starts, and its rank, which may be infinite."""
    span = (problem.box.high - problem.box.low).clamp(min=0)
    # In units of the ranges, so that one step size does for all features.
    coordinates = ((problem.box.clamped(starts.features) - problem.box.low) / span.clamp(min=_NOTHING)).requires_grad_()
    optimizer = torch.optim.Adam([coordinates], lr=_RATE)
    best = torch.full((len(starts.labels),), torch.inf, device=coordinates.device)
    best_features = torch.empty_like(starts.features)
    for _ in range(_STEPS):
        try:
            with torch.enable_grad():
                features = problem.box.rounded(problem.box.low + coordinates * span)
                # No name holds the gradients, so that their memory is free before the next step asks for as much.
                objective, rank = measure(
                    problem.model.example_gradients(problem.models, Microbatch(features, starts.labels))
                )
                (coordinates.grad,) = torch.autograd.grad(objective.sum(), [coordinates])
                del objective
        except (RuntimeError, NotImplementedError) as error:
            raise InputError(
                f"no record can be crafted for this model, whose gradient is not differentiable in the features "
                f"({exception_text(error)}): accepted for neighbour in [audit] are records of the data"
            ) from error
        rank = rank.detach()
        features = features.detach()
        better = rank < best
        best = torch.where(better, rank, best)
        best_features[better] = features[better]
        optimizer.step()
        with torch.no_grad():
            coordinates.clamp_(0, 1)
    winner = int(best.argmin())
    return CraftedFeatures(best_features[winner], int(starts.labels[winner])), float(best[winner])
