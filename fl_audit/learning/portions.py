"""Portions of stacked models that are small enough to stay in the processor's cache during a computation."""

from collections.abc import Iterator

_CACHED_SCALARS = 2**17
"""Number of scalars in a portion. Whole stacks of large models would be moved to memory and back at every step of a
computation."""


def cached_rows(worlds: int, parameters: int) -> Iterator[slice]:
    """Yield the rows of stacked models in portions of at least one world that stay in cache even in float64.

    Parameters
    ----------
    worlds
        Number of models, from 1.
    parameters
        Number of parameters of one model.
    """
    rows = max(1, _CACHED_SCALARS // parameters)
    for first in range(0, worlds, rows):
        yield slice(first, min(worlds, first + rows))
