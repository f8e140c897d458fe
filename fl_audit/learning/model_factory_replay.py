"""Recording of the random draws in a user's model factory, from which other trials' initial weights are computed.

A user's model is made by a function whose layers draw their initial weights from torch's default generator. Only the
draws differ between trials. So the torch operations on random numbers are recorded during one call of the function, and
replayed with other random numbers. The numbers are drawn in the same order and shapes. Therefore a replay gives exactly
the weights that another call of the function would give.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_unflatten

_FILLERS = frozenset(
    ("normal_", "uniform_", "bernoulli_", "exponential_", "cauchy_", "log_normal_", "geometric_", "random_")
)
"""Names of operations that overwrite a tensor with random draws."""
_OVERWRITING = frozenset(("copy_", "zero_", "fill_"))  # names of operations that overwrite a tensor with other values


@dataclass(frozen=True)
class TensorMemoryLayout:
    """Location of a tensor: its block of memory, and its layout in this block."""

    memory: int  # number of the block, from 0
    bytes: int  # size of the block in bytes
    kind: torch.dtype  # type of the values
    size: tuple[int, ...]  # shape of the tensor
    stride: tuple[int, ...]  # strides of the tensor, in values
    offset: int  # position of the first value in the block, in values

    @property
    def is_whole(self) -> bool:
        """Whether the tensor covers its whole block of memory."""
        return _is_dense(self.size, self.stride) and prod(self.size) * self.kind.itemsize == self.bytes


@dataclass(frozen=True)
class _DrawIndependentTensor:
    value: Tensor


@dataclass(frozen=True)
class _RecordedOperation:
    """One recorded torch operation that depends on random draws, with its arguments and the places of its results."""

    operation: Callable[..., Any]  # function of torch
    given: tuple[Any, ...]  # flattened arguments, tensors as `TensorMemoryLayout` or `_DrawIndependentTensor`
    form: Any  # structure of the arguments, from which they are restored
    # Locations of the flattened results; None for a result that is no new tensor.
    found: tuple[TensorMemoryLayout | None, ...]
    # Number and content, as bytes, of each block of memory that the operation changes only in part.
    begins: tuple[tuple[int, Tensor], ...]
    is_draw: bool  # whether the operation draws random numbers
    decision: Any = None  # Python number computed from draws, on which further code may depend; None if there is none

    @property
    def is_filler(self) -> bool:
        """Whether the operation overwrites a tensor with random draws."""
        return self.is_draw and _name_of(self.operation) in _FILLERS

    @property
    def stays(self) -> bool:
        """Whether the operation must always be replayed: if it draws numbers or converts draws to a Python number."""
        return self.is_draw or self.decision is not None

    @property
    def places(self) -> Iterable[TensorMemoryLayout]:
        return (one for one in (*self.given, *self.found) if isinstance(one, TensorMemoryLayout))


@dataclass
class DrawRecorder:
    """Recorder of the operations that a function carries out on random numbers of torch's default generator."""

    is_complete: bool = True  # False if an operation on draws cannot be replayed
    steps: list[_RecordedOperation] = field(default_factory=list)  # recorded operations, in order
    _numbers: dict[int, int] = field(default_factory=dict)  # number of each block of memory, keyed by its address
    _held: list[StorageWeakRef] = field(default_factory=list)  # references that prevent the reuse of these addresses
    _drawn: set[int] = field(default_factory=set)  # numbers of the blocks whose content depends on draws

    def run(self, made: Callable[[], Any]) -> Any:
        """Run a function, record its operations on random numbers, and return its result."""
        with _OperationRecorder(self):
            return made()

    def place(self, value: Tensor) -> TensorMemoryLayout | None:
        """Return the location of a tensor that depends on random draws; None for any other tensor."""
        if not _is_ordinary(value) or self._number(value) not in self._drawn:
            return None
        return self._placed(value)

    def execute_and_record(self, operation: Any, given: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Execute a torch operation and return its result; record the operation if it depends on random draws.

        Parameters
        ----------
        operation
            Operation of torch.
        given
            Positional arguments of the operation.
        named
            Keyword arguments of the operation.
        """
        flat, form = tree_flatten((given, named))
        tensors = [one for one in flat if isinstance(one, Tensor)]
        name = _name_of(operation)
        is_draw = torch.Tag.nondeterministic_seeded in operation.tags and named.get("generator") is None
        if not all(map(_is_ordinary, tensors)):
            return operation(*given, **named)
        drawn = [one for one in tensors if self._number(one) in self._drawn]
        if not (is_draw or drawn):
            return operation(*given, **named)
        written = _written(operation, given, named)
        if not all(isinstance(one, Tensor) for one in written):
            self.is_complete = False  # lists of tensors, which initialisers do without
            return operation(*given, **named)
        if name in _OVERWRITING and self._placed(written[0]).is_whole and all(one is written[0] for one in drawn):
            self._drawn.discard(self._number(written[0]))
            return operation(*given, **named)
        begins = tuple(
            (self._number(one), _bytes_of(one).clone())
            for one in written
            if self._number(one) not in self._drawn and not (name in _FILLERS and self._placed(one).is_whole)
        )
        changed = {self._number(one) for one in written}
        before = {self._number(one) for one in tensors}
        noted = tuple(self._noted(one, changed) if isinstance(one, Tensor) else one for one in flat)
        result = operation(*given, **named)
        found = [one if isinstance(one, Tensor) else None for one in tree_flatten(result)[0]]
        new = tuple(None if one is None or self._number(one) in before else self._placed(one) for one in found)
        decision = result if name == "_local_scalar_dense" else None
        if written or any(new) or is_draw or decision is not None:
            self._drawn |= changed | {one.memory for one in new if one is not None}
            self.steps.append(_RecordedOperation(operation, noted, form, new, begins, is_draw, decision))
        return result

    def _noted(self, value: Tensor, changed: set[int]) -> TensorMemoryLayout | _DrawIndependentTensor:
        number = self._number(value)
        is_drawn = number in self._drawn or number in changed
        return self._placed(value) if is_drawn else _DrawIndependentTensor(value.detach().clone())

    def _number(self, value: Tensor) -> int:
        memory = StorageWeakRef(value.untyped_storage())  # type: ignore[no-untyped-call]  # torch's own lack of types
        if memory.cdata not in self._numbers:
            self._numbers[memory.cdata] = len(self._numbers)
            self._held.append(memory)
        return self._numbers[memory.cdata]

    def _placed(self, value: Tensor) -> TensorMemoryLayout:
        return TensorMemoryLayout(
            self._number(value), value.untyped_storage().nbytes(), value.dtype, tuple(value.shape),
            tuple(value.stride()), int(value.storage_offset()),
        )  # fmt: skip


class _OperationRecorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Torch dispatch mode that passes every torch operation to a recorder, which executes it."""

    def __init__(self, recorder: DrawRecorder) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._recorder = recorder

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self._recorder.execute_and_record(func, args, kwargs or {})


class ReplayDivergedError(Exception):
    """Raised if random draws give another Python number in a replay than in the recorded call of the model's factory.

    The factory's code may have depended on this number, so the replay may be wrong.
    """


def compute_again(
    steps: Sequence[_RecordedOperation], wanted: Mapping[str, TensorMemoryLayout], take: Callable[[str, Tensor], None]
) -> None:
    """Replay recorded operations with the next random numbers of torch's default generator.

    Steps on which no wanted tensor depends are skipped, except random draws, whose order must stay the same. A block of
    memory is freed as soon as no later step needs its content.

    Parameters
    ----------
    steps
        Recorded operations, in order.
    wanted
        Locations of the tensors to compute, keyed by name.
    take
        Function that is called with name and value of each computed tensor; it must copy values that it keeps.

    Raises
    ------
    ReplayDivergedError
        If a Python number computed from draws differs from the recorded one.
    """
    needed = _needed(steps, {place.memory for place in wanted.values()})
    last, unread = _ends(needed)
    names = dict[int, list[str]]()
    for name, place in wanted.items():
        names.setdefault(place.memory, []).append(name)
    held = dict[int, Tensor]()
    for number, step in enumerate(needed):
        held.update((memory, value.clone()) for memory, value in step.begins)
        given, named = tree_unflatten([_given(one, held) for one in step.given], step.form)
        result = step.operation(*given, **named)
        if step.decision is not None and result != step.decision:
            raise ReplayDivergedError
        found = tree_flatten(result)[0]
        for made, value in zip(step.found, found, strict=True):
            if made is not None:
                held[made.memory] = _bytes_of(value)
        for memory in last[number]:
            for name in names.get(memory, ()):
                take(name, _given(wanted[name], held))
        for memory in (*last[number], *unread[number]):
            held.pop(memory, None)


def _ends(steps: Sequence[_RecordedOperation]) -> tuple[list[set[int]], list[set[int]]]:
    """Return, for each recorded step, two sets of blocks of memory that need not be kept after the step.

    Blocks of the first set are used by no later step. Blocks of the second set are overwritten with random draws by the
    next step that uses them.
    """
    last, unread = [set[int]() for _ in steps], [set[int]() for _ in steps]
    is_drawn_anew = dict[int, bool]()  # by the next step that uses it
    for number, step in reversed(list(enumerate(steps))):
        for memory in {place.memory for place in step.places}:
            if memory not in is_drawn_anew:
                last[number].add(memory)
            elif is_drawn_anew[memory]:
                unread[number].add(memory)
            is_drawn_anew[memory] = _draws_anew(step, memory)
    return last, unread


def _draws_anew(step: _RecordedOperation, memory: int) -> bool:
    if not step.is_filler:
        return False
    places = [place for place in step.places if place.memory == memory]
    return len(places) == 1 and places[0] is step.given[0] and places[0].is_whole


def _needed(steps: Sequence[_RecordedOperation], memories: set[int]) -> list[_RecordedOperation]:
    """Return, in order, the steps on which the contents of some blocks of memory depend, and all random draws.

    All draws are kept, so that each of them gets the same random numbers as before.
    """
    needed, kept = set(memories), list[_RecordedOperation]()
    for step in reversed(steps):
        places = {place.memory for place in step.places}
        if step.stays or places & needed:
            kept.append(step)
            needed |= set() if step.is_filler else places
    return kept[::-1]


def _name_of(operation: Any) -> str:
    """Return the name of a torch operation without its namespace, such as "normal_"."""
    return operation._schema.name.rpartition("::")[2]  # type: ignore[no-any-return]


def _written(operation: Any, given: tuple[Any, ...], named: dict[str, Any]) -> list[Any]:
    """Return the tensors that a torch operation changes in place."""
    arguments = [one for one in operation._schema.arguments if one.alias_info is not None and one.alias_info.is_write]
    places = [one.name for one in operation._schema.arguments]
    found = (given[at] if (at := places.index(one.name)) < len(given) else named.get(one.name) for one in arguments)
    return [one for one in found if one is not None]


def _given(noted: Any, held: dict[int, Tensor]) -> Any:
    match noted:
        case TensorMemoryLayout():
            if noted.memory not in held:
                held[noted.memory] = torch.empty(noted.bytes, dtype=torch.uint8)
            memory = held[noted.memory].untyped_storage()
            return torch.empty(0, dtype=noted.kind).set_(memory, noted.offset, noted.size, noted.stride)
        case _DrawIndependentTensor():
            return noted.value
        case _:
            return noted


def _bytes_of(value: Tensor) -> Tensor:
    memory = value.untyped_storage()
    return torch.empty(0, dtype=torch.uint8).set_(memory, 0, (memory.nbytes(),), (1,))


def _is_ordinary(value: Tensor) -> bool:
    return value.device.type == "cpu" and value.layout is torch.strided and type(value) in (Tensor, torch.nn.Parameter)


def _is_dense(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Return whether a tensor's values are contiguous in memory, in any order of its axes."""
    step = 1
    for stride, size in sorted((stride, size) for stride, size in zip(strides, shape, strict=True) if size > 1):
        if stride != step:
            return False
        step *= size
    return True
