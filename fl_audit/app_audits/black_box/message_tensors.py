"""Functions on the named tensors of Flower messages: read and flatten tensors, add an update, and craft an update."""

from collections.abc import Mapping
from typing import Any, TypeVar, assert_never

import numpy as np
from flwr.app import Array, ArrayRecord, Message
from numpy.typing import NDArray

from fl_audit.app_audits.black_box.message_tags import TargetAction, UpdateFormat
from fl_audit.array_packing import pack, unpack
from fl_audit.array_types import Floats
from fl_audit.randomness import Purpose, generator

Arrays = dict[str, NDArray[np.generic]]

Part = TypeVar("Part")
_STEPS = 4
_LEAST = 1e-6
"""`_slightly_changed` increases a value by this number of its floating-point spacings, but by at least this amount."""


def arrays_of(record: Mapping[str, Array]) -> Arrays:
    """Return the tensors of a Flower record as read-only numpy arrays, keyed by name and in the order of the record."""
    return {name: unpack(array) for name, array in record.items()}


def records_of(message: Message) -> dict[str, Arrays]:
    """Return the tensors of a message, keyed first by the name of the array record and then by the tensor's name."""
    return {name: arrays_of(record) for name, record in message.content.array_records.items()}


def record_of(arrays: Mapping[str, NDArray[np.generic]]) -> ArrayRecord:
    """Return a Flower `ArrayRecord` that holds the given tensors under the given names, in the same order."""
    return ArrayRecord({name: Array(*pack(np.asarray(value))) for name, value in arrays.items()})


def flat(arrays: Mapping[str, NDArray[np.generic]], model: Mapping[str, NDArray[np.generic]] | None = None) -> Floats:
    """Return all tensors as one float64 vector, concatenated in the alphabetical order of their names.

    `model`: A tensor that is missing from `arrays`, is not numeric or has another shape contributes NaN.
    """

    def column(array: NDArray[np.generic] | None, expected: NDArray[np.generic]) -> Floats:
        is_there = array is not None and array.shape == expected.shape and array.dtype.kind in "fiub"
        return np.asarray(array, dtype=np.float64).ravel() if is_there else np.full(expected.size, np.nan)

    expected = sorted((model or arrays).items())
    return np.concatenate([np.zeros(0), *(column(arrays.get(name), value) for name, value in expected)])


def shapes_of(model: Arrays) -> dict[str, tuple[int, ...]]:
    """Return the shape of each tensor of a model, keyed by name in alphabetical order."""
    return {name: model[name].shape for name in sorted(model)}


def with_names(records: Mapping[str, Arrays], names: set[str], record: str = "") -> Arrays | None:
    """Return the tensors of the first record that has the wanted names and no others.

    If no record has exactly these names, all tensors of the first record that has at least these names are returned.
    The result is None if no record has all of the names.
    """
    candidates = [*([records[record]] if record in records else []), *records.values()]
    exact = next((arrays for arrays in candidates if set(arrays) == names), None)
    return exact or next((arrays for arrays in candidates if set(arrays) >= names), None)


def base_of(reply: Arrays, received: Arrays | None, update_format: UpdateFormat) -> Arrays:
    """Return the tensors that a client would send if it had learned nothing.

    If replies are models, the result is the received tensors. If replies are updates, the result is zeros.

    `reply`: The result has the same names and types.
    """
    if received is None or update_format is UpdateFormat.UPDATES:
        return {name: np.zeros_like(value) for name, value in reply.items()}
    # A reply may have another precision than the received tensors, and serialised models may have another shape.
    return {name: received[name].astype(value.dtype, copy=False) for name, value in reply.items()}


def with_update(arrays: Arrays, steps: Mapping[str, Floats]) -> Arrays:
    """Return tensors with an update added to them, keyed by name; each tensor keeps its type.

    Integers are rounded and limited to the range of their type. A boolean becomes True if its sum is at least 1/2.

    `steps`: A tensor without an update is returned unchanged.
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


def contribution(action: TargetAction, update: Arrays, base: Arrays, length: float) -> Arrays:
    """Return the tensors that the target's client sends in a trial, keyed by name.

    Depending on the action, they are the client's own tensors `update`, the tensors `base` of a client that learned
    nothing, or `base` plus an update. This update is crafted (fixed and public), or the opposite of the client's own or
    of the crafted update. Some actions take only the integer and boolean tensors from a crafted update.
    """
    match action:
        case TargetAction.OWN | TargetAction.WITHOUT_RECORD | TargetAction.OTHER_RECORD:
            return update
        case TargetAction.NOTHING:
            return base
        case TargetAction.ALMOST_NOTHING:
            return _slightly_changed(base)
        case TargetAction.OWN_OPPOSITE:
            # Integers have no opposite, since they may be the bytes of a serialised model such as a tree.
            floats = {name: value.astype(np.float64) for name, value in base.items() if _is_float(value)}
            return with_update(base, {name: value - update[name].astype(np.float64) for name, value in floats.items()})
        case TargetAction.CRAFTED:
            return with_update(base, crafted(base, length))
        case TargetAction.CRAFTED_OPPOSITE:
            return with_update(base, crafted(base, -length))
        case TargetAction.OWN_WHOLE:
            return update | whole_parts(contribution(TargetAction.CRAFTED, update, base, length), base)
        case TargetAction.OWN_WHOLE_OPPOSITE:
            opposite = contribution(TargetAction.OWN_OPPOSITE, update, base, length)
            return opposite | whole_parts(contribution(TargetAction.CRAFTED_OPPOSITE, update, base, length), base)
        case _:
            assert_never(action)


def crafted(model: Mapping[str, NDArray[np.generic]], length: float) -> dict[str, Floats]:
    """Return a fixed pseudorandom update for the numeric and boolean tensors of a model, the same in every process.

    All entries of integer and boolean tensors change by the same whole number, at least 1 in absolute value. A trial
    thus shows whether such tensors are passed on without clipping and noise.
    """
    numbers = {name: model[name] for name in sorted(model) if model[name].dtype.kind in "fiub"}
    draws = generator(0, Purpose.PUBLIC_DIRECTIONS, client=len(numbers))
    directions = {name: draws.standard_normal(value.shape) for name, value in numbers.items()}
    norm = np.sqrt(sum(float(np.sum(directions[name] ** 2)) for name, value in numbers.items() if _is_float(value)))
    scale = length / max(norm, 1.0)
    whole = np.copysign(np.ceil(abs(scale)), scale)
    return {
        name: np.asarray(scale * directions[name] if _is_float(value) else np.full(value.shape, whole))
        for name, value in numbers.items()
    }


def whole_parts(arrays: Mapping[str, Part], model: Mapping[str, NDArray[np.generic]]) -> dict[str, Part]:
    """Return the entries of `arrays` that belong to integer or boolean tensors of the model, keyed by tensor name.

    `model`: Every name in `arrays` occurs here.
    """
    return {name: value for name, value in arrays.items() if model[name].dtype.kind in "iub"}


def _is_float(value: NDArray[np.generic]) -> bool:
    return value.dtype.kind == "f"


def _slightly_changed(base: Arrays) -> Arrays:
    """Return a copy of `base` that differs as little as possible: one floating-point value is slightly larger.

    The increase is four times the distance to the next floating-point number, or 1e-6 if that is more.
    """
    for name in sorted(base):
        if _is_float(base[name]) and base[name].size:
            value = np.array(base[name])
            first = value.reshape(-1)[0]
            value.reshape(-1)[0] = first + max(_STEPS * np.spacing(np.abs(first)), _LEAST)
            return base | {name: value}
    return base
