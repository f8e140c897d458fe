"""Randomised responses of single bits: their release events, their random draws, and the total epsilon of events."""

from collections.abc import Iterable

import numpy as np

from fl_audit.array_types import Flags
from fl_audit.errors import InputError
from fl_audit.privacy.events import RandomizedResponse, ReleaseEvent

_DRAWS = 2**20  # numbers drawn at a time, so that memory does not grow with the records


def pure_epsilon(events: Iterable[ReleaseEvent]) -> float:
    """Return the sum of the epsilons of releases that are purely DP (Bernau et al. 2019, Definition 5)."""
    total = 0.0
    for event in events:
        if event.pure_epsilon is None:
            raise InputError(f"event is {event}: accepted are releases that are (epsilon, 0)-private")
        total += event.count * event.pure_epsilon
    return total


def responses(epsilon: float, count: int) -> tuple[ReleaseEvent, ...]:
    """Return `count` randomised responses of one bit each as one event; none if `count` or `epsilon` is 0."""
    return (RandomizedResponse(epsilon, count),) if epsilon > 0 and count > 0 else ()


def draws_above(limit: float, count: int, generator: np.random.Generator) -> Flags:
    """Draw uniform numbers from [0, 1) and return True for each that is at least `limit`, shape (count,)."""
    is_above = np.empty(count, dtype=np.bool_)
    for start in range(0, count, _DRAWS):
        draws = is_above[start : start + _DRAWS]
        draws[:] = generator.random(draws.size) >= limit
    return is_above
