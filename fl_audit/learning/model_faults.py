"""Faults of models that cannot be used, and the values of the fields in the texts of advice on them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from math import isqrt, prod

from torch import Tensor, nn

from fl_audit.errors import first_line
from fl_audit.learning.named_inputs import NamedInput

_CONVOLUTION_AXES: Mapping[type[nn.Module], tuple[str, ...]] = {
    nn.Conv1d: ("L",),
    nn.Conv2d: ("H", "W"),
    nn.Conv3d: ("D", "H", "W"),
}
_SUMS_TO_ONE = 1e-4


class ModelCheck(Enum):
    """The check of a model that found a fault."""

    LAYER = auto()  # a layer of a kind that mixes examples or draws random numbers
    PARAMETER = auto()  # a parameter that cannot be trained
    COPY = auto()  # the module cannot be copied
    FORWARD = auto()  # a layer failed on a record
    VMAP = auto()  # `torch.func.vmap` refused the code of the model
    OUTPUTS = auto()  # the outputs are no rows of logits with gradients
    NO_GRADIENT = auto()  # no trained parameter has a gradient
    PROBABILITIES = auto()  # the outputs may be probabilities; the model can be used
    MIXING = auto()  # outputs of an example depend on other examples
    CLASSES = auto()  # the number of outputs is not that of classes
    RANDOM = auto()  # the outputs in training mode differ from call to call
    TRAINING_MODE = auto()  # the outputs in training mode are not those in evaluation mode
    MOVED_WEIGHTS = auto()  # the same, once the weights have moved
    OPACUS = auto()  # Opacus has no gradient of single records for a parameter


@dataclass(frozen=True)
class ModelFault:
    """The state in which a model failed or was refused; fields that a check does not set have no meaning for it."""

    layer: nn.Module  # layer in question, or the model
    path: str = ""  # name of the layer or parameter in the model; empty for the model itself
    parameter: nn.Parameter | None = None  # parameter in question
    inputs: Tensor | None = None  # first input of the layer; None if it is no tensor
    largest: float = 0.0  # largest input value of the layer over all records that fail in it
    record: str | None = None  # name of the record; None if only several records together fail
    error: BaseException | None = None  # exception that was raised
    feature_shape: tuple[int, ...] = ()  # shape of a record
    named_inputs: tuple[NamedInput, ...] = ()  # named arrays that the model reads
    outputs: object = None  # outputs of the model for `count` records
    single_output: object = None  # outputs of the model for a single record
    count: int = 0  # number of records
    classes: int = 0  # number of classes
    detail: str = ""  # name of a buffer, of a type of numbers or of a library, or a count, as the check says
    model: nn.Module | None = None  # the model, if `layer` is a layer of it

    @property
    def words(self) -> str:
        """Name and type of the layer, for an error message."""
        kind = type(self.layer).__name__
        return f"layer {self.path!r} ({kind})" if self.path else f"its forward ({kind})"

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one record at the input of the layer."""
        return () if self.inputs is None else tuple(self.inputs.shape[1:])


def convolution_axes(layer: nn.Module) -> tuple[str, ...] | None:
    """Return the names of the axes over which a convolution moves; None for another layer."""
    return next((axes for kind, axes in _CONVOLUTION_AXES.items() if isinstance(layer, kind)), None)


def input_channels(layer: nn.Module) -> int:
    """Return the number of input channels of a convolution."""
    assert isinstance(layer, nn.Conv1d | nn.Conv2d | nn.Conv3d)
    return layer.in_channels


def sum_to_one(outputs: Tensor) -> bool:
    """Return whether the outputs of every record, (n, classes), sum to 1 up to rounding."""
    return bool(((outputs.sum(1) - 1).abs() < _SUMS_TO_ONE).all())


def fault_values(fault: ModelFault) -> Mapping[str, object]:
    """Return the values of the fields of all templates, for one fault."""
    return {**vars(fault), **_values_of_module(fault), **_values_of_inputs(fault), **_values_of_outputs(fault)}


def _values_of_module(fault: ModelFault) -> dict[str, object]:
    parameter = fault.parameter
    return {
        "kind": type(fault.layer).__name__,
        "error": "" if fault.error is None else first_line(fault.error),
        "words": "its transformer layer" if fault.path.endswith("self_attn") else fault.words,
        "parameter_type": "" if parameter is None else str(parameter.dtype).removeprefix("torch."),
        "device": "" if parameter is None else parameter.device,
        "named_inputs": ", ".join(array.name for array in fault.named_inputs),
        "dropout_settings": _dropout_settings(fault.model or fault.layer),
        "weight_norm": _weight_norm(fault.layer),
        "moved_buffer": f", because training moves its buffer {fault.detail!r}" if fault.detail else "",
    }


def _values_of_inputs(fault: ModelFault) -> dict[str, object]:
    layer = fault.layer
    inputs = fault.inputs
    shape = fault.input_shape
    values: dict[str, object] = {
        "input_shape": shape,
        "first_side": shape[0] if shape else 0,
        "last_side": shape[-1] if shape else 0,
        "numbers": prod(shape),
        "behind_flatten": ", behind torch.nn.Flatten()" if len(shape) > 1 else "",
    }
    axes = convolution_axes(layer)
    if axes is not None:
        channels = input_channels(layer)
        values |= {"axes": ", ".join(("C", *axes)), "channels": channels, "side": isqrt(prod(shape) // channels)}
    if isinstance(layer, nn.Embedding | nn.EmbeddingBag) and inputs is not None and not inputs.is_floating_point():
        largest = int(fault.largest)
        values |= {"last_row": layer.num_embeddings - 1, "largest": largest, "needed_rows": largest + 1}
        values |= {"smallest": int(inputs.min())}
    return values


def _values_of_outputs(fault: ModelFault) -> dict[str, object]:
    outputs = fault.outputs
    kind = type(fault.outputs).__name__
    shape = shape_of(fault.outputs)
    axis = next((axis for axis in range(1, len(shape)) if shape[axis] == fault.classes), 1)
    other_axes = tuple(other_axis for other_axis in range(1, len(shape)) if other_axis != axis)
    is_softmax = isinstance(outputs, Tensor) and outputs.dim() == 2 and sum_to_one(outputs)
    return {
        "output_kind": kind,
        "article": "an" if kind[0] in "AEIOUaeiou" else "a",
        "logits_within": _logits_within(outputs, fault.count, fault.classes),
        "output_shape": shape,
        "single_shape": shape_of(fault.single_output),
        "output_type": str(outputs.dtype).removeprefix("torch.") if isinstance(outputs, Tensor) else "",
        "other_axes": other_axes[0] if len(other_axes) == 1 else other_axes,
        "outputs": shape[-1] if shape else 0,
        "last_function": "softmax" if is_softmax else "sigmoid",
    }


def shape_of(values: object) -> tuple[int, ...]:
    """Return the shape of a tensor; empty for another object."""
    return tuple(values.shape) if isinstance(values, Tensor) else ()


def _dropout_settings(module: nn.Module) -> str:
    """Return the dropout settings in a library model's configuration, as the end of a message; "" if none."""
    config = getattr(module, "config", None)
    values = config.to_dict() if callable(getattr(config, "to_dict", None)) else {}  # type: ignore[union-attr]
    names = [name for name, value in values.items() if "drop" in name and isinstance(value, float) and value > 0]
    return f"; the configuration of the model has {', '.join(f'{name}=0' for name in names)} for it" if names else ""


def _weight_norm(module: nn.Module) -> str:
    """Return a substitute for spectral normalisation, as the end of a message; "" if the module does not use it."""
    hooks = (hook for layer in module.modules() for hook in (layer, *layer._forward_pre_hooks.values()))
    if not any("spectral" in type(hook).__name__.lower() for hook in hooks):
        return ""
    return "; in place of spectral_norm, torch.nn.utils.parametrizations.weight_norm"


def _logits_within(outputs: object, count: int, classes: int) -> str:
    """Return code that extracts the logits from a model's outputs, such as "[0]" or ".logits".

    The code selects the first tensor of shape (count, classes), or else the first tensor.
    """
    fields = getattr(outputs, "__dataclass_fields__", None) or getattr(outputs, "_fields", None)
    if isinstance(outputs, Mapping) or fields:
        names = list(outputs) if isinstance(outputs, Mapping) else list(fields or ())
        has_names = all(isinstance(name, str) and hasattr(outputs, name) for name in names)
        values = [getattr(outputs, name) if has_names else outputs[name] for name in names]  # type: ignore[index]
        written = [f".{name}" if has_names else f"[{name!r}]" for name in names]
    elif isinstance(outputs, Sequence):
        values = list(outputs)
        written = [f"[{index}]" for index in range(len(outputs))]
    else:
        return ".logits"
    fitting = [value for value in values if isinstance(value, Tensor) and value.shape == (count, classes)]
    chosen = fitting[0] if fitting else next((value for value in values if isinstance(value, Tensor)), None)
    return next((text for text, value in zip(written, values, strict=True) if value is chosen), ".logits")
