"""Functions on the named tensors of messages: reading, flattening, adding updates, and crafting contributions."""

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
"""Number of floating-point spacings by which `_nearly` changes one value, and the smallest such change."""


def arrays_of(record: Mapping[str, Array]) -> Arrays:
    """Return the tensors of a record by name, in its order, as read-only arrays."""
    return {name: unpack(array) for name, array in record.items()}


def records_of(message: Message) -> dict[str, Arrays]:
    """Return the tensors of each array record in a message, by the name of the record."""
    return {name: arrays_of(record) for name, record in message.content.array_records.items()}


def record_of(arrays: Mapping[str, NDArray[np.generic]]) -> ArrayRecord:
    """Return an `ArrayRecord` of named tensors."""
    return ArrayRecord({name: Array(*pack(np.asarray(value))) for name, value in arrays.items()})


def flat(arrays: Mapping[str, NDArray[np.generic]], model: Mapping[str, NDArray[np.generic]] | None = None) -> Floats:
    """Return tensors concatenated to one float64 vector, sorted by name.

    Parameters
    ----------
    arrays
        The tensors, by name.
    model
        The expected tensors, by name. Values are NaN for a tensor that is missing or has another shape, and tensors
        that are not expected are left out. None takes all tensors.
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
    """Return the first record that has exactly the named tensors, or else all of them; None if there is none.

    Parameters
    ----------
    records
        Arrays of each record, keyed by the name of the record.
    names
        Names of the tensors that a record must have.
    record
        Name of the record that is tried before the others.
    """
    candidates = [*([records[record]] if record in records else []), *records.values()]
    exact = next((arrays for arrays in candidates if set(arrays) == names), None)
    return exact or next((arrays for arrays in candidates if set(arrays) >= names), None)


def base_of(reply: Arrays, received: Arrays | None, replies: UpdateFormat) -> Arrays:
    """Return the tensors that a client would send if it had learned nothing.

    These are the received ones if clients send models, and zeros if they send updates.

    Parameters
    ----------
    reply
        Tensors of the client's reply, which determine names, shapes and types.
    received
        Tensors that the client received; None if it received no tensors of these names.
    replies
        The meaning of the tensors of replies, such as models or updates.
    """
    if received is None or replies is UpdateFormat.UPDATES:
        return {name: np.zeros_like(value) for name, value in reply.items()}
    # A reply may have another precision than the received tensors, and serialised models may have another shape.
    return {name: received[name].astype(value.dtype, copy=False) for name, value in reply.items()}


def moved(arrays: Arrays, steps: Mapping[str, Floats]) -> Arrays:
    """Return tensors with an update added, in their own types; integers are rounded, and booleans are True from 1/2.

    Parameters
    ----------
    arrays
        The tensors, by name.
    steps
        Addend of each tensor, by name and of the tensor's shape; tensors without one are unchanged.
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
    """Return the tensors that the target's client sends in a trial instead of those that it computed.

    Parameters
    ----------
    action
        Action of the target's client in the trial.
    length
        L2 norm of a crafted update, above 0.
    own
        Tensors that the client itself computed, by name.
    base
        Tensors that the client would have sent if it had learned nothing, with the same names, shapes and types.
    """
    match action:
        case TargetAction.OWN | TargetAction.WITHOUT_RECORD | TargetAction.OTHER_RECORD:
            return own
        case TargetAction.NOTHING:
            return base
        case TargetAction.ALMOST_NOTHING:
            return _nearly(base)
        case TargetAction.OWN_OPPOSITE:
            # Integers have no opposite, since they may be the bytes of a serialised model such as a tree.
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
    """Return a public update with a given L2 norm that changes every tensor, by name; the same in every process.

    Integer and boolean tensors change by at least 1, which reveals whether they are passed on unclipped and without
    noise.

    Parameters
    ----------
    model
        Tensors of the model, by name. Tensors that are neither numeric nor boolean do not change.
    length
        L2 norm of the update over all floating-point tensors; a negative number gives the opposite update.
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
    """Return the tensors that are integer or boolean in a model.

    Parameters
    ----------
    arrays
        Tensors, or parts of them, by name.
    model
        Tensors of the model, by name, whose types decide.
    """
    return {name: value for name, value in arrays.items() if model[name].dtype.kind in "iub"}


def _is_float(value: NDArray[np.generic]) -> bool:
    return value.dtype.kind == "f"


def _nearly(base: Arrays) -> Arrays:
    """Return the tensors with one floating-point value increased by a few spacings, or by 1e-6 if that is more."""
    for name in sorted(base):
        if _is_float(base[name]) and base[name].size:
            value = np.array(base[name])
            first = value.reshape(-1)[0]
            value.reshape(-1)[0] = first + max(_STEPS * np.spacing(np.abs(first)), _LEAST)
            return base | {name: value}
    return base
