"""An accountant that shares no code with the guarantee: it computes epsilon again, from the releases as they were made.

A guarantee is computed by `accounting`, `pld`, `renyi` and `gaussian`. A mistake there, or in what they are told,
such as a release that is left out, would be repeated by any check that calls them. This module imports none of them.
It knows Gaussian releases, with and without Poisson sampling, and releases with other noise without sampling. Every
distribution of noise has its formula here a second time. Without sampling, epsilon of Gaussian releases is the root of
a closed form. Otherwise the privacy loss is put on a grid, and composed by the powers of its Fourier transform
(Koskela, Jälkö & Honkela 2020, "Computing tight differential privacy guarantees using FFT").

Unlike the guarantee, the result is no upper bound but an estimate, whose error is estimated by halving the grid.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import assert_never

import numpy as np
from scipy.fft import irfft, rfft
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr

from fl_audit.array_types import Floats
from fl_audit.errors import require
from fl_audit.privacy.accounting_enums import NoiseDistribution
from fl_audit.value_checks import require_number

_OUTCOMES = 2**15  # cells of the outcomes of one release
_LOSSES = 2**18  # cells of the losses of all releases, on the finer grid
_REACH = 12.0  # standard deviations of noise, and of the composed loss, that the grids cover
SMALLEST_DELTA = 1e-11
"""Smallest delta at which rounding in the Fourier transform does not matter, where units are sampled."""


@dataclass(frozen=True)
class PlayedReleases:
    """Equal releases: `count` sums with noise, in each of which a unit takes part with probability `rate`.

    Noise that is not Gaussian is that of sums in which everybody takes part.

    Raises
    ------
    InputError
        If a number is out of its range.
    """

    multiplier: float  # scale of the noise over the largest change of the sum, positive
    count: int  # number of releases, at least 1
    rate: float = 1.0  # probability with which a unit takes part, above 0 and at most 1
    is_replaced: bool = False  # whether neighbours replace a unit; otherwise they add or remove it
    is_seen: bool = False  # whether the adversary sees in which releases the unit takes part
    distribution: NoiseDistribution = field(kw_only=True)  # distribution of the noise, any but NONE

    def __post_init__(self) -> None:
        require_number("noise multiplier is", self.multiplier, "positive finite numbers")
        require_number("count is", self.count, "whole numbers from 1 to 1e15")
        require_number("sampling rate is", self.rate, "numbers above 0 and up to 1")
        require(self.distribution is not NoiseDistribution.NONE, "there is no noise: accepted is some noise")
        require(
            self.rate == 1 or self.is_gaussian,
            f"units are sampled with {self.distribution} noise: accepted is Gaussian noise",
        )

    @property
    def is_gaussian(self) -> bool:
        """Whether the noise is Gaussian."""
        return self.distribution is NoiseDistribution.GAUSSIAN


@dataclass(frozen=True)
class IndependentEpsilon:
    """An epsilon that was computed a second time, and how far it may be from the exact one."""

    epsilon: float
    error: float  # largest distance from the exact epsilon, as far as the halved grid tells


def independent_epsilon(releases: Sequence[PlayedReleases], delta: float) -> IndependentEpsilon:
    """Return the smallest epsilon for which all releases together are (epsilon, delta)-private.

    Examples
    --------
    >>> releases = PlayedReleases(4.0, 30, distribution=NoiseDistribution.GAUSSIAN)
    >>> round(independent_epsilon([releases], 1e-3).epsilon, 3)
    4.651
    """
    require_number("delta is", delta, "numbers above 0 and below 1")
    if all(release.rate == 1 and release.is_gaussian for release in releases):
        mu = math.sqrt(math.fsum(release.count / release.multiplier**2 for release in releases))
        epsilon = _gaussian_epsilon(mu, delta)
        return IndependentEpsilon(epsilon, 1e-9 * max(1.0, epsilon))
    accepted = f"accepted are numbers from {SMALLEST_DELTA:g}, where units are sampled or noise is not Gaussian"
    require(delta >= SMALLEST_DELTA, f"delta is {delta:g}: {accepted}")
    fine, coarse = (
        max(_composed(releases, delta, cells, direction) for direction in (1, -1)) for cells in (_LOSSES, _LOSSES // 2)
    )
    return IndependentEpsilon(fine, 2 * abs(fine - coarse) + 1e-5 * max(1.0, fine))


def _gaussian_epsilon(mu: float, delta: float) -> float:
    """Return the root of Phi(mu/2 - e/mu) - exp(e) Phi(-mu/2 - e/mu) = delta in e, or 0 if it would be negative."""

    def excess(epsilon: float) -> float:
        first = log_ndtr(mu / 2 - epsilon / mu)
        second = epsilon + log_ndtr(-mu / 2 - epsilon / mu)
        return float(first + np.log(-np.expm1(min(second - first, -1e-300)))) - math.log(delta)

    if excess(0.0) <= 0:
        return 0.0
    high = mu * mu / 2 + mu * math.sqrt(2 * math.log(1 / delta)) + 1e-9
    return float(brentq(excess, 0.0, high, xtol=1e-13, rtol=1e-13))


def _cells(release: PlayedReleases, direction: int) -> tuple[Floats, Floats, float]:
    """Return losses log(P/Q), their probabilities under P, and the largest; `direction` -1 exchanges P and Q."""
    match release.distribution:
        case NoiseDistribution.GAUSSIAN:
            return _gaussian_cells(release, direction)
        case NoiseDistribution.LAPLACE:
            return _laplace_cells(1 / release.multiplier)
        case NoiseDistribution.NONE:
            raise ValueError("no noise is added to the sums")
        case _:
            assert_never(release.distribution)


def _gaussian_cells(release: PlayedReleases, direction: int) -> tuple[Floats, Floats, float]:
    """Return the losses of Gaussian noise, their probabilities and the largest."""
    shift = 1 / release.multiplier
    q = release.rate
    if release.is_seen:
        up = shift
        down = 0.0
        q = 1.0
    else:
        up, down = (shift / 2, -shift / 2) if release.is_replaced else (shift, 0.0)
    edges = np.linspace(min(down, 0.0) - _REACH, max(up, 0.0) + _REACH, _OUTCOMES + 1)
    middle = (edges[1:] + edges[:-1]) / 2

    def log_density(mean: float, x: Floats) -> Floats:
        with np.errstate(divide="ignore"):
            absent = np.log1p(-q) if q < 1 else -np.inf
        return np.asarray(np.logaddexp(absent - x * x / 2, math.log(q) - (x - mean) ** 2 / 2))

    def mass(mean: float) -> Floats:
        inside = [np.where(edges[1:] <= m, np.diff(ndtr(edges - m)), -np.diff(ndtr(m - edges))) for m in (0.0, mean)]
        return np.asarray((1 - q) * inside[0] + q * inside[1])

    losses = direction * (log_density(up, middle) - log_density(down, middle))
    masses = mass(up if direction == 1 else down)
    if release.is_seen:
        masses = np.append(release.rate * masses, 1 - release.rate)
        losses = np.append(losses, 0.0)
    return losses, masses, float(np.abs(losses[masses > 1e-30]).max())


def _laplace_cells(epsilon: float) -> tuple[Floats, Floats, float]:
    """Return losses, their probabilities and their span, for a shift of Laplace noise by `epsilon` of its scales.

    Outcomes beyond both centres have the loss epsilon or -epsilon; between the centres it rises by twice the outcome.
    """
    edges = np.linspace(0.0, epsilon, _OUTCOMES + 1)
    below = np.exp(edges - epsilon) / 2  # distribution function of the noise around epsilon
    losses = np.concatenate([[-epsilon], edges[1:] + edges[:-1] - epsilon, [epsilon]])
    masses = np.concatenate([[below[0]], np.diff(below), [0.5]])
    return losses, masses, 2 * epsilon


def _composed(releases: Sequence[PlayedReleases], delta: float, cells: int, direction: int) -> float:
    """Return the epsilon of the losses log(P/Q) of all releases, on a grid of so many cells."""
    cell_tables = [(*_cells(release, direction), release.count) for release in releases]
    means = [float(masses @ losses) for losses, masses, _, _ in cell_tables]
    spreads = [
        float(masses @ (losses - mean) ** 2) for (losses, masses, _, _), mean in zip(cell_tables, means, strict=True)
    ]
    middle = sum(mean * table[3] for mean, table in zip(means, cell_tables, strict=True))
    deviation = math.sqrt(sum(spread * table[3] for spread, table in zip(spreads, cell_tables, strict=True)))
    largest = max(table[2] for table in cell_tables)
    # The grid covers the composed loss around its mean, and every single loss: what is outside it would be wrapped.
    half = min(max(2 * _REACH * deviation + largest, 1e-6), sum(table[2] * table[3] for table in cell_tables) + 1e-6)
    width = 2 * half / cells
    shape = np.ones(cells // 2 + 1, dtype=np.complex128)
    for (losses, masses, _, count), mean in zip(cell_tables, means, strict=True):
        shape *= rfft(_placed(losses - mean, masses, width, cells)) ** count
    grid = np.fft.fftfreq(cells, 1 / cells) * width + middle
    order = np.argsort(grid)
    masses_of_sum = np.maximum(0.0, irfft(shape, cells)[order]).astype(np.float64)
    return _epsilon_of(grid[order].astype(np.float64), masses_of_sum, delta)


def _placed(losses: Floats, masses: Floats, width: float, cells: int) -> Floats:
    """Return the masses on a circular grid; each is split between two cells so that its mean stays as it is."""
    below = np.floor(losses / width)
    share = losses / width - below
    placed_masses = np.zeros(cells)
    first = below.astype(np.int64)
    np.add.at(placed_masses, first % cells, masses * (1 - share))
    np.add.at(placed_masses, (first + 1) % cells, masses * share)
    return placed_masses


def _epsilon_of(losses: Floats, masses: Floats, delta: float) -> float:
    """Return the epsilon at which the hockey-stick divergence of a loss distribution is delta, at least 0."""

    def excess(epsilon: float) -> float:
        above = losses > epsilon
        return float(masses[above] @ -np.expm1(epsilon - losses[above])) - delta

    if excess(0.0) <= 0:
        return 0.0
    return float(brentq(excess, 0.0, float(losses[-1]) + 1.0, xtol=1e-12, rtol=1e-12))
