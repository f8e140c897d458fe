"""Built-in models, users' models, and the initial weights of both in every trial."""

import copy
import gc
import hashlib
import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from itertools import pairwise
from math import prod

import numpy as np
import torch
from torch import Tensor, nn

from fl_audit import user_modules
from fl_audit.errors import InputError, require
from fl_audit.learning.frozen_backbones import VGG16
from fl_audit.learning.model_adaptation import read_logits
from fl_audit.learning.model_error_messages import raised_at
from fl_audit.learning.module_checks import check_module
from fl_audit.learning.module_preparation import said, sharing_copy, without_hints
from fl_audit.learning.named_inputs import NamedInput, vocabulary_size
from fl_audit.learning.optimizer_enums import MEAN_EMBEDDING
from fl_audit.learning.recorded_initialisation import (
    DrawRecorder,
    ReplayDivergedError,
    TensorMemoryLayout,
    compute_again,
)
from fl_audit.learning.stacked_layers import ParameterLayout, is_plain
from fl_audit.learning.text_models import MeanEmbeddingClassifier
from fl_audit.randomness import Purpose, generator


@dataclass(frozen=True)
class ModelSpec:
    """Specification of a model: its name, and the shape and number of classes of its data."""

    name: str  # a built-in name or `package.module:factory`
    feature_shape: tuple[int, ...]  # shape of one example at the input of the trained part, after any frozen core
    classes: int  # number of classes, at least 2
    inputs: tuple[NamedInput, ...] = ()  # named arrays that a record consists of; empty if it is a single array

    @property
    def given(self) -> dict[str, object]:
        """Arguments that a user's factory may take, keyed by parameter name."""
        shape = self.inputs[0].shape if self.inputs else self.feature_shape
        known: dict[str, object] = {"feature_shape": shape, "classes": self.classes}
        size = vocabulary_size(self.inputs)
        return known if size is None else known | {"vocabulary_size": size}


def glorot(module: nn.Module) -> nn.Module:
    """Initialise a module's weights in place as Keras does by default, with biases 0, and return the module.

    Bernau et al. 2021 did the same. Fewer ReLUs die than with torch's own initialisation.
    """
    for layer in module.modules():
        if isinstance(layer, nn.Linear | nn.Conv2d):
            nn.init.xavier_uniform_(layer.weight)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
    return module


_Factory = Callable[[Sequence[int], int], nn.Module]


def _dense(*hidden: int) -> _Factory:
    """Return a factory of MLPs with hidden ReLU layers of the given widths, and one linear output per class."""

    def made(feature_shape: Sequence[int], classes: int) -> nn.Module:
        layers: list[nn.Module] = [nn.Flatten()]
        for inputs, outputs in pairwise((prod(feature_shape), *hidden, classes)):
            layers += [nn.Linear(inputs, outputs), nn.ReLU()]
        return glorot(nn.Sequential(*layers[:-1]))

    return made


def _mnist_cnn(feature_shape: Sequence[int], classes: int) -> nn.Module:
    """Return the CNN of Bernau et al. 2021, section 6, without padding: 6,554 parameters on MNIST.

    Group normalisation replaces their batch normalisation, which mixes examples.
    """
    found = f"mnist-cnn: examples have shape {tuple(feature_shape)}"
    require(len(feature_shape) == 3, f"{found}: accepted are images (C, H, W)")
    channels, height, width = feature_shape
    require(min(height, width) >= 10, f"mnist-cnn: images are {height}x{width}: accepted are 10x10 and larger")
    pooled = [((side - 2) // 2 - 2) // 2 for side in (height, width)]
    layers: list[nn.Module] = []
    for inputs in (channels, 16):
        layers += [nn.Conv2d(inputs, 16, 3), nn.GroupNorm(4, 16), nn.MaxPool2d(2), nn.ReLU()]
    return glorot(nn.Sequential(*layers, nn.Flatten(), nn.Linear(16 * prod(pooled), classes)))


_BUILT_IN: dict[str, _Factory] = {
    "logistic": _dense(),
    "adult-mlp": _dense(6, 6),  # 104-6-6-2 on Adult (Bernau et al. 2021, section 6)
    "dense-128": _dense(128),  # 600-128-100 on Purchase-100 (Bernau et al. 2021, section 6)
    # 6170-512-128-100 on Texas (Bernau et al. 2019, Table 2), which names no activation: units here are rectified.
    "dense-512-128": _dense(512, 128),
    "dense-3x100": _dense(100, 100, 100),  # Negoescu et al. 2023, section 4.1, on Purchase-100
    "mnist-cnn": _mnist_cnn,
    # The head on the frozen core `fl_audit.learning.frozen_backbones.VggCore`: 40,980 parameters on LFW at 64x64 with
    # 20 classes. Bernau et al. 2019 (section 4.4) exchange "the dense layer at the end" of a trained network.
    VGG16: _dense(),
}


def build_model(spec: ModelSpec) -> nn.Module:
    """Build a model with fresh initial weights from its specification, and check that it has per-example gradients.

    A user's factory gets the arguments `feature_shape` and `classes`, each only if its signature has it. For texts with
    a public vocabulary, the same holds for `vocabulary_size`.

    Raises
    ------
    InputError
        If the name is unknown, the factory cannot be imported or fails, or `check_module` rejects its model.
    """
    if spec.name == MEAN_EMBEDDING:
        return _mean_embedding(spec)
    if spec.name in _BUILT_IN:
        found = f"model is {spec.name} and the records are texts or other named arrays"
        require(not spec.inputs, f"{found}: accepted are {MEAN_EMBEDDING} and 'package.module:factory'")
        return _BUILT_IN[spec.name](spec.feature_shape, spec.classes)
    if ":" not in spec.name:
        known = (*_BUILT_IN, MEAN_EMBEDDING)
        nearest = get_close_matches(spec.name, known, n=1, cutoff=0.0)[0]
        raise InputError(
            f"model {spec.name!r} is unknown (nearest: {nearest!r}): "
            f"accepted are {', '.join(known)} and 'package.module:factory'"
        )
    module = _called_factory(spec)
    check_module(module)
    if not is_plain(module):
        read_logits(module)
    return module


def _called_factory(spec: ModelSpec) -> nn.Module:
    """Return the module that a user's factory makes; raise `InputError` if it fails or makes something else."""
    factory = import_factory(spec.name)
    known = spec.given
    # The factory is the user's own code: it may raise anything, and may try to end the interpreter.
    try:
        signature = inspect.signature(factory)
        taken = {key: value for key, value in known.items() if key in signature.parameters}
        signature.bind(**taken)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"model {spec.name!r} cannot be called ({said(error)}): accepted is a function that takes none or "
            f"some of {', '.join(known)}"
        ) from error
    try:
        with without_hints():
            module = factory(**taken)
    except (Exception, SystemExit) as error:
        raise InputError(f"model {spec.name!r} cannot be built: its function raised {raised_at(error)}") from error
    is_class = isinstance(module, type) and issubclass(module, nn.Module)
    what = f"the class {module.__name__}" if is_class else f"a {type(module).__name__}"
    accepted = "return what calling it makes" if is_class else "accepted is a torch.nn.Module"
    require(isinstance(module, nn.Module), f"model {spec.name!r} made {what}: {accepted}")
    return module


def _mean_embedding(spec: ModelSpec) -> nn.Module:
    size = vocabulary_size(spec.inputs)
    if size is None:
        raise InputError(
            f"model is {MEAN_EMBEDDING}, and no public vocabulary says how many tokens there are: accepted is it with "
            "vocabulary in [data]; else 'package.module:factory'"
        )
    return glorot(MeanEmbeddingClassifier(size, spec.classes))


@dataclass(frozen=True)
class FactoryModel:
    """The model that a factory returned, and data to compute other trials' initial weights without calling it again."""

    module: nn.Module  # model; it must not be changed, because its copies share its frozen parameters
    weights: Tensor | None  # trained weights, (parameters,), if they are the same at every call; otherwise None
    # Recorded random draws, and the place among their results of each trained parameter that follows from them, keyed
    # by name. None if the draws cannot be repeated.
    draws: tuple[DrawRecorder, dict[str, TensorMemoryLayout]] | None = None


@lru_cache(maxsize=2)
def _run_twice(spec: ModelSpec, factory: Callable[..., nn.Module]) -> FactoryModel:
    """Run a factory twice to find out how its initial weights follow from torch's random numbers.

    If they do not, `weights` and `draws` are None, and the factory must be run for every trial.
    """
    first = _fingerprint(_drawn(spec, generator(1, Purpose.INITIAL_WEIGHTS)))
    gc.collect()  # modules of libraries refer to themselves, and a large one would stay for a while
    recorder = DrawRecorder()
    try:
        module = _drawn(spec, generator(0, Purpose.INITIAL_WEIGHTS), recorder)
    except InputError:  # what ran before fails only because it is looked at
        return FactoryModel(_drawn(spec, generator(0, Purpose.INITIAL_WEIGHTS)), None)
    values = {name: value.detach() for name, value in _tensors(module).items()}
    trained = [name for name, value in module.named_parameters() if value.requires_grad]
    places = {name: place for name, value in values.items() if (place := recorder.place(value)) is not None}
    second = _fingerprint(module)
    # A factory may draw and forget, or seed torch itself: its weights are then the same at every call.
    if first == second:
        row = ParameterLayout.of_trained(module).flatten(values)
        return FactoryModel(module, row)
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
        return FactoryModel(module, None)
    return FactoryModel(module, None, (recorder, {name: places[name] for name in trained if name in places}))


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
    return sharing_copy(_run_twice(spec, import_factory(spec.name)).module)


def import_factory(name: str) -> Callable[..., nn.Module]:
    """Return a user's model factory, given as `package.module:factory`; raises `InputError` if the import fails."""
    module_name, _, attribute = name.partition(":")
    try:
        factory = getattr(user_modules.import_user_module(module_name), attribute)
    except InputError as error:
        raise InputError(f"model {name!r}: {error}") from error
    except (Exception, SystemExit) as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) and error.name else ""
        is_place = isinstance(error, ModuleNotFoundError | AttributeError | ValueError | TypeError)
        why = f" ({raised_at(error)})" + (": accepted is 'package.module:factory'" if is_place else "")
        if missing and not f"{module_name}.".startswith(f"{missing}."):
            why = f": it needs the package {missing!r}, which is not installed"
        raise InputError(f"model {name!r} cannot be imported{why}") from error
    is_made, word = isinstance(factory, nn.Module), attribute.rpartition(".")[2]
    require(
        not is_made,
        f"model {name!r} is a module, a {type(factory).__name__}, and not what makes one: accepted is a function that "
        f"returns a new one whenever it is called, such as def build(): return torch.nn.Sequential(...), so write "
        f"what {word} is made of there",
    )
    require(callable(factory), f"model {name!r} is not callable: accepted is a function that returns a torch.nn.Module")
    return factory  # type: ignore[no-any-return]


@contextmanager
def _drawing(source: np.random.Generator) -> Iterator[None]:
    """Seed torch's default generator in a `with` block, because constructors of modules take no generator."""
    state = torch.Generator().manual_seed(int(source.integers(2**63))).get_state()
    with torch.random.fork_rng(devices=[]):
        torch.set_rng_state(state)
        yield


def _drawn(spec: ModelSpec, source: np.random.Generator, recorder: DrawRecorder | None = None) -> nn.Module:
    """Build a model with torch's generator seeded from a source."""
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
    known = _run_twice(spec, import_factory(spec.name)) if ":" in spec.name else None
    return torch.stack([_weights(spec, known, generator(seed, Purpose.INITIAL_WEIGHTS, trial=one)) for one in trials])


def _weights(spec: ModelSpec, known: FactoryModel | None, source: np.random.Generator) -> Tensor:
    """Return a model's initial weights, (parameters,): those that the factory always gives, or else drawn by `source`.

    If possible, the recorded steps of an earlier call of the factory are repeated, which is faster than a new call.
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
