"""Built-in models and users' models, built from their specifications."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import pairwise
from math import prod

from torch import Tensor, nn

from fl_audit import user_modules
from fl_audit.errors import InputError, require
from fl_audit.learning.frozen_backbones import VGG16
from fl_audit.learning.model_adaptation import read_logits
from fl_audit.learning.model_checks import check_module
from fl_audit.learning.model_failures import raised_at
from fl_audit.learning.module_preparation import exception_text, without_hints
from fl_audit.learning.named_inputs import NamedInput, vocabulary_size
from fl_audit.learning.stacked_layers import is_plain
from fl_audit.learning.training_enums import MEAN_EMBEDDING

_EMBEDDED = 16  # length of the embedding vector of a token


@dataclass(frozen=True)
class ModelSpec:
    """Specification of a model: its name, and the shape and number of classes of its data."""

    name: str  # a built-in name or `package.module:factory`
    feature_shape: tuple[int, ...]  # shape of one example at the input of the trained part, after any frozen core
    classes: int  # number of classes, at least 2
    inputs: tuple[NamedInput, ...] = ()  # named arrays that a record consists of; empty if it is a single array

    @property
    def factory_arguments(self) -> dict[str, object]:
        """Arguments that a user's factory may take, keyed by parameter name."""
        shape = self.inputs[0].shape if self.inputs else self.feature_shape
        arguments: dict[str, object] = {"feature_shape": shape, "classes": self.classes}
        size = vocabulary_size(self.inputs)
        return arguments if size is None else arguments | {"vocabulary_size": size}


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
    description = f"mnist-cnn: examples have shape {tuple(feature_shape)}"
    require(len(feature_shape) == 3, f"{description}: accepted are images (C, H, W)")
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
    """
    if spec.name == MEAN_EMBEDDING:
        return _mean_embedding(spec)
    if spec.name in _BUILT_IN:
        description = f"model is {spec.name} and the records are texts or other named arrays"
        require(not spec.inputs, f"{description}: accepted are {MEAN_EMBEDDING} and 'package.module:factory'")
        return _BUILT_IN[spec.name](spec.feature_shape, spec.classes)
    if ":" not in spec.name:
        _require_function_name(spec.name)
        names = (*_BUILT_IN, MEAN_EMBEDDING)
        nearest = get_close_matches(spec.name, names, n=1, cutoff=0.0)[0]
        raise InputError(
            f"model {spec.name!r} is unknown (nearest: {nearest!r}): "
            f"accepted are {', '.join(names)} and 'package.module:factory'"
        )
    module = _called_factory(spec)
    check_module(module)
    if not is_plain(module):
        read_logits(module)
    return module


def _called_factory(spec: ModelSpec) -> nn.Module:
    """Return the module that a user's factory makes; raise `InputError` if it fails or makes something else."""
    factory = import_factory(spec.name)
    arguments = spec.factory_arguments
    # The factory is the user's own code: it may raise anything, and may try to end the interpreter.
    try:
        signature = inspect.signature(factory)
        accepted_arguments = {key: value for key, value in arguments.items() if key in signature.parameters}
        signature.bind(**accepted_arguments)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"model {spec.name!r} cannot be called ({exception_text(error)}): accepted is a function that takes none "
            f"or some of {', '.join(arguments)}"
        ) from error
    try:
        with without_hints():
            module = factory(**accepted_arguments)
    except (Exception, SystemExit) as error:
        raise InputError(f"model {spec.name!r} cannot be built: its function raised {raised_at(error)}") from error
    is_class = isinstance(module, type) and issubclass(module, nn.Module)
    description = f"the class {module.__name__}" if is_class else f"a {type(module).__name__}"
    accepted = "return what calling it makes" if is_class else "accepted is a torch.nn.Module"
    require(isinstance(module, nn.Module), f"model {spec.name!r} made {description}: {accepted}")
    return module


def _mean_embedding(spec: ModelSpec) -> nn.Module:
    size = vocabulary_size(spec.inputs)
    if size is None:
        raise InputError(
            f"model is {MEAN_EMBEDDING}, and no public vocabulary says how many tokens there are: accepted is it with "
            "vocabulary in [data]; else 'package.module:factory'"
        )
    return glorot(MeanEmbeddingClassifier(size, spec.classes))


def _require_function_name(name: str) -> None:
    """Raise `InputError` if a dot or a file's name stands where `package.module:factory` is meant."""
    if (meant := user_modules.meant_name(name)) is not None:
        raise InputError(f"model {name!r} names no function: accepted is package.module:factory, here {meant!r}")


def import_factory(name: str) -> Callable[..., nn.Module]:
    """Return a user's model factory, given as `package.module:factory`; raises `InputError` if the import fails."""
    _require_function_name(name)
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
    is_made = isinstance(factory, nn.Module)
    word = attribute.rpartition(".")[2]
    require(
        not is_made,
        f"model {name!r} is a module, a {type(factory).__name__}, and not what makes one: accepted is a function that "
        f"returns a new one whenever it is called, such as def build(): return torch.nn.Sequential(...), so write "
        f"what {word} is made of there",
    )
    require(callable(factory), f"model {name!r} is not callable: accepted is a function that returns a torch.nn.Module")
    return factory  # type: ignore[no-any-return]


class MeanEmbeddingClassifier(nn.Module):
    """A text classifier: the mean of the embeddings of all tokens that are not padding, followed by a dense layer."""

    def __init__(self, tokens: int, classes: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(tokens, _EMBEDDED)
        self.head = nn.Linear(_EMBEDDED, classes)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Return the logits (n, classes) for token ids and their attention mask (0 for padding), both (n, tokens)."""
        weights = attention_mask.unsqueeze(2).to(self.head.weight.dtype)
        summed = (self.embedding(input_ids) * weights).sum(1)
        logits: Tensor = self.head(summed / weights.sum(1).clamp(min=1.0))
        return logits
