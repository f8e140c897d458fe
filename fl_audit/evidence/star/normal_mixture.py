"""Mixtures of normals in one dimension: their tails and densities in logarithms, quantiles and draws."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtri

from fl_audit.arrays import Floats
from fl_audit.errors import require

_ROWS = 2**20  # largest number of pairs of a point and a component that are computed at once, to bound the memory

_LARGE = 1e300


@dataclass(frozen=True)
class NormalMixture:
    """A mixture of normals.

    Raises
    ------
    InputError
        If a number is out of its range or the shapes differ.
    """

    weights: Floats  # positive, shape (components,), sum 1 within 1e-9
    means: Floats  # finite, shape (components,)
    stds: Floats  # positive and finite, shape (components,)

    def __post_init__(self) -> None:
        shapes = {np.shape(part) for part in (self.weights, self.means, self.stds)}
        require(len(shapes) == 1, f"weights, means and stds have shapes {shapes}: accepted is one shape")
        whole = bool(np.all(self.weights > 0)) and abs(float(np.sum(self.weights)) - 1) < 1e-9
        require(whole, "weights of a mixture are not positive with sum 1: accepted are such")
        require(bool(np.all(np.isfinite(self.means))), "a mean is NaN or infinite: accepted are finite numbers")
        proper = bool(np.all((self.stds > 0) & np.isfinite(self.stds)))
        require(proper, "a standard deviation is not positive and finite: accepted are such")

    @property
    def components(self) -> int:
        """Return the number of components."""
        return int(self.weights.size)

    def log_sf(self, points: ArrayLike) -> Floats:
        """Return log P(X > point), shape of `points`; accurate far out in both tails."""
        return self._mixed(points, lambda z: log_ndtr(-z), density=False)

    def log_density(self, points: ArrayLike) -> Floats:
        """Return the log of the density, shape of `points`."""
        return self._mixed(points, lambda z: -z * z / 2, density=True)

    def mirrored(self) -> "NormalMixture":
        """Return the law of -X."""
        return NormalMixture(self.weights, -self.means, self.stds)

    def log_density_range(self, low: Floats, high: Floats) -> tuple[Floats, Floats]:
        """Return a lower and an upper bound of the log density on each interval, shapes (intervals,).

        Every component is unimodal: on an interval its density is smallest at the end farther from its mean, and
        largest at the point nearest to its mean.

        Parameters
        ----------
        low, high
            Ends of the intervals, shape (intervals,), `low` at most `high`.
        """
        middle = (low + high) / 2

        def nearest(z_low: Floats, z_high: Floats) -> Floats:
            return np.asarray(np.clip(0.0, z_low, z_high), dtype=np.float64)

        def farthest(z_low: Floats, z_high: Floats) -> Floats:
            return np.where(np.abs(z_low) > np.abs(z_high), z_low, z_high)

        if not low.size:
            return middle, middle
        found = []
        for choose in (farthest, nearest):
            parts = []
            for rows in _chunks(low.size, self.components):
                z_low = (low[rows, None] - self.means) / self.stds
                z_high = (high[rows, None] - self.means) / self.stds
                parts.append(self._sum(-(choose(z_low, z_high) ** 2) / 2, density=True))
            found.append(np.concatenate(parts))
        return found[0], found[1]

    def upper_quantile(self, log_tail: float) -> float:
        """Return the point with log P(X > point) = `log_tail`, a negative number; infinity for -infinity."""
        if log_tail == -math.inf:
            return math.inf
        ends = self.means + self.stds * -ndtri(math.exp(log_tail) if log_tail > -700 else math.exp(-700))
        reach = float(self.stds.max())
        low, high = float(ends.min()) - 1e-6 * reach, float(ends.max()) + 1e-6 * reach
        while float(self.log_sf(low)) < log_tail:
            low -= reach
        while float(self.log_sf(high)) > log_tail:
            high += reach
        return float(brentq(lambda t: float(self.log_sf(t)) - log_tail, low, high, xtol=1e-300, rtol=1e-15))

    def sample(self, size: int, rng: np.random.Generator) -> Floats:
        """Return independent draws, shape (size,).

        Parameters
        ----------
        size
            How many draws.
        rng
            What they are drawn with.
        """
        chosen = rng.choice(self.components, size=size, p=self.weights)
        return np.asarray(rng.normal(self.means[chosen], self.stds[chosen]), dtype=np.float64)

    def _mixed(self, points: ArrayLike, log_of: Callable[[Floats], Floats], density: bool) -> Floats:
        values = np.asarray(points, dtype=np.float64)
        flat = values.reshape(-1)
        found = np.empty_like(flat)
        for rows in _chunks(flat.size, self.components):
            z = (flat[rows, None] - self.means) / self.stds
            found[rows] = self._sum(log_of(z), density)
        return found.reshape(values.shape)

    def _sum(self, logs: Floats, density: bool) -> Floats:
        """Return the log of the weighted sum over components, the last axis."""
        weights = np.log(self.weights)
        if density:
            weights = weights - np.log(self.stds) - math.log(2 * math.pi) / 2
        parts = logs + weights
        largest = np.maximum(parts.max(axis=-1), -_LARGE)
        with np.errstate(divide="ignore"):
            return np.asarray(largest + np.log(np.exp(parts - largest[..., None]).sum(axis=-1)), dtype=np.float64)


def normal(mean: float, std: float) -> NormalMixture:
    """Return the mixture of one normal.

    Parameters
    ----------
    mean
        Mean of the normal.
    std
        Its standard deviation, above 0.
    """
    return NormalMixture(np.array([1.0]), np.array([mean]), np.array([std]))


def _chunks(rows: int, components: int) -> list[slice]:
    step = max(1, _ROWS // components)
    return [slice(start, start + step) for start in range(0, rows, step)]
