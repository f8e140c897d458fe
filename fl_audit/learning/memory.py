"""The C library's allocator, told to keep what training frees, and when to give it back."""

import ctypes
import sys
from functools import lru_cache

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENAS = -1, -3, -8
_KEPT_BYTES = 2**30
_LARGEST_FROM_HEAP = 2**25

ROUNDS_BETWEEN_TRIMS = 50
"""Where nothing else ends a piece of work, freed memory goes back after so many rounds."""


@lru_cache(maxsize=1)
def keep_freed_memory() -> None:
    """Let glibc keep up to 1 GiB of freed memory for the next tensors of this process; elsewhere do nothing.

    A pass over a network frees tensors of megabytes and asks for as many a moment later. By default they go back to the
    system each time, and every page of the next ones costs a page fault: a fifth of the time of mnist-cnn. One arena
    serves all threads; with one for every thread that ever was, memory grows with the number of batches.
    """
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, _LARGEST_FROM_HEAP)
        mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)
        mallopt(_ARENAS, 1)


def give_back_freed_memory() -> None:
    """Return freed memory to the system, that of holes between live blocks too; where glibc is missing do nothing.

    For the end of a piece of work whose like follows: every piece leaves holes where it is by chance, and kept through
    them all they add up, so that peak memory would grow with the number of pieces though none of it is in use.
    """
    if not sys.platform.startswith("linux"):
        return
    malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if malloc_trim is not None:
        malloc_trim(0)
