"""Provide what all randomizers of records share: uniform draws, checks of shapes, and the sum of epsilons."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from fl_audit.array_types import Flags
from fl_audit.errors import InputError, require
from fl_audit.privacy.events import LaplaceRelease, RandomizedResponse, ReleaseEvent

_DRAWS = 2**20  # numbers drawn at a time, so that memory does not grow with the records


def pure_epsilon(events: Iterable[ReleaseEvent]) -> float:
    """Return the sum of the epsilons of Laplace releases and randomised responses (Bernau et al. 2019, Definition 5).

    Raises
    ------
    InputError
        If a release is of another kind.
    """
    total = 0.0
    for event in events:
        if not isinstance(event, LaplaceRelease | RandomizedResponse):
            raise InputError(f"event is {event}: accepted are Laplace releases and randomized response")
        total += event.count * event.epsilon
    return total


def responses(epsilon: float, count: int) -> tuple[ReleaseEvent, ...]:
    """Return `count` randomised responses of one bit each as one event; none if `count` or `epsilon` is 0.

    Parameters
    ----------
    epsilon
        Epsilon of one response, at least 0.
    count
        Number of responses, from 0.
    """
    return (RandomizedResponse(epsilon, count),) if epsilon > 0 and count > 0 else ()


def draws_above(limit: float, count: int, generator: np.random.Generator) -> Flags:
    """Draw uniform numbers from [0, 1) and return True for each that is at least `limit`, shape (count,).

    Parameters
    ----------
    limit
        Limit of the draws, from 0 to 1.
    count
        Number of draws, from 0.
    generator
        Generator of the draws.
    """
    found = np.empty(count, dtype=np.bool_)
    for start in range(0, count, _DRAWS):
        part = found[start : start + _DRAWS]
        part[:] = generator.random(part.size) >= limit
    return found


def record_axes(record: NDArray[np.generic]) -> tuple[int, ...]:
    """Return the axes of a single record in an array of such records: -record.ndim to -1."""
    return tuple(range(-record.ndim, 0))


def require_pair(observed: NDArray[np.generic], first: NDArray[np.generic], second: NDArray[np.generic]) -> None:
    """Raise `InputError` unless two records have the same shape, and the last axes of `observed` have this shape.

    Parameters
    ----------
    observed
        Randomised records, shape (..., *shape).
    first
        First record from which `observed` may come, shape (*shape).
    second
        Second record from which `observed` may come, shape (*shape).
    """
    fits = first.ndim >= 1 and first.shape == second.shape == observed.shape[observed.ndim - first.ndim :]
    found = f"observed records have shape {observed.shape} and the two records {first.shape} and {second.shape}"
    accepted = "two records of one shape, and observed records of that shape with further axes before it"
    require(fits, f"{found}: accepted are {accepted}")
