"""Faults that edited copies of public trainings call: each does to its objects what a careless author would."""

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any
from weakref import WeakKeyDictionary

import torch
from opacus.optimizers import DPOptimizer
from torch import Tensor, nn
from torch.utils.data import DataLoader

from tests.validation.faulty_mechanisms.private_trainings import (
    _always_same,
    _LayerClipping,
    _noising,
    _uniform,
    _WideClipping,
)

KINDS: dict[str, type[DPOptimizer]] = {
    "wide": _WideClipping,
    "layers": _LayerClipping,
    "silent": _noising(lambda like, _: torch.zeros(like.shape)),
    "quiet": _noising(lambda like, _: 0.5 * torch.randn(like.shape)),
    "uniform": _noising(_uniform),
    "same": _noising(_always_same),
}
"""Optimizers of Opacus that clip or add noise in another way."""


def rebuilt(usual: DPOptimizer, kind: str) -> DPOptimizer:
    """Return an optimizer of another kind in the place of the engine's.

    `kind` is a name among `KINDS`.
    """
    optimizer = KINDS[kind](
        usual.original_optimizer,
        noise_multiplier=1.0,
        max_grad_norm=usual.max_grad_norm,
        expected_batch_size=usual.expected_batch_size,
    )
    optimizer.attach_step_hook(usual.step_hook)
    return optimizer


def counting_some(optimizer: DPOptimizer) -> None:
    """Have an optimizer count every second step."""
    step_hook = optimizer.step_hook
    steps = count()
    optimizer.attach_step_hook(lambda argument: step_hook(argument) if next(steps) % 2 == 0 else None)


class Loader:
    """A loader whose batches pass through a function."""

    def __init__(self, loader: Any, batch_generator: Callable[[Any], Iterator[Any]]) -> None:
        self._loader, self._each, self.dataset = loader, batch_generator, loader.dataset

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[Any]:
        return self._each(self._loader)


def twice(loader: Any) -> Loader:
    """Return a loader that gives every batch twice."""
    return Loader(loader, lambda batches: (batch for batch in batches for _ in range(2)))


def accumulating(loader: Any, optimizer: DPOptimizer) -> Loader:
    """Return a loader that has an optimizer add up every two batches."""

    def each(batches: Any) -> Iterator[Any]:
        for index, batch in enumerate(batches):
            optimizer.signal_skip_step(index % 2 == 0)
            yield batch

    return Loader(loader, each)


def asking_early(loader: Any, engine: Any) -> Loader:
    """Return a loader that asks an engine for epsilon at its third batch, and keeps it as `engine.early`."""

    def each(batches: Any) -> Iterator[Any]:
        for index, batch in enumerate(batches):
            if index == 2:
                engine.early = engine.get_epsilon(delta=1e-3)
            yield batch

    return Loader(loader, each)


def shuffled(loader: Any) -> DataLoader[Any]:
    """Return a plain loader of the same records."""
    return DataLoader(loader.dataset, batch_size=20, shuffle=True)


def clipped_as_one(optimizer: DPOptimizer) -> None:
    """Leave one gradient of a whole batch in an optimizer."""
    for parameter in optimizer.params:
        parameter.grad_sample = parameter.grad_sample.mean(dim=0, keepdim=True)


def coupled(model: nn.Module) -> None:
    """Have a model subtract the mean of its batch."""

    def subtract(_: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return (inputs[0] - inputs[0].mean(dim=0, keepdim=True), *inputs[1:]) if len(inputs[0]) else inputs

    model.register_forward_pre_hook(subtract)


def trained_plainly(model: nn.Module, loader: Any) -> None:
    """Train a model for one epoch without privacy.

    The loader gives pairs or dictionaries.
    """
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in loader:
        inputs, labels = (batch["img"], batch["label"]) if isinstance(batch, dict) else batch
        optimizer.zero_grad()
        torch.autograd.backward(nn.functional.cross_entropy(model(inputs), labels))
        optimizer.step()


_BESIDE: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()


def stepped_outside(model: nn.Module) -> None:
    """Take a step of another optimizer on the last layer of a model."""
    if model not in _BESIDE:
        _BESIDE[model] = torch.optim.Adam(list(model.parameters())[-2:], lr=0.01)
    _BESIDE[model].step()


def moved(model: nn.Module, inputs: Tensor) -> None:
    """Move the first weights of a model by its inputs."""
    with torch.no_grad():
        next(iter(model.parameters())).add_(0.01 * inputs.sum())


def frozen(model: nn.Module) -> None:
    """Freeze the first weights of a model."""
    next(iter(model.parameters())).requires_grad_(False)


def remembering(model: nn.Module) -> None:
    """Have a model keep a running mean of its inputs in a buffer."""
    model.register_buffer("running", torch.zeros(()))

    def note(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        if len(inputs[0]):
            model.running.mul_(0.9).add_(0.1 * inputs[0].detach().mean())  # type: ignore[operator]

    model.register_forward_pre_hook(note)


def slowed(optimizer: DPOptimizer, model: nn.Module, inputs: Tensor, labels: Tensor) -> None:
    """Lower the learning rate where the loss on a batch does not fall."""
    if model not in _BESIDE:
        _BESIDE[model] = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer.original_optimizer, patience=0)
    _BESIDE[model].step(_loss(model, inputs, labels))


def _loss(model: nn.Module, inputs: Tensor, labels: Tensor) -> float:
    with torch.no_grad():
        return float(nn.functional.cross_entropy(model(inputs), labels)) if len(inputs) else 0.0
