"""Initial weights of the models of all trials, drawn from a seed."""

import gc
import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor, nn

from fl_audit.errors import require
from fl_audit.learning import models
from fl_audit.learning.models import ModelSpec, build_model
from fl_audit.learning.module_preparation import sharing_copy
from fl_audit.learning.stacked_layers import ParameterLayout
from fl_audit.randomness import Purpose, generator


@dataclass(frozen=True)
class FactoryModel:
    """The model that a factory returned, and its trained weights if they are the same at every call."""

    module: nn.Module  # model; it must not be changed, because its copies share its frozen parameters
    weights: Tensor | None  # trained weights, (parameters,), if they are the same at every call; otherwise None


@lru_cache(maxsize=2)
def _called_twice(spec: ModelSpec, factory: Callable[..., nn.Module]) -> FactoryModel:
    """Call a factory with two seeds of torch, and return its model, and its weights if both calls gave the same.

    Constants (frozen parameters and buffers) that differ between the seeds are accepted if torch alone draws them.
    """
    other_seed = _fingerprint(_drawn(spec, generator(1, Purpose.INITIAL_WEIGHTS)))
    gc.collect()  # modules of libraries refer to themselves, and a large one would stay for a while
    module = _drawn(spec, generator(0, Purpose.INITIAL_WEIGHTS))
    fingerprint = _fingerprint(module)
    trained = {name for name, value in module.named_parameters() if value.requires_grad}
    if any(fingerprint[name] != other_seed.get(name) for name in fingerprint.keys() - trained):
        _require_drawn_by_torch(spec, fingerprint, trained)
    if fingerprint == other_seed:
        return FactoryModel(module, ParameterLayout.of_trained(module).flatten(_tensors(module)))
    return FactoryModel(module, None)


def _require_drawn_by_torch(spec: ModelSpec, fingerprint: Mapping[str, bytes], trained: Collection[str]) -> None:
    """Raise `InputError` if a further call with the first seed gives other constants."""
    again = _fingerprint(_drawn(spec, generator(0, Purpose.INITIAL_WEIGHTS)))
    differing = [name for name in fingerprint if name not in trained and fingerprint[name] != again.get(name)]
    problem = f"model {spec.name!r} makes {', '.join(differing[:3])} anew at every call, and nobody trains them"
    accepted = "accepted are frozen parameters and buffers that are loaded from a file, or drawn by torch"
    require(not differing, f"{problem}: {accepted}")


def _tensors(module: nn.Module) -> dict[str, Tensor]:
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def _fingerprint(module: nn.Module) -> dict[str, bytes]:
    return {name: _digest(value) for name, value in _tensors(module).items()}


def _digest(value: Tensor) -> bytes:
    whole = value.detach().contiguous()
    type_and_shape = f"{whole.dtype} {tuple(whole.shape)}".encode()
    return hashlib.blake2b(whole.reshape(-1).view(torch.uint8).numpy().data, key=type_and_shape[:64]).digest()


def model_template(spec: ModelSpec, alone: bool = False) -> nn.Module:
    """Return the model whose constants (frozen parameters and buffers) all parties and trials share.

    Raises `InputError` as `build_model` does, or if the factory makes different constants in each call.
    """
    if alone or ":" not in spec.name:
        return _drawn(spec, generator(0, Purpose.INITIAL_WEIGHTS))
    return sharing_copy(_called_twice(spec, models.import_factory(spec.name)).module)


@contextmanager
def _drawing(source: np.random.Generator) -> Iterator[None]:
    """Seed torch's default generator in a `with` block, because constructors of modules take no generator."""
    state = torch.Generator().manual_seed(int(source.integers(2**63))).get_state()
    with torch.random.fork_rng(devices=[]):
        torch.set_rng_state(state)
        yield


def _drawn(spec: ModelSpec, source: np.random.Generator) -> nn.Module:
    """Build a model with torch's generator seeded from `source`."""
    with _drawing(source):
        return build_model(spec)


def initial_models(spec: ModelSpec, seed: int, trials: Sequence[int]) -> Tensor:
    """Return the initial weights of some trials, float32 (trials, parameters), drawn by seed and trial number."""
    factory_model = _called_twice(spec, models.import_factory(spec.name)) if ":" in spec.name else None
    return torch.stack(
        [_weights(spec, factory_model, generator(seed, Purpose.INITIAL_WEIGHTS, trial=trial)) for trial in trials]
    )


def _weights(spec: ModelSpec, factory_model: FactoryModel | None, source: np.random.Generator) -> Tensor:
    """Return the initial weights of a model, (parameters,), drawn by `source` unless every call gives the same."""
    if factory_model is not None and factory_model.weights is not None:
        return factory_model.weights
    module = _drawn(spec, source)
    return ParameterLayout.of_trained(module).flatten(dict(module.named_parameters()))
