"""How far records lie apart: exactly, and faster within a known rounding error."""

import math
from typing import Literal, assert_never

import numpy as np

from fl_audit.arrays import Floats, Floats32, Integers
from fl_audit.data.names import Dissimilarity as Dissimilarity
from fl_audit.data.names import Measure as Measure
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
from fl_audit.user_modules import import_function

BLOCK_BYTES = 64 * 2**20  # largest size of one array of a search; it holds a few at a time

_EPS = float(np.finfo(np.float64).eps)
_METRICS: dict[Dissimilarity, Literal["cityblock", "euclidean", "hamming", "cosine"]] = {
    Dissimilarity.MANHATTAN: "cityblock",
    Dissimilarity.EUCLIDEAN: "euclidean",
    Dissimilarity.HAMMING: "hamming",
    Dissimilarity.COSINE: "cosine",
}
"""Names of scipy's metrics; it has none for SSIM."""

Prepared = Floats | Patches  # a block of records in the form that a measure works on


def check_measurable(records: Records, measure: Measure) -> None:
    """Refuse records that a measure cannot compare.

    Parameters
    ----------
    records, measure
        The records that are to be compared, and how dissimilar two of them are.

    Raises
    ------
    InputError
        If a record has only zeros under the cosine measure, or records are no images under ssim.
    """
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
        case Dissimilarity.EUCLIDEAN | Dissimilarity.MANHATTAN | Dissimilarity.HAMMING | str():
            pass
        case _:
            assert_never(measure)


def rows_in_block(records: Records, measure: Measure) -> int:
    """Return how many records to prepare at a time, so that neither they nor their square outgrow `BLOCK_BYTES`.

    Parameters
    ----------
    records, measure
        As for `check_measurable`.
    """
    numbers = int(records.features[0].size) * (WINDOW**2 if measure is Dissimilarity.SSIM else 1)
    return max(1, min(BLOCK_BYTES // (8 * numbers), math.isqrt(BLOCK_BYTES // 8)))


def prepare(features: Floats32, measure: Measure) -> Prepared:
    """Return records in the form that a measure works on.

    Parameters
    ----------
    features, measure
        Features of n records, (n, *shape), and what they are prepared for.
    """
    if measure is Dissimilarity.SSIM:
        return patches_of(features)
    return features.reshape(len(features), -1).astype(np.float64)


def taken(block: Prepared, positions: Integers) -> Prepared:
    """Return some records of a prepared block.

    Parameters
    ----------
    block, positions
        As `prepare` returns it, and positions in it, shape (m,).
    """
    if isinstance(block, Patches):
        return Patches(block.deviations[:, positions], block.mean[:, positions], block.variance[:, positions])
    return block[positions]


def directions(vectors: Floats) -> Floats:
    """Return vectors, shape (n, d), divided by their length."""
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))


def exact_block(left: Prepared, right: Prepared, measure: Measure) -> Floats:
    """Return the dissimilarity of every pair, shape (n, m).

    A pair's value does not depend, to the last bit, on the pairs beside it, so that ties are ties in every block.

    Parameters
    ----------
    left, right, measure
        n and m records, prepared for the measure.
    """
    if isinstance(left, Patches):
        return structural_dissimilarity(left, _patches(right))
    assert not isinstance(right, Patches)
    if not isinstance(measure, Dissimilarity):
        return _own_block(left, right, measure)
    # Half a second to import, which every client process would pay: only whoever chooses the differing record needs it.
    from scipy.spatial.distance import cdist

    return np.asarray(cdist(left, right, _METRICS[measure]))


def _own_block(left: Floats, right: Floats, name: str) -> Floats:
    """Return the user's own dissimilarities of every pair, shape (n, m), of flattened records: finite numbers."""
    found = np.asarray(import_function(name, "dissimilarity")(left, right))
    accepted = f"accepted is a finite number for each of {len(left)} x {len(right)} pairs"
    good = found.shape == (len(left), len(right)) and np.issubdtype(found.dtype, np.number)
    require(good, f"dissimilarity {name!r} returned {found.dtype} of shape {found.shape}: {accepted}")
    distances: Floats = found.astype(np.float64)
    require(
        bool(np.isfinite(distances).all()), f"dissimilarity {name!r} returned a number that is not finite: {accepted}"
    )
    return distances


def screening_block(left: Prepared, right: Prepared, measure: Measure) -> tuple[Floats, float]:
    """Return what `exact_block` returns, by the fastest arithmetic, and a bound on the difference (0 if there is none).

    Euclidean, cosine and ssim dissimilarities come from matrix products. The bounds are the usual ones for sums of
    products (Higham 2002, section 3.1) and cover the rounding of both sides.

    Parameters
    ----------
    left, right, measure
        As for `exact_block`.
    """
    if isinstance(left, Patches):
        return fast_structural_dissimilarity(left, _patches(right))
    assert not isinstance(right, Patches)
    match measure:
        case Dissimilarity.EUCLIDEAN:
            return _euclidean(left, right)
        case Dissimilarity.COSINE:
            return 1 - directions(left) @ directions(right).T, (4 * left.shape[1] + 32) * _EPS
        case Dissimilarity.MANHATTAN | Dissimilarity.HAMMING | Dissimilarity.SSIM | str():
            return exact_block(left, right, measure), 0.0
        case _:
            assert_never(measure)


def _euclidean(left: Floats, right: Floats) -> tuple[Floats, float]:
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


def _patches(block: Prepared) -> Patches:
    assert isinstance(block, Patches), "both blocks are prepared for one measure"
    return block
