"""What a client contributes in a game, as arrays: its own update, its opposite, a crafted one, or almost nothing."""

from collections.abc import Mapping
from typing import assert_never

import numpy as np
from flwr.app import Array, ArrayRecord
from numpy.typing import NDArray

from fl_audit.randomness import Purpose, generator
from strategies.in_place.notes import Deed, Replies

Floats = NDArray[np.float64]
Arrays = dict[str, NDArray[np.generic]]

_STEPS, _LEAST = 4, 1e-6
"""By how many steps of floating point one value changes where almost nothing is contributed, and how much at least."""


def arrays_of(record: Mapping[str, Array]) -> Arrays:
    """Return the tensors of a record, in its order."""
    return {name: array.numpy() for name, array in record.items()}


def record_of(arrays: Mapping[str, NDArray[np.generic]]) -> ArrayRecord:
    """Return tensors as a record."""
    return ArrayRecord({name: Array(np.asarray(value)) for name, value in arrays.items()})


def flat(arrays: Mapping[str, NDArray[np.generic]]) -> Floats:
    """Return tensors as one vector, in the order of their names."""
    return np.concatenate([np.asarray(arrays[name], dtype=np.float64).ravel() for name in sorted(arrays)])


def with_names(records: Mapping[str, Arrays], names: set[str], record: str) -> Arrays | None:
    """Return the record that has tensors of these names, the one called `record` first; None if none has."""
    first = [records[record]] if record in records else []
    return next((arrays for arrays in [*first, *records.values()] if set(arrays) == names), None)


def base_of(reply: Arrays, received: Arrays | None, replies: Replies) -> Arrays:
    """Return what a reply is when nothing was learned.

    Parameters
    ----------
    reply
        The tensors of a reply.
    received
        The tensors that the client was sent; None if none of these names were sent.
    replies
        What the tensors of replies are.
    """
    if received is None or replies is Replies.UPDATES:
        return {name: np.zeros_like(value) for name, value in reply.items()}
    # A client may answer in another precision than it was asked in.
    return {name: received[name].astype(value.dtype, copy=False) for name, value in reply.items()}


def contribution(deed: Deed, own: Arrays, base: Arrays, length: float) -> Arrays:
    """Return what the target's client sends in the place of its own arrays.

    Parameters
    ----------
    deed
        What it sends.
    own
        What it has made.
    base
        What it would have made had it learned nothing, with the same names, shapes and types.
    length
        Length of a crafted update, above 0.
    """
    match deed:
        case Deed.OWN | Deed.WITHOUT_RECORD | Deed.OTHER_RECORD:
            return own
        case Deed.NOTHING:
            return base
        case Deed.ALMOST_NOTHING:
            return _nearly(base)
        case Deed.OWN_OPPOSITE:
            return {name: _moved(value, _difference(value, own[name])) for name, value in base.items()}
        case Deed.CRAFTED | Deed.CRAFTED_OPPOSITE:
            sign = 1.0 if deed is Deed.CRAFTED else -1.0
            steps = crafted({name: value.shape for name, value in base.items() if _is_float(value)}, sign * length)
            return {name: _moved(value, steps[name]) if name in steps else value for name, value in base.items()}
        case _:
            assert_never(deed)


def crafted(shapes: Mapping[str, tuple[int, ...]], length: float) -> dict[str, Floats]:
    """Return a public update of some length, with a part in every tensor; it is the same in every process.

    Parameters
    ----------
    shapes
        Shapes of the tensors of floating-point numbers, by name.
    length
        Its length.
    """
    draws = generator(0, Purpose.PUBLIC_DIRECTIONS, client=len(shapes))
    found = {name: draws.standard_normal(shapes[name]) for name in sorted(shapes)}
    norm = np.sqrt(sum(float(np.sum(value**2)) for value in found.values()))
    return {name: np.asarray(length / norm * value) for name, value in found.items()}


def _is_float(value: NDArray[np.generic]) -> bool:
    return bool(np.issubdtype(value.dtype, np.floating))


def _difference(base: NDArray[np.generic], own: NDArray[np.generic]) -> Floats:
    """Return by how much a tensor is to be moved away from its own update."""
    return np.asarray(base.astype(np.float64) - own.astype(np.float64)) if _is_float(base) else np.zeros(base.shape)


def _moved(value: NDArray[np.generic], step: Floats) -> NDArray[np.generic]:
    return np.asarray((value.astype(np.float64) + step).astype(value.dtype))


def _nearly(base: Arrays) -> Arrays:
    """Return arrays with one value moved by a few steps of floating point."""
    found = dict(base)
    for name in sorted(found):
        if _is_float(found[name]) and found[name].size:
            value = np.array(found[name])
            first = value.reshape(-1)[0]
            value.reshape(-1)[0] = first + max(_STEPS * np.spacing(np.abs(first)), _LEAST)
            found[name] = value
            break
    return found
