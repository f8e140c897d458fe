"""Named tensors of messages: reading, flattening, moving, and crafting the contribution of a target's client."""

from collections.abc import Mapping
from typing import Any, TypeVar, assert_never

import numpy as np
from flwr.app import Array, ArrayRecord, Message
from numpy.typing import NDArray

from fl_audit.array_packing import pack, unpack
from fl_audit.array_types import Floats
from fl_audit.randomness import Purpose, generator
from fl_audit.strategies.black_box.message_tags import TargetAction, UpdateFormat

Arrays = dict[str, NDArray[np.generic]]

Part = TypeVar("Part")
_STEPS, _LEAST = 4, 1e-6
"""Floating-point steps by which one value changes where almost nothing is contributed, and the least change."""


def arrays_of(record: Mapping[str, Array]) -> Arrays:
    """Return the tensors of a record, in its order, read-only."""
    return {name: unpack(array) for name, array in record.items()}


def records_of(message: Message) -> dict[str, Arrays]:
    """Return the tensors of a message, by record."""
    return {name: arrays_of(record) for name, record in message.content.array_records.items()}


def record_of(arrays: Mapping[str, NDArray[np.generic]]) -> ArrayRecord:
    """Return tensors as a record."""
    return ArrayRecord({name: Array(*pack(np.asarray(value))) for name, value in arrays.items()})


def flat(arrays: Mapping[str, NDArray[np.generic]], model: Mapping[str, NDArray[np.generic]] | None = None) -> Floats:
    """Return tensors as one vector, in the order of their names.

    Parameters
    ----------
    arrays
        The tensors, by name.
    model
        The tensors that are expected: one that is missing or has another shape becomes NaN, and others are left out.
        None takes all tensors that there are.
    """

    def column(array: NDArray[np.generic] | None, expected: NDArray[np.generic]) -> Floats:
        is_there = array is not None and array.shape == expected.shape and array.dtype.kind in "fiub"
        return np.asarray(array, dtype=np.float64).ravel() if is_there else np.full(expected.size, np.nan)

    expected = sorted((model or arrays).items())
    return np.concatenate([np.zeros(0), *(column(arrays.get(name), value) for name, value in expected)])


def shapes_of(model: Arrays) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a model's tensors, in the order in which they are flattened."""
    return {name: model[name].shape for name in sorted(model)}


def with_names(records: Mapping[str, Arrays], names: set[str], record: str = "") -> Arrays | None:
    """Return the record with tensors of these names, the one called `record` first; None if none has all of them.

    Parameters
    ----------
    records
        Arrays of each record, keyed by the name of the record.
    names
        Names of the tensors that a record must have.
    record
        Name of the record that is tried first.
    """
    candidates = [*([records[record]] if record in records else []), *records.values()]
    exact = next((arrays for arrays in candidates if set(arrays) == names), None)
    return exact or next((arrays for arrays in candidates if set(arrays) >= names), None)


def base_of(reply: Arrays, received: Arrays | None, replies: UpdateFormat) -> Arrays:
    """Return the reply that a client would give had it learned nothing.

    Parameters
    ----------
    reply
        Tensors of a reply.
    received
        Tensors that the client received; None if it received no tensors of these names.
    replies
        The meaning of the tensors of replies, such as models or updates.
    """
    if received is None or replies is UpdateFormat.UPDATES:
        return {name: np.zeros_like(value) for name, value in reply.items()}
    # A client may answer in another precision than it was asked in, and what is no vector in another shape.
    return {name: received[name].astype(value.dtype, copy=False) for name, value in reply.items()}


def moved(arrays: Arrays, steps: Mapping[str, Floats]) -> Arrays:
    """Return tensors moved by steps, in their own types: whole numbers are rounded, and a boolean is true from 1/2 on.

    Parameters
    ----------
    arrays
        The tensors, by name.
    steps
        Step of each tensor, of the tensor's shape.
    """
    there = dict(arrays)
    for name in arrays.keys() & steps.keys():
        value: Any = arrays[name].astype(np.float64) + steps[name]
        dtype = arrays[name].dtype
        if dtype.kind == "b":
            value = value >= 0.5
        elif dtype.kind in "iu":
            limits: np.iinfo[Any] = np.iinfo(str(dtype))
            value = np.clip(np.rint(value), limits.min, limits.max)
        there[name] = np.asarray(value).astype(dtype)
    return there


def contribution(action: TargetAction, own: Arrays, base: Arrays, length: float) -> Arrays:
    """Return the contribution of the target's client that replaces its own arrays.

    Parameters
    ----------
    action
        Action of the target's client in the trial.
    length
        Length of a crafted update, above 0.
    own
        Arrays that the client itself computed.
    base
        Arrays that the client would have sent had it learned nothing, with the same names, shapes and types.
    """
    match action:
        case TargetAction.OWN | TargetAction.WITHOUT_RECORD | TargetAction.OTHER_RECORD:
            return own
        case TargetAction.NOTHING:
            return base
        case TargetAction.ALMOST_NOTHING:
            return _nearly(base)
        case TargetAction.OWN_OPPOSITE:
            # Whole numbers have no opposite: they may be bytes of a model that is no vector.
            floats = {name: value.astype(np.float64) for name, value in base.items() if _is_float(value)}
            return moved(base, {name: value - own[name].astype(np.float64) for name, value in floats.items()})
        case TargetAction.CRAFTED:
            return moved(base, crafted(base, length))
        case TargetAction.CRAFTED_OPPOSITE:
            return moved(base, crafted(base, -length))
        case TargetAction.OWN_WHOLE:
            return own | whole_parts(contribution(TargetAction.CRAFTED, own, base, length), base)
        case TargetAction.OWN_WHOLE_OPPOSITE:
            opposite = contribution(TargetAction.OWN_OPPOSITE, own, base, length)
            return opposite | whole_parts(contribution(TargetAction.CRAFTED_OPPOSITE, own, base, length), base)
        case _:
            assert_never(action)


def crafted(model: Mapping[str, NDArray[np.generic]], length: float) -> dict[str, Floats]:
    """Return a public update with a given length and a part in every tensor, the same in every process.

    Integer and boolean tensors move by at least 1, which reveals whether they are passed on unclipped and without
    noise.

    Parameters
    ----------
    model
        Tensors of the model, by name. Those that are neither numeric nor boolean do not move.
    length
        Length of the update among the tensors of floating-point numbers; a negative length gives the opposite update.
    """
    numbers = {name: model[name] for name in sorted(model) if model[name].dtype.kind in "fiub"}
    draws = generator(0, Purpose.PUBLIC_DIRECTIONS, client=len(numbers))
    found = {name: draws.standard_normal(value.shape) for name, value in numbers.items()}
    norm = np.sqrt(sum(float(np.sum(found[name] ** 2)) for name, value in numbers.items() if _is_float(value)))
    scale = length / max(norm, 1.0)
    whole = np.copysign(np.ceil(abs(scale)), scale)
    return {
        name: np.asarray(scale * found[name] if _is_float(value) else np.full(value.shape, whole))
        for name, value in numbers.items()
    }


def whole_parts(arrays: Mapping[str, Part], model: Mapping[str, NDArray[np.generic]]) -> dict[str, Part]:
    """Return those tensors that are whole numbers or booleans in a model.

    Parameters
    ----------
    arrays
        Tensors, or parts of them, by name.
    model
        Tensors of the model, whose types decide.
    """
    return {name: value for name, value in arrays.items() if model[name].dtype.kind in "iub"}


def _is_float(value: NDArray[np.generic]) -> bool:
    return value.dtype.kind == "f"


def _nearly(base: Arrays) -> Arrays:
    """Return arrays with one value moved by a few steps of floating point."""
    for name in sorted(base):
        if _is_float(base[name]) and base[name].size:
            value = np.array(base[name])
            first = value.reshape(-1)[0]
            value.reshape(-1)[0] = first + max(_STEPS * np.spacing(np.abs(first)), _LEAST)
            return base | {name: value}
    return base
