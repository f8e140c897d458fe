"""Remedies for failures of a user's model, as the ends of error messages: what its author should change."""

import traceback
from math import isqrt, prod
from pathlib import Path
from typing import NamedTuple

from torch import Tensor, nn

from fl_audit.errors import InputError
from fl_audit.learning.module_preparation import exception_text
from fl_audit.learning.named_inputs import NamedInput

_AXES = {nn.Conv1d: ("L",), nn.Conv2d: ("H", "W"), nn.Conv3d: ("D", "H", "W")}
_SEQUENCE = (
    'records of two axes are taken for pictures of one channel: axes = "sequence" in [data] of an archive leaves that '
    "axis out, or call .squeeze(1)"
)
_RANDOM = "it draws random numbers, which no party could recompute: remove the draw"
_BRANCHES = (
    "it asks a tensor for a number of Python, by .item(), float() or if, which torch.func.vmap cannot do: accepted are "
    "tensors throughout, such as torch.where(condition, one, other) in place of if, and no .item()"
)
_IN_PLACE = (
    "it writes into a tensor in place, which torch.func.vmap cannot do for many records at once: accepted is "
    "h = h + x in place of h += x, and torch.stack(parts) in place of filling a tensor part by part"
)
_NESTED = (
    "it makes nested tensors, which torch.func.vmap cannot run: accepted are padded tensors and their mask, and "
    "enable_nested_tensor=False where a layer has it"
)
_SIZES = (
    "it makes tensors whose size depends on the record, as torch.nn.utils.rnn.pack_padded_sequence does, which "
    "torch.func.vmap cannot do: accepted are tensors of one size, so run the padded steps, and take the output of the "
    "last token by torch.take_along_dim(h, last[:, None, None], 1).squeeze(1)"
)
_UNDER_VMAP = {
    "_nested_": _NESTED,
    "nested tensor": _NESTED,
    "stack expects each tensor to be equal size": _SIZES,
    "pack_padded": _SIZES,
    "support dynamic shape": _SIZES,
    "random": _RANDOM,
    ".item()": _BRANCHES,
    "data-dependent": _BRANCHES,
    "Cannot access data pointer": "it leaves torch, as .numpy() does: accepted are operations of torch throughout",
    "inplace": _IN_PLACE,
    "in-place": _IN_PLACE,
    "match the broadcast shape": _IN_PLACE,
}
"""Remedies, keyed by words in the error messages of `torch.func`."""


class FaultPlace(NamedTuple):
    """The layer and the record at which a model failed, with the exception."""

    layer: nn.Module  # innermost layer that was running when the model failed
    path: str  # name of the layer in the model; empty for the model itself
    given: Tensor | None  # first input of the layer; None if it is no tensor
    record: str | None  # name of the record; None if only several records together fail
    error: BaseException  # exception that was raised
    largest: float  # largest input value of the layer over all records that fail in it

    @property
    def words(self) -> str:
        """Name and type of the layer, for an error message."""
        kind = type(self.layer).__name__
        return f"layer {self.path!r} ({kind})" if self.path else f"its forward ({kind})"


def is_vmap_refusal(error: BaseException) -> bool:
    """Return whether an exception is one by which `torch.func.vmap` refuses code that it cannot run."""
    return any(words in str(error) for words in _UNDER_VMAP)


def refusal(error: BaseException, shape: tuple[int, ...]) -> InputError:
    """Convert an exception of `torch.func` on an unsupported model to an `InputError` of one line with a remedy."""
    if isinstance(error, InputError):
        return error
    fix = next((fix for words, fix in _UNDER_VMAP.items() if words in str(error)), None)
    frames = traceback.extract_tb(error.__traceback__)
    if fix is _BRANCHES and any("transformers" in Path(one.filename).parts for one in frames):
        fix = (
            "the library asks for a number of Python in its own code, as for the padding mask of some models, which "
            "torch.func.vmap cannot do: accepted are models whose attention takes a mask of four axes, such as BERT, "
            "DistilBERT, RoBERTa, ELECTRA, GPT-2, Llama and the encoder of T5"
        )
    why = f" ({exception_text(error)}): accepted are modules for torch.func.vmap" if fix is None else f": {fix}"
    return InputError(f"the model cannot be run example by example on features of shape {shape}{why}")


def remedy(place: FaultPlace, shape: tuple[int, ...], inputs: tuple[NamedInput, ...]) -> str | None:
    """Return a sentence with the remedy for a failure of a user's model; None if no remedy is known."""
    text, given = str(place.error), place.given
    if "must have the same dtype" in text or "expected scalar type" in text:
        return "records arrive as float32, and so are its weights: call .float() on what the layer is given"
    if given is not None:
        match place.layer:
            case nn.Embedding() | nn.EmbeddingBag():
                return _fix_lookup(place.layer, given, place.largest)
            case nn.Conv1d() | nn.Conv2d() | nn.Conv3d():
                return _fix_convolution(place.layer, given)
            case nn.Linear():
                return _fix_dense(place.layer, given, shape)
            case nn.RNNBase():
                return _fix_recurrent(place.layer, given)
            case _:
                pass
    if "index tensor" in text or "indices must be" in text or "used as indices" in text or "'indices'" in text:
        return "records arrive as float32: call .long() on what is looked up"
    if "no padding token" in text:
        return "give its configuration the id of padding, such as pad_token_id=0"
    if inputs and "unexpected keyword argument" in text and isinstance(place.error, TypeError):
        listed = ", ".join(one.name for one in inputs)
        return (
            f"its forward is given {listed} by name: name its arguments so, and add **others for what it does not read"
        )
    if "positional argument" in text and isinstance(place.error, TypeError):
        return "forward is called with one tensor, the batch of records: give its other arguments defaults"
    return None


def _fix_lookup(layer: nn.Embedding | nn.EmbeddingBag, given: Tensor, largest: float) -> str:
    if given.is_floating_point():
        return "records arrive as float32, and it looks up whole numbers: call .long() on what the layer is given"
    held, width, kind = layer.num_embeddings, layer.embedding_dim, type(layer).__name__
    looked_up = f"it holds {held} rows, 0 to {held - 1}, and is asked for"
    if int(given.min()) < 0:
        return f"{looked_up} {int(given.min())}: accepted are numbers from 0"
    return f"{looked_up} {int(largest)}: accepted is a larger one, such as {kind}({int(largest) + 1}, {width})"


def _fix_convolution(layer: nn.Conv1d | nn.Conv2d | nn.Conv3d, given: Tensor) -> str:
    axes = next(axes for kind, axes in _AXES.items() if isinstance(layer, kind))
    channels, one = layer.in_channels, tuple(given.shape[1:])
    wanted = f"it reads records of shape ({', '.join(('C', *axes))}) with C = {channels}, and is given {one}"
    if len(one) == len(axes) and channels == 1:  # no axis of channels
        return f"{wanted}: put torch.nn.Unflatten(1, {(1, one[0])}) before it"
    side = isqrt(prod(one) // channels)
    if len(one) == 1 and len(axes) == 2 and channels * side * side == prod(one):
        return f"{wanted}: put torch.nn.Unflatten(1, {(channels, side, side)}) before it"
    if len(axes) == 1 and len(one) == 3 and one[:2] == (1, channels):
        return f"{wanted}: {_SEQUENCE}"
    if len(one) == len(axes) + 1 and one[-1] == channels:
        return f"{wanted}: move the last axis to the front, by .movedim(-1, 1)"
    return f"{wanted}: accepted are inputs of that shape, so reshape them or change C"


def _fix_dense(layer: nn.Linear, given: Tensor, shape: tuple[int, ...]) -> str:
    wanted = f"it takes {layer.in_features} numbers and is given {given.shape[-1]}"
    if given.dim() > 2 and prod(given.shape[1:]) == layer.in_features:
        return f"{wanted}: put torch.nn.Flatten() before it"
    numbers = prod(given.shape[1:])
    flat = ", behind torch.nn.Flatten()" if given.dim() > 2 else ""
    return f"{wanted}; a record has shape {shape}: accepted is torch.nn.Linear({numbers}, {layer.out_features}){flat}"


def _fix_recurrent(layer: nn.RNNBase, given: Tensor) -> str:
    wanted = f"it reads records of shape (steps, {layer.input_size}), and is given {tuple(given.shape[1:])}"
    if given.dim() == 4 and given.shape[1] == 1 and given.shape[3] == layer.input_size:
        return f"{wanted}: {_SEQUENCE}"
    if given.dim() == 2 and layer.input_size == 1:
        return f"{wanted}: call .unsqueeze(2) on what it is given"
    if given.dim() == 2 and layer.input_size == given.shape[1]:
        return f"{wanted}: call .unsqueeze(1) on what it is given"
    return f"{wanted}: accepted is {type(layer).__name__}({given.shape[-1]}, {layer.hidden_size}, batch_first=True)"
