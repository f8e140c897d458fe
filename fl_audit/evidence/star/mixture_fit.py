"""Fits of normal mixtures to scores, their number of components, and whether they fit (Negoescu et al., appendix 8.2).

The scores are standardised and fitted by scikit-learn's `GaussianMixture`. No component may be narrower than a
thousandth of the scores' standard deviation: values that occur repeatedly, as they often do in overfitted models, would
otherwise become components without width.
"""

import math
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from fl_audit.arrays import Floats
from fl_audit.errors import require
from fl_audit.evidence.star.normal_mixture import NormalMixture

if TYPE_CHECKING:
    from sklearn.mixture import GaussianMixture


MOST_COMPONENTS = 20  # the largest number of components that appendix 8.2 considers
_FLOOR = 1e-6  # added to the variance of every component, in units of the scores' variance
_PATIENCE = 3  # the search for the number of components ends when so many further ones have not lowered the criterion


@dataclass(frozen=True)
class KsCheck:
    """A two-sample Kolmogorov-Smirnov check of a fit."""

    components: int  # number of components that were fitted
    evaluation_size: int  # number of scores kept back, and of draws from the fit that they were compared with
    statistic: float  # largest distance between the two empirical distribution functions
    # p-value of the hypothesis that both samples have the same law; the paper asks whether it exceeds 0.05.
    p_value: float


def fit_mixture(
    scores: ArrayLike, components: int, rng: np.random.Generator, start: NormalMixture | None = None
) -> NormalMixture:
    """Fit a mixture of normals by maximum likelihood.

    Parameters
    ----------
    scores
        Finite, at least two different values, shape (n,).
    components
        From 1 to `MOST_COMPONENTS`, at most n.
    rng
        Seeds the first guess.
    start
        Where the search starts instead of at a guess, as when a resampled set is refitted; a mixture with the same
        number of components.

    Returns
    -------
    NormalMixture
        The fitted mixture, without components whose weight vanished.

    Raises
    ------
    InputError
        If the scores are constant or not finite, or the number of components is out of its range.
    """
    values, mean, std = _standardised(scores)
    most = min(MOST_COMPONENTS, values.size)
    require(1 <= components <= most, f"components is {components}: accepted are whole numbers from 1 to {most}")
    return _unscaled(_em(values, components, rng, _scaled(start, mean, std) if start else None), mean, std)


def choose_mixture(
    scores: ArrayLike, rng: np.random.Generator, most_components: int = MOST_COMPONENTS
) -> NormalMixture:
    """Fit mixtures of 1, 2, ... components and return the one with the smallest Bayesian information criterion.

    Parameters
    ----------
    scores
        Finite, at least two different values, shape (n,).
    rng
        Seeds the first guesses.
    most_components
        From 1 to `MOST_COMPONENTS`. The search ends earlier if three further components have not lowered the criterion.

    Raises
    ------
    InputError
        As for `fit_mixture`.
    """
    accepted = f"accepted are whole numbers from 1 to {MOST_COMPONENTS}"
    require(1 <= most_components <= MOST_COMPONENTS, f"most components is {most_components}: {accepted}")
    values, mean, std = _standardised(scores)
    best, lowest, since = None, math.inf, 0
    for components in range(1, min(most_components, np.unique(values).size) + 1):
        fitted = _em(values, components, rng, None)
        criterion = float(fitted.bic(values[:, None]))
        since = 0 if criterion < lowest else since + 1
        if criterion < lowest:
            best, lowest = fitted, criterion
        if since == _PATIENCE:
            break
    assert best is not None
    return _unscaled(best, mean, std)


def ks_check(scores: ArrayLike, components: int, evaluation_size: int, rng: np.random.Generator) -> KsCheck:
    """Check a fit by the four steps of appendix 8.2: split, fit, draw, compare.

    Parameters
    ----------
    scores
        Finite, shape (n,).
    components
        Number of components to fit to the scores that are not kept back.
    evaluation_size
        Number of scores kept back, from 1 to n - 2; the paper varies it from 100 to 1000.
    rng
        Splits the scores, seeds the fit and draws from it.

    Raises
    ------
    InputError
        If a number is out of its range, or as for `fit_mixture`.
    """
    values = np.asarray(scores, dtype=np.float64)
    require(values.ndim == 1, f"scores have {values.ndim} axes: accepted is one axis")
    fits = 1 <= evaluation_size <= values.size - 2
    require(fits, f"evaluation size is {evaluation_size}: accepted are whole numbers from 1 to {values.size - 2}")
    shuffled = rng.permutation(values)
    kept, used = shuffled[:evaluation_size], shuffled[evaluation_size:]
    fitted = fit_mixture(used, components, rng)
    from scipy.stats import ks_2samp  # takes half a second to import, and other forms of Epsilon* do without

    found = ks_2samp(kept, fitted.sample(evaluation_size, rng))
    return KsCheck(components, evaluation_size, float(found.statistic), float(found.pvalue))


def _em(values: Floats, components: int, rng: np.random.Generator, start: NormalMixture | None) -> "GaussianMixture":
    """Return the fit from `start`; without one, the likelier of a fit from quantiles and a fit from a random guess."""
    # Imported here, because it takes long and most uses of this package fit no mixture.
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.mixture import GaussianMixture

    seed = int(rng.integers(2**31))
    settings: dict[str, Any] = {"n_components": components, "reg_covar": _FLOOR, "random_state": seed}
    from_start = (
        {
            "weights_init": start.weights,
            "means_init": start.means[:, None],
            "precisions_init": (1 / start.stds**2)[:, None, None],
        }
        if start
        else _quantile_start(values, components)
    )
    fits = [GaussianMixture(**settings, **from_start)]
    if start is None and components > 1:
        fits.append(GaussianMixture(**settings, init_params="k-means++"))
    with warnings.catch_warnings():
        # A fit that did not converge is still a mixture; `ks_check` tells whether it fits.
        warnings.simplefilter("ignore", ConvergenceWarning)
        fitted = [one.fit(values[:, None]) for one in fits]
    return max(fitted, key=lambda one: float(one.lower_bound_))


def _quantile_start(values: Floats, components: int) -> dict[str, Floats]:
    """Return a first guess: equal weights, means at the medians of equal shares of the scores, and equal spreads."""
    means = np.quantile(values, (np.arange(components) + 0.5) / components)
    precisions = np.full((components, 1, 1), float(components) ** 2)
    return {
        "weights_init": np.full(components, 1 / components),
        "means_init": means[:, None],
        "precisions_init": precisions,
    }


def _standardised(scores: ArrayLike) -> tuple[Floats, float, float]:
    values = np.asarray(scores, dtype=np.float64)
    require(values.ndim == 1, f"scores have {values.ndim} axes: accepted is one axis")
    usable = values.size >= 2 and bool(np.all(np.isfinite(values))) and float(np.ptp(values)) > 0
    require(usable, "scores are constant, not finite or fewer than two: accepted are two or more different numbers")
    mean, std = float(values.mean()), float(values.std())
    return (values - mean) / std, mean, std


def _scaled(law: NormalMixture, mean: float, std: float) -> NormalMixture:
    return NormalMixture(law.weights, (law.means - mean) / std, law.stds / std)


def _unscaled(fitted: "GaussianMixture", mean: float, std: float) -> NormalMixture:
    weights = np.asarray(fitted.weights_, dtype=np.float64)
    kept = weights > 0
    means, variances = fitted.means_[:, 0], fitted.covariances_[:, 0, 0]
    return NormalMixture(weights[kept] / weights[kept].sum(), mean + std * means[kept], std * np.sqrt(variances[kept]))
