"""How far records lie apart: exactly, and faster within a known rounding error."""

import math
from typing import Literal, assert_never

import numpy as np
from numpy.typing import NDArray

from fl_audit.data.names import Dissimilarity as Dissimilarity
from fl_audit.data.records import Records
from fl_audit.data.structural import (
    WINDOW,
    Patches,
    check_images,
    fast_structural_dissimilarity,
    patches_of,
    structural_dissimilarity,
)
from fl_audit.errors import require

BLOCK_BYTES = 64 * 2**20
"""Largest size of one array of a search; it holds a few at a time."""

_EPS = float(np.finfo(np.float64).eps)

Prepared = NDArray[np.float64] | Patches
"""A block of records in the form that a measure works on."""


def check_measurable(records: Records, measure: Dissimilarity) -> None:
    """Raise `InputError` for records with only zeros under the cosine measure, and for other than images under ssim."""
    match measure:
        case Dissimilarity.COSINE:
            # A vector of zeros has no direction: scipy answers NaN, which would win every argmax.
            zero = ~records.features.reshape(len(records), -1).any(axis=1)
            require(
                not zero.any(),
                f"record {int(zero.argmax())} has only zeros: accepted for the cosine measure are records with a "
                "direction",
            )
        case Dissimilarity.SSIM:
            check_images(records)
        case Dissimilarity.EUCLIDEAN | Dissimilarity.MANHATTAN | Dissimilarity.HAMMING:
            pass
        case _:
            assert_never(measure)


def rows_in_block(records: Records, measure: Dissimilarity) -> int:
    """Return how many records to prepare at a time, so that neither they nor their square outgrow `BLOCK_BYTES`."""
    numbers = int(records.features[0].size) * (WINDOW**2 if measure is Dissimilarity.SSIM else 1)
    return max(1, min(BLOCK_BYTES // (8 * numbers), math.isqrt(BLOCK_BYTES // 8)))


def prepare(features: NDArray[np.float32], measure: Dissimilarity) -> Prepared:
    """Return records, shape (n, *shape), in the form that a measure works on."""
    if measure is Dissimilarity.SSIM:
        return patches_of(features)
    return features.reshape(len(features), -1).astype(np.float64)


def taken(block: Prepared, positions: NDArray[np.int64]) -> Prepared:
    """Return the records of a prepared block at `positions`."""
    if isinstance(block, Patches):
        return Patches(block.deviations[:, positions], block.mean[:, positions], block.variance[:, positions])
    return block[positions]


def directions(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return vectors, shape (n, d), divided by their length."""
    units: NDArray[np.float64] = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return units


def exact_block(left: Prepared, right: Prepared, measure: Dissimilarity) -> NDArray[np.float64]:
    """Return the dissimilarity of every pair, shape (n, m).

    A pair's value does not depend, to the last bit, on the pairs beside it, so that ties are ties in every block.
    """
    if isinstance(left, Patches) or isinstance(right, Patches):
        assert isinstance(left, Patches)
        assert isinstance(right, Patches)
        return structural_dissimilarity(left, right)
    # Half a second to import, which every client process would pay: only whoever chooses the differing record needs it.
    from scipy.spatial.distance import cdist

    distances: NDArray[np.float64] = cdist(left, right, _metric(measure))
    return distances


def screening_block(left: Prepared, right: Prepared, measure: Dissimilarity) -> tuple[NDArray[np.float64], float]:
    """Return what `exact_block` returns, by the fastest arithmetic, and a bound on the difference (0 if there is none).

    Euclidean, cosine and ssim dissimilarities come from matrix products. The bounds are the usual ones for sums of
    products (Higham 2002, section 3.1) and cover the rounding of both sides.
    """
    if isinstance(left, Patches) or isinstance(right, Patches):
        assert isinstance(left, Patches)
        assert isinstance(right, Patches)
        return fast_structural_dissimilarity(left, right)
    match measure:
        case Dissimilarity.EUCLIDEAN:
            return _euclidean(left, right)
        case Dissimilarity.COSINE:
            return 1 - directions(left) @ directions(right).T, (4 * left.shape[1] + 32) * _EPS
        case Dissimilarity.MANHATTAN | Dissimilarity.HAMMING | Dissimilarity.SSIM:
            return exact_block(left, right, measure), 0.0
        case _:
            assert_never(measure)


def _euclidean(left: NDArray[np.float64], right: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
    mine, yours = np.square(left).sum(axis=1), np.square(right).sum(axis=1)
    squares = left @ right.T
    squares *= -2
    squares += mine[:, np.newaxis]
    squares += yours
    np.maximum(squares, 0, out=squares)
    np.sqrt(squares, out=squares)
    reach, terms = float(np.sqrt(mine.max()) + np.sqrt(yours.max())), left.shape[1] + 8
    # An error of e in a square is at most one of sqrt(e) in its root, and that at distance 0.
    return squares, reach * ((2 * terms * _EPS) ** 0.5 + terms * _EPS)


def _metric(measure: Dissimilarity) -> Literal["cityblock", "euclidean", "hamming", "cosine"]:
    match measure:
        case Dissimilarity.MANHATTAN:
            return "cityblock"
        case Dissimilarity.EUCLIDEAN:
            return "euclidean"
        case Dissimilarity.HAMMING:
            return "hamming"
        case Dissimilarity.COSINE:
            return "cosine"
        case Dissimilarity.SSIM:
            raise ValueError("ssim is no metric of scipy")
        case _:
            assert_never(measure)
