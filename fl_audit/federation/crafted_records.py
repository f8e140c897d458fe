"""Craft the record x by which D and D' differ, and measure the effect of x on the training.

Crafting uses only what the insider, a client that attacks, knows. These are the other records of D, the initial
weights, which every party knows, and random draws from the public data seed.

The most revealing gradient is longer than the clipping norm, so that it has the largest possible influence. It is
orthogonal to the sum of all other gradients, so that training on the other records does not shrink it (the design of
CANIFE, Maddock et al. 2023). Both properties can be differentiated with respect to the record's features, through the
gradient of the loss with respect to the parameters. If a record is replaced by another, the sum of gradients changes
most if the gradients of the two are opposite.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fl_audit.adjacency import CraftedRecord, NeighbourPair
from fl_audit.array_types import Floats32
from fl_audit.data.records import encoded_record
from fl_audit.errors import InputError, require
from fl_audit.federation.loaded_federation import LoadedFederation
from fl_audit.federation.record_tensors import Examples
from fl_audit.learning import pass_budgets
from fl_audit.learning.microbatching import Microbatch
from fl_audit.learning.module_preparation import exception_text
from fl_audit.learning.stacked_model import StackedModel
from fl_audit.randomness import Purpose, generator

_STEPS = 150  # number of steps of Adam
_RATE = 0.05  # step size of Adam, as a share of a feature's range
_MARGIN = 2.0  # desired gradient norm over the clipping norm; a longer gradient stays clipped longer during training
_NOTHING = 1e-12  # number that replaces a divisor of 0
STARTS = 8  # starting points of the search for a crafted record: half at random features, half at records of D
MODELS = 8  # number of trials whose initial weights are used, if trials have different weights


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
    bounds: FeatureBounds  # smallest and largest values of the features


LossAndRank = tuple[Tensor, Tensor]
"""Two tensors (n,) for n candidate records: the value that the search minimises, and a rank, of which lower is better.
"""


def craft_record(problem: CraftingProblem, other_sums: Tensor, start_examples: Examples) -> Examples:
    """Return one record whose clipped gradient is as orthogonal as possible to the sum S over all other records.

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

    return _search(problem, start_examples, measure)


def craft_opposite(problem: CraftingProblem, record: Examples, start_examples: Examples) -> Examples:
    """Craft the record to replace a given one: the clipped gradients of both are as far apart as possible.

    Raises `InputError` if the model's gradient is not differentiable with respect to the features.
    """
    record_sum = problem.model.clipped_sum(problem.models, record.features, record.labels, problem.clipping_norm)
    record_sum = record_sum.unsqueeze(1)

    def measure(gradients: Tensor) -> LossAndRank:
        lengths = gradients.norm(dim=2, keepdim=True)
        clipped = gradients * (problem.clipping_norm / lengths.clamp(min=_NOTHING)).clamp(max=1)
        missing = 2 - (record_sum - clipped).norm(dim=2) / problem.clipping_norm
        # Length beyond the clipping norm changes nothing at once, but keeps the record clipped later on.
        short = (_MARGIN - lengths.squeeze(2) / problem.clipping_norm).clamp(min=0)
        return (missing + 0.1 * short.square()).mean(0), missing.mean(0)

    return _search(problem, start_examples, measure)


def _search(problem: CraftingProblem, start_examples: Examples, measure: Callable[[Tensor], LossAndRank]) -> Examples:
    """Return the best record that gradient descent finds from all starts, which are divided to fit into memory.

    `measure` maps gradients (m, n, parameters) to two numbers for each of n records: the value that gradient descent
    minimises, and a rank. The best record has the lowest rank.
    """
    together = max(1, pass_budgets.GRADIENT_BUDGET // problem.models.numel())
    start_groups = map(
        Examples, torch.split(start_examples.features, together), torch.split(start_examples.labels, together)
    )
    record, rank = min(
        (_descend(problem, start_group, measure) for start_group in start_groups), key=lambda result: result[1]
    )
    require(math.isfinite(rank), "no record could be crafted: the gradients of the model are not finite")
    return record


def _descend(
    problem: CraftingProblem, start_examples: Examples, measure: Callable[[Tensor], LossAndRank]
) -> tuple[Examples, float]:
    """Return the record of lowest rank on the descent paths from some starts, and its rank, which may be infinite."""
    span = (problem.bounds.high - problem.bounds.low).clamp(min=0)
    # In units of the ranges, so that one step size does for all features.
    coordinates = (
        (problem.bounds.clamped(start_examples.features) - problem.bounds.low) / span.clamp(min=_NOTHING)
    ).requires_grad_()
    optimizer = torch.optim.Adam([coordinates], lr=_RATE)
    best = torch.full((len(start_examples.labels),), torch.inf, device=coordinates.device)
    best_features = torch.empty_like(start_examples.features)
    for _ in range(_STEPS):
        try:
            with torch.enable_grad():
                features = problem.bounds.rounded(problem.bounds.low + coordinates * span)
                # No name holds the gradients, so that their memory is free before the next step asks for as much.
                objective, rank = measure(
                    problem.model.example_gradients(problem.models, Microbatch(features, start_examples.labels))
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
    winner = best.argmin().unsqueeze(0)
    return Examples(best_features[winner], start_examples.labels[winner]), float(best[winner])


@dataclass(frozen=True, eq=False)
class CraftedMeasures:
    """A crafted record x and measures of its effect, averaged over the initial weights of a few trials."""

    record: Floats32  # features of x, shape (*shape)
    label: int  # class of x
    length: float  # mean norm of the clipped gradient over the clipping norm C, 0 to 1
    shortest: float  # norm of the clipped gradient over the clipping norm C in the trial where it is the smallest
    cosine: float  # mean |cos| of the gradient of x and the sum of all others' clipped gradients, 0 to 1
    sensitivity: float  # mean of ||f(D) - f(D')|| over the global sensitivity, 0 to 1
    models: int  # number of trials over which the measures are averaged
    opposite: Floats32 | None = None  # features of the replacement of x if it is crafted too; otherwise None


def feature_bounds(features: Floats32) -> FeatureBounds:
    """Return the bounds within which a crafted record's features must lie, given all records' features (n, *shape).

    The bounds are 0 and 1 if all features lie in [0, 1], and otherwise the minimum and the maximum of each feature. A
    feature that is 0 or 1 in all records is marked as binary. One-hot codes of a crafted record may be inconsistent,
    for example with two ones.
    """
    low = features.min(axis=0)
    high = features.max(axis=0)
    if low.min() >= 0 and high.max() <= 1:
        low = np.zeros_like(low)
        high = np.ones_like(high)
    binary = ((features == 0) | (features == 1)).all(axis=0)
    return FeatureBounds(torch.from_numpy(low), torch.from_numpy(high), torch.from_numpy(binary))


def craft_pair(
    federation: LoadedFederation, models: Tensor, bounds: FeatureBounds, with_opposite: bool
) -> NeighbourPair:
    """Craft a record x for a federation and return the pair D, D' that differs in x.

    Raises `InputError` if no record can be crafted for the model.

    Shapes: `models` (m, parameters).
    """
    public = federation.public
    norm = federation.public.mechanism.clipping_norm
    source = generator(public.data_seed, Purpose.CRAFTED_START)
    problem = CraftingProblem(federation.model, models, norm, bounds.to(models.device))
    other_sums = federation.model.clipped_sum(models, federation.common.features, federation.common.labels, norm)
    record = craft_record(problem, other_sums, _starts(federation, problem.bounds, source))
    opposite = craft_opposite(problem, record, _starts(federation, problem.bounds, source)) if with_opposite else None
    crafted_opposite = None if opposite is None else _encoded(opposite)
    return NeighbourPair(public.pair.index, public.pair.replacement, _encoded(record), crafted_opposite)


def _starts(federation: LoadedFederation, bounds: FeatureBounds, source: np.random.Generator) -> Examples:
    """Return starting points for the search of a crafted record, with random labels.

    Half of them have random features within the bounds, and half have the features of random records of D.
    """
    ordinary = source.integers(len(federation.common.labels), size=STARTS // 2)
    random_starts = source.random((STARTS - len(ordinary), *bounds.low.shape), dtype=np.float32)
    random = bounds.low + torch.from_numpy(random_starts).to(bounds.low.device) * (bounds.high - bounds.low)
    features = torch.cat([random, federation.common.take(ordinary).features])
    labels = torch.from_numpy(source.integers(federation.classes, size=STARTS)).to(features.device)
    return Examples(features, labels)


def _encoded(record: Examples) -> CraftedRecord:
    return encoded_record(record.features[0].cpu().numpy(), int(record.labels))


def measure_crafted_record(federation: LoadedFederation, models: Tensor) -> CraftedMeasures | None:
    """Measure the effect of the crafted record x of a federation; return None if x was not crafted.

    Shapes: `models` (m, parameters).
    """
    pair = federation.public.pair
    mechanism = federation.public.mechanism
    instead = federation.replacement
    if pair.crafted is None:
        return None
    norm = mechanism.clipping_norm

    def clipped(examples: Examples) -> Tensor:
        return federation.model.clipped_sum(models, examples.features, examples.labels, norm).double()

    target_sum = clipped(federation.differing)
    common_sum = clipped(federation.common)
    change = target_sum if instead is None else target_sum - clipped(instead)
    order = mechanism.clipping.measured_in.order
    lengths = target_sum.norm(p=order, dim=1) / norm
    cosines = torch.nn.functional.cosine_similarity(target_sum, common_sum, dim=1).abs()
    return CraftedMeasures(
        record=federation.differing.features[0].cpu().numpy(),
        label=pair.crafted.label,
        length=float(lengths.mean()),
        shortest=float(lengths.min()),
        cosine=float(cosines.mean()),
        sensitivity=float(change.norm(p=order, dim=1).mean()) / mechanism.global_sensitivity,
        models=len(models),
        opposite=None if pair.opposite is None or instead is None else instead.features[0].cpu().numpy(),
    )
