"""Compute dissimilarities of records, exactly or faster with a bounded error; for images also by SSIM.

SSIM is the structural similarity of images.
"""

import math
from dataclasses import dataclass
from typing import Literal, assert_never

import numpy as np
import scipy
from numpy.lib.stride_tricks import sliding_window_view

from fl_audit.array_types import Floats, Floats32, Integers
from fl_audit.data.data_setting_enums import Dissimilarity as Dissimilarity
from fl_audit.data.data_setting_enums import Measure as Measure
from fl_audit.data.records import Records
from fl_audit.errors import require
from fl_audit.user_modules import import_function

_WINDOW = 7
_PIXELS = _WINDOW * _WINDOW
# Features range from 0 to 1, public and fixed: a range taken from the data would make every dissimilarity depend on it.
_STABLE_LUMINANCE = 0.01**2
_STABLE_CONTRAST = 0.03**2
BLOCK_BYTES = 64 * 2**20  # largest size of one array of a search; it holds a few at a time

_EPS = float(np.finfo(np.float64).eps)
# Names of scipy's metrics; it has none for SSIM.
_METRICS: dict[Dissimilarity, Literal["cityblock", "euclidean", "hamming", "cosine"]] = {
    Dissimilarity.MANHATTAN: "cityblock",
    Dissimilarity.EUCLIDEAN: "euclidean",
    Dissimilarity.HAMMING: "hamming",
    Dissimilarity.COSINE: "cosine",
}


@dataclass(frozen=True)
class SsimWindows:
    """The window statistics of n images with w windows each, from which structural similarity is computed."""

    # Pixels less the window's mean, times sqrt(2 / 48), shape (w, n, 49): the product of two is 2 cov(x, y).
    deviations: Floats
    mean: Floats  # mean of each window, shape (w, n)
    variance: Floats  # sample variance of each window, shape (w, n)

    def __getitem__(self, positions: Integers) -> "SsimWindows":
        return SsimWindows(self.deviations[:, positions], self.mean[:, positions], self.variance[:, positions])


Prepared = Floats | SsimWindows  # a block of records in the form that a measure works on


def check_measurable(records: Records, measure: Measure) -> None:
    """Raise `InputError` if a dissimilarity is undefined for some of the records.

    The cosine measure is undefined for records in which all values are 0. SSIM is defined only for images with pixels
    from 0 to 1.
    """
    match measure:
        case Dissimilarity.COSINE:
            # A vector of zeros has no direction: scipy answers NaN, which would win every argmax.
            zero = ~records.features.reshape(len(records), -1).any(axis=1)
            accepted = "accepted for the cosine measure are records with a direction"
            require(not zero.any(), f"record {int(zero.argmax())} has only zeros: {accepted}")
        case Dissimilarity.SSIM:
            shape = records.shape
            low = float(records.features.min())
            high = float(records.features.max())
            images = f"images, (h, w) or (channels, h, w) of at least {_WINDOW}x{_WINDOW} pixels"
            is_image = len(shape) in (2, 3) and min(shape[-2:]) >= _WINDOW
            require(is_image, f"records have shape {shape}: accepted for the ssim measure are {images}")
            wrong = low if low < 0 else high
            require(0 <= wrong <= 1, f"a pixel is {wrong:.6g}: accepted for the ssim measure are 0 to 1.0")
        case Dissimilarity.EUCLIDEAN | Dissimilarity.MANHATTAN | Dissimilarity.HAMMING | str():
            pass
        case _:
            assert_never(measure)


def rows_in_block(records: Records, measure: Measure) -> int:
    """Return the number of records to prepare at a time, so that they and the matrix of their pairs fit
    `BLOCK_BYTES`."""
    numbers = int(records.features[0].size) * (_PIXELS if measure is Dissimilarity.SSIM else 1)
    return max(1, min(BLOCK_BYTES // (8 * numbers), math.isqrt(BLOCK_BYTES // 8)))


def prepare(features: Floats32, measure: Measure) -> Prepared:
    """Convert records to the form from which `exact_block` computes their dissimilarities.

    The form is an array float64 (n, features). For SSIM, the form is the statistics of all windows of the images.

    Shapes: `features` (n, ...).
    """
    if measure is not Dissimilarity.SSIM:
        return features.reshape(len(features), -1).astype(np.float64)
    # All windows of images, shape (n, h, w) or (n, c, h, w); the channels count as further windows.
    windows = np.moveaxis(sliding_window_view(features, (_WINDOW, _WINDOW), axis=(-2, -1)), 0, -3)
    pixels = np.ascontiguousarray(windows).reshape(-1, len(features), _PIXELS).astype(np.float64)
    mean = pixels.sum(axis=-1) / _PIXELS
    pixels -= mean[..., np.newaxis]
    pixels *= np.sqrt(2 / (_PIXELS - 1))
    return SsimWindows(pixels, mean, np.square(pixels).sum(axis=-1) / 2)


def directions(vectors: Floats) -> Floats:
    """Return vectors, shape (n, d), each divided by its L2 norm."""
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))


def exact_block(first: Prepared, second: Prepared, measure: Measure) -> Floats:
    """Return the dissimilarity of every pair of a left and a right record, shape (n, m).

    The value of a pair is bitwise the same whatever other pairs are in the block.
    """
    if isinstance(first, SsimWindows):
        assert isinstance(second, SsimWindows), "both blocks are prepared for one measure"
        return _structural(first, second)
    assert not isinstance(second, SsimWindows)
    if not isinstance(measure, Dissimilarity):
        return _own_block(first, second, measure)
    # Half a second to import, which every client process would pay: only whoever chooses the differing record needs it.
    return np.asarray(scipy.spatial.distance.cdist(first, second, _METRICS[measure]))


def _own_block(first: Floats, second: Floats, name: str) -> Floats:
    """Return the dissimilarity of every left and right record by the user's function `name`, shape (n, m)."""
    matrix = np.asarray(import_function(name, "dissimilarity")(first, second))
    accepted = f"accepted is a finite number for each of {len(first)} x {len(second)} pairs"
    good = matrix.shape == (len(first), len(second)) and np.issubdtype(matrix.dtype, np.number)
    require(good, f"dissimilarity {name!r} returned {matrix.dtype} of shape {matrix.shape}: {accepted}")
    distances: Floats = matrix.astype(np.float64)
    is_finite = bool(np.isfinite(distances).all())
    require(is_finite, f"dissimilarity {name!r} returned a number that is not finite: {accepted}")
    return distances


def screening_block(first: Prepared, second: Prepared, measure: Measure) -> tuple[Floats, float]:
    """Return the dissimilarities of `exact_block`, computed faster, and a bound on their difference to the exact ones.

    Euclidean, cosine and SSIM dissimilarities come from matrix products. The bound covers the rounding in both
    functions; it is the usual one for sums of products (Higham 2002, section 3.1). For other measures the result is
    that of `exact_block`, and the bound is 0.
    """
    if isinstance(first, SsimWindows):
        assert isinstance(second, SsimWindows), "both blocks are prepared for one measure"
        return _fast_structural(first, second)
    assert not isinstance(second, SsimWindows)
    match measure:
        case Dissimilarity.EUCLIDEAN:
            return _euclidean(first, second)
        case Dissimilarity.COSINE:
            return 1 - directions(first) @ directions(second).T, (4 * first.shape[1] + 32) * _EPS
        case Dissimilarity.MANHATTAN | Dissimilarity.HAMMING | Dissimilarity.SSIM | str():
            return exact_block(first, second, measure), 0.0
        case _:
            assert_never(measure)


def _euclidean(first: Floats, second: Floats) -> tuple[Floats, float]:
    mine = np.square(first).sum(axis=1)
    yours = np.square(second).sum(axis=1)
    squares = first @ second.T
    squares *= -2
    squares += mine[:, np.newaxis]
    squares += yours
    np.maximum(squares, 0, out=squares)
    np.sqrt(squares, out=squares)
    reach = float(np.sqrt(mine.max()) + np.sqrt(yours.max()))
    terms = first.shape[1] + 8
    # An error of e in a square is at most one of sqrt(e) in its root, and that at distance 0.
    return squares, reach * ((2 * terms * _EPS) ** 0.5 + terms * _EPS)


def _structural(windows: SsimWindows, right: SsimWindows) -> Floats:
    """Return 1 - SSIM for every pair of a left and a right image, shape (n, m), from 0 to 2.

    SSIM is that of Wang et al. 2004 with a uniform 7x7 window, sample covariances and the mean over all windows.
    """
    total = np.empty((windows.mean.shape[1], right.mean.shape[1]))
    for index in range(len(total)):
        mean = windows.mean[:, index, np.newaxis]
        variance = windows.variance[:, index, np.newaxis]
        twice_covariance = (windows.deviations[:, index, np.newaxis] * right.deviations).sum(axis=-1)
        quality = (2 * mean * right.mean + _STABLE_LUMINANCE) * (twice_covariance + _STABLE_CONTRAST)
        quality /= (mean**2 + right.mean**2 + _STABLE_LUMINANCE) * (variance + right.variance + _STABLE_CONTRAST)
        # The windows side by side, so that the order of the sum does not follow from the number of images.
        total[index] = np.ascontiguousarray(quality.T).sum(axis=-1)
    return 1 - total / len(windows.mean)


def _fast_structural(left: SsimWindows, right: SsimWindows) -> tuple[Floats, float]:
    """Return 1 - SSIM for every pair of a left and a right image, (n, m), and a bound on the error of the values.

    Unlike `_structural`, it uses fast matrix products in single precision.
    """
    windows = len(left.mean)
    mine = _single(left.deviations)
    yours = _single(right.deviations).transpose(0, 2, 1)
    denominator = _denominator(left, right)
    # Factors, shapes (w, n, 2) and (w, 2, m), of 2 mean(x) mean(y) + C1.
    mean_left = _single(np.stack([2 * left.mean, np.full_like(left.mean, _STABLE_LUMINANCE)], axis=-1))
    mean_right = _single(np.stack([right.mean, np.ones_like(right.mean)], axis=-2))
    quality = np.empty((left.mean.shape[1], right.mean.shape[1]), dtype=np.float32)
    factor = np.empty_like(quality)
    total = np.zeros_like(quality)
    for window in range(windows):
        np.matmul(mine[window], yours[window], out=quality)
        quality += np.float32(_STABLE_CONTRAST)
        quality *= np.matmul(mean_left[window], mean_right[window], out=factor)
        quality /= np.matmul(denominator[0][window], denominator[1][window], out=factor)
        total += quality
    # In units of rounding (half an eps): at most 52 in the covariance, relative to the variances in the denominator,
    # under 20 in the other factors and operations, one for each window in the sum of qualities, which are at most 1.
    return 1 - total.astype(np.float64) / windows, (80 + windows) * float(np.finfo(np.float32).eps)


def _denominator(windows: SsimWindows, right: SsimWindows) -> tuple[Floats32, Floats32]:
    """Return two arrays, (windows, n, 4) and (windows, 4, m), whose matrix product is the denominator of SSIM.

    The denominator is (mean(x)^2 + mean(y)^2 + C1)(var(x) + var(y) + C2) for windows x of the n left and y of the m
    right images.
    """
    light = windows.mean**2 + _STABLE_LUMINANCE
    contrast = windows.variance + _STABLE_CONTRAST
    mine = [light * contrast, light, contrast, np.ones_like(light)]
    light = right.mean**2
    contrast = right.variance
    yours = [np.ones_like(light), contrast, light, light * contrast]
    return _single(np.stack(mine, axis=-1)), _single(np.stack(yours, axis=-2))


def _single(values: Floats) -> Floats32:
    return values.astype(np.float32)
