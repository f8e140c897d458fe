"""Trace what leaves a training to its private steps: hold the steps' releases fixed, and change the records.

The training runs again with given gradients in the place of those that its private steps release. Then everything that
follows from the releases alone is the same to the last bit, whatever the records are: private weights, their averages,
public models, metrics on public data. What changes with the records has left them in another way.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fl_audit.app_audits.local_training.applied_gradients import AppliedGradient
from fl_audit.app_audits.local_training.training_facts import RecordedTraining
from fl_audit.array_types import Floats32
from fl_audit.ordinary_files import read_file

_DEPTH = 8  # levels of containers that are opened
_OF_OPACUS = ("activations", "max_batch_len", "norm_sample")  # what its hooks keep at layers
_MOST_BYTES = 2**31  # of a file that is read
_PRINTED = "printed line"


class OutputKind(StrEnum):
    """Kind of a value that leaves a training."""

    ARRAY = "array"  # tensors, arrays, files that are no text
    NUMBER = "number"  # numbers, and text with numbers


@dataclass(frozen=True)
class Output:
    """A value that leaves a training."""

    kind: OutputKind
    digest: bytes  # SHA-256 digest of its content
    number: float | None = None  # its value, if it is a number


@dataclass(frozen=True)
class OutputTrace:
    """Outputs of a training, compared between runs with the same releases and with the same or with other records."""

    arrays: tuple[str, ...] = ()  # names of arrays that follow the records otherwise than by private steps
    numbers: tuple[str, ...] = ()  # the same of numbers, text and printed lines
    unstable: tuple[str, ...] = ()  # names of values that differ although nothing was changed
    count: int = 0  # number of values that were compared
    runs: tuple[RecordedTraining, ...] = ()  # the run with the own records, and those with other records


@dataclass(frozen=True)
class ObservedRun:
    """A run of a training: its recorded facts, what left it, and the gradients that it applied without Opacus."""

    training: RecordedTraining
    outputs: Mapping[str, Output] = field(default_factory=dict)
    printed: tuple[str, ...] = ()  # lines
    applied: tuple[AppliedGradient, ...] = ()
    reads_numpy: bool = False  # whether arrays of numpy came in between a backward pass and its step
    own_optimizers: tuple[str, ...] = ()  # classes of optimizers that change parameters by code of their own
    passes: int = 0  # number of backward passes
    moves_weights: bool = False  # whether code beside the steps changes parameters; known of whole runs

    def gradients(self, steps: Sequence[int]) -> list[Floats32]:
        """Return the gradients of some steps, as far as the run took them."""
        applied_values = [self.applied[step].values for step in steps if step < len(self.applied)]
        return [values for values in applied_values if values is not None]


def traced(first_run: ObservedRun, again: ObservedRun, runs: Iterable[ObservedRun]) -> OutputTrace:
    """Return what follows the records otherwise than by private steps."""
    runs = list(runs)
    unstable = _differing(first_run.outputs, again.outputs)
    names = dict.fromkeys(name for run in runs for name in _differing(first_run.outputs, run.outputs))
    followed = [name for name in names if name not in unstable]
    kinds = {name: output.kind for run in (first_run, *runs) for name, output in run.outputs.items()}
    lines = tuple(_printed(first_run, again, runs))
    return OutputTrace(
        tuple(name for name in followed if kinds[name] is OutputKind.ARRAY),
        (*(name for name in followed if kinds[name] is OutputKind.NUMBER), *lines),
        tuple(unstable),
        len(first_run.outputs) + len(first_run.printed),
        (first_run.training, *(run.training for run in runs)),
    )


def _differing(outputs: Mapping[str, Output], other_outputs: Mapping[str, Output]) -> dict[str, None]:
    names = dict.fromkeys((*outputs, *other_outputs))
    return dict.fromkeys(name for name in names if _digest_of(outputs, name) != _digest_of(other_outputs, name))


def _digest_of(outputs: Mapping[str, Output], name: str) -> bytes | None:
    return outputs[name].digest if name in outputs else None


def _printed(run: ObservedRun, again: ObservedRun, runs: Iterable[ObservedRun]) -> Iterator[str]:
    """Yield the first printed line that follows the records; lines that differ by themselves are left out."""
    for number, line in enumerate(run.printed):
        is_stable = again.printed[number : number + 1] == (line,)
        if is_stable and any(run.printed[number : number + 1] != (line,) for run in runs):
            yield f'{_PRINTED} {number + 1} ("{line.strip()[:60]}")'
            return


def outputs_in(returned: Any) -> dict[str, Output]:
    """Return all values in the result of a training, by name: tensors, arrays, numbers and text in containers.

    Of a module these are its parameters, its buffers and the values among its attributes.
    """
    return {name or "result": output for name, output in _outputs(returned, "", _DEPTH)}


def _outputs(value: Any, name: str, depth: int) -> Iterator[tuple[str, Output]]:
    match value:
        case Tensor():
            array = value.detach().cpu()
            is_number = array.ndim == 0 and not isinstance(value, nn.Parameter)
            yield name, _output(array.float().numpy() if array.dtype is torch.bfloat16 else array.numpy(), is_number)
        case np.ndarray() if value.dtype == object:
            yield from _outputs(value.tolist(), name, depth)
        case np.ndarray() | np.generic():
            yield name, _output(np.asarray(value), np.ndim(value) == 0)
        case bool() | int() | float() | complex() | str() | bytes() | None:
            number = float(value) if isinstance(value, (int, float)) else None
            yield name, Output(OutputKind.NUMBER, _hashed(repr(value).encode()), number)
        case _ if depth > 0:
            for key, member in _parts(value):
                yield from _outputs(member, f"{name}.{key}" if name else str(key), depth - 1)


def _parts(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the entries of a container, or of an object with attributes, with their names."""
    match value:
        case nn.Module():
            yield from value.named_parameters()
            yield from value.named_buffers()
            for prefix, module in value.named_modules():
                # What Opacus keeps in its own modules does not leave with the weights.
                if not type(module).__module__.startswith("opacus."):
                    pairs = (pair for pair in vars(module).items() if pair[0][:1] != "_" and pair[0] not in _OF_OPACUS)
                    yield from ((f"{prefix}.{key}" if prefix else key, attribute) for key, attribute in pairs)
        case Mapping():
            yield from value.items()
        case tuple() | list():
            yield from enumerate(value)
        case set() | frozenset():
            yield from enumerate(sorted(value, key=repr))
        case _ if not callable(value) and not type(value).__module__.startswith(("torch.", "opacus.")):
            yield from getattr(value, "__dict__", {}).items()


def _output(array: "np.ndarray[Any, Any]", is_number: bool) -> Output:
    head = f"{array.dtype}{array.shape}".encode()
    number = float(array) if is_number and array.dtype.kind in "biuf" else None
    return Output(
        OutputKind.NUMBER if is_number else OutputKind.ARRAY,
        _hashed(head + np.ascontiguousarray(array).tobytes()),
        number,
    )


def _hashed(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()


Stamps = dict[Path, tuple[int, int]]
"""Time of the last change and size of each file."""


def stamps_in(directory: Path | None) -> Stamps:
    """Return the stamps of all ordinary files in a directory; none without a directory."""
    if directory is None:
        return {}
    files = ((path, path.lstat()) for path in directory.rglob("*") if path.is_file() and not path.is_symlink())
    return {path: (stat.st_mtime_ns, stat.st_size) for path, stat in files}


def files_written(directory: Path | None, before: Stamps) -> dict[str, Output]:
    """Return the files of a directory that are new or changed since `before`, by name."""
    outputs = dict[str, Output]()
    for path, stamp in stamps_in(directory).items():
        if before.get(path) == stamp or path.suffix == ".pyc" or directory is None:
            continue
        content = read_file(path) if stamp[1] <= _MOST_BYTES else repr(stamp).encode()
        is_text = b"\0" not in content and _is_text(content)
        kind = OutputKind.NUMBER if is_text else OutputKind.ARRAY
        outputs[f"file {path.relative_to(directory)}"] = Output(kind, _hashed(content))
    return outputs


def _is_text(content: bytes) -> bool:
    try:
        content.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
