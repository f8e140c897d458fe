"""Limits on the size of one pass over stacked models, in scalars that are stored at once, and slices for passes."""

from collections.abc import Iterator

CACHE_BUDGET = 2**21
"""Number of stored scalars of a pass: more exceed the cache, and with fewer the calls of torch take too much time."""
PASS_BUDGET = 2**22
"""Largest number of stored scalars of a pass over a single trial; further examples are left to the next pass."""
GRADIENT_BUDGET = 2**25
"""Largest number of scalars of per-example gradients at a time, for models that run through `torch.func`."""
ON_A_CARD = 32
"""Factor of the budgets on a graphics card, where calls of torch cost more than memory."""
GRAPHED_BELOW = 2**25
"""Number of stored scalars of a pass below which its kernels on a graphics card are launched as one CUDA graph."""


def slices(count: int, width: int) -> Iterator[slice]:
    """Yield consecutive slices of `width` positions that together cover the positions from 0 to `count` - 1.

    The last slice may be shorter.
    """
    for first in range(0, count, width):
        yield slice(first, min(count, first + width))
