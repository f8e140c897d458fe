"""Cache of rows of numbers for one process: the first rows are in memory, all others in a temporary file.

The file has no name, so the system deletes it when the process ends, however that happens.
"""

import shutil
import tempfile
from typing import BinaryIO

import numpy as np
import torch
from torch import Tensor

MEMORY_BUDGET = 2**27
"""Largest number of cached values in memory; they take half a gigabyte."""
DISK_BUDGET = 2**29
"""Largest number of cached values on disk; they take two gigabytes, but at most half of the free space."""
_FIRST_ROWS = 64  # number of rows for which memory is reserved first
_BYTES = 4  # bytes of a value


class PrefixOutputCache:
    """Cache of float32 rows, the outputs of a model's frozen layers for single records; for one thread at a time.

    Rows are numbered from 0 in the order in which they are added.

    Parameters
    ----------
    width
        Number of values of a row.
    """

    def __init__(self, width: int) -> None:
        self._width, self._kept = width, torch.empty(0, width)
        self._in_memory, self.on_disk = 0, 0  # number of rows in memory, and on disk
        self._file: BinaryIO | None = None
        self._most_on_disk: int | None = None

    def __len__(self) -> int:
        return self._in_memory + self.on_disk

    @property
    def is_full(self) -> bool:
        """Whether the cache has no space for another row."""
        return self._in_memory >= MEMORY_BUDGET // self._width and self.on_disk >= self._places_on_disk()

    def add(self, row: Tensor) -> bool:
        """Store a row under the next number; return False if there is no space for it.

        Parameters
        ----------
        row
            Row to store, float32 (width,).
        """
        most = MEMORY_BUDGET // self._width
        if self._in_memory >= most:
            return self._write(row)
        if self._in_memory == len(self._kept):
            rows = min(most, max(_FIRST_ROWS, 2 * len(self._kept)))
            self._kept = torch.cat([self._kept, torch.empty(rows - len(self._kept), self._width)])
        self._kept[self._in_memory] = row
        self._in_memory += 1
        return True

    def take(self, places: list[int]) -> Tensor:
        """Return the cached rows with the given numbers, (n, width); a number below 0 gives arbitrary values.

        Parameters
        ----------
        places
            Numbers of the rows, from 0.
        """
        if all(place < self._in_memory for place in places) and self._in_memory:
            return self._kept[torch.tensor(places, dtype=torch.int64).clamp(min=0)]
        found = torch.empty(len(places), self._width)
        for number, place in enumerate(places):
            if place >= self._in_memory:
                found[number] = self._read(place - self._in_memory)
            elif place >= 0:
                found[number] = self._kept[place]
        return found

    def _places_on_disk(self) -> int:
        """Return the largest number of rows on disk, determined from the free space at the first call."""
        if self._most_on_disk is None:
            free = shutil.disk_usage(tempfile.gettempdir()).free
            self._most_on_disk = min(DISK_BUDGET, free // 2 // _BYTES) // self._width
        return self._most_on_disk

    def _write(self, row: Tensor) -> bool:
        if self.on_disk >= self._places_on_disk():
            return False
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115  # open as long as the rows are kept
            self._file.seek(self.on_disk * self._width * _BYTES)
            written = self._file.write(np.asarray(row, dtype=np.float32).tobytes())
        except OSError:  # others have filled the disk
            written = 0
        if written != self._width * _BYTES:
            self._most_on_disk = self.on_disk
            return False
        self.on_disk += 1
        return True

    def _read(self, place: int) -> Tensor:
        assert self._file is not None, "a place on disk has a file"
        self._file.seek(place * self._width * _BYTES)
        return torch.frombuffer(bytearray(self._file.read(self._width * _BYTES)), dtype=torch.float32)
