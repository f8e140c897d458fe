"""Which coordinates of a model's noise are looked at one by one: a fixed public sample in which every tensor stands.

The sample is no random one. Noise that is copied from one place to another shows where both places are in it, so it
holds runs of neighbours, multiples of a run's length (with a run they make every shift up to the last multiple), both
ends of the model and of every tensor, and the beginnings of the rows of the largest matrix.
"""

from functools import lru_cache

import numpy as np

from fl_audit.arrays import Integers
from fl_audit.learning.layout import ParameterLayout

SAMPLE = 112  # coordinates in the sample, unless the model is smaller or has more tensors

RUN = 32  # length of the run of neighbours with which the sample begins

_FEW = 16


@lru_cache(maxsize=8)
def sampled_places(layout: ParameterLayout) -> tuple[tuple[int, str], ...]:
    """Return the number of every sampled coordinate, ascending, and the name of its tensor.

    Examples
    --------
    >>> places = sampled_places(ParameterLayout(("weight", "bias"), ((10, 64), (10,))))
    >>> len(places), places[0], places[-1]
    (112, (0, 'weight'), (649, 'bias'))
    """
    parts = layout.slices()
    chosen = _first(_wanted(layout), max(SAMPLE, len(parts)), layout.size)
    starts = np.array([part.start for part in parts.values()])
    owners = np.searchsorted(starts, chosen, side="right") - 1
    names = list(parts)
    return tuple((int(number), names[owner]) for number, owner in zip(chosen, owners, strict=True))


def _wanted(layout: ParameterLayout) -> list[Integers]:
    """Return groups of coordinates, those that matter most first."""
    size, parts = layout.size, [part for part in layout.slices().values() if part.stop > part.start]
    room = max(1, SAMPLE // 4 // len(parts))
    ends = [_ends(part.start, part.stop, room) for part in parts]
    largest = max(range(len(parts)), key=lambda at: parts[at].stop - parts[at].start)
    shape = [shape for shape in layout.shapes if np.prod(shape) > 0][largest]
    row = int(np.prod(shape[1:])) if len(shape) > 1 else 1
    return [
        np.array([part.start for part in parts]),
        np.arange(RUN),
        np.concatenate(ends),
        size - 1 - np.arange(_FEW),
        RUN * np.arange(1, 25),
        parts[largest].start + row * np.arange(_FEW),
        size // 2 + np.arange(_FEW // 2),
        np.linspace(0, size - 1, SAMPLE).astype(np.int64),
        np.arange(size)[: 2 * SAMPLE],
    ]


def _ends(start: int, stop: int, room: int) -> Integers:
    """Return a whole small tensor, or the first and last coordinates of a larger one."""
    if stop - start <= min(room, _FEW):
        return np.arange(start, stop)
    half = max(1, min(room, _FEW // 2) // 2)
    return np.concatenate([np.arange(start, start + half), np.arange(stop - half, stop)])


def _first(groups: list[Integers], count: int, size: int) -> Integers:
    """Return the first so many different coordinates of some groups, ascending."""
    wanted = np.concatenate(groups)
    inside = wanted[(wanted >= 0) & (wanted < size)]
    _, places = np.unique(inside, return_index=True)
    return np.sort(inside[np.sort(places)[:count]])
