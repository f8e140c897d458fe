"""The simulation of Negoescu et al. 2023, appendix B: estimators of Epsilon* on Gamma losses, compared with the truth.

Epsilon* is a privacy metric of one model, estimated from its losses on members and on the population.

Thresholds with an error rate below a *cut* are left out of Epsilon*. The paper's published text states the
transformation of the losses, the cut of the empirical estimator (0.001), the ten repetitions, and a number 5, which
seems to be the number of separations. It does not state the Gamma distributions, the sample sizes, delta and the cut of
the parametric estimator. Here members have losses Gamma(2, 1) and the population Gamma(2 + separation, 1), and all
numbers are parameters.

As in the paper, the truth and the parametric estimator use a much smaller cut than is possible for the empirical
estimator. Therefore both are also computed with the cut of the empirical estimator.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import cast

import numpy as np
import pandas as pd
from scipy.optimize import minimize_scalar
from scipy.stats import gamma

from fl_audit.array_types import Floats
from fl_audit.released_model.empirical_star import definition_ratios, empirical_epsilon_star
from fl_audit.released_model.parametric_star import epsilon_star_gaussian, fit_normal, scores_of_pair
from fl_audit.released_model.star_methods import EMPIRICAL_CUT, PARAMETRIC_CUT

PARAMETRIC = "parametric"
EMPIRICAL = "empirical"
NARROW_PARAMETRIC = "parametric, narrow cut"
"""The estimators; the last one is the parametric form within the cut of the empirical one."""
Cell = tuple[float, int, str]  # separation of the distributions, number of losses in each set, and estimator

COLUMNS = ("separation", "size", "estimator", "repetition", "estimate", "truth", "narrow_truth")


@dataclass(frozen=True)
class SimulationSettings:
    """Settings of a simulation."""

    # Excess of the population's shape over that of members; at least 0, and the first one is 0.
    separations: tuple[float, ...] = (0.0, 1.0, 2.0, 3.0, 4.0)
    sizes: tuple[int, ...] = (100, 1000, 10_000, 100_000)  # numbers of losses in each set
    repetitions: int = 10  # number of samples of each separation and size; the paper has 10
    delta: float = 1e-5  # delta of Epsilon*
    cut: float = PARAMETRIC_CUT  # cut of error rates for the truth and for the parametric estimator; positive
    empirical_cut: float = EMPIRICAL_CUT  # cut of error rates for the empirical estimator
    shape: float = 2.0  # shape of the members' Gamma distribution; the scale is 1


def _true_epsilon_star(settings: SimulationSettings, separation: float) -> float:
    """Return Epsilon* of two Gamma loss distributions by a search over thresholds; rates below the cut are excluded."""
    distributions = gamma(settings.shape), gamma(settings.shape + separation)
    low = max(float(distribution.ppf(settings.cut)) for distribution in distributions)
    high = min(float(distribution.isf(settings.cut)) for distribution in distributions)

    def value(t: Floats) -> Floats:
        ones, zeros = distributions
        ratios = definition_ratios(zeros.cdf(t), zeros.sf(t), ones.sf(t), ones.cdf(t), settings.delta)
        return np.asarray(np.log(np.maximum(ratios, 1.0)), dtype=np.float64)

    grid = np.linspace(low, high, 4001)
    top = int(np.argmax(value(grid)))
    bounds = grid[max(top - 1, 0)], grid[min(top + 1, grid.size - 1)]
    near = minimize_scalar(lambda t: -float(value(np.array(t))), bounds=bounds, method="bounded")
    return max(float(value(grid).max()), -float(near.fun))


def simulate(settings: SimulationSettings, seed: int = 0) -> pd.DataFrame:
    """Return estimates of Epsilon*, one row for each separation, size, estimator and repetition.

    The columns are "separation", "size", "estimator", "repetition", "estimate", "truth" and "narrow_truth". The last
    two are Epsilon* of the true distributions: "truth" with the stability cut `settings.cut`, and "narrow_truth" with
    `settings.empirical_cut`.
    """
    narrow = replace(settings, cut=settings.empirical_cut)
    rows = []
    for index, separation in enumerate(settings.separations):
        truths = _true_epsilon_star(settings, separation), _true_epsilon_star(narrow, separation)
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
class EstimatorErrors:
    """Bias, standard deviation and root mean squared error of an estimator, in nats."""

    bias: float
    std: float
    rmse: float


def grouped_estimates(table: pd.DataFrame) -> dict[Cell, pd.DataFrame]:
    """Return the table of estimates that `simulate` returned, split by separation, size and estimator (the keys)."""
    groups = table.groupby(["separation", "size", "estimator"])
    return {cast(Cell, key): group for key, group in groups}


def summary(table: pd.DataFrame, truth: str = "truth") -> dict[Cell, EstimatorErrors]:
    """Return bias, standard deviation and RMSE of the estimates, keyed by separation, size and estimator."""
    by_cell = {}
    for key, cell in grouped_estimates(table).items():
        errors = (cell["estimate"] - cell[truth]).to_numpy(dtype=np.float64)
        by_cell[key] = EstimatorErrors(
            float(errors.mean()), float(errors.std(ddof=1)), math.sqrt(float(np.mean(errors**2)))
        )
    return by_cell


@dataclass(frozen=True)
class PaperAndLongSimulation:
    """Settings and results of two simulations: one with the paper's ten repetitions, and one with more."""

    settings: SimulationSettings  # settings of the first simulation
    many: SimulationSettings  # settings of the second simulation
    ten: pd.DataFrame  # table of the first simulation, see `simulate`
    more: pd.DataFrame  # table of the second simulation, see `simulate`

    @property
    def description(self) -> str:
        """A paragraph for the paper's page: distributions, set sizes and repetitions of both simulations."""
        distributions = self.settings
        sizes = ", ".join(f"{size:,}" for size in distributions.sizes)
        return (
            f"Members have losses Gamma({distributions.shape:g}, 1), the population Gamma({distributions.shape:g} + "
            f"a, 1). Here a = {', '.join(f'{a:g}' for a in distributions.separations)}. Sets of {sizes} losses, "
            f"{distributions.repetitions} repetitions; for bias and spread {self.many.repetitions} others of sets up "
            f"to {max(self.many.sizes):,}. delta {distributions.delta:g}; rates within {distributions.cut:g} of 0 or "
            f"1 are left out, {distributions.empirical_cut:g} in the empirical form."
        )


def errors_of_size(simulation: PaperAndLongSimulation, size: int) -> dict[str, float]:
    """Return the RMSE of each estimator over all separations, in nats, keyed by estimator."""
    errors = summary(simulation.ten)
    return {
        name: float(
            np.sqrt(np.mean([errors[apart, size, name].rmse ** 2 for apart in simulation.settings.separations]))
        )
        for name in (PARAMETRIC, EMPIRICAL)
    }


def loss_pair_name(separation: float) -> str:
    """Return the name of a pair of loss distributions by their distance: "identical distributions" for 0."""
    return f"separation {separation:g}" if separation else "identical distributions"


def remarks_of_figure_4(simulation: PaperAndLongSimulation) -> tuple[str, ...]:
    """Return remarks on the estimators in the case that members and population have the same distribution of losses."""
    errors = summary(simulation.ten)
    falls = []
    for name in (PARAMETRIC, EMPIRICAL):
        values = [errors[0.0, size, name].bias for size in simulation.settings.sizes]
        falling = all(first > second for first, second in pairwise(values))
        falls.append(f"the {name} one {'always' if falling else 'not always'} ({_between(values)})")
    return (
        f"The paper finds the parametric form nearer to 0. By means: {_nearer_in_both(simulation, 'bias')}.",
        f"It finds both forms to shrink as the sets grow. Here, from each size to the next: {', '.join(falls)}.",
    )


def remarks_of_figure_5(simulation: PaperAndLongSimulation) -> tuple[str, ...]:
    """Return remarks on how near the estimators are to the true Epsilon*.

    In figure 5 the loss distributions of members and population differ by several distances, the separations.
    """
    return (
        "The paper finds the parametric form nearer to the truth throughout. By root mean squared error: "
        f"{_nearer_in_both(simulation, 'rmse')}.",
        *_remarks_on_bias(simulation),
    )


def _remarks_on_bias(simulation: PaperAndLongSimulation) -> tuple[str, ...]:
    """Return remarks on two biases that more losses do not remove.

    One comes from fitting normal distributions, the other from ignoring error rates below the stability cut.
    """
    size = max(simulation.settings.sizes)
    wide = summary(simulation.ten)
    narrow = summary(simulation.ten, "narrow_truth")
    separations = [separation for separation in simulation.settings.separations if separation > 0]

    fit = [wide[separation, size, PARAMETRIC] for separation in separations]
    bias = [errors.bias for errors in fit]
    spread = [errors.std for errors in fit]
    cut = [wide[separation, size, EMPIRICAL].bias for separation in separations]
    bias_of_size = [narrow[separation, size, EMPIRICAL].bias for separation in separations]
    return (
        f"The normal fit to losses that are not normal has a bias of its own: at {size:,} losses {_between(bias)} nats "
        f"over the separations, {'always' if min(bias) > 0 else 'not always'} above the truth, beside a standard "
        f"deviation of {_between(spread)}{'; more losses do not cure it' if min(bias) > 2 * max(spread) else ''}.",
        f"The empirical form's bias at {size:,} losses is {_between(cut)} nats against the truth, and "
        f"{_between(bias_of_size)} against the truth within the same cut.",
    )


def _between(values: Sequence[float]) -> str:
    return f"{values[0]:.2f}" if len(values) == 1 else f"{min(values):.2f} to {max(values):.2f}"


def _nearer_in_both(simulation: PaperAndLongSimulation, column: str) -> str:
    simulations = ((simulation.ten, simulation.settings), (simulation.more, simulation.many))
    return "; ".join(_nearer(estimates, column, settings.repetitions) for estimates, settings in simulations)


def _nearer(estimates: pd.DataFrame, column: str, repetitions: int) -> str:
    """Return a phrase that says in which cells the parametric estimator is nearer to the truth than the empirical one.

    A cell is a pair of loss distributions, given by their separation, with a number of losses. `column` is the kind of
    error, such as `rmse`.
    """
    errors = summary(estimates)
    cells = [key[:2] for key in errors if key[-1] == PARAMETRIC]
    farther = [
        cell
        for cell in cells
        if abs(getattr(errors[*cell, PARAMETRIC], column)) >= abs(getattr(errors[*cell, EMPIRICAL], column))
    ]
    text = f"nearer in {len(cells) - len(farther)} of {len(cells)} cells ({repetitions} repetitions)"
    cells_text = "; ".join(f"{loss_pair_name(separation)}, {size:,} losses" for separation, size in farther)
    return f"{text}, not at {cells_text}" if farther else text
