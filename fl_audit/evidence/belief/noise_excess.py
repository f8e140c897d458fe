"""More noise than was claimed violates nothing: here it is brought down, for tests of shape and dependence.

Noise that is above the claim in some worlds, rounds, tensors or coordinates is a mixture of scales, which is not normal
as a whole, and whose copies and correlations have another law. What is left of honest noise is closer to the claim than
before, if anything.
"""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtr, chdtrc, ndtri, stdtr

from fl_audit.arrays import Floats

EVIDENT = 1e-6  # probability with which an honest run is taken for one with more noise than was claimed somewhere

_FEWEST = 30
_PASSES = 30


def without_excess(sample: Floats, owners: list[str]) -> Floats:
    """Return the noise of sampled coordinates with what is above the claim brought down to it.

    Where the scales of tensors, of world-rounds, of the rounds of tensors, or of coordinates differ by more than chance
    explains, each is divided by its own, unless it is below the claim beyond doubt. Then every tensor is that is above.

    Parameters
    ----------
    sample
        Noise over the claimed noise, (worlds, rounds, places).
    owners
        The tensor of every place.
    """
    names, which = np.unique(owners, return_inverse=True)
    groups = np.eye(names.size)[which]
    sizes, (worlds, rounds, places) = groups.sum(axis=0), sample.shape
    squares = np.square(sample)
    # Of each family: the mean squares, how many values are in each, and the family's element of every place.
    families: tuple[tuple[Callable[[Floats], Floats], Floats, NDArray[np.intp] | None], ...] = (
        (lambda values: (values.mean(axis=(0, 1)) @ groups / sizes)[None, None], worlds * rounds * sizes, which),
        (lambda values: values.mean(axis=2, keepdims=True), np.array([float(places)]), None),
        (lambda values: (values.mean(axis=0) @ groups / sizes)[None], worlds * sizes, which),
        (lambda values: values.mean(axis=(0, 1), keepdims=True), np.array([float(worlds * rounds)]), None),
    )
    scales: list[Floats] = [np.ones((1, 1, 1))] * len(families)
    for _ in range(_PASSES):
        before = list(scales)
        for at, (mean_of, freedom, element) in enumerate(families):
            rest = math.prod((one for number, one in enumerate(scales) if number != at), start=np.ones((1, 1, 1)))
            found = _scale(mean_of(squares if np.all(rest == 1) else squares / rest), freedom)
            scales[at] = found if element is None or found.size == 1 else found[..., element]
        if all(
            one.shape == other.shape and np.allclose(one, other, 1e-3)
            for one, other in zip(before, scales, strict=True)
        ):
            break
    cells, others = scales.pop(1), math.prod(scales, start=np.ones((1, 1, 1)))
    even = sample / np.sqrt(others)
    if cells.size > 1:
        even = np.where(cells == 1, even, _studentized(even))
    level = np.sqrt((np.square(even).mean(axis=(0, 1)) @ groups / sizes)[which])
    return np.asarray(even / np.maximum(1.0, level))


def _scale(means: Floats, freedom: Floats) -> Floats:
    """Return by what to divide squares of these means: 1 where the means are alike, or one is evidently too small.

    The cube roots of means of squares are nearly normal (Wilson and Hilferty 1931).
    """
    counts = np.broadcast_to(freedom, means.shape)
    if counts.min() < _FEWEST or means.size < 2:
        return np.ones((1, 1, 1))
    roots, weights = np.cbrt(means) + 2 / (9 * counts), 9 * counts / 2
    spread = float(np.sum(weights * (roots - np.average(roots, weights=weights)) ** 2))
    if chdtrc(means.size - 1, spread) > EVIDENT:
        return np.ones((1, 1, 1))
    return np.where(chdtr(counts, counts * means) < EVIDENT, 1.0, means)


def _studentized(values: Floats) -> Floats:
    """Return normal scores of values over the root mean square of the others in their world and round."""
    places = values.shape[2]
    others = (np.square(values).sum(axis=2, keepdims=True) - np.square(values)) / (places - 1)
    t = values / np.sqrt(np.maximum(others, 1e-300))
    return np.asarray(np.sign(t) * -ndtri(stdtr(places - 1, -np.abs(t))))
