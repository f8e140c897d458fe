"""Laws of a privacy loss on a grid, and of sums of independent losses: composition by the fast Fourier transform.

What a transform may lose is added to the mass at infinity, so that no promise is too small. The bounds on the support
of a sum follow from Chernoff's inequality at 40 exponents, as in dp-accounting, which these laws are tested against:
its import takes longer than most answers.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy.fft import irfft, next_fast_len, rfft

from fl_audit.arrays import Floats

TRUNCATED = 1e-15  # mass that a sum may lose in each composition; it counts as mass at infinity

_EXPONENTS = range(1, 21)  # in units of one over the length of the grid, up and down: powers of e stay within e^20


@dataclass(frozen=True, eq=False)
class LossGrid:
    """A law of losses on multiples of an interval, with some mass at infinity."""

    first: int  # number of the first grid point: its loss is so many intervals
    probabilities: Floats  # mass at each grid point from there on
    infinity: float  # mass at infinity

    def plus(self, other: "LossGrid") -> "LossGrid":
        """Return the law of the sum of two independent losses, its tails cut where they hold next to nothing."""
        length = self.probabilities.size + other.probabilities.size - 1
        size = next_fast_len(length, real=True)
        product = rfft(self.probabilities, size) * rfft(other.probabilities, size)
        masses = np.asarray(irfft(product, size), dtype=np.float64)[:length]
        # Losses that are cut from below are counted at the lowest one that is kept; those from above, at infinity.
        start = _negligible(masses)
        stop = max(start + 1, length - _negligible(masses[::-1]))
        kept = masses[start:stop].copy()
        kept[0] += float(masses[:start].sum())
        infinity = self.infinity + other.infinity - self.infinity * other.infinity + float(masses[stop:].sum())
        return LossGrid(self.first + other.first + start, kept, infinity)

    def times(self, count: int) -> "LossGrid":
        """Return the law of the sum of so many independent losses of this law, at least 1."""
        low, high = self._support(count)
        size = next_fast_len(max(high - low + 1, self.probabilities.size), real=True)
        # The transform wraps round; what lies outside the support holds next to nothing, so each place has one loss.
        wrapped = np.asarray(irfft(rfft(self.probabilities, size) ** count, size), dtype=np.float64)
        infinity = TRUNCATED - math.expm1(count * math.log1p(-self.infinity))
        return LossGrid(self.first * count + low, np.roll(wrapped, -low)[: high - low + 1], infinity)

    def _support(self, count: int) -> tuple[int, int]:
        """Return bounds on the sum, counted from the first grid point, that it passes with next to no probability."""
        size, slack = self.probabilities.size, math.log(2 / TRUNCATED)
        low, high = 0, (size - 1) * count
        growth = np.exp(np.arange(size) / size)
        rising = falling = self.probabilities
        for exponent in _EXPONENTS:
            rising, falling = rising * growth, falling / growth
            above, below = float(rising.sum()), float(falling.sum())
            if above > 0 and below > 0:
                high = min(high, math.ceil((count * math.log(above) + slack) * size / exponent))
                low = max(low, math.floor(-(count * math.log(below) + slack) * size / exponent))
        return low, high


def _negligible(masses: Floats) -> int:
    """Return how many of the first masses add up to next to nothing."""
    counted = np.cumsum(masses) > TRUNCATED / 2
    return int(counted.argmax()) if counted.any() else masses.size - 1
