"""Divide the trials of a run into batches, in which they are computed, stored and resumed."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from fl_audit.errors import require

BATCHES_IN_FLIGHT = 2
"""Number of batches that the federation processes at the same time: the clients train one while the other is noised."""


@dataclass(frozen=True)
class TrialBatch:
    """Trials, repetitions of the attack, that are trained together as stacked arrays."""

    index: int  # position of the trial batch in the run, from 0
    first: int  # index of the first trial in the batch
    count: int  # number of trials in the batch, at least 1

    @property
    def trials(self) -> range:
        """Indices of the trials in the batch."""
        return range(self.first, self.first + self.count)

    @property
    def name(self) -> str:
        """Name of the batch in messages and files."""
        return f"batch-{self.index:05d}"


def remaining_batches(trials: int, per_batch: int, finished: Sequence[TrialBatch]) -> tuple[TrialBatch, ...]:
    """Return batches with all trials that are in no finished batch.

    `per_batch`: A batch between finished ones may be smaller.

    Examples
    --------
    >>> [batch.trials for batch in remaining_batches(8, 3, [TrialBatch(0, 0, 3), TrialBatch(1, 3, 2)])]
    [range(5, 8)]
    """
    require(trials >= 1, f"trials is {trials}: accepted are 1 and more")
    require(per_batch >= 1, f"trials-per-batch is {per_batch}: accepted are 1 and more")
    trial_batches = sorted(finished, key=lambda batch: batch.first)
    starts = [0, *(batch.first + batch.count for batch in trial_batches)]
    ends = [*(batch.first for batch in trial_batches), trials]
    pieces = [
        (first, min(per_batch, end - first))
        for start, end in zip(starts, ends, strict=True)
        for first in range(start, end, per_batch)
    ]
    used = {batch.index for batch in trial_batches}
    free = (index for index in itertools.count() if index not in used)
    return tuple(TrialBatch(index, first, count) for index, (first, count) in zip(free, pieces, strict=False))


def waves(batches: Sequence[TrialBatch]) -> list[tuple[TrialBatch, ...]]:
    """Divide batches into groups of `BATCHES_IN_FLIGHT` consecutive ones; the last group may be smaller."""
    starts = range(0, len(batches), BATCHES_IN_FLIGHT)
    return [tuple(batches[start : start + BATCHES_IN_FLIGHT]) for start in starts]
