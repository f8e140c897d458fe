"""Initial weights of the models of all trials, drawn from a seed.

If possible, the random draws of a user's model factory are recorded once and repeated for each trial.
"""

import copy
import gc
import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor, nn

from fl_audit.errors import InputError, require
from fl_audit.learning import models
from fl_audit.learning.model_factory_replay import DrawRecorder, ReplayDivergedError, TensorMemoryLayout, compute_again
from fl_audit.learning.models import ModelSpec, build_model
from fl_audit.learning.module_preparation import sharing_copy
from fl_audit.learning.stacked_layers import ParameterLayout
from fl_audit.randomness import Purpose, generator


@dataclass(frozen=True)
class RecordedFactoryCall:
    """The model that a factory returned, and a recording of the random draws in this call.

    From the recording the initial weights of other trials are computed, without another call of the factory.
    """

    module: nn.Module  # model; it must not be changed, because its copies share its frozen parameters
    weights: Tensor | None  # trained weights, (parameters,), if they are the same at every call; otherwise None
    # Recorded random draws, and the place among their results of each trained parameter that follows from them, keyed
    # by name. None if the draws cannot be repeated.
    draws: tuple[DrawRecorder, dict[str, TensorMemoryLayout]] | None = None


@lru_cache(maxsize=2)
def _run_twice(spec: ModelSpec, factory: Callable[..., nn.Module]) -> RecordedFactoryCall:
    """Run a factory twice, and return its model with data from which the initial weights of other trials follow.

    In the result, `weights` and `draws` are both None if the weights do not follow from recorded random numbers of
    torch. The factory must then be run for every trial.
    """
    first = _fingerprint(_drawn(spec, generator(1, Purpose.INITIAL_WEIGHTS)))
    gc.collect()  # modules of libraries refer to themselves, and a large one would stay for a while
    recorder = DrawRecorder()
    try:
        module = _drawn(spec, generator(0, Purpose.INITIAL_WEIGHTS), recorder)
    except InputError:  # what ran before fails only because it is looked at
        return RecordedFactoryCall(_drawn(spec, generator(0, Purpose.INITIAL_WEIGHTS)), None)
    values = {name: value.detach() for name, value in _tensors(module).items()}
    trained = [name for name, value in module.named_parameters() if value.requires_grad]
    places = {name: place for name, value in values.items() if (place := recorder.place(value)) is not None}
    second = _fingerprint(module)
    # A factory may draw and forget, or seed torch itself: its weights are then the same at every call.
    if first == second:
        row = ParameterLayout.of_trained(module).flatten(values)
        return RecordedFactoryCall(module, row)
    foretold, is_known = dict(second), recorder.is_complete and first.keys() == second.keys()
    try:
        with _drawing(generator(1, Purpose.INITIAL_WEIGHTS)), torch.no_grad():
            compute_again(recorder.steps, places, lambda name, value: foretold.update({name: _digest(value)}))
    except ReplayDivergedError:
        foretold, is_known = _fingerprint(_drawn(spec, generator(1, Purpose.INITIAL_WEIGHTS))), False
    differing = [name for name in foretold if first.get(name) != foretold[name]]
    constants = [name for name in differing if name not in trained]
    found = f"model {spec.name!r} makes {', '.join(constants[:3])} anew at every call, and nobody trains them"
    accepted = "accepted are frozen parameters and buffers that are loaded from a file, or drawn by torch"
    require(not constants, f"{found}: {accepted}")
    if differing or not is_known:
        return RecordedFactoryCall(module, None)
    return RecordedFactoryCall(module, None, (recorder, {name: places[name] for name in trained if name in places}))


def _tensors(module: nn.Module) -> dict[str, Tensor]:
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def _fingerprint(module: nn.Module) -> dict[str, bytes]:
    return {name: _digest(value) for name, value in _tensors(module).items()}


def _digest(value: Tensor) -> bytes:
    whole = value.detach().contiguous()
    told = f"{whole.dtype} {tuple(whole.shape)}".encode()
    return hashlib.blake2b(whole.reshape(-1).view(torch.uint8).numpy().data, key=told[:64]).digest()


def model_template(spec: ModelSpec, alone: bool = False) -> nn.Module:
    """Return the model whose constants (frozen parameters and buffers) all parties and trials share.

    Raises `InputError` as `build_model` does, or if the factory makes different constants in each call.

    Parameters
    ----------
    spec
        Specification of the model.
    alone
        Whether this process needs no initial weights, so that the factory is called only once.
    """
    if alone or ":" not in spec.name:
        return _drawn(spec, generator(0, Purpose.INITIAL_WEIGHTS))
    return sharing_copy(_run_twice(spec, models.import_factory(spec.name)).module)


@contextmanager
def _drawing(source: np.random.Generator) -> Iterator[None]:
    """Seed torch's default generator in a `with` block, because constructors of modules take no generator."""
    state = torch.Generator().manual_seed(int(source.integers(2**63))).get_state()
    with torch.random.fork_rng(devices=[]):
        torch.set_rng_state(state)
        yield


def _drawn(spec: ModelSpec, source: np.random.Generator, recorder: DrawRecorder | None = None) -> nn.Module:
    """Build a model with torch's generator seeded from `source`; `recorder`, if given, records the random draws."""
    with _drawing(source):
        return build_model(spec) if recorder is None else recorder.run(lambda: build_model(spec))


def initial_models(spec: ModelSpec, seed: int, trials: Sequence[int]) -> Tensor:
    """Return the initial weights of some trials, float32 (trials, parameters), drawn by seed and trial number.

    Parameters
    ----------
    spec
        Specification of the model.
    seed
        Public seed of the initial weights.
    trials
        Numbers of the trials.
    """
    known = _run_twice(spec, models.import_factory(spec.name)) if ":" in spec.name else None
    return torch.stack([_weights(spec, known, generator(seed, Purpose.INITIAL_WEIGHTS, trial=one)) for one in trials])


def _weights(spec: ModelSpec, known: RecordedFactoryCall | None, source: np.random.Generator) -> Tensor:
    """Return the initial weights of a model, (parameters,).

    They are drawn by `source`, unless the factory gives the same weights at every call. If possible, the recorded steps
    of an earlier call of the factory are repeated, which is faster than a new call.
    """
    if known is not None and known.weights is not None:
        return known.weights
    if known is not None and known.draws is not None:
        with suppress(ReplayDivergedError):
            return _drawn_again(known.module, *known.draws, copy.deepcopy(source))
    module = _drawn(spec, source)
    return ParameterLayout.of_trained(module).flatten(dict(module.named_parameters()))


def _drawn_again(
    module: nn.Module, recorder: DrawRecorder, places: dict[str, TensorMemoryLayout], source: np.random.Generator
) -> Tensor:
    values: dict[str, Tensor] = dict(module.named_parameters())
    with _drawing(source), torch.no_grad():
        compute_again(recorder.steps, places, lambda name, value: values.update({name: value.clone()}))
    return ParameterLayout.of_trained(module).flatten(values)
