"""Error messages for failures of a user's model: one line with the layer, the record, and the remedy.

A model is run on many records of many trials at once, so its exception names neither record nor layer. Therefore the
records are run again, one by one and without `torch.func`, while hooks note the begin and the end of every layer.
"""

import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fl_audit import user_modules
from fl_audit.errors import InputError
from fl_audit.learning.model_adaptation import inputs_of
from fl_audit.learning.model_error_advice import FaultPlace, is_vmap_refusal, refusal, remedy
from fl_audit.learning.module_preparation import exception_text, sharing_copy, without_hints
from fl_audit.learning.stacked_layers import is_plain

_OUR_DIRECTORY = Path(__file__).parent
_NO_MEMORY = ("allocate memory", "out of memory")


def names_of(count: int) -> tuple[str, ...]:
    """Return names for `count` records in error messages, which state only the position of each record, from 0."""
    return tuple(f"record {number} of {count} that it was given (from 0)" for number in range(count))


@contextmanager
def naming_layer_and_record(
    module: nn.Module, parameters: Mapping[str, Tensor], features: Tensor, shape: tuple[int, ...]
) -> Iterator[None]:
    """Convert an exception of a model's code within a `with` block into an `InputError` that names layer and record.

    Shapes: `parameters` (trials, *shape).
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

    Shapes: `features` (n, *shape).
    """
    if isinstance(error, InputError):
        return error
    if isinstance(error, MemoryError) or any(words in str(error) for words in _NO_MEMORY):
        return None
    shape = tuple(features.shape[1:])
    place = located(module, values, features, names or names_of(len(features)))
    if place is None:
        return refusal(error, shape) if is_vmap_refusal(error) or _is_theirs(error) else None
    inputs = inputs_of(module)
    fix, where = remedy(place, shape, inputs), _line_of(place.error)
    if fix is None:
        named = f"takes {', '.join(one.name for one in inputs)}" if inputs else f"reads float32 records of {shape}"
        what, fix = f"raised {raised_at(place.error)}", f"accepted is a model that {named}"
    else:
        what = f"cannot use what it is given{where}"
    return InputError(f"the model fails on {place.record or 'several records together'}: {place.words} {what}: {fix}")


def located(
    module: nn.Module, values: Mapping[str, Tensor], features: Tensor, names: Sequence[str]
) -> FaultPlace | None:
    """Return the layer and the record at which a model fails, or None if it does not fail.

    The model is run on all records together, and then on each record alone.

    Shapes: `features` (n, *shape).
    """
    watched = sharing_copy(module).eval()
    with _LayerWatch(watched) as watch:
        failed = watch.run(values, features)
        together = None if failed is None else watch.place(failed, None)
        alone = list[FaultPlace]()
        for name, example in zip(names, features, strict=True):
            failed = watch.run(values, example.unsqueeze(0))
            # A single record may fail elsewhere: some layers of torch take a batch of one for a record without a batch.
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
        path, layer, given = self._begun[-1] if self._begun else ("", self._module, None)
        largest = float(given.max()) if given is not None and given.numel() else 0.0
        return FaultPlace(layer, path, given, record, error, largest)


def raised_at(error: BaseException) -> str:
    """Return a phrase with type and message of an exception of the user's code, and its file and line if known."""
    kind, words = type(error).__name__, exception_text(error)
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
