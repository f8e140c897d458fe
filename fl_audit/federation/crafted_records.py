"""Craft the record x by which D and D' differ, and measure the effect of x on the training.

Crafting uses only what the insider, a client that attacks, knows. These are the other records of D, the initial
weights, which every party knows, and random draws from the public data seed.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fl_audit.adjacency import CraftedRecord, NeighbourPair
from fl_audit.array_types import Floats32
from fl_audit.data.crafted_records import encoded_record
from fl_audit.federation.loaded_federation import LoadedFederation
from fl_audit.federation.record_tensors import Examples
from fl_audit.learning.record_crafting import (
    CraftedFeatures,
    CraftingProblem,
    CraftingStarts,
    FeatureBounds,
    craft_opposite,
    craft_record,
)
from fl_audit.randomness import Purpose, generator

STARTS = 8  # starting points of the search for a crafted record: half at random features, half at records of D
MODELS = 8  # number of trials whose initial weights are used, if trials have different weights


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


def box_of(features: Floats32) -> FeatureBounds:
    """Return the bounds within which a crafted record's features must lie, given all records' features (n, *shape).

    The bounds are 0 and 1 if all features lie in [0, 1], and otherwise the minimum and the maximum of each feature. A
    feature that is 0 or 1 in all records is marked as binary. One-hot codes of a crafted record may be inconsistent,
    for example with two ones.
    """
    low, high = features.min(axis=0), features.max(axis=0)
    if low.min() >= 0 and high.max() <= 1:
        low, high = np.zeros_like(low), np.ones_like(high)
    binary = ((features == 0) | (features == 1)).all(axis=0)
    return FeatureBounds(torch.from_numpy(low), torch.from_numpy(high), torch.from_numpy(binary))


def craft_pair(
    federation: LoadedFederation, models: Tensor, bounds: FeatureBounds, with_opposite: bool
) -> NeighbourPair:
    """Craft a record x for a federation and return the pair D, D' that differs in x.

    Raises `InputError` if no record can be crafted for the model.

    Shapes: `models` (m, parameters).
    """
    public, norm = federation.public, federation.public.mechanism.clipping_norm
    source = generator(public.data_seed, Purpose.CRAFTED_START)
    scene = CraftingProblem(federation.model, models, norm, bounds.to(models.device))
    tensor = federation.model.clipped_sum(models, federation.common.features, federation.common.labels, norm)
    features = craft_record(scene, tensor, _starts(federation, scene.box, source))
    opposite = craft_opposite(scene, features, _starts(federation, scene.box, source)) if with_opposite else None
    record = None if opposite is None else _told(opposite)
    return NeighbourPair(public.pair.index, public.pair.replacement, _told(features), record)


def _starts(federation: LoadedFederation, bounds: FeatureBounds, source: np.random.Generator) -> CraftingStarts:
    """Return starting points for the search of a crafted record, with random labels.

    Half of them have random features within the bounds, and half have the features of random records of D.
    """
    ordinary = source.integers(len(federation.common.labels), size=STARTS // 2)
    random_starts = source.random((STARTS - len(ordinary), *bounds.low.shape), dtype=np.float32)
    random = bounds.low + torch.from_numpy(random_starts).to(bounds.low.device) * (bounds.high - bounds.low)
    features = torch.cat([random, federation.common.take(ordinary).features])
    labels = torch.from_numpy(source.integers(federation.classes, size=STARTS)).to(features.device)
    return CraftingStarts(features, labels)


def _told(features: CraftedFeatures) -> CraftedRecord:
    return encoded_record(features.features.cpu().numpy(), features.label)


def measure_crafted_record(federation: LoadedFederation, models: Tensor) -> CraftedMeasures | None:
    """Measure the effect of the crafted record x of a federation; return None if x was not crafted.

    Shapes: `models` (m, parameters).
    """
    pair, mechanism, instead = federation.public.pair, federation.public.mechanism, federation.replacement
    if pair.crafted is None:
        return None
    norm = mechanism.clipping_norm

    def clipped(examples: Examples) -> Tensor:
        return federation.model.clipped_sum(models, examples.features, examples.labels, norm).double()

    tensor, others = clipped(federation.differing), clipped(federation.common)
    moved = tensor if instead is None else tensor - clipped(instead)
    order = mechanism.clipping.measured_in.order
    lengths = tensor.norm(p=order, dim=1) / norm
    cosines = torch.nn.functional.cosine_similarity(tensor, others, dim=1).abs()
    return CraftedMeasures(
        record=federation.differing.features[0].cpu().numpy(),
        label=pair.crafted.label,
        length=float(lengths.mean()),
        shortest=float(lengths.min()),
        cosine=float(cosines.mean()),
        sensitivity=float(moved.norm(p=order, dim=1).mean()) / mechanism.global_sensitivity,
        models=len(models),
        opposite=None if pair.opposite is None or instead is None else instead.features[0].cpu().numpy(),
    )
