"""Local training where every world has members of its own: of the same records, each world trains on another part.

All worlds go through the records in one public order, and each cuts its own members out of that order into batches. A
step gathers every world's own batch. Worlds train in groups that fit the cache, each from its first step to its last,
so that models and the optimizer's moments are read from memory once.
"""

from collections.abc import Callable, Sequence
from typing import assert_never

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fl_audit.arrays import Flags, Integers
from fl_audit.learning.dense_chains import ChainLayer
from fl_audit.learning.local_training import LocalOptimizer, LocalSchedule
from fl_audit.learning.stacked import StackedModel

_GROUP_SCALARS = 2**19
"""Scalars of the models of a group: with weights, gradients and two moments 8 MiB, which stay in cache."""

Gradients = Callable[[Tensor, Tensor], Tensor]
"""From models (worlds, parameters) and batches (worlds, batch), padded with -1, to mean gradients of each batch."""


def member_batches(present: Flags, schedule: LocalSchedule, draw: np.random.Generator) -> tuple[Integers, ...]:
    """Draw which records each world takes in each local step: int64 (worlds, batch) a step, padded with -1.

    An epoch has as many steps as the world with the most members needs; others have smaller or empty batches at its
    end.

    Parameters
    ----------
    present
        Which records each world trains on, (worlds, records).
    schedule, draw
        As for `local_batches`; the order is the same in all worlds.
    """
    worlds, records = present.shape
    most = int(present.sum(axis=1).max(initial=0))
    if most == 0:
        return ()
    found: list[Integers] = []
    wanted = schedule.steps_on(most)
    while len(found) < wanted:
        order = draw.permutation(records)
        rows, places = np.nonzero(present[:, order])
        width = -(-most // schedule.batch) * schedule.batch
        padded = np.full((worlds, width), -1, dtype=np.int64)
        rank = np.arange(len(rows)) - np.searchsorted(rows, rows)
        padded[rows, rank] = order[places]
        found += np.split(padded, width // schedule.batch, axis=1)
    return tuple(found[:wanted])


def member_updates(
    model: StackedModel,
    models: Tensor,
    features: Tensor,
    labels: Tensor,
    schedule: LocalSchedule,
    batches: Sequence[Integers],
) -> Tensor:
    """Return theta_start - theta_end after one step of the local optimizer on each batch, in every world.

    Parameters
    ----------
    model, models, features, labels
        As for `local_updates`.
    schedule, batches
        Gives the optimizer and its learning rate; and batches as `member_batches` draws them.
    """
    moved = torch.zeros_like(models)
    if not batches:
        return moved
    steps = [torch.from_numpy(batch).to(models.device) for batch in batches]
    together = max(1, _GROUP_SCALARS // models.shape[1])
    for first in range(0, len(models), together):
        rows = slice(first, min(len(models), first + together))
        some = (features[rows], labels[rows]) if labels.dim() == 2 else (features, labels)
        gradients = _gradients(model, *some, rows.stop - rows.start)
        moved[rows] = models[rows] - _trained(models[rows], [step[rows] for step in steps], schedule, gradients)
    return moved


def _trained(start: Tensor, steps: Sequence[Tensor], schedule: LocalSchedule, gradients: Gradients) -> Tensor:
    """Return where some worlds end."""
    weights = start.clone()
    worlds = list(weights.unbind())  # views, each of which the optimizer moves by itself, with a step count of its own
    match schedule.optimizer:
        case LocalOptimizer.SGD:
            optimizer: torch.optim.Optimizer = torch.optim.SGD(worlds, lr=schedule.learning_rate)
        case LocalOptimizer.ADAM:
            optimizer = torch.optim.Adam(worlds, lr=schedule.learning_rate, fused=True)
        case _:
            assert_never(schedule.optimizer)
    for step in steps:
        has_records = (step >= 0).any(dim=1).tolist()
        for world, gradient, is_moved in zip(worlds, gradients(weights, step), has_records, strict=True):
            # Where a world has no record left in this step, it takes none.
            world.grad = gradient if is_moved else None
        optimizer.step()
    return weights


def _gradients(model: StackedModel, features: Tensor, labels: Tensor, worlds: int) -> Gradients:
    if model.fast and model.chain is not None:
        return _of_chain(model.chain, features, labels)

    def masked(weights: Tensor, step: Tensor) -> Tensor:
        records = labels.shape[-1]
        taking_part = torch.zeros(worlds, records + 1, dtype=torch.bool, device=step.device)
        taking_part.scatter_(1, step.where(step >= 0, records), True)
        taking_part = taking_part[:, :-1]
        total = model.clipped_sum(weights, features, labels, None, None, taking_part)
        return total.div_(taking_part.sum(dim=1, keepdim=True).clamp_(min=1))

    return masked


def _of_chain(layers: Sequence[ChainLayer], features: Tensor, labels: Tensor) -> Gradients:
    """Return mean gradients of a chain of dense layers, each world on its own batch, the backward pass written out."""
    is_own, flat = labels.dim() == 2, features.flatten(2 if labels.dim() == 2 else 1)

    def gradients(weights: Tensor, step: Tensor) -> Tensor:
        counted, index = step >= 0, step.clamp(min=0)
        place = (torch.arange(len(step), device=step.device).unsqueeze(1), index) if is_own else index
        seen = [flat[place].float()]  # by the first layer, then by what follows each
        for layer in layers:
            biases, matrix = layer.biases(weights), layer.weights(weights).transpose(1, 2)
            values = torch.bmm(seen[-1], matrix) if biases is None else torch.baddbmm(biases, seen[-1], matrix)
            seen.append(layer.activation.apply(values))
        share = counted / counted.sum(dim=1, keepdim=True).clamp_(min=1)
        wanted = F.one_hot(labels[place], layers[-1].outs)
        signal = torch.softmax(seen[-1], 2).sub_(wanted).mul_(share.unsqueeze(2))
        gradient = torch.empty_like(weights)
        for number, layer in reversed(list(enumerate(layers))):
            signal = layer.activation.pull_back(signal, seen[number + 1])
            layer.weights(gradient).baddbmm_(signal.transpose(1, 2), seen[number], beta=0)
            if layer.bias is not None:
                gradient[:, layer.bias] = signal.sum(dim=1)
            if number > 0:
                signal = torch.bmm(signal, layer.weights(weights))
        return gradient

    return gradients
