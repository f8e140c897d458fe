"""Privacy loss distributions of single releases, discretised on a grid, and their convolution.

Let P and Q be the output distributions of a release under neighbours. For each kind of release, the loss L = log
P(o)/Q(o) increases with the outcome o. So the mass of P and of Q in a grid cell is a difference of distribution
functions. Module `pld` says how this mass is split between the two ends of the cell.

Losses are convolved by the fast Fourier transform. A bound on the mass that truncation may lose is added to the mass at
infinity, so that no guarantee is too small. For a sum of many equal losses, Chernoff's inequality gives a range outside
which the sum has negligible mass. The inequality is evaluated at 40 exponents, as in dp-accounting. Tests compare the
distributions with those of dp-accounting, which is not used here, because its import takes longer than most
computations.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, assert_never

import numpy as np
from scipy.fft import irfft, next_fast_len, rfft
from scipy.special import expit, ndtr

from fl_audit.adjacency import Adjacency, Relation
from fl_audit.array_types import Floats
from fl_audit.privacy.events import (
    GaussianRelease,
    LaplaceRelease,
    RandomizedResponse,
    ReleaseEvent,
    SampledGaussianRelease,
    exact_gaussian_mu,
)
from fl_audit.privacy.renyi import _log_mixture

_REACH = 9.5  # standard deviations of Gaussian noise that the grid covers; the probability beyond them is 1e-21
_TRUNCATED = 1e-15  # mass that may be truncated in each composition; it is added to the mass at infinity

_EXPONENTS = range(1, 21)  # Chernoff exponents of both signs, times the grid length; powers of e are at most e^20


@dataclass(frozen=True, eq=False)
class DiscreteLossDistribution:
    """Discrete distribution of a privacy loss at integer multiples of the grid width, with some mass at infinity."""

    first: int  # index of the first grid point; its loss is `first` times the grid width
    probabilities: Floats  # mass at each grid point from `first` on
    infinity: float  # mass at infinity

    def plus(self, added_loss: "DiscreteLossDistribution") -> "DiscreteLossDistribution":
        """Return the distribution of the sum of two independent losses; tails of negligible mass are truncated."""
        length = self.probabilities.size + added_loss.probabilities.size - 1
        size = next_fast_len(length, real=True)
        product = rfft(self.probabilities, size) * rfft(added_loss.probabilities, size)
        masses = np.asarray(irfft(product, size), dtype=np.float64)[:length]
        # Mass truncated below moves to the lowest point that is kept, mass truncated above to infinity.
        start = _negligible(masses)
        stop = max(start + 1, length - _negligible(masses[::-1]))
        truncated = masses[start:stop].copy()
        truncated[0] += float(masses[:start].sum())
        infinity = (
            self.infinity + added_loss.infinity - self.infinity * added_loss.infinity + float(masses[stop:].sum())
        )
        return DiscreteLossDistribution(self.first + added_loss.first + start, truncated, infinity)

    def times(self, count: int) -> "DiscreteLossDistribution":
        """Return the distribution of the sum of `count` independent losses of this distribution, `count` from 1."""
        low, high = self._support(count)
        size = next_fast_len(max(high - low + 1, self.probabilities.size), real=True)
        # The transform is circular; the mass outside the support is negligible, so wrapping does not mix losses.
        wrapped = np.asarray(irfft(rfft(self.probabilities, size) ** count, size), dtype=np.float64)
        infinity = _TRUNCATED - math.expm1(count * math.log1p(-self.infinity))
        return DiscreteLossDistribution(self.first * count + low, np.roll(wrapped, -low)[: high - low + 1], infinity)

    def _support(self, count: int) -> tuple[int, int]:
        """Return the first and last grid index outside which the sum of `count` losses has negligible mass (Chernoff).

        Index 0 is the smallest possible sum.
        """
        size = self.probabilities.size
        slack = math.log(2 / _TRUNCATED)
        low = 0
        high = (size - 1) * count
        growth = np.exp(np.arange(size) / size)
        rising = falling = self.probabilities
        for exponent in _EXPONENTS:
            rising = rising * growth
            falling = falling / growth
            above = float(rising.sum())
            below = float(falling.sum())
            if above > 0 and below > 0:
                high = min(high, math.ceil((count * math.log(above) + slack) * size / exponent))
                low = max(low, math.floor(-(count * math.log(below) + slack) * size / exponent))
        return low, high


def _negligible(masses: Floats) -> int:
    """Return the number of leading masses that may be cut off: their sum is at most 5e-16, half of `_TRUNCATED`."""
    is_counted = np.cumsum(masses) > _TRUNCATED / 2
    return int(is_counted.argmax()) if is_counted.any() else masses.size - 1


def _split_cells(first: int, interval: float, upper: Floats, lower: Floats) -> Floats:
    """Return the P-mass at each grid point, from the P-masses `upper` and Q-masses `lower` of the cells.

    Cell i, with masses p and q, begins at the loss a = (first + i) h, where h is `interval`. The grid point at its
    upper end gets the mass (p - q e^a) / (1 - e^-h), and its lower end gets the rest of p. Then the Q-mass is
    preserved, too.
    """
    ends = (first + np.arange(upper.size)) * interval
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        share = -np.expm1(np.log(lower) - np.log(upper) + ends) / -math.expm1(-interval)
    share = np.where(np.isfinite(share), np.clip(share, 0.0, 1.0), 1.0)
    points = np.zeros(upper.size + 1)
    points[1:] += upper * share
    points[:-1] += upper * (1 - share)
    return points


def _add_atom(points: Floats, first: int, interval: float, loss: float, mass: float) -> None:
    """Add a point mass at a loss to the grid `points`, which begins at index `first`, in place.

    The mass is split between the two nearest points so that P- and Q-mass are preserved.
    """
    index = min(math.floor(loss / interval) - first, points.size - 2)
    above = loss - (first + index) * interval
    share = min(1.0, max(0.0, math.expm1(-above) / math.expm1(-interval)))
    points[index] += mass * (1 - share)
    points[index + 1] += mass * share


def _places(span: tuple[float, float], interval: float) -> tuple[int, int]:
    """Return the indices of the first and the last grid point needed to cover the losses in `span`.

    The grid points are the multiples of `interval`.
    """
    return math.floor(span[0] / interval), math.ceil(span[1] / interval)


def _differences(edges: Floats, mean: float) -> Floats:
    """Return the mass of N(mean, 1) between successive edges, computed in the nearer tail for accuracy."""
    shifted = edges - mean
    rising = np.diff(ndtr(shifted))
    falling = -np.diff(ndtr(-shifted))
    return np.maximum(0.0, np.where(shifted[1:] > 0, falling, rising))


@dataclass(frozen=True)
class _GaussianLoss:
    """Privacy loss log P/Q of a Gaussian release, P = (1-q) N(0) + q N(mu) against Q = N(0), with unit variance.

    If `replaced`, P = (1-q) N(0) + q N(mu/2) and Q = (1-q) N(0) + q N(-mu/2).
    """

    mu: float
    sampling_rate: float = 1.0
    replaced: bool = False
    is_pure: ClassVar[bool] = False

    @property
    def _means(self) -> tuple[float, float]:
        """Means of the release under P and under Q if the unit is sampled."""
        return (self.mu / 2, -self.mu / 2) if self.replaced else (self.mu, 0.0)

    def loss(self, x: Floats) -> Floats:
        up, down = self._means
        upper = self._log_ratio(up * x - up * up / 2)
        return upper - self._log_ratio(down * x - down * down / 2) if self.replaced else upper

    def _log_ratio(self, ell: Floats) -> Floats:
        return ell if self.sampling_rate == 1 else _log_mixture(self.sampling_rate, ell)

    def _outcome(self, loss: Floats) -> Floats:
        """Return the outcome of the release at which the privacy loss has each given value.

        The result is -infinity where the given loss is smaller than the loss of every outcome.
        """
        q = self.sampling_rate
        mu = self.mu
        if q == 1:
            return loss / mu + (0.0 if self.replaced else mu / 2)
        if not self.replaced:
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                ell = np.where(loss < 1, np.log1p(np.expm1(loss) / q), loss + np.log1p(-(1 - q) * np.exp(-loss)))
                ell = np.where(loss < 1, ell, ell - math.log(q))
            ell = np.where(loss <= math.log1p(-q), -np.inf, ell)
            return ell / mu + mu / 2
        half = np.abs(loss) / 2
        with np.errstate(divide="ignore"):
            log_sinh = half + np.log(-np.expm1(-2 * half)) - math.log(2)
        height = math.log1p(-q) - math.log(q) + mu * mu / 8 + log_sinh
        log_w = np.logaddexp(height, 0.5 * np.logaddexp(0.0, 2 * height))
        log_w = np.where(height < -1, np.arcsinh(np.exp(np.minimum(height, 0.0))), log_w)
        return np.sign(loss) * (half + log_w) / (self.mu / 2)

    @property
    def span(self) -> tuple[float, float]:
        ends = self.loss(np.array([min(self._means) - _REACH, max(self._means) + _REACH]))
        return float(ends[0]), float(ends[1])

    @property
    def symmetric(self) -> bool:
        return self.replaced or self.sampling_rate == 1

    @property
    def deviation(self) -> float:
        if self.sampling_rate == 1:
            return self.mu
        u: Floats = np.linspace(-_REACH, _REACH, 761, dtype=np.float64)
        weight = np.exp(-u * u / 2) / np.sum(np.exp(-u * u / 2))
        components = ((1 - self.sampling_rate, u), (self.sampling_rate, u + self._means[0]))
        mean = sum(share * float(weight @ self.loss(x)) for share, x in components)
        return math.sqrt(sum(share * float(weight @ (self.loss(x) - mean) ** 2) for share, x in components))

    def masses(self, interval: float, reverse: bool) -> DiscreteLossDistribution:
        """Return the distribution of the loss on a grid of width `interval`.

        With `reverse`, P and Q are exchanged: the loss log Q(o)/P(o) under Q. Mass below the grid moves to the first
        grid point, mass above the grid to infinity.
        """
        first, last = _places(self.span, interval)
        edges = self._outcome(np.arange(first, last + 1, dtype=np.float64) * interval)
        bounded = math.isinf(float(edges[0]))
        edges[0] = -np.inf
        q = self.sampling_rate
        up, down = self._means
        unsampled = _differences(edges, 0.0)
        upper = (1 - q) * unsampled + q * _differences(edges, up)
        lower = (1 - q) * unsampled + q * _differences(edges, down) if self.replaced else unsampled
        beyond_upper = (1 - q) * float(ndtr(-edges[-1])) + q * float(ndtr(up - edges[-1]))
        if not reverse:
            points = _split_cells(first, interval, upper, lower)
            if not bounded:  # the lowest cell includes the whole lower tail, so its mass moves to its upper end
                points[1] += points[0]
                points[0] = 0.0
            return DiscreteLossDistribution(first, points, beyond_upper)
        upper, lower = lower[::-1].copy(), upper[::-1].copy()
        points = _split_cells(-last, interval, upper, lower)
        points[0] += float(ndtr(-edges[-1]))
        return DiscreteLossDistribution(-last, points, 0.0 if bounded else float(ndtr(-_REACH)))


@dataclass(frozen=True)
class _KnownSamplingGaussianLoss(_GaussianLoss):
    """Loss of a Poisson-sampled Gaussian release if the adversary sees whether the differing unit participates.

    With probability 1 - `share`, the loss is 0. Otherwise it is distributed as for a release without sampling. This
    holds under any adjacency.
    """

    share: float = 1.0

    @property
    def deviation(self) -> float:
        q = self.share
        mu = self.mu
        return mu * math.sqrt(q * (1 + (1 - q) * mu * mu / 4))

    def masses(self, interval: float, reverse: bool) -> DiscreteLossDistribution:
        participating = super().masses(interval, reverse)
        q = self.share
        points = q * participating.probabilities
        points[-participating.first] += 1 - q
        return DiscreteLossDistribution(participating.first, points, q * participating.infinity)


@dataclass(frozen=True)
class _PureDPLoss:
    epsilon: float
    symmetric: ClassVar[bool] = True
    is_pure: ClassVar[bool] = True

    @property
    def span(self) -> tuple[float, float]:
        return -self.epsilon, self.epsilon


@dataclass(frozen=True)
class _LaplaceLoss(_PureDPLoss):
    """Privacy loss of a Laplace release, which lies in [-epsilon, epsilon] and has atoms at both ends."""

    @property
    def deviation(self) -> float:
        """Standard deviation of the loss L, whose density between the atoms is exp(-(epsilon - L)/2) / 4."""
        e = self.epsilon
        loss = np.linspace(-e, e, 2001)
        weight = np.full(loss.size, e / 1000) * np.exp(-(e - loss) / 2) / 4
        weight[[0, -1]] = [weight[0] / 2 + math.exp(-e) / 2, weight[-1] / 2 + 0.5]
        weight /= weight.sum()
        return math.sqrt(float(weight @ (loss - weight @ loss) ** 2))

    def masses(self, interval: float, reverse: bool) -> DiscreteLossDistribution:
        e = self.epsilon
        first, last = _places(self.span, interval)
        edges = np.clip((first + np.arange(last - first + 1)) * interval, -e, e)
        upper = np.exp(-(e - edges[1:]) / 2) * -np.expm1(-np.diff(edges) / 2) / 2
        lower = np.exp(-(e + edges[:-1]) / 2) * -np.expm1(-np.diff(edges) / 2) / 2
        points = _split_cells(first, interval, upper, lower)
        _add_atom(points, first, interval, e, 0.5)
        _add_atom(points, first, interval, -e, math.exp(-e) / 2)
        return DiscreteLossDistribution(first, points, 0.0)


@dataclass(frozen=True)
class _ResponseLoss(_PureDPLoss):
    """Privacy loss of randomised response: epsilon with probability e^epsilon / (1 + e^epsilon), otherwise -epsilon."""

    @property
    def deviation(self) -> float:
        """Standard deviation of the loss, or epsilon / 1000 if larger, so that it does not vanish for large epsilon."""
        truth = float(expit(self.epsilon))
        return max(2 * self.epsilon * math.sqrt(truth * (1 - truth)), self.epsilon * 1e-3)

    def masses(self, interval: float, reverse: bool) -> DiscreteLossDistribution:
        first, last = _places(self.span, interval)
        points = np.zeros(last - first + 1)
        _add_atom(points, first, interval, self.epsilon, float(expit(self.epsilon)))
        _add_atom(points, first, interval, -self.epsilon, float(expit(-self.epsilon)))
        return DiscreteLossDistribution(first, points, 0.0)


LossDistribution = _GaussianLoss | _KnownSamplingGaussianLoss | _LaplaceLoss | _ResponseLoss
"""The privacy loss distribution of one release.

`span` is the smallest and the largest loss on the grid, and `deviation` the standard deviation of the loss under P.
`symmetric` says whether the losses of P against Q and of Q against P have the same distribution, and `is_pure` whether
no loss lies outside `span`. `masses` returns the distribution on a grid of width `interval`, of P against Q or, with
`reverse`, of Q against P.
"""


def loss_distributions(events: Sequence[ReleaseEvent], adjacency: Adjacency) -> list[tuple[LossDistribution, int]]:
    """Return each distinct loss distribution with the number of its releases.

    All Gaussian releases without sampling are composed into one.
    """
    exact = []
    distributions = Counter[LossDistribution]()
    for event in events:
        mu = exact_gaussian_mu(event)
        if mu is None:
            distributions[_loss_distribution(event, adjacency)] += event.count
        else:
            exact.append(mu)
    if exact:
        distributions[_GaussianLoss(math.hypot(*exact))] = 1
    return list(distributions.items())


def _loss_distribution(event: ReleaseEvent, adjacency: Adjacency) -> LossDistribution:
    match event:
        case SampledGaussianRelease(noise_multiplier, sampling_rate, _, True):
            return _KnownSamplingGaussianLoss(1 / noise_multiplier, share=sampling_rate)
        case SampledGaussianRelease(noise_multiplier, sampling_rate, _, _):
            return _GaussianLoss(1 / noise_multiplier, sampling_rate, adjacency.relation is Relation.REPLACE)
        case LaplaceRelease():
            return _LaplaceLoss(event.pure_epsilon)
        case RandomizedResponse(epsilon, _):
            return _ResponseLoss(epsilon)
        case GaussianRelease():
            return _GaussianLoss(1 / event.noise_multiplier)
        case _:
            assert_never(event)
