"""Error messages for failures of a user's model: one line with the layer, the record, and the remedy.

A model is run on many records of many trials at once, so its exception names neither record nor layer. Therefore the
records are run again, one by one and without `torch.func`, while hooks note the begin and the end of every layer.
"""

import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import isqrt, prod
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fl_audit import user_modules
from fl_audit.errors import InputError
from fl_audit.learning.model_adaptation import inputs_of
from fl_audit.learning.module_checks import said, sharing_copy, without_hints
from fl_audit.learning.named_inputs import NamedInput
from fl_audit.learning.stacked_layers import is_plain

_OUR_DIRECTORY = Path(__file__).parent
_AXES = {nn.Conv1d: ("L",), nn.Conv2d: ("H", "W"), nn.Conv3d: ("D", "H", "W")}
_NO_MEMORY = ("allocate memory", "out of memory")


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


def names_of(count: int) -> tuple[str, ...]:
    """Return a name for each of `count` records of which only the position, from 0, is known."""
    return tuple(f"record {number} of {count} that it was given (from 0)" for number in range(count))


@contextmanager
def explaining(
    module: nn.Module, parameters: Mapping[str, Tensor], features: Tensor, shape: tuple[int, ...]
) -> Iterator[None]:
    """Convert an exception of a model's code within a `with` block into an `InputError` that names layer and record.

    Exceptions caused by this program, or by a lack of memory, are raised unchanged.

    Parameters
    ----------
    module
        Model whose code runs in the block.
    parameters
        Parameters of the model in some trials, (trials, *shape), keyed by name; the first trial's are used.
    features
        Features of the records on which the model runs, (..., *shape), with any number of leading axes.
    shape
        Shape of the features of one record.

    Raises
    ------
    InputError
        If the model's code raises an exception.
    Exception
        If the block raises an exception that the model does not cause.
    SystemExit
        If the block raises it outside of the model's code.
    """
    try:
        with without_hints():
            yield
    except (Exception, SystemExit) as error:
        if is_plain(module):
            raise  # no code but torch's and ours has run
        values = {name: value[0].detach() for name, value in parameters.items()}
        fault = explained(error, module, values, features.reshape(-1, *shape))
        if fault is None:
            raise
        raise fault from error


def explained(
    error: BaseException,
    module: nn.Module,
    values: Mapping[str, Tensor],
    features: Tensor,
    names: Sequence[str] | None = None,
) -> InputError | None:
    """Return an exception of a model's code as an `InputError` of one line; None if the model is not its cause.

    Parameters
    ----------
    error
        The exception that was raised.
    module
        Model that was run; it is not changed.
    values
        Parameters of the model when it failed, keyed by name.
    features
        Features of the records on which the model ran, shape (n, *shape).
    names
        Name of each record for the message; None for its position.
    """
    if isinstance(error, InputError):
        return error
    if isinstance(error, MemoryError) or any(words in str(error) for words in _NO_MEMORY):
        return None
    shape = tuple(features.shape[1:])
    place = located(module, values, features, names or names_of(len(features)))
    if place is None:
        is_known = any(words in str(error) for words in _UNDER_VMAP)
        return refusal(error, shape) if is_known or _is_theirs(error) else None
    inputs = inputs_of(module)
    fix, where = _fix(place, shape, inputs), _line_of(place.error)
    if fix is None:
        named = f"takes {', '.join(one.name for one in inputs)}" if inputs else f"reads float32 records of {shape}"
        what, fix = f"raised {raised_at(place.error)}", f"accepted is a model that {named}"
    else:
        what = f"cannot use what it is given{where}"
    return InputError(f"the model fails on {place.record or 'several records together'}: {place.words} {what}: {fix}")


def refusal(error: BaseException, shape: tuple[int, ...]) -> InputError:
    """Return an exception of `torch.func` on an unsupported model as an `InputError` of one line with a remedy.

    Parameters
    ----------
    error
        Exception of `torch.func`; an `InputError` is returned unchanged.
    shape
        Shape of the features of one record, for the message.
    """
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
    why = f" ({said(error)}): accepted are modules for torch.func.vmap" if fix is None else f": {fix}"
    return InputError(f"the model cannot be run example by example on features of shape {shape}{why}")


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


def located(
    module: nn.Module, values: Mapping[str, Tensor], features: Tensor, names: Sequence[str]
) -> FaultPlace | None:
    """Run a model on records, and return the layer and the record at which it fails; None if it does not fail.

    The model is run on all records together, and then on each record alone.

    Parameters
    ----------
    module
        Model to run; it is not changed.
    values
        Parameters of the model, keyed by name.
    features
        Features of the records, shape (n, *shape).
    names
        Name of each of the n records, by which the result names the failing one.
    """
    watched = sharing_copy(module).eval()
    with _LayerWatch(watched) as watch:
        failed = watch.run(values, features)
        together = None if failed is None else watch.place(failed, None)
        alone = list[FaultPlace]()
        for name, example in zip(names, features, strict=True):
            failed = watch.run(values, example.unsqueeze(0))
            # A record alone may fail elsewhere: layers of torch take some inputs for one record without its batch.
            if failed is not None and (together is None or watch.path == together.path):
                alone.append(watch.place(failed, name))
    if not alone:
        return together
    return alone[0]._replace(largest=max(place.largest for place in alone if place.path == alone[0].path))


class _LayerWatch:
    """Context manager that notes which layers of a module have begun and not ended, with the input of each."""

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self._begun: list[tuple[str, nn.Module, Tensor | None]] = []
        self._handles: list[Callable[[], None]] = []

    def __enter__(self) -> "_LayerWatch":
        for path, layer in self._module.named_modules():

            def begins(layer: nn.Module, given: tuple[object, ...], path: str = path) -> None:
                first = given[0] if given and isinstance(given[0], Tensor) else None
                self._begun.append((path, layer, first))

            def ends(*unused: object) -> None:
                self._begun.pop()

            self._handles += [layer.register_forward_pre_hook(begins).remove, layer.register_forward_hook(ends).remove]
        return self

    def __exit__(self, *unused: object) -> None:
        for remove in self._handles:
            remove()

    def run(self, values: Mapping[str, Tensor], features: Tensor) -> BaseException | None:
        """Run the module on records (n, *shape); return the exception that it raises, or None."""
        self._begun.clear()
        try:
            with torch.random.fork_rng(devices=[]), torch.no_grad(), without_hints():
                functional_call(self._module, dict(values), (features,))
        except (Exception, SystemExit) as error:
            return error
        return None

    @property
    def path(self) -> str:
        """Name of the layer at which the last run failed; empty for the module itself."""
        return self._begun[-1][0] if self._begun else ""

    def place(self, error: BaseException, record: str | None) -> FaultPlace:
        """Return the layer at which the last run failed, with the given record and exception."""
        path, layer, given = self._begun[-1] if self._begun else ("", self._module, None)
        largest = float(given.max()) if given is not None and given.numel() else 0.0
        return FaultPlace(layer, path, given, record, error, largest)


def _fix(place: FaultPlace, shape: tuple[int, ...], inputs: tuple[NamedInput, ...]) -> str | None:
    """Return a sentence with the remedy for a failure of a user's model; None if no remedy is known.

    `shape` is the shape of one record's features. `inputs` are the arrays that the model's `forward` takes by name;
    empty if it takes a single tensor.
    """
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


def raised_at(error: BaseException) -> str:
    """Return a phrase with type and message of an exception of the user's code, and its file and line if known."""
    kind, words = type(error).__name__, said(error)
    return (kind if words == kind else f"{kind}: {words}") + _line_of(error)


def _line_of(error: BaseException) -> str:
    frames = _their_frames(error)
    return f" in {Path(frames[-1].filename).name}, line {frames[-1].lineno}" if frames else ""


def _their_frames(error: BaseException) -> list[traceback.FrameSummary]:
    """Return the stack frames of the user's code, outermost first, without those of this package and of libraries."""
    frames: Iterable[traceback.FrameSummary] = traceback.extract_tb(error.__traceback__)
    ours = Path(user_modules.__file__)
    return [
        one
        for one in frames
        if "site-packages" not in one.filename
        and Path(one.filename).parent != _OUR_DIRECTORY
        and Path(one.filename) != ours
        and not one.filename.startswith("<")
        and "importlib" not in one.filename
    ]


def _is_theirs(error: BaseException) -> bool:
    """Return whether the innermost stack frame outside of installed packages belongs to the user's code."""
    frames = [one for one in traceback.extract_tb(error.__traceback__) if "site-packages" not in one.filename]
    theirs = _their_frames(error)
    return bool(theirs) and frames[-1].filename == theirs[-1].filename
