"""Batches of worlds: the unit in which a run is computed, stored and resumed."""

from collections.abc import Sequence
from dataclasses import dataclass

from fl_audit.errors import require


@dataclass(frozen=True)
class WorldBatch:
    """Worlds that are trained together.

    Parameters
    ----------
    index
        Position of the batch in the run, from 0.
    first
        Index of its first world.
    count
        Number of its worlds, at least 1.
    """

    index: int
    first: int
    count: int

    @property
    def worlds(self) -> range:
        """Indices of the worlds."""
        return range(self.first, self.first + self.count)

    @property
    def name(self) -> str:
        """Name of the batch in messages and files."""
        return f"batch-{self.index:05d}"


def split_worlds(worlds: int, per_batch: int) -> tuple[WorldBatch, ...]:
    """Divide worlds into batches of `per_batch`; the last may be smaller.

    Examples
    --------
    >>> [batch.count for batch in split_worlds(5, 2)]
    [2, 2, 1]
    """
    require(worlds >= 1, f"worlds is {worlds}: accepted are 1 and more")
    require(per_batch >= 1, f"worlds-per-batch is {per_batch}: accepted are 1 and more")
    return tuple(
        WorldBatch(index, first, min(per_batch, worlds - first))
        for index, first in enumerate(range(0, worlds, per_batch))
    )


def waves(batches: Sequence[WorldBatch], in_flight: int) -> list[tuple[WorldBatch, ...]]:
    """Group batches that travel through the federation together, `in_flight` at a time."""
    require(in_flight >= 1, f"batches-in-flight is {in_flight}: accepted are 1 and more")
    return [tuple(batches[start : start + in_flight]) for start in range(0, len(batches), in_flight)]
