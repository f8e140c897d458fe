"""The simulation of Negoescu et al. 2023, appendix B: estimators of Epsilon* on Gamma losses, against the truth.

Figure 3 shows the log ratios over FPR of two normals; figure 4 both estimators where nothing leaks, over the sample
size; figure 5 the same where the laws move apart; figure 6 p-values of fits, see `mixture_fit.ks_check`. Of the
settings the published text keeps the cut of the empirical form (0.001), the ten repetitions and that there are five
separations; the Gamma laws, the sample sizes, delta and the other cut are lost from it. Here members have losses
Gamma(2, 1) and the population Gamma(2 + separation, 1); every number is a parameter. As in the paper the truth and the
parametric form share a cut much farther out than the empirical one can bear.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.stats import gamma

from fl_audit.evidence.empirical_star import EMPIRICAL_CUT, definition_ratios, empirical_epsilon_star
from fl_audit.evidence.epsilon_star import parametric_epsilon_star
from fl_audit.evidence.star_estimate import PARAMETRIC_CUT
from fl_audit.report.style import finish_axes

Array = NDArray[np.float64]

_STYLES = {"truth": ("-", "k", ""), "parametric": ("--", "#12426e", "o"), "empirical": (":", "#b35806", "v")}


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


QUICK = SimulationSettings(sizes=(100, 1000, 10_000))


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
    """Return every estimate: separation, size, estimator, repetition, estimate, truth.

    Parameters
    ----------
    settings
        What is simulated.
    seed
        Of the samples; each separation and size has a stream of its own.
    """
    rows = []
    for index, separation in enumerate(settings.separations):
        truth = true_epsilon_star(settings, separation)
        for size in settings.sizes:
            rng = np.random.default_rng([seed, index, size])
            shape = settings.repetitions, size
            members, population = rng.gamma(settings.shape, 1, shape), rng.gamma(settings.shape + separation, 1, shape)
            estimates = {
                "parametric": parametric_epsilon_star(members, population, settings.delta, cut=settings.cut),
                "empirical": empirical_epsilon_star(members, population, settings.delta, settings.empirical_cut),
                "truth": np.full(settings.repetitions, truth),
            }
            rows += [
                (separation, size, name, repetition, float(value), truth)
                for name, values in estimates.items()
                for repetition, value in enumerate(values)
            ]
    return pd.DataFrame(rows, columns=["separation", "size", "estimator", "repetition", "estimate", "truth"])


def identical_figure(table: pd.DataFrame) -> Figure:
    """Return the counterpart of figure 4: mean and standard deviation over sample sizes where nothing leaks.

    Parameters
    ----------
    table
        Of `simulate`, with the separation 0.
    """
    figure = Figure(figsize=(7.2, 4.3), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    _draw(axes, table[table["separation"] == 0], "size")
    axes.set_xscale("log")
    finish_axes(axes, "Identical laws of losses", "losses in each set", "Epsilon* (nats)")
    axes.legend()
    return figure


def separation_figure(table: pd.DataFrame) -> Figure:
    """Return the counterpart of figure 5: mean and standard deviation over separations, a panel for each sample size.

    Parameters
    ----------
    table
        Of `simulate`.
    """
    sizes: Sequence[int] = sorted(table["size"].unique())
    figure = Figure(figsize=(3.6 * len(sizes), 4.0), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    panels = np.atleast_1d(figure.subplots(1, len(sizes), sharey=True))
    for axes, size in zip(panels, sizes, strict=True):
        _draw(axes, table[table["size"] == size], "separation")
        finish_axes(axes, f"{size:,} losses", "separation of the laws", "Epsilon* (nats)" if axes is panels[0] else "")
    panels[0].legend()
    return figure


def _draw(axes: Axes, table: pd.DataFrame, over: str) -> None:
    for name, (line, colour, marker) in _STYLES.items():
        groups = table[table["estimator"] == name].groupby(over)["estimate"]
        mean, std = groups.mean(), groups.std()
        axes.errorbar(
            mean.index,
            mean,
            yerr=std if marker else None,
            linestyle=line,
            color=colour,
            marker=marker,
            label=name,
            capsize=3,
        )


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """Return bias, spread and root mean squared error of each estimator: separation, size, estimator, ..."""
    rows = []
    for (separation, size, name), group in table[table["estimator"] != "truth"].groupby(
        ["separation", "size", "estimator"]
    ):
        error = group["estimate"] - group["truth"]
        rows.append((separation, size, name, error.mean(), error.std(), math.sqrt((error**2).mean())))
    return pd.DataFrame(rows, columns=["separation", "size", "estimator", "bias", "std", "rmse"])
