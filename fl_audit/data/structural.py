"""Structural similarity of images (SSIM), for many pairs at once."""

from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from fl_audit.data.records import Records
from fl_audit.errors import require

WINDOW = 7
DATA_RANGE = 1.0
"""Range of the features, public and fixed: a range taken from the data would make every dissimilarity depend on it."""

_STABLE_LUMINANCE = (0.01 * DATA_RANGE) ** 2
_STABLE_CONTRAST = (0.03 * DATA_RANGE) ** 2
_PIXELS = WINDOW * WINDOW
# Numbers in one step of the arithmetic: few enough to stay in a core's cache.
_CACHED = 2**14


@dataclass(frozen=True)
class Patches:
    """What SSIM needs of each window of n images, for w windows in each.

    Parameters
    ----------
    deviations
        Pixels less the window's mean, times sqrt(2 / 48), shape (w, n, 49): the product of two is 2 cov(x, y).
    mean, variance
        Mean and sample variance of each window, shape (w, n).
    """

    deviations: NDArray[np.float64]
    mean: NDArray[np.float64]
    variance: NDArray[np.float64]


def check_images(records: Records) -> None:
    """Raise `InputError` unless the records are images, (h, w) or (c, h, w) of at least 7x7 pixels in [0, 1]."""
    shape = records.shape
    require(
        len(shape) in (2, 3) and min(shape[-2:]) >= WINDOW,
        f"records have shape {shape}: accepted for the ssim measure are images, (h, w) or (channels, h, w) of at "
        f"least {WINDOW}x{WINDOW} pixels",
    )
    low, high = float(records.features.min()), float(records.features.max())
    wrong = low if low < 0 else high
    require(
        low >= 0 and high <= DATA_RANGE, f"a pixel is {wrong:.6g}: accepted for the ssim measure are 0 to {DATA_RANGE}"
    )


def patches_of(images: NDArray[np.float32]) -> Patches:
    """Return all windows of images, shape (n, h, w) or (n, c, h, w); the channels count as further windows."""
    windows = sliding_window_view(images, (WINDOW, WINDOW), axis=(-2, -1))
    first = np.moveaxis(windows, 0, -3)
    pixels = np.ascontiguousarray(first).reshape(-1, len(images), _PIXELS).astype(np.float64)
    mean = pixels.sum(axis=-1) / _PIXELS
    pixels -= mean[..., np.newaxis]
    pixels *= np.sqrt(2 / (_PIXELS - 1))
    return Patches(pixels, mean, np.square(pixels).sum(axis=-1) / 2)


def structural_dissimilarity(left: Patches, right: Patches) -> NDArray[np.float64]:
    """Return 1 - SSIM of every pair, shape (n, m), from 0 to 2.

    SSIM as Wang et al. 2004 define it, with a uniform 7x7 window, sample covariances and the mean over all windows
    that lie inside the image. A pair's value does not depend, to the last bit, on the pairs beside it, and d(x, x) = 0.

    Parameters
    ----------
    left, right
        Windows of n and of m images of the same shape.
    """
    total = np.empty((left.mean.shape[1], right.mean.shape[1]))
    for index in range(len(total)):
        mean, variance = left.mean[:, index, np.newaxis], left.variance[:, index, np.newaxis]
        twice_covariance = (left.deviations[:, index, np.newaxis] * right.deviations).sum(axis=-1)
        quality = (2 * mean * right.mean + _STABLE_LUMINANCE) * (twice_covariance + _STABLE_CONTRAST)
        quality /= (mean**2 + right.mean**2 + _STABLE_LUMINANCE) * (variance + right.variance + _STABLE_CONTRAST)
        # The windows side by side, so that the order of the sum does not follow from the number of images.
        total[index] = np.ascontiguousarray(quality.T).sum(axis=-1)
    return 1 - total / len(left.mean)


def fast_structural_dissimilarity(left: Patches, right: Patches) -> tuple[NDArray[np.float64], float]:
    """Return `structural_dissimilarity` by matrix products, and a bound on its rounding error.

    Each factor of SSIM is a product of few terms of the one and of the other image, so each window position of all
    pairs is three matrix products, a multiplication and a division.
    """
    windows, rows = left.mean.shape
    columns = right.mean.shape[1]
    total = np.zeros((rows, columns))
    step = max(1, _CACHED // (rows * columns))
    for start in range(0, windows, step):
        part = slice(start, start + step)
        quality = np.matmul(left.deviations[part], right.deviations[part].transpose(0, 2, 1))
        quality += _STABLE_CONTRAST
        quality *= _luminance(left.mean[part], right.mean[part])
        quality /= _denominator(left, right, part)
        total += quality.sum(axis=0)
    # Each of the four factors of a window is a sum of at most 50 products, and no quality exceeds 1.
    return 1 - total / windows, 4 * (_PIXELS * 4 + windows) * float(np.finfo(np.float64).eps)


def _luminance(left: NDArray[np.float64], right: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return 2 mean(x) mean(y) + C1, shape (w, n, m)."""
    mine = np.stack([2 * left, np.full_like(left, _STABLE_LUMINANCE)], axis=-1)
    luminance: NDArray[np.float64] = np.matmul(mine, np.stack([right, np.ones_like(right)], axis=-2))
    return luminance


def _denominator(left: Patches, right: Patches, part: slice) -> NDArray[np.float64]:
    """Return (mean(x)^2 + mean(y)^2 + C1)(var(x) + var(y) + C2), multiplied out, shape (w, n, m)."""
    light, contrast = left.mean[part] ** 2 + _STABLE_LUMINANCE, left.variance[part] + _STABLE_CONTRAST
    mine = np.stack([light * contrast, light, contrast, np.ones_like(light)], axis=-1)
    light, contrast = right.mean[part] ** 2, right.variance[part]
    yours = np.stack([np.ones_like(light), contrast, light, light * contrast], axis=-2)
    denominator: NDArray[np.float64] = np.matmul(mine, yours)
    return denominator
