"""One-dimensional mixtures of normal distributions: log tail probabilities, log densities, and fits to scores.

Scores are standardised and fitted by scikit-learn's `GaussianMixture` (Negoescu et al. 2023, appendix 8.2). The
standard deviation of a component is at least a thousandth of the scores' standard deviation. Otherwise values that
occur repeatedly, as they often do in overfitted models, would become components of zero width.
"""

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtri

from fl_audit.array_types import Floats
from fl_audit.errors import require

if TYPE_CHECKING:
    from sklearn.mixture import GaussianMixture

MOST_COMPONENTS = 20  # the largest number of components that appendix 8.2 considers
_FLOOR = 1e-6  # added to the variance of every component, in units of the scores' variance
_PATIENCE = 3  # the search for the number of components ends after this many further ones without a lower BIC
_ROWS = 2**20  # largest number of pairs of a point and a component that are computed at once, to bound the memory
_LARGE = 1e300


@dataclass(frozen=True)
class NormalMixture:
    """A one-dimensional mixture of normal distributions, given by weights, means and standard deviations.

    Raises
    ------
    InputError
        If a number is out of its range or the shapes differ.
    """

    weights: Floats  # positive, shape (components,), sum 1 within 1e-9
    means: Floats  # finite, shape (components,)
    stds: Floats  # positive and finite, shape (components,)

    def __post_init__(self) -> None:
        shapes = {np.shape(values) for values in (self.weights, self.means, self.stds)}
        require(len(shapes) == 1, f"weights, means and stds have shapes {shapes}: accepted is one shape")
        whole = bool(np.all(self.weights > 0)) and abs(float(np.sum(self.weights)) - 1) < 1e-9
        require(whole, "weights of a mixture are not positive with sum 1: accepted are such")
        require(bool(np.all(np.isfinite(self.means))), "a mean is NaN or infinite: accepted are finite numbers")
        proper = bool(np.all((self.stds > 0) & np.isfinite(self.stds)))
        require(proper, "a standard deviation is not positive and finite: accepted are such")

    @property
    def components(self) -> int:
        """Number of components."""
        return int(self.weights.size)

    def log_sf(self, points: ArrayLike) -> Floats:
        """Return the log survival function log P(X > point), in the shape of `points`; accurate far in both tails."""
        return self._mixed(points, lambda z: log_ndtr(-z), density=False)

    def log_density(self, points: ArrayLike) -> Floats:
        """Return the log density at each point, in the shape of `points`."""
        return self._mixed(points, lambda z: -z * z / 2, density=True)

    def mirrored(self) -> "NormalMixture":
        """Return the distribution of -X, for X with this distribution."""
        return NormalMixture(self.weights, -self.means, self.stds)

    def log_density_range(self, low: Floats, high: Floats) -> tuple[Floats, Floats]:
        """Return a lower and an upper bound of the log density on each interval, each of shape (intervals,).

        Shapes: `low` (intervals,), `high` (intervals,).
        """
        lowest = np.empty_like(low)
        highest = np.empty_like(low)
        for rows in _chunks(low.size, self.components):
            z_low, z_high = ((ends[rows, None] - self.means) / self.stds for ends in (low, high))
            farthest = np.where(np.abs(z_low) > np.abs(z_high), z_low, z_high)
            lowest[rows] = self._sum(-(farthest**2) / 2, density=True)
            highest[rows] = self._sum(-(np.clip(0.0, z_low, z_high) ** 2) / 2, density=True)
        return lowest, highest

    def upper_quantile(self, log_tail: float) -> float:
        """Return the point t with log P(X > t) = `log_tail`; infinity if `log_tail` is -infinity.

        `log_tail` is below 0.
        """
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
        """Return independent draws from the mixture, shape (size,)."""
        chosen = rng.choice(self.components, size=size, p=self.weights)
        return np.asarray(rng.normal(self.means[chosen], self.stds[chosen]), dtype=np.float64)

    def _mixed(self, points: ArrayLike, log_of: Callable[[Floats], Floats], density: bool) -> Floats:
        values = np.asarray(points, dtype=np.float64)
        flat = values.reshape(-1)
        results = np.empty_like(flat)
        for rows in _chunks(flat.size, self.components):
            z = (flat[rows, None] - self.means) / self.stds
            results[rows] = self._sum(log_of(z), density)
        return results.reshape(values.shape)

    def _sum(self, logs: Floats, density: bool) -> Floats:
        """Return the log of the weighted sum of exp(logs) over components, the last axis.

        With `density`, each term is divided by std * sqrt(2 pi).
        """
        weights = np.log(self.weights)
        if density:
            weights = weights - np.log(self.stds) - math.log(2 * math.pi) / 2
        terms = logs + weights
        largest = np.maximum(terms.max(axis=-1), -_LARGE)
        with np.errstate(divide="ignore"):
            return np.asarray(largest + np.log(np.exp(terms - largest[..., None]).sum(axis=-1)), dtype=np.float64)


def normal(mean: float, std: float) -> NormalMixture:
    """Return a normal distribution as a mixture with a single component."""
    return NormalMixture(np.array([1.0]), np.array([mean]), np.array([std]))


def _chunks(rows: int, components: int) -> list[slice]:
    step = max(1, _ROWS // components)
    return [slice(start, start + step) for start in range(0, rows, step)]


def fit_mixture(
    scores: ArrayLike, components: int, rng: np.random.Generator, start: NormalMixture | None = None
) -> NormalMixture:
    """Return a mixture of normals fitted to scores by maximum likelihood; components with weight 0 are dropped.

    Shapes: `scores` (n,).

    `start`: None starts from quantiles and from a random initialisation, and keeps the more likely fit.
    """
    values, mean, std = _standardised(scores)
    largest = min(MOST_COMPONENTS, values.size)
    require(1 <= components <= largest, f"components is {components}: accepted are whole numbers from 1 to {largest}")
    if components == 1:
        # Its likelihood has one maximum, which needs no search; a seed is drawn as for others.
        rng.integers(2**31)
        return normal(mean, std * math.sqrt(float(values.var()) + _FLOOR))
    scaled = None if start is None else NormalMixture(start.weights, (start.means - mean) / std, start.stds / std)
    return _unscaled(_em(values, components, rng, scaled), mean, std)


def choose_mixture(scores: ArrayLike, rng: np.random.Generator) -> NormalMixture:
    """Return the fitted mixture with the lowest Bayesian information criterion (BIC) among 1, 2, ... components.

    The search ends at `MOST_COMPONENTS`, or after three further components without a lower BIC.

    Shapes: `scores` (n,).
    """
    values, mean, std = _standardised(scores)
    best = None
    lowest = math.inf
    since = 0
    for components in range(1, min(MOST_COMPONENTS, np.unique(values).size) + 1):
        fitted = _em(values, components, rng, None)
        criterion = float(fitted.bic(values[:, None]))
        since = 0 if criterion < lowest else since + 1
        if criterion < lowest:
            best = fitted
            lowest = criterion
        if since == _PATIENCE:
            break
    assert best is not None
    return _unscaled(best, mean, std)


def ks_check(scores: ArrayLike, components: int, evaluation_size: int, rng: np.random.Generator) -> float:
    """Return the p-value of a two-sample Kolmogorov-Smirnov test of a mixture that is fitted to scores.

    A mixture is fitted to a part of the scores, and a sample from the fit is compared with the held-out scores.
    Negoescu et al. 2023, appendix 8.2, accept the fit if the p-value exceeds 0.05.

    Shapes: `scores` (n,).
    """
    values = np.asarray(scores, dtype=np.float64)
    require(values.ndim == 1, f"scores have {values.ndim} axes: accepted is one axis")
    fits = 1 <= evaluation_size <= values.size - 2
    require(fits, f"evaluation size is {evaluation_size}: accepted are whole numbers from 1 to {values.size - 2}")
    shuffled = rng.permutation(values)
    evaluation_scores = shuffled[:evaluation_size]
    fit_scores = shuffled[evaluation_size:]
    fitted = fit_mixture(fit_scores, components, rng)
    return float(scipy.stats.ks_2samp(evaluation_scores, fitted.sample(evaluation_size, rng)).pvalue)


def _em(values: Floats, components: int, rng: np.random.Generator, start: NormalMixture | None) -> "GaussianMixture":
    """Return scikit-learn's fit to standardised scores; without `start`, the more likely one of two starting points."""
    # Imported here, because it takes long and most uses of this package fit no mixture.
    from sklearn import exceptions, mixture  # noqa: PLC0415

    seed = int(rng.integers(2**31))
    settings: dict[str, Any] = {"n_components": components, "reg_covar": _FLOOR, "random_state": seed}
    if start is None:  # equal weights and spreads, and means at the medians of equal shares of the scores
        means = np.quantile(values, (np.arange(components) + 0.5) / components)
        weights = np.full(components, 1 / components)
        precisions = np.full(components, float(components) ** 2)
    else:
        weights = start.weights
        means = start.means
        precisions = 1 / start.stds**2
    start_values = {"weights_init": weights, "means_init": means[:, None], "precisions_init": precisions[:, None, None]}
    fits = [mixture.GaussianMixture(**settings, **start_values)]
    if start is None and components > 1:
        fits.append(mixture.GaussianMixture(**settings, init_params="k-means++"))
    with warnings.catch_warnings():
        # A fit that did not converge is still a mixture; `ks_check` tells whether it fits.
        warnings.simplefilter("ignore", exceptions.ConvergenceWarning)
        mixtures = [fit.fit(values[:, None]) for fit in fits]
    return max(mixtures, key=lambda fit: float(fit.lower_bound_))


def _standardised(scores: ArrayLike) -> tuple[Floats, float, float]:
    values = np.asarray(scores, dtype=np.float64)
    require(values.ndim == 1, f"scores have {values.ndim} axes: accepted is one axis")
    usable = values.size >= 2 and bool(np.all(np.isfinite(values))) and float(np.ptp(values)) > 0
    require(usable, "scores are constant, not finite or fewer than two: accepted are two or more different numbers")
    mean = float(values.mean())
    std = float(values.std())
    return (values - mean) / std, mean, std


def _unscaled(fitted: "GaussianMixture", mean: float, std: float) -> NormalMixture:
    weights = np.asarray(fitted.weights_, dtype=np.float64)
    is_positive = weights > 0
    means = fitted.means_[:, 0]
    variances = fitted.covariances_[:, 0, 0]
    return NormalMixture(
        weights[is_positive] / weights[is_positive].sum(),
        mean + std * means[is_positive],
        std * np.sqrt(variances[is_positive]),
    )
