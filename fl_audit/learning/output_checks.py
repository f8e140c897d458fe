"""Check of a model's outputs before training: they must be one row of logits per record."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from fl_audit.errors import InputError, require
from fl_audit.learning.model_error_messages import explained, raised_at
from fl_audit.learning.module_preparation import NARROW, sharing_copy, without_hints

_SUMS_TO_ONE = 1e-4
_TOGETHER = 8
"""Number of records in one pass; it is small, because tensors saved for a backward pass take memory."""
NO_GRADIENT = (
    "no trained parameter of the model has a gradient on records of the data, as within torch.no_grad(), behind "
    ".detach() or behind argmax, so nothing would be learned: accepted are trained layers whose outputs reach the "
    "logits, so leave out what cuts them off"
)


@dataclass(frozen=True, eq=False)
class ModelCheckRecords:
    """Records of the data set on which a user's model is tested, each with a name for error messages."""

    features: Tensor  # features of the records, float32 (n, *shape)
    names: tuple[str, ...]  # name of each record for messages


def check_outputs_of(module: nn.Module, classes: int, records: ModelCheckRecords) -> tuple[str, ...]:
    """Raise `InputError` unless a model returns one row of logits per record; return one-line warnings for its
    author."""
    subject = sharing_copy(module).eval()
    last, narrow = list[nn.Module](), list[str]()
    for layer in subject.modules():
        if not any(True for _ in layer.children()):
            layer.register_forward_hook(lambda layer, given, found: last.append(layer))

    def note(saved: Tensor) -> Tensor:
        narrow.extend([str(saved.dtype).removeprefix("torch.")] if saved.dtype in NARROW else [])
        return saved.detach()  # a result that the graph kept as it is would keep the graph, for ever

    try:
        with torch.random.fork_rng(devices=[]), torch.enable_grad(), without_hints(), saved_tensors_hooks(note, note):
            alone = subject(records.features[:1])
            outputs = subject(records.features[:_TOGETHER])
            rest = records.features[_TOGETHER:]
            found = map(subject, torch.split(rest, _TOGETHER) if len(rest) else ())
            further = [one.detach() for one in found if isinstance(one, Tensor)]
    except (Exception, SystemExit) as error:
        values = dict(module.named_parameters())
        fault = explained(error, module, values, records.features, records.names)
        raise fault or InputError(f"the model fails on records of the data: it raised {raised_at(error)}") from error
    first = len(records.features[:_TOGETHER])
    _require_logits(subject, outputs, alone, first, classes)
    assert isinstance(outputs, Tensor), "other objects are refused"
    accepted = "accepted is float32 throughout, so leave out torch.autocast, .half() and .bfloat16()"
    require(not narrow, f"the model computes in {''.join(narrow[:1])}, so its gradients are off by 1e-3: {accepted}")
    # A single record at the end may come as another shape; `check_outputs` and the trials refuse that where it matters.
    whole = [outputs.detach(), *(some for some in further if some.shape[1:] == outputs.shape[1:])]
    return tuple(_cautions(torch.cat(whole), last[-1] if last else None))


def _require_logits(module: nn.Module, outputs: object, alone: object, count: int, classes: int) -> None:
    if not isinstance(outputs, Tensor):
        raise _refusal_of_object(type(module).__name__, outputs, count, classes)
    shape, wanted = tuple(outputs.shape), f"accepted is ({count}, {classes}), one row of logits for each record"
    found = f"the model returns shape {shape} for {count} records"
    if len(shape) > 2 and shape[0] == count and classes not in shape[1:]:
        head = f"a head of {classes} outputs for each record, such as ...ForSequenceClassification of a library has"
        raise InputError(f"{found}, none of whose axes has {classes} classes: {wanted}, by {head}")
    if len(shape) > 2 and shape[0] == count:
        axis = next((axis for axis in range(1, len(shape)) if shape[axis] == classes), 1)
        others = tuple(other for other in range(1, len(shape)) if other != axis)
        over = others[0] if len(others) == 1 else others
        raise InputError(
            f"{found}, which has further axes, as a map of pixels or steps has: {wanted}, such as the mean over the "
            f"others, .mean({over})"
        )
    if isinstance(alone, Tensor) and alone.dim() < outputs.dim():
        said = f"the model returns shape {tuple(alone.shape)} for a single record: accepted is (1, {classes})"
        raise InputError(f"{said}, so name the axis that .squeeze() takes away, or leave it out")
    require(len(shape) == 2 and shape[0] == count, f"{found}, or mixes examples: {wanted}")
    number = str(outputs.dtype).removeprefix("torch.")
    require(
        outputs.dtype.is_floating_point,
        f"the model returns {number}, as argmax does: accepted are logits, before a class is chosen",
    )
    require(
        outputs.requires_grad,
        "the model's outputs have no gradient, as after .detach() or within torch.no_grad(), so nothing would be "
        "learned: accepted are outputs that follow its trained parameters, so leave that out",
    )


def _refusal_of_object(module: str, outputs: object, count: int, classes: int) -> InputError:
    """Return the error for a model, of the class `module`, whose outputs for `count` records are not a tensor."""
    kind = type(outputs).__name__
    if hasattr(outputs, "last_hidden_state"):
        return InputError(
            f"the model returns a {kind}, which has hidden states and no logits: accepted is the "
            f"form of the library with a head, such as ...ForSequenceClassification with num_labels={classes}"
        )
    part = _logits_within(outputs, count, classes)
    found = f"the model returns {'an' if kind[0] in 'AEIOUaeiou' else 'a'} {kind}: return the logits alone"
    return InputError(
        f"{found}, as a class does of these two lines: 'class Logits({module}):' and "
        f"'    def forward(self, *given, **named): return super().forward(*given, **named){part}'"
    )


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
        values, written = list(outputs), [f"[{place}]" for place in range(len(outputs))]
    else:
        return ".logits"
    fitting = [value for value in values if isinstance(value, Tensor) and value.shape == (count, classes)]
    chosen = fitting[0] if fitting else next((value for value in values if isinstance(value, Tensor)), None)
    return next((text for text, value in zip(written, values, strict=True) if value is chosen), ".logits")


def _cautions(outputs: Tensor, last: nn.Module | None) -> Iterator[str]:
    found = outputs.detach()
    if not bool(((found >= 0) & (found <= 1)).all()):
        return
    sums_to_one = bool(((found.sum(1) - 1).abs() < _SUMS_TO_ONE).all())
    if sums_to_one or isinstance(last, (nn.Softmax, nn.Sigmoid)):
        kind = "softmax" if sums_to_one else "sigmoid"
        yield (
            f"the model's outputs are probabilities, as after a {kind}, and the loss, cross-entropy, takes logits: it "
            f"learns more without the {kind}"
        )
