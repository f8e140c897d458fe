"""Frozen first parts (backbones) of models: attribute `backbone` of a user's model, and the convolutions of VGG-16.

The output of a frozen backbone for a record is the same in all trials and rounds. So each record passes through it
once, when it is loaded. The model that is trained, stacked and clipped is the head on top of the backbone.
"""

import io
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor, nn

from fl_audit.array_files import read_tensors
from fl_audit.errors import InputError, require
from fl_audit.learning.module_preparation import without_hints
from fl_audit.ordinary_files import read_file, sha256_of

VGG16 = "vgg16"
_PLAN: tuple[int | None, ...] = (
    *(64, 64, None, 128, 128, None, 256, 256, 256, None),
    *(512, 512, 512, None, 512, 512, 512, None),
)
"""Output channels of the 13 convolutions, None for a pooling: configuration D of Simonyan & Zisserman 2015, Table 1."""
_COLOURS = 3
_SHRINKING = 32
_MEAN = (0.485, 0.456, 0.406)
_SPREAD = (0.229, 0.224, 0.225)
"""Mean and standard deviation of each colour channel, by which torchvision standardises colours in [0, 1]."""
_TOGETHER = 16  # number of images in one pass; it is fixed, so that all parties compute the same numbers
_SUFFIXES = (".safetensors", ".pt", ".pth")
_WANTED = (
    "accepted is a file of tensors (.safetensors, or .pt or .pth of torch.save) with the 26 of torchvision's vgg16 "
    "from features.0.weight (64, 3, 3, 3) to features.28.bias (512,); others are passed over"
)


@dataclass(frozen=True)
class BackboneWeights:
    """Reference to a file with weights of a frozen backbone, the convolutional core of a model."""

    path: str  # absolute path of the file
    digest: str  # SHA-256 digest of the file, in hexadecimal


class VggCore(nn.Module):
    """The 13 convolutions of VGG-16 with frozen weights, named `features.N.weight` as in torchvision.

    Grey images are repeated in the three colour channels. Colours are standardised as in torchvision. The adaptive
    average pooling to 7x7 is left out, because it would only repeat values for small images.
    """

    def __init__(self) -> None:
        super().__init__()
        layers = list[nn.Module]()
        inputs = _COLOURS
        for outputs in _PLAN:
            layers += [nn.MaxPool2d(2)] if outputs is None else [nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU()]
            inputs = outputs or inputs
        self.features = nn.Sequential(*layers)
        self.requires_grad_(False)

    def forward(self, images: Tensor) -> Tensor:
        """Return the core's output (n, *core_shape) for images (n, 1 or 3, height, width) with values in [0, 1]."""
        colours = images.expand(-1, _COLOURS, -1, -1)
        mean, spread = (colours.new_tensor(values).reshape(1, _COLOURS, 1, 1) for values in (_MEAN, _SPREAD))
        return self.features((colours - mean) / spread)  # type: ignore[no-any-return]


def passed_through(core: nn.Module, features: Tensor) -> Tensor:
    """Return a frozen network's outputs for records (n, *shape), computed for a fixed number of records at a time."""
    with torch.no_grad():
        return torch.cat([core(records) for records in torch.split(features, _TOGETHER)])


@dataclass(frozen=True)
class Backbone:
    """The frozen backbone of a user's model, with the shapes of one record before and after it."""

    module: nn.Module
    input_shape: tuple[int, ...]
    output_shape: tuple[int, ...]

    def outputs(self, features: Tensor) -> Tensor:
        """Return the backbone's outputs for records (n, *input_shape), float32 (n, *output_shape)."""
        return passed_through(self.module, features).float()


def frozen_backbone(model: nn.Module, records: Tensor) -> Backbone | None:
    """Take the frozen backbone out of a user's model, and return it; None if the model has none.

    A model has one if its attribute `backbone` is a module without trained parameters, and the rest of the model reads
    a record only through it. Then `model.backbone` becomes the identity, and `model` takes the backbone's outputs.

    Shapes: `records` (n, *shape).
    """
    module = getattr(model, "backbone", None)
    if not isinstance(module, nn.Module) or _is_trained(module) or not _is_trained(model):
        return None
    with torch.no_grad(), without_hints():
        expected = model(records)
        backbone = split_backbone(model, tuple(records.shape[1:]))
        try:
            outputs = model(backbone.outputs(records))
            is_same = torch.allclose(outputs, expected, rtol=1e-4, atol=1e-5 * float(expected.abs().max()))
        except (Exception, SystemExit):  # the rest of the model reads the record too
            is_same = False
    if is_same:
        return backbone
    model.backbone = module
    return None


def split_backbone(model: nn.Module, feature_shape: tuple[int, ...]) -> Backbone:
    """Replace the attribute `backbone` of a model by the identity, and return it, for records of this shape."""
    module = model.backbone
    assert isinstance(module, nn.Module), "the model was found to have a backbone"
    output = passed_through(module, torch.zeros(1, *feature_shape))
    model.backbone = nn.Identity()
    return Backbone(module, feature_shape, tuple(output.shape[1:]))


def _is_trained(module: nn.Module) -> bool:
    return any(parameter.requires_grad for parameter in module.parameters())


def core_shape(model: str, feature_shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of one record at the input of a model's trained part, which may follow a frozen core.

    Raises `InputError` if the core cannot take such records.

    Examples
    --------
    >>> core_shape("vgg16", (1, 64, 64)), core_shape("logistic", (1, 64, 64))
    ((512, 2, 2), (1, 64, 64))
    """
    if model != VGG16:
        return feature_shape
    images = len(feature_shape) == 3 and feature_shape[0] in (1, _COLOURS)
    require(images, f"vgg16: records have shape {feature_shape}: accepted are images (1 or 3, height, width)")
    channels, height, width = 512, *feature_shape[1:]
    require(min(height, width) >= _SHRINKING, f"vgg16: images are {height}x{width}: accepted are 32x32 and larger")
    return channels, height // _SHRINKING, width // _SHRINKING


def find_weights(model: str, path: str | None) -> BackboneWeights | None:
    """Return the weights file of a model's frozen core; None if the model has no frozen core."""
    if model != VGG16:
        require(path is None, f"weights is {path} and the model is {model}: accepted is a file for vgg16 alone")
        return None
    if path is None:
        raise InputError(f"model vgg16 needs weights in [model]: {_WANTED}")
    file = Path(path).absolute()
    return BackboneWeights(str(file), _digest(file))


@lru_cache(maxsize=1)
def load_core(weights: BackboneWeights) -> VggCore:
    """Return the frozen core with the weights read from a file, without unpickling code.

    Raises `InputError` if the file has changed since its digest was taken, or if a tensor is missing or has a wrong
    shape.
    """
    path = Path(weights.path)
    digest = weights.digest
    file_digest = _digest(path)
    digests = f"{path} has the SHA-256 digest {file_digest[:16]}... and the run was begun with {digest[:16]}..."
    require(file_digest == digest, f"{digests}: accepted is the same file")
    core = VggCore()
    tensors = _read(path)
    expected_tensors = core.state_dict()
    for name, expected in expected_tensors.items():
        tensor_value = tensors.get(name)
        shape = tuple(tensor_value.shape) if isinstance(tensor_value, Tensor) else "nothing"
        require(shape == tuple(expected.shape), f"{path} has {shape} under {name}: {_WANTED}")
    core.load_state_dict({name: tensors[name].float() for name in expected_tensors})
    for name, tensor in core.state_dict().items():
        require(bool(torch.isfinite(tensor).all()), f"{path} has numbers that are not finite under {name}")
    return core.eval()


def _read(path: Path) -> Mapping[str, Tensor]:
    try:
        if path.suffix == ".safetensors":
            return read_tensors(path)
        # With weights_only no pickle of anything but tensors and plain containers is loaded.
        with without_hints():
            tensors = torch.load(io.BytesIO(read_file(path)), map_location="cpu", weights_only=True)
    except (InputError, pickle.UnpicklingError, RuntimeError, EOFError, OSError, ValueError, KeyError) as error:
        raise InputError(f"{path} holds no tensors that can be read ({type(error).__name__}): {_WANTED}") from error
    require(isinstance(tensors, Mapping), f"{path} holds a {type(tensors).__name__}: {_WANTED}")
    return tensors  # type: ignore[no-any-return]


def _digest(path: Path) -> str:
    require(path.suffix in _SUFFIXES, f"weights is {path}: {_WANTED}")
    try:
        return sha256_of(path)
    except OSError as error:
        raise InputError(f"weights {path} cannot be read ({error.strerror}): {_WANTED}") from error
