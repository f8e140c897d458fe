"""Local training of a client in DP-FedAvg, in all trials at once.

A client starts from the round's model and takes plain SGD steps on its own records. The start minus the end is its
pseudo-gradient (McMahan et al. 2018, "Learning differentially private recurrent language models"; Reddi et al. 2021,
"Adaptive federated optimization"). The order of records is public, so at each step all trials use the same records, or
their own randomised versions of them.

If membership is random, each trial cuts its own records, in this order, into mini-batches. Trials are trained in groups
that fit into the cache, so that models and the optimizer's moments are read from memory once.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import assert_never

import numpy as np
import torch
from torch import Tensor

from fl_audit.array_types import Flags, Integers
from fl_audit.errors import require
from fl_audit.learning.dense_chain_training import chain_updates, fits_one_stretch
from fl_audit.learning.optimizers import RateDecay, share_of_rate
from fl_audit.learning.pass_budgets import slices
from fl_audit.learning.stacked_layers import cached_rows
from fl_audit.learning.stacked_model import StackedModel
from fl_audit.learning.training_enums import LocalOptimizer as LocalOptimizer
from fl_audit.privacy.accounting_enums import VectorNorm
from fl_audit.value_checks import require_number


@dataclass(frozen=True)
class LocalSchedule:
    """Schedule of a client's local training in a round; exactly one of `epochs` and `steps` must be given."""

    learning_rate: float  # step size of the first round, positive
    batch: int  # number of records of one step, at least 1; the last step of an epoch may have fewer
    epochs: int | None = None  # number of times that each record is used, at least 1; None if `steps` is given
    steps: int | None = None  # number of steps, at least 1; None if `epochs` is given
    optimizer: LocalOptimizer = LocalOptimizer.SGD  # plain SGD, or Adam with its usual constants, reset in every round
    # Weight mu of the proximal term mu/2 ||theta - theta_start||^2 that is added to the loss of every step, at least 0
    # (Li et al. 2020, "Federated optimization in heterogeneous networks", FedProx).
    proximal: float = 0.0
    decay: RateDecay | None = None  # schedule by which the step size falls from round to round; None if it is constant

    def __post_init__(self) -> None:
        require_number("local learning rate is", self.learning_rate, "positive finite numbers")
        require_number("local batch is", self.batch, "whole numbers from 1")
        require_number("proximal weight is", self.proximal, "numbers from 0")
        durations = f"local epochs are {self.epochs} and local steps are {self.steps}"
        require((self.epochs is None) != (self.steps is None), f"{durations}: accepted is exactly one of the two")
        unit = "epochs" if self.steps is None else "steps"
        require_number(f"local {unit} are", getattr(self, unit), "whole numbers from 1")

    def at_round(self, number: int) -> "LocalSchedule":
        """Return the schedule of a round, from 1, with the step size that the decay leaves."""
        if self.decay is None:
            return self
        return replace(self, learning_rate=self.learning_rate * share_of_rate(self.decay, number), decay=None)

    def steps_on(self, records: int) -> int:
        """Return the number of steps in a round for a client with this number of records."""
        if self.steps is not None:
            return self.steps
        assert self.epochs is not None, "one of the two is given"
        return self.epochs * math.ceil(records / self.batch)


def local_batches(records: int, schedule: LocalSchedule, draw: np.random.Generator) -> tuple[Integers, ...]:
    """Return the mini-batches of a client's local steps, each as indices of its records, int64; () without records.

    Every epoch cuts a new random order of the records into mini-batches, of which the last may be smaller. A given
    number of steps may end within an epoch.
    """

    def endless() -> Iterator[Integers]:
        while True:
            order = draw.permutation(records).astype(np.int64, copy=False)
            for first in range(0, records, schedule.batch):
                yield order[first : first + schedule.batch]

    return tuple(islice(endless(), schedule.steps_on(records))) if records else ()


def local_updates(
    model: StackedModel,
    models: Tensor,
    features: Tensor,
    labels: Tensor,
    schedule: LocalSchedule,
    batches: Sequence[Integers],
) -> Tensor:
    """Return theta_start - theta_end after a client's local SGD, float32 (trials, parameters), zeros without steps.

    Each step takes the gradient of the mean training loss over one mini-batch.

    Shapes: `models` (trials, parameters), `features` (n, *shape), `labels` (n,), `batches` (batch,).

    `features`: If the records differ between trials, (trials, n, *shape), of any numeric type.

    `batches`: If records differ between trials and `accepts_batches_per_trial` holds, also (trials, batch).
    """
    if not batches or labels.shape[-1] == 0:
        return torch.zeros_like(models)
    if model.fast and model.chain is not None:
        rate = schedule.learning_rate
        together = model.trials_per_pass
        shrinkage = rate * schedule.proximal
        return chain_updates(model.chain, models, features, labels, rate, batches, together, shrinkage, model.loss)
    current = models.clone()
    for batch in batches:
        index = torch.from_numpy(batch).to(models.device)
        chosen = (slice(None), index) if labels.dim() == 2 else index
        gradients = model.mean_gradients(current, features[chosen], labels[chosen])
        if schedule.proximal:
            gradients.add_(current - models, alpha=schedule.proximal)
        current.sub_(gradients, alpha=schedule.learning_rate)
    return models - current


def accepts_batches_per_trial(model: StackedModel, records: int, schedule: LocalSchedule) -> bool:
    """Return whether `local_updates` accepts mini-batches that differ between trials.

    `local_updates` does so for plain SGD, a model that is a chain of dense layers, and few records.
    """
    is_sgd = schedule.optimizer is LocalOptimizer.SGD
    used = schedule.steps_on(records) * schedule.batch
    return is_sgd and records > 0 and model.fast and model.chain is not None and fits_one_stretch(records, used)


def clip_updates(
    updates: Tensor, norm: float | Tensor, measured_in: VectorNorm = VectorNorm.L2
) -> tuple[Tensor, Tensor]:
    """Clip each trial's update g to the norm C over all parameters, g min(1, C / ||g||), in place.

    ||g|| is measured in the given norm.

    Return the clipped updates, and their norms before clipping, float32 (trials,).

    Shapes: `updates` (trials, parameters), `norm` (trials,).

    `norm`: Raises `InputError` unless all are positive.
    """
    norms = updates.new_empty(len(updates))
    limits = torch.as_tensor(norm, dtype=updates.dtype, device=updates.device).expand(len(updates))
    require(bool((limits > 0).all()), f"clipping norm is {norm}: accepted are positive numbers")
    for rows in cached_rows(len(updates), updates.shape[1], on_card=updates.is_cuda):
        norms[rows] = torch.linalg.vector_norm(updates[rows], ord=measured_in.order, dim=1)
        updates[rows].mul_((limits[rows] / norms[rows]).clamp_(max=1.0).unsqueeze(1))
    return updates, norms


_GROUP_SCALARS = 2**19
"""Number of parameters of a group of trials; weights, gradients and two moments take 8 MiB, which fit the cache."""

Gradients = Callable[[Tensor, Tensor], Tensor]
"""Function of models (trials, parameters) and record indices (trials, batch), padded with -1, to mean gradients."""


def member_batches(present: Flags, schedule: LocalSchedule, draw: np.random.Generator) -> tuple[Integers, ...]:
    """Return mini-batches of the records that each trial trains on, as indices, int64 (trials, batch) per step.

    Indices are padded with -1. An epoch has as many steps as the trial with the most records needs.

    Shapes: `present` (trials, records).
    """
    trials, records = present.shape
    largest = int(present.sum(axis=1).max(initial=0))
    batches = list[Integers]()
    width = -(-largest // schedule.batch) * schedule.batch
    steps = schedule.steps_on(largest) if largest else 0
    while len(batches) < steps:
        order = draw.permutation(records)
        rows, positions = np.nonzero(present[:, order])
        padded = np.full((trials, width), -1, dtype=np.int64)
        rank = np.arange(len(rows)) - np.searchsorted(rows, rows)
        padded[rows, rank] = order[positions]
        batches += np.split(padded, width // schedule.batch, axis=1)
    return tuple(batches[:steps])


def member_updates(
    model: StackedModel,
    models: Tensor,
    features: Tensor,
    labels: Tensor,
    schedule: LocalSchedule,
    batches: Sequence[Integers],
) -> Tensor:
    """Return each trial's update theta_start - theta_end after local training on its own records, (trials, parameters).

    There is one step per mini-batch; a trial whose mini-batch is empty skips it.

    Shapes: `models` (trials, parameters), `features` (n, *shape), `labels` (n,), `batches` (trials, batch).
    """
    moved = torch.zeros_like(models)
    if not batches:
        return moved
    steps = [torch.from_numpy(batch).to(models.device) for batch in batches]
    together = max(1, _GROUP_SCALARS // models.shape[1])
    for rows in slices(len(models), together):
        records = (features[rows], labels[rows]) if labels.dim() == 2 else (features, labels)
        gradients = _masked(model, *records)
        moved[rows] = models[rows] - _trained(models[rows], [step[rows] for step in steps], schedule, gradients)
    return moved


def _trained(start: Tensor, steps: Sequence[Tensor], schedule: LocalSchedule, gradients: Gradients) -> Tensor:
    """Return the parameters of some trials, (trials, parameters), after the steps of local training from `start`.

    A step holds the indices of its records, (trials, batch), padded with -1. `gradients` computes the mean gradients of
    a step.
    """
    weights = start.clone()
    trials = list(weights.unbind())  # views, each of which the optimizer moves by itself, with a step count of its own
    match schedule.optimizer:
        case LocalOptimizer.SGD:
            optimizer: torch.optim.Optimizer = torch.optim.SGD(trials, lr=schedule.learning_rate)
        case LocalOptimizer.ADAM:
            optimizer = torch.optim.Adam(trials, lr=schedule.learning_rate, fused=True)
        case _:
            assert_never(schedule.optimizer)
    for step in steps:
        has_records = (step >= 0).any(dim=1).tolist()
        for trial, gradient, is_moved in zip(trials, gradients(weights, step), has_records, strict=True):
            # A trial that has no record left in this step does not take the step.
            trial.grad = gradient if is_moved else None
        if schedule.proximal:
            for trial, begin in zip(trials, start, strict=True):
                if trial.grad is not None:
                    trial.grad = trial.grad.add(trial.detach() - begin, alpha=schedule.proximal)
        optimizer.step()
    return weights


def _masked(model: StackedModel, features: Tensor, labels: Tensor) -> Gradients:
    """Return a function that computes the mean gradient of a step's records, for any model.

    It processes all records of a client in every step, and gives weight 0 to records that are not in the step.
    """

    def gradients(weights: Tensor, step: Tensor) -> Tensor:
        records = labels.shape[-1]
        taking_part = torch.zeros(len(weights), records + 1, dtype=torch.bool, device=step.device)
        taking_part = taking_part.scatter_(1, step.where(step >= 0, records), True)[:, :-1]
        total = model.clipped_sum(weights, features, labels, None, None, taking_part)
        return total.div_(taking_part.sum(dim=1, keepdim=True).clamp_(min=1))

    return gradients
