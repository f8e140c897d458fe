"""Settings of glibc's memory allocator: keep freed memory for reuse, and return it to the system on request."""

import ctypes
import sys
from functools import lru_cache
from typing import Any

_TRIM_THRESHOLD = -1
_MMAP_THRESHOLD = -3
_ARENAS = -8
_KEPT_BYTES = 2**30
_LARGEST_FROM_HEAP = 2**25

ROUNDS_BETWEEN_TRIMS = 50  # number of rounds after which freed memory is returned during a long piece of work


@lru_cache(maxsize=1)
def keep_freed_memory() -> None:
    """Let glibc keep up to 1 GiB of freed memory for the next tensors of this process; without glibc, do nothing.

    By default, glibc returns the memory of large tensors to the system when they are freed. The next large tensors then
    cost a page fault for each of their pages, which takes a fifth of the time of the built-in model mnist-cnn. All
    threads share one arena, because memory would otherwise grow with the number of batches of trials.
    """
    if (mallopt := _of_glibc("mallopt")) is not None:
        mallopt(_MMAP_THRESHOLD, _LARGEST_FROM_HEAP)
        mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)
        mallopt(_ARENAS, 1)


def give_back_freed_memory() -> None:
    """Return all freed memory to the system, including free blocks between used ones; without glibc, do nothing.

    Call it at the end of each of several similar tasks. Otherwise fragmentation makes the peak memory grow with their
    number.
    """
    if (malloc_trim := _of_glibc("malloc_trim")) is not None:
        malloc_trim(0)


def _of_glibc(name: str) -> Any:
    return getattr(ctypes.CDLL(None), name, None) if sys.platform.startswith("linux") else None
