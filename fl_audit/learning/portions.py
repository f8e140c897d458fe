"""Portions of stacked models that stay in cache while a formula is worked out on them."""

from collections.abc import Iterator

_CACHED_SCALARS = 2**17
"""Scalars that are worked on at once: whole stacks of large models would be moved to memory and back at every step of a
formula."""


def cached_rows(worlds: int, parameters: int) -> Iterator[slice]:
    """Yield the rows of stacked models in portions that stay in cache in float64, each at least one world."""
    rows = max(1, _CACHED_SCALARS // parameters)
    for first in range(0, worlds, rows):
        yield slice(first, min(worlds, first + rows))
