"""The simulation of Negoescu et al. 2023, appendix B: estimators of Epsilon* on Gamma losses, against the truth.

Of the settings the published text keeps the transformation of the losses, the cut of the empirical form (0.001), the
ten repetitions, and a 5 that seems to count the separations; the Gamma laws, the sample sizes, delta and the other cut
are lost from it. Here members have losses Gamma(2, 1) and the population Gamma(2 + separation, 1); every number is a
parameter. As in the paper the truth and the parametric form share a cut much farther out than the empirical one can
bear; so the truth within the empirical form's cut, and the parametric form within it, stand beside them.
"""

import math
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.stats import gamma

from fl_audit.evidence.star.empirical_star import EMPIRICAL_CUT, definition_ratios, empirical_epsilon_star
from fl_audit.evidence.star.epsilon_star import epsilon_star_gaussian, fit_normal
from fl_audit.evidence.star.loss_samples import scores_of_pair
from fl_audit.evidence.star.star_estimate import PARAMETRIC_CUT

Array = NDArray[np.float64]

PARAMETRIC, EMPIRICAL, NARROW_PARAMETRIC = "parametric", "empirical", "parametric, narrow cut"
"""The estimators; the last one is the parametric form within the cut of the empirical one."""
Cell = tuple[float, int, str]
"""Separation, size and estimator."""

COLUMNS = ("separation", "size", "estimator", "repetition", "estimate", "truth", "narrow_truth")


@dataclass(frozen=True)
class SimulationSettings:
    """What is simulated.

    Parameters
    ----------
    separations
        What the population's shape exceeds that of members by; at least 0, the first one 0.
    sizes
        Losses of each set.
    repetitions
        Samples of each separation and size; the paper has 10.
    delta
        delta of Epsilon*.
    cut
        Of error rates, for the truth and the parametric estimator; positive.
    empirical_cut
        Of error rates, for the empirical estimator.
    shape
        Shape of the members' Gamma law; the scale is 1.
    """

    separations: tuple[float, ...] = (0.0, 1.0, 2.0, 3.0, 4.0)
    sizes: tuple[int, ...] = (100, 1000, 10_000, 100_000)
    repetitions: int = 10
    delta: float = 1e-5
    cut: float = PARAMETRIC_CUT
    empirical_cut: float = EMPIRICAL_CUT
    shape: float = 2.0


def true_epsilon_star(settings: SimulationSettings, separation: float) -> float:
    """Return Epsilon* of the two Gamma laws within the cut, by a fine search over thresholds and a local one.

    Parameters
    ----------
    settings
        Laws, delta and cut; the cut is positive.
    separation
        What the population's shape exceeds that of members by.
    """
    laws = gamma(settings.shape), gamma(settings.shape + separation)
    low = max(float(law.ppf(settings.cut)) for law in laws)
    high = min(float(law.isf(settings.cut)) for law in laws)

    def value(t: Array) -> Array:
        one, zero = laws
        ratios = definition_ratios(zero.cdf(t), zero.sf(t), one.sf(t), one.cdf(t), settings.delta)
        return np.asarray(np.log(np.maximum(ratios, 1.0)), dtype=np.float64)

    grid = np.linspace(low, high, 4001)
    top = int(np.argmax(value(grid)))
    bounds = grid[max(top - 1, 0)], grid[min(top + 1, grid.size - 1)]
    near = minimize_scalar(lambda t: -float(value(np.array(t))), bounds=bounds, method="bounded")
    return max(float(value(grid).max()), -float(near.fun))


def simulate(settings: SimulationSettings, seed: int = 0) -> pd.DataFrame:
    """Return every estimate: a row of `COLUMNS` for each separation, size, estimator and repetition.

    `truth` is Epsilon* of the laws within the cut of the settings, `narrow_truth` that within the empirical form's.

    Parameters
    ----------
    settings
        What is simulated.
    seed
        Of the samples; each separation and size has a stream of its own.
    """
    narrow = replace(settings, cut=settings.empirical_cut)
    rows = []
    for index, separation in enumerate(settings.separations):
        truths = true_epsilon_star(settings, separation), true_epsilon_star(narrow, separation)
        for size in settings.sizes:
            rng = np.random.default_rng([seed, index, size])
            shape = settings.repetitions, size
            losses = rng.gamma(settings.shape, 1, shape), rng.gamma(settings.shape + separation, 1, shape)
            members, population = (fit_normal(scores) for scores in scores_of_pair(*losses))
            estimates = {
                PARAMETRIC: epsilon_star_gaussian(*members, *population, settings.delta, settings.cut),
                EMPIRICAL: empirical_epsilon_star(*losses, settings.delta, settings.empirical_cut),
                NARROW_PARAMETRIC: epsilon_star_gaussian(*members, *population, settings.delta, settings.empirical_cut),
            }
            rows += [
                (separation, size, name, repetition, float(value), *truths)
                for name, values in estimates.items()
                for repetition, value in enumerate(values)
            ]
    return pd.DataFrame(rows, columns=list(COLUMNS))


@dataclass(frozen=True)
class Errors:
    """Bias, standard deviation and root mean squared error of an estimator, in nats."""

    bias: float
    std: float
    rmse: float


def cells(table: pd.DataFrame) -> dict[Cell, pd.DataFrame]:
    """Return the rows of each separation, size and estimator, in this order."""
    groups = table.groupby(["separation", "size", "estimator"])
    return {cast(Cell, key): group for key, group in groups}


def summary(table: pd.DataFrame, truth: str = "truth") -> dict[Cell, Errors]:
    """Return the errors of every separation, size and estimator.

    Parameters
    ----------
    table
        Of `simulate`, at least two repetitions.
    truth
        The column that errors are taken from: `truth` or `narrow_truth`.
    """
    found = {}
    for key, cell in cells(table).items():
        errors = (cell["estimate"] - cell[truth]).to_numpy(dtype=np.float64)
        found[key] = Errors(float(errors.mean()), float(errors.std(ddof=1)), math.sqrt(float(np.mean(errors**2))))
    return found
