"""Structural similarity of images (SSIM), for many pairs at once."""

from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from fl_audit.arrays import Floats, Floats32
from fl_audit.data.records import Records
from fl_audit.errors import require

WINDOW = 7
DATA_RANGE = 1.0
"""Range of the features, public and fixed: a range taken from the data would make every dissimilarity depend on it."""

_STABLE_LUMINANCE = (0.01 * DATA_RANGE) ** 2
_STABLE_CONTRAST = (0.03 * DATA_RANGE) ** 2
_PIXELS = WINDOW * WINDOW


@dataclass(frozen=True)
class Patches:
    """What SSIM needs of each window of n images, for w windows in each."""

    # Pixels less the window's mean, times sqrt(2 / 48), shape (w, n, 49): the product of two is 2 cov(x, y).
    deviations: Floats
    # `mean`, `variance`: mean and sample variance of each window, shape (w, n).
    mean: Floats
    variance: Floats


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


def patches_of(images: Floats32) -> Patches:
    """Return all windows of images, shape (n, h, w) or (n, c, h, w); the channels count as further windows."""
    windows = sliding_window_view(images, (WINDOW, WINDOW), axis=(-2, -1))
    first = np.moveaxis(windows, 0, -3)
    pixels = np.ascontiguousarray(first).reshape(-1, len(images), _PIXELS).astype(np.float64)
    mean = pixels.sum(axis=-1) / _PIXELS
    pixels -= mean[..., np.newaxis]
    pixels *= np.sqrt(2 / (_PIXELS - 1))
    return Patches(pixels, mean, np.square(pixels).sum(axis=-1) / 2)


def structural_dissimilarity(left: Patches, right: Patches) -> Floats:
    """Return 1 - SSIM of every pair, shape (n, m), from 0 to 2.

    SSIM as Wang et al. 2004 define it, with a uniform 7x7 window, sample covariances and the mean over all windows
    that lie inside the image. A pair's value does not depend, to the last bit, on the pairs beside it, and d(x, x) = 0.

    Parameters
    ----------
    left, right
        n and m images of one shape, cut into windows.
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


def fast_structural_dissimilarity(left: Patches, right: Patches) -> tuple[Floats, float]:
    """Return `structural_dissimilarity` by matrix products in single precision, and a bound on the difference.

    Each factor of SSIM is a sum of few products of a number of the one and a number of the other image, so one window
    of all pairs is three matrix products, a multiplication and a division.

    Parameters
    ----------
    left, right
        As for `structural_dissimilarity`.
    """
    windows = len(left.mean)
    mine, yours = _single(left.deviations), _single(right.deviations).transpose(0, 2, 1)
    luminance, denominator = _luminance(left.mean, right.mean), _denominator(left, right)
    quality = np.empty((left.mean.shape[1], right.mean.shape[1]), dtype=np.float32)
    factor, total = np.empty_like(quality), np.zeros_like(quality)
    for window in range(windows):
        np.matmul(mine[window], yours[window], out=quality)
        quality += np.float32(_STABLE_CONTRAST)
        quality *= np.matmul(luminance[0][window], luminance[1][window], out=factor)
        quality /= np.matmul(denominator[0][window], denominator[1][window], out=factor)
        total += quality
    # In units of rounding (half an eps): at most 52 in the covariance, relative to the variances in the denominator,
    # under 20 in the other factors and operations, one for each window in the sum of qualities, which are at most 1.
    return 1 - total.astype(np.float64) / windows, (80 + windows) * float(np.finfo(np.float32).eps)


def _luminance(left: Floats, right: Floats) -> tuple[Floats32, Floats32]:
    """Return factors, shapes (w, n, 2) and (w, 2, m), of 2 mean(x) mean(y) + C1."""
    mine = [2 * left, np.full_like(left, _STABLE_LUMINANCE)]
    return _single(np.stack(mine, axis=-1)), _single(np.stack([right, np.ones_like(right)], axis=-2))


def _denominator(left: Patches, right: Patches) -> tuple[Floats32, Floats32]:
    """Return factors, shapes (w, n, 4) and (w, 4, m), of (mean(x)^2 + mean(y)^2 + C1)(var(x) + var(y) + C2)."""
    light, contrast = left.mean**2 + _STABLE_LUMINANCE, left.variance + _STABLE_CONTRAST
    mine = [light * contrast, light, contrast, np.ones_like(light)]
    light, contrast = right.mean**2, right.variance
    yours = [np.ones_like(light), contrast, light, light * contrast]
    return _single(np.stack(mine, axis=-1)), _single(np.stack(yours, axis=-2))


def _single(values: Floats) -> Floats32:
    return values.astype(np.float32)
