"""Models of black-box trials, and the updates and replies of simulated clients on these models."""

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple, assert_never

import numpy as np
from numpy.typing import NDArray

from fl_audit.app_audits.black_box.scenario import (
    ClientContribution,
    Direction,
    ModelKind,
    OtherContributions,
    ReplyFault,
    UpdateSignSchedule,
)
from fl_audit.app_audits.black_box.trial_messages import Arrays, with_update
from fl_audit.array_types import Floats
from fl_audit.randomness import Purpose, generator

ALMOST_NOTHING = 1e-6
"""L2 norm of a negligible update, as a multiple of the clipping norm; half precision can still represent it."""
_SCALAR = "scale"
_COUNTER = "bn.num_batches_tracked"
_SWITCH = "mask"
_RUNNING = "bn.running_mean"
_START_LENGTH = 3.0  # L2 norm of the parameters of the model that is not zero, as a multiple of the clipping norm
_FIRST_SHARE = 1e-5  # share of a growing update that is sent in the first round
_SHORT = 0.1  # length of short updates of other clients, as a multiple of the clipping norm
_SIDE = 100  # neurons of a layer of the large model


class ModelWithDirections(NamedTuple):
    """Initial tensors of a trial's model, and two orthogonal directions in which updates change the model."""

    arrays: Arrays  # the initial tensors, keyed by name in alphabetical order; they must not be changed
    # Unit vector, shape (parameters,). It is zero at scalars, integers, booleans and running statistics, which other
    # directions change.
    first: Floats
    second: Floats  # unit vector like `first`, and orthogonal to it
    tensors: tuple[tuple[str, slice], ...]  # name of each tensor, and its slice of the flattened parameters
    trained: NDArray[np.int64]  # indices of the parameters at which `first` and `second` may differ from zero

    @property
    def size(self) -> int:
        """Number of scalar parameters of the model."""
        return len(self.first)


@lru_cache
def template(model: ModelKind) -> ModelWithDirections:
    """Return a small built-in model of the given kind, with all parameters 0; raises `ValueError` for kind OWN.

    Those of kind NON_ZERO depend on the clipping norm: see `non_zero_model`.
    """
    dtype = np.float16 if model is ModelKind.HALF else np.float32
    # Two small tensors are enough to find most leaks.
    arrays: Arrays = {"weight": np.zeros((2, 3), dtype), "bias": np.zeros(3, dtype)}
    match model:
        case ModelKind.WITH_SCALAR:
            arrays[_SCALAR] = np.zeros((), dtype)
        case ModelKind.WITH_BUFFERS:
            arrays |= {"bn.weight": np.zeros(3, dtype), _RUNNING: np.zeros(3, dtype)}
            arrays[_COUNTER] = np.zeros((), np.int64)
        case ModelKind.WITH_SWITCHES:
            # A separate model, because strategies that fail on booleans could not be tested on other tensors.
            arrays[_SWITCH] = np.zeros(3, np.bool_)
        case ModelKind.LARGE:
            arrays = {"weight": np.zeros((_SIDE, _SIDE), dtype), "bias": np.zeros(_SIDE, dtype)}
        case ModelKind.PLAIN | ModelKind.HALF | ModelKind.NON_ZERO:
            pass
        case ModelKind.OWN:
            raise ValueError("an app's own model is the app's: accepted are the others")
        case _:
            assert_never(model)
    return template_of(arrays)


@lru_cache(maxsize=8)
def non_zero_model(norm: float) -> ModelWithDirections:
    """Return the small model whose parameters are not zero.

    They point away from the first direction: a model that is clipped in place of a long update then moves from end to
    end.
    """
    model = template(ModelKind.NON_ZERO)
    start = -_START_LENGTH * norm * model.first
    steps = {name: start[coordinates].reshape(model.arrays[name].shape) for name, coordinates in model.tensors}
    return template_of(with_update(model.arrays, steps))


def template_of(arrays: Mapping[str, NDArray[np.generic]]) -> ModelWithDirections:
    """Return a trial model with the given initial tensors, keyed by name, and two fixed orthogonal directions."""
    ordered = {name: np.asarray(arrays[name]) for name in sorted(arrays)}
    ends = np.cumsum([array.size for array in ordered.values()])
    tensors = tuple(
        (name, slice(int(end) - array.size, int(end))) for (name, array), end in zip(ordered.items(), ends, strict=True)
    )
    learned = {name for name, value in ordered.items() if value.ndim > 0 and value.dtype.kind == "f"}
    learned -= {name for name, value in ordered.items() if is_moved_by(Direction.RUNNING, name, value)}
    # A model may have nothing but scalars, or running statistics, that can be learned.
    learned = learned or {name for name, value in ordered.items() if value.dtype.kind == "f"}
    positions = [np.arange(coordinates.start, coordinates.stop) for name, coordinates in tensors if name in learned]
    trained = np.concatenate([np.zeros(0, np.int64), *positions])
    directions = np.zeros((2, int(ends[-1])))
    draws = generator(0, Purpose.PUBLIC_DIRECTIONS).standard_normal((2, len(trained)))
    directions[:, trained] = np.linalg.qr(draws.T)[0].T
    return ModelWithDirections(ordered, directions[0], directions[1], tensors, trained)


def is_moved_by(direction: Direction, name: str, array: NDArray[np.generic]) -> bool:
    """Return whether a direction moves all tensors of one kind, such as integers, and the given tensor is of that
    kind.
    """
    match direction:
        case Direction.SCALAR:
            return array.ndim == 0 and array.dtype.kind == "f"
        case Direction.COUNTER:
            return array.dtype.kind in "iu"
        case Direction.SWITCH:
            return array.dtype.kind == "b"
        case Direction.RUNNING:
            return name.rpartition(".")[2].startswith("running_")
        case Direction.NOWHERE | Direction.ZERO | Direction.FIRST | Direction.SECOND | Direction.EVERY_TENSOR:
            return False
        case _:
            assert_never(direction)


def update_of(
    contribution: ClientContribution,
    model: ModelWithDirections,
    norm: float,
    round: int,
    schedule: UpdateSignSchedule,
    absent_length: float = ALMOST_NOTHING,
) -> Floats:
    """Return the update that a client sends in a round of a trial, shape (parameters,).

    `norm`: The product is the L2 norm of the update in most directions. In direction EVERY_TENSOR it is the norm of the
    update in each tensor. In directions SCALAR, COUNTER, SWITCH and RUNNING it is the change of each value in the
    tensors of that kind.

    `absent_length`: L2 norm of the update in direction NOWHERE, as a multiple of `norm`: 0, or `ALMOST_NOTHING` for a
    strategy that does not bear an update of exactly zero.
    """
    length = contribution.length * norm
    update = np.zeros(model.size)
    match schedule:
        case UpdateSignSchedule.ALTERNATING:
            length *= -1.0 if round % 2 == 0 else 1.0
        case UpdateSignSchedule.ONCE if round > 1:
            return absent_length * norm * model.second
        case UpdateSignSchedule.GROWING:
            length *= _FIRST_SHARE if round == 1 else 1.0
        case UpdateSignSchedule.ONCE | UpdateSignSchedule.STEADY:
            pass
        case _:
            assert_never(schedule)
    match contribution.direction:
        case Direction.ZERO:
            return update
        case Direction.NOWHERE:
            return absent_length * norm * model.second
        case Direction.FIRST:
            return length * model.first
        case Direction.SECOND:
            return length * model.second
        case Direction.EVERY_TENSOR:
            for _, coordinates in model.tensors:  # of norm 1 in each tensor
                update[coordinates] = model.first[coordinates] / max(
                    float(np.linalg.norm(model.first[coordinates])), 1e-300
                )
            return length * update
        case Direction.SCALAR | Direction.COUNTER | Direction.SWITCH | Direction.RUNNING:
            for name, coordinates in model.tensors:
                if is_moved_by(contribution.direction, name, model.arrays[name]):
                    update[coordinates] = length
            return update
        case _:
            assert_never(contribution.direction)


def others_of(contributions: OtherContributions, model: ModelWithDirections, count: int) -> Floats:
    """Return the updates of all clients except the target's, shape (count, parameters), with L2 norm 1 unless stated.

    `contributions`: SPREAD: random ones. PAIRS: random ones and their opposites. MEDIAN: half of the clients along the
    vector `model.first`, and half against it. LENGTHS: along the vector `model.second`, half of them with L2 norm 0.1;
    of an odd number, one more is short, so that a long update of the target balances it. IDENTICAL is not accepted.
    """
    if contributions is OtherContributions.LENGTHS:
        lengths = np.where(np.arange(count) % 2 == 0, _SHORT, 1.0)
        return np.asarray(lengths[:, None] * model.second)
    if contributions is OtherContributions.MEDIAN:
        # With an odd number of others, one more has the sign opposite to the target's, so that the target balances it.
        signs = np.where(np.arange(count) % 2 == 0, -1.0, 1.0)
        return np.asarray(signs[:, None] * model.first)
    draws = generator(0, Purpose.PUBLIC_DIRECTIONS, client=count).standard_normal((count, len(model.trained)))
    if contributions is OtherContributions.PAIRS:
        draws[1::2] = -draws[: count - 1 : 2]
    values = np.zeros((count, model.size))
    values[:, model.trained] = draws / np.linalg.norm(draws, axis=1, keepdims=True)
    return values


def reply_tensors(received: Arrays, update: Floats, model: ModelWithDirections, fault: ReplyFault) -> Arrays | None:
    """Return the tensors of a client's reply: the received model plus the client's update; None if there is no reply.

    Shapes: `update` (parameters,).
    """
    there = {name: received.get(name, value) for name, value in model.arrays.items()}
    arrays = with_update(
        there, {name: update[coordinates].reshape(there[name].shape) for name, coordinates in model.tensors}
    )
    first = next(name for name, value in arrays.items() if value.ndim and value.dtype.kind == "f")
    match fault:
        case ReplyFault.PLAIN:
            return arrays
        case ReplyFault.MISSING:
            return None
        case ReplyFault.NOT_A_NUMBER:
            spoiled = np.array(arrays[first])
            spoiled.flat[0] = np.nan
            return arrays | {first: spoiled}
        case ReplyFault.PERMUTED:
            return dict(reversed(arrays.items()))
        case ReplyFault.HALF:
            return {name: value.astype(np.float16) for name, value in arrays.items()}
        case ReplyFault.MISSHAPED:
            return arrays | {first: np.zeros(arrays[first].size + 1, arrays[first].dtype)}
        case _:
            assert_never(fault)
