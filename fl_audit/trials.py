"""Batches of trials: the unit in which a run is computed, stored and resumed."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from fl_audit.errors import require


@dataclass(frozen=True)
class TrialBatch:
    """Trials that are trained together."""

    index: int  # position of the batch in the run, from 0
    first: int  # index of its first trial
    count: int  # number of its trials, at least 1

    @property
    def trials(self) -> range:
        """Indices of the trials."""
        return range(self.first, self.first + self.count)

    @property
    def name(self) -> str:
        """Name of the batch in messages and files."""
        return f"batch-{self.index:05d}"


def remaining_batches(trials: int, per_batch: int, finished: Sequence[TrialBatch]) -> tuple[TrialBatch, ...]:
    """Divide the trials that are in no finished batch into batches, whatever the sizes of the finished ones.

    Parameters
    ----------
    trials
        Number of trials of the run, at least 1, or `InputError`.
    per_batch
        Largest number of trials of a batch, at least 1, or `InputError`. Batches are smaller where finished ones leave
        less room.
    finished
        Batches that need not be computed; none of them overlap.

    Examples
    --------
    >>> [batch.trials for batch in remaining_batches(8, 3, [TrialBatch(0, 0, 3), TrialBatch(1, 3, 2)])]
    [range(5, 8)]
    """
    require(trials >= 1, f"trials is {trials}: accepted are 1 and more")
    require(per_batch >= 1, f"trials-per-batch is {per_batch}: accepted are 1 and more")
    held = sorted(finished, key=lambda batch: batch.first)
    starts = [0, *(batch.first + batch.count for batch in held)]
    ends = [*(batch.first for batch in held), trials]
    pieces = [
        (first, min(per_batch, end - first))
        for start, end in zip(starts, ends, strict=True)
        for first in range(start, end, per_batch)
    ]
    used = {batch.index for batch in held}
    free = (index for index in itertools.count() if index not in used)
    return tuple(TrialBatch(index, first, count) for index, (first, count) in zip(free, pieces, strict=False))


def waves(batches: Sequence[TrialBatch], in_flight: int) -> list[tuple[TrialBatch, ...]]:
    """Group batches that are processed by the federation together.

    Parameters
    ----------
    batches
        The batches, in their order.
    in_flight
        Number of batches that are processed together, at least 1, or `InputError`.
    """
    require(in_flight >= 1, f"batches-in-flight is {in_flight}: accepted are 1 and more")
    return [tuple(batches[start : start + in_flight]) for start in range(0, len(batches), in_flight)]
