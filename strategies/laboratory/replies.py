"""The replies of clients in the laboratory: what a part of a game becomes as arrays and messages."""

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple, assert_never

import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from numpy.typing import NDArray

from fl_audit.packing import pack
from fl_audit.randomness import Purpose, generator
from strategies.laboratory.kinds import Direction, Form, Model, Part, Schedule

Floats = NDArray[np.float64]
Arrays = dict[str, NDArray[np.generic]]

ALMOST_NOTHING = 1e-6
"""Length of an update that says nothing, as a multiple of the clipping norm: half precision can hold it."""
WEIGHT, BIAS, SCALAR, COUNTER = "weight", "bias", "scale", "counter"
"""The tensors of the model: two layers' worth is enough for every leak that is looked for."""


class Template(NamedTuple):
    """The model of a game.

    Parameters
    ----------
    arrays
        The initial values, by name.
    first, second
        Two orthogonal unit vectors over the tensors that have axes and are no counters, zero elsewhere.
    tensors
        Name and slice of every tensor among the flattened parameters.
    """

    arrays: Arrays
    first: Floats
    second: Floats
    tensors: tuple[tuple[str, slice], ...]

    @property
    def size(self) -> int:
        """Number of parameters."""
        return len(self.first)


@lru_cache
def template(model: Model) -> Template:
    """Return the model that a kind of game is played on; it starts at zero. Nobody may write to it."""
    dtype = np.float16 if model is Model.HALF else np.float32
    arrays: Arrays = {WEIGHT: np.zeros((2, 3), dtype), BIAS: np.zeros(3, dtype)}
    plain = sum(array.size for array in arrays.values())
    match model:
        case Model.WITH_SCALAR:
            arrays[SCALAR] = np.zeros((), dtype)
        case Model.WITH_COUNTER:
            arrays[COUNTER] = np.zeros((), np.int64)
        case Model.PLAIN | Model.HALF:
            pass
        case _:
            assert_never(model)
    draws = generator(0, Purpose.PUBLIC_DIRECTIONS).standard_normal((2, plain))
    directions, _ = np.linalg.qr(draws.T)
    padding = np.zeros((sum(array.size for array in arrays.values()) - plain, 2))
    first, second = np.concatenate([directions, padding]).T
    ends = np.cumsum([array.size for array in arrays.values()])
    tensors = tuple(
        (name, slice(end - array.size, end)) for (name, array), end in zip(arrays.items(), ends, strict=True)
    )
    return Template(arrays, first, second, tensors)


def update_of(part: Part, model: Template, norm: float, round: int, schedule: Schedule) -> Floats:
    """Return what a part adds to the model in a round, shape (parameters,)."""
    length = part.length * norm
    match schedule:
        case Schedule.ALTERNATING:
            length *= -1.0 if round % 2 == 0 else 1.0
        case Schedule.ONCE if round > 1:
            # Not exactly zero: what cannot bear that is found by a kind of game of its own.
            return ALMOST_NOTHING * norm * model.second
        case Schedule.ONCE:
            pass
        case Schedule.STEADY:
            pass
        case _:
            assert_never(schedule)
    match part.direction:
        case Direction.ZERO:
            return np.zeros(model.size)
        case Direction.NOWHERE:
            return ALMOST_NOTHING * norm * model.second
        case Direction.FIRST:
            return length * model.first
        case Direction.SECOND:
            return length * model.second
        case Direction.EVERY_TENSOR:
            return length * sum((_unit(model.first, part) for _, part in model.tensors), np.zeros(model.size))
        case Direction.SCALAR | Direction.COUNTER:
            # The parameter that this kind of model has besides the others comes last.
            update = np.zeros(model.size)
            update[-1] = length
            return update
        case _:
            assert_never(part.direction)


def _unit(vector: Floats, part: slice) -> Floats:
    """Return a vector's part with length 1, zero elsewhere."""
    only = np.zeros_like(vector)
    only[part] = vector[part] / max(float(np.linalg.norm(vector[part])), 1e-300)
    return only


def flat(arrays: Mapping[str, NDArray[np.generic]], model: Template) -> Floats:
    """Return arrays as one vector in the model's order; NaN where a tensor is missing or has another shape."""
    parts = []
    for name, expected in model.arrays.items():
        array = arrays.get(name)
        is_there = array is not None and array.shape == expected.shape
        parts.append(np.asarray(array, dtype=np.float64).ravel() if is_there else np.full(expected.size, np.nan))
    return np.concatenate(parts)


def message_of(
    received: Arrays,
    update: Floats,
    model: Template,
    form: Form,
    numbers: Mapping[str, float],
    key: str,
    message: Message,
) -> Message | None:
    """Return a client's reply: the received model plus an update, in some form; None where there is none.

    Parameters
    ----------
    received
        The model that the client was sent.
    update
        Shape (parameters,).
    model
        The names and shapes.
    form
        The form of the reply.
    numbers
        What it says beside its arrays.
    key
        Name of the record of arrays in messages of this strategy.
    message
        What is answered.
    """
    arrays = {
        name: (received[name].astype(np.float64) + update[part].reshape(shape.shape)).astype(received[name].dtype)
        if name in received
        else shape
        for (name, part), shape in zip(model.tensors, model.arrays.values(), strict=True)
    }
    match form:
        case Form.MISSING:
            return None
        case Form.NOT_A_NUMBER:
            arrays[WEIGHT].flat[0] = np.nan
        case Form.PERMUTED:
            arrays = dict(reversed(arrays.items()))
        case Form.HALF:
            arrays = {name: array.astype(np.float16) for name, array in arrays.items()}
        case Form.MISSHAPED:
            arrays[BIAS] = np.zeros(arrays[BIAS].size + 1, arrays[BIAS].dtype)
        case Form.PLAIN:
            pass
        case _:
            assert_never(form)
    record = ArrayRecord({name: Array(*pack(array)) for name, array in arrays.items()})
    whole: dict[str, int | float | list[int] | list[float]] = {
        name: int(value) if float(value).is_integer() else float(value) for name, value in numbers.items()
    }
    return Message(RecordDict({key: record, "metrics": MetricRecord(whole)}), reply_to=message)
