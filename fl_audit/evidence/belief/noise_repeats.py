"""Was the same noise used twice? The two most alike of all noise vectors, wherever in the run they are.

Noise is seen along J public directions. The cosine c of two independent normal J-vectors has c^2 ~ Beta(1/2, (J-1)/2),
whatever their scales, and the cosines of different pairs are independent two by two.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.special import betainc, betaincinv

from fl_audit.arrays import Floats
from fl_audit.evidence.belief.family import Missing, NotOffered, TestName, TestResult
from fl_audit.evidence.belief.measured import Measured

LARGEST_GROUP = 2**14
"""Number of noise vectors up to which all are compared with all; more are compared within groups of so many."""

_BLOCK = 512  # larger blocks of cosines are allocated anew by the system each time, which takes as long as filling them


@dataclass(frozen=True)
class LikestPair:
    """The two noise vectors that are most alike."""

    cosine: float  # absolute value of the cosine between them
    # `first`, `second`: their numbers.
    first: int
    second: int
    pairs: int  # how many pairs were compared


def cosine_tail(cosine: float, dimensions: int) -> float:
    """Return the probability that two independent normal vectors have a cosine of at least `cosine`, in absolute value.

    Parameters
    ----------
    cosine
        0 to 1.
    dimensions
        J, at least 2.

    Examples
    --------
    >>> round(cosine_tail(0.5, 3), 6)
    0.5
    """
    return float(betainc((dimensions - 1) / 2, 0.5, (1 - cosine) * (1 + cosine)))


def cosine_at(probability: float, dimensions: int) -> float:
    """Return the cosine that is reached with a probability: the inverse of `cosine_tail`.

    Parameters
    ----------
    probability
        From 0 to 1.
    dimensions
        Dimensions of the space, from 2.
    """
    return math.sqrt(1 - float(betaincinv((dimensions - 1) / 2, 0.5, probability)))


def likest_pair(vectors: Floats, group: int = LARGEST_GROUP) -> LikestPair:
    """Return the two most alike of n vectors, the sign left aside.

    Parameters
    ----------
    vectors
        Shape (n, J), n at least 2. A vector of zeros is like no other.
    group
        Vectors are compared with all others of their group of so many in a row: all with all if there are no more.
    """
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    units = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)
    single = units.astype(np.float32)  # to find the pair; its cosine is computed again in float64
    best, at, pairs = -1.0, (0, 1), 0
    for start, stop, offset, end in _blocks(len(units), group):
        found = single[start:stop] @ single[offset:end].T
        if start == offset:
            np.fill_diagonal(found, 0.0)
        # Two passes that only compare are several times faster than taking absolute values and looking for a place.
        largest = max(float(found.max()), -float(found.min()))
        if largest > best:
            row, column = divmod(int(np.abs(found).argmax()), found.shape[1])
            best, at = largest, (start + row, offset + column)
        size, others = stop - start, end - offset
        pairs += size * (size - 1) // 2 if start == offset else size * others
    return LikestPair(min(1.0, abs(float(units[at[0]] @ units[at[1]]))), min(at), max(at), pairs)


def _blocks(count: int, group: int) -> Iterator[tuple[int, int, int, int]]:
    """Walk through the blocks of the upper triangle of all cosines within each group."""
    for low in range(0, count, group):
        high = min(count, low + group)
        for start in range(low, high, _BLOCK):
            for offset in range(start, high, _BLOCK):
                yield start, min(high, start + _BLOCK), offset, min(high, offset + _BLOCK)


def at_least_one(pairs: int, tail: float) -> float:
    """Return the probability that at least one of so many independent events of probability `tail` occurs.

    Parameters
    ----------
    pairs
        Number of events, from 0.
    tail
        From 0 to 1.
    """
    return -math.expm1(pairs * math.log1p(-tail)) if tail < 1 else 1.0


def _evened(vectors: Floats) -> Floats:
    """Return vectors (n, J) of one spread in all directions, where chance does not explain that some have more.

    Of noise that is larger on few coordinates all vectors point to one side, though none was used twice.
    """
    count, dimensions = vectors.shape
    spreads, axes = np.linalg.eigh(vectors.T @ vectors / count)
    usual = (1 + math.sqrt(dimensions / count)) ** 2 + 10 / math.sqrt(count)
    if count <= dimensions or spreads[-1] <= max(1.0, float(np.median(spreads))) * usual:
        return vectors
    return np.asarray(vectors @ axes / np.sqrt(np.maximum(spreads, 1e-12 * spreads[-1])))


def repeated_noise(measured: Measured) -> TestResult | NotOffered:
    """Test the largest absolute cosine over all pairs of (world, round).

    With m pairs the p-value is 1 - (1 - p)^m, p the exact tail of one pair: as if the cosines of all pairs were
    independent, which they are two by two. By Bonferroni m p bounds it without that approximation, and at the levels of
    a verdict the two agree to a ten-thousandth.
    """
    projections = measured.projections
    if projections is None:
        return NotOffered(Missing.NOT_MEASURED if measured.residuals is None else Missing.NO_DIRECTIONS)
    dimensions, count = projections.shape[-1], measured.worlds * measured.rounds
    if dimensions < 2 or count < 2:
        return NotOffered(Missing.TOO_FEW)
    found = likest_pair(_evened(projections.reshape(count, dimensions)))
    critical = cosine_at(TestName.REPEATED_NOISE.level / found.pairs, dimensions)
    (world, number), (other, later) = (divmod(place, measured.rounds) for place in (found.first, found.second))
    return TestResult(
        name=TestName.REPEATED_NOISE,
        statistic=found.cosine,
        p_value=at_least_one(found.pairs, cosine_tail(found.cosine, dimensions)),
        measured=found.cosine,
        promised=critical,
        limit=critical,
        place=f"world {world} round {number + 1} and world {other} round {later + 1}",
        more={"pairs": found.pairs},
    )
