"""Error messages for failures of a user's model: one line with the layer, the record, and the remedy.

A model is run on many records of many trials at once, so its exception names neither record nor layer. Therefore the
records are run again, one by one and without `torch.func`, while hooks note the begin and the end of every layer.
"""

import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fl_audit import user_modules
from fl_audit.errors import InputError
from fl_audit.learning.model_adaptation import inputs_of
from fl_audit.learning.model_advice import advise
from fl_audit.learning.model_faults import ModelCheck, ModelFault
from fl_audit.learning.module_preparation import exception_text, sharing_copy, without_hints
from fl_audit.learning.named_inputs import NamedInput
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
        explanation = explained(error, module, values, features.reshape(-1, *shape))
        if explanation is None:
            raise
        raise explanation from error


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
    fault = located(module, values, features, names or names_of(len(features)))
    if fault is None:
        is_refused = advise(ModelCheck.VMAP, ModelFault(module, error=error)) is not None
        return vmap_refusal(error, module, shape) if is_refused or _is_raised_by_user(error) else None
    assert fault.error is not None, "a fault that was located raised an exception"
    advice = advise(ModelCheck.FORWARD, fault)
    if advice is None:
        arrays = ", ".join(array.name for array in fault.named_inputs)
        accepted = f"takes {arrays}" if arrays else f"reads float32 records of {shape}"
        description = f"raised {raised_at(fault.error)}"
        advice = f"accepted is a model that {accepted}"
    else:
        description = f"cannot use what it is given{_line_of(fault.error)}"
    records = fault.record or "several records together"
    return InputError(f"the model fails on {records}: {fault.words} {description}: {advice}")


def vmap_refusal(error: BaseException, module: nn.Module, shape: tuple[int, ...]) -> InputError:
    """Convert an exception of `torch.func` on an unsupported model to an `InputError` of one line with a remedy."""
    if isinstance(error, InputError):
        return error
    frames = traceback.extract_tb(error.__traceback__)
    library = "transformers" if any("transformers" in Path(frame.filename).parts for frame in frames) else ""
    advice = advise(ModelCheck.VMAP, ModelFault(module, error=error, detail=library))
    ending = (
        f" ({exception_text(error)}): accepted are modules for torch.func.vmap" if advice is None else f": {advice}"
    )
    return InputError(f"the model cannot be run example by example on features of shape {shape}{ending}")


def located(
    module: nn.Module, values: Mapping[str, Tensor], features: Tensor, names: Sequence[str]
) -> ModelFault | None:
    """Return the layer and the record at which a model fails, or None if it does not fail.

    The model is run on all records together, and then on each record alone.

    Shapes: `features` (n, *shape).
    """
    watched = sharing_copy(module).eval()
    inputs = inputs_of(module)
    faults = list[ModelFault]()
    with _LayerWatch(watched) as watch:
        error = watch.run(values, features)
        common_fault = None if error is None else watch.fault(error, features, inputs)
        for name, example in zip(names, features, strict=True):
            error = watch.run(values, example.unsqueeze(0))
            # A single record may fail elsewhere: some layers of torch take a batch of one for a record without a batch.
            if error is not None and (common_fault is None or watch.path == common_fault.path):
                faults.append(replace(watch.fault(error, features, inputs), record=name))
    if not faults:
        return common_fault
    return replace(faults[0], largest=max(fault.largest for fault in faults if fault.path == faults[0].path))


class _LayerWatch:
    """Context manager that notes which layers of a module have begun and not ended, with the input of each."""

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self._begun: list[tuple[str, nn.Module, Tensor | None]] = []
        self._handles: list[Callable[[], None]] = []

    def __enter__(self) -> "_LayerWatch":
        for path, layer in self._module.named_modules():

            def begins(layer: nn.Module, arguments: tuple[object, ...], path: str = path) -> None:
                layer_input = arguments[0] if arguments and isinstance(arguments[0], Tensor) else None
                self._begun.append((path, layer, layer_input))

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

    def fault(self, error: BaseException, features: Tensor, inputs: tuple[NamedInput, ...]) -> ModelFault:
        """Return the fault of the last run, which raised an exception on records (n, *shape)."""
        path, layer, layer_input = self._begun[-1] if self._begun else ("", self._module, None)
        largest = float(layer_input.max()) if layer_input is not None and layer_input.numel() else 0.0
        shape = tuple(features.shape[1:])
        return ModelFault(
            layer, path, inputs=layer_input, largest=largest, error=error, feature_shape=shape, named_inputs=inputs
        )


def raised_at(error: BaseException) -> str:
    """Return a phrase with type and message of an exception of the user's code, and its file and line if known."""
    kind = type(error).__name__
    message = exception_text(error)
    return (kind if message == kind else f"{kind}: {message}") + _line_of(error)


def _line_of(error: BaseException) -> str:
    frames = _user_frames(error)
    return f" in {Path(frames[-1].filename).name}, line {frames[-1].lineno}" if frames else ""


def _user_frames(error: BaseException) -> list[traceback.FrameSummary]:
    """Return the stack frames of the user's code, outermost first, without those of this package and of libraries."""
    frames: Iterable[traceback.FrameSummary] = traceback.extract_tb(error.__traceback__)
    return [
        frame
        for frame in frames
        if "site-packages" not in frame.filename
        and Path(frame.filename).parent != _OUR_DIRECTORY
        and Path(frame.filename) != Path(user_modules.__file__)
        and not frame.filename.startswith("<")
        and "importlib" not in frame.filename
    ]


def _is_raised_by_user(error: BaseException) -> bool:
    """Return whether the innermost stack frame outside of installed packages belongs to the user's code."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "site-packages" not in frame.filename]
    user_frames = _user_frames(error)
    return bool(user_frames) and frames[-1].filename == user_frames[-1].filename
