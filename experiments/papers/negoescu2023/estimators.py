"""Figures 4 and 5 of Negoescu et al. 2023: the error of estimators of Epsilon*, by number of losses.

Epsilon* is a privacy metric of one model, estimated from its losses on members and on the population.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import pairwise

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from fl_audit.array_types import Floats
from fl_audit.experiments.papers.claims import PaperClaim
from fl_audit.experiments.papers.item_results import ItemResult, ItemRow, measured_row, table
from fl_audit.experiments.papers.negoescu2023.epsilon_star_runs import CLAIMS
from fl_audit.experiments.papers.negoescu2023.simulation import (
    EMPIRICAL,
    PARAMETRIC,
    Cell,
    PaperAndLongSimulation,
    SimulationSettings,
    errors_of_size,
    grouped_estimates,
    loss_pair_name,
    remarks_of_figure_4,
    remarks_of_figure_5,
    simulate,
    summary,
)
from fl_audit.experiments.papers.papers import ComputeExtent, StoredPaperRuns
from fl_audit.experiments.papers.plot_style import THEORY, legend_below
from fl_audit.experiments.papers.statistics import t_interval, welch_interval
from fl_audit.report.figure_style import INK, finish_axes, new_figure

SETTINGS = {
    ComputeExtent.FULL: SimulationSettings(),
    ComputeExtent.QUICK: SimulationSettings(sizes=(100, 1000), repetitions=10),
}
"""Settings with the paper's ten repetitions. The sizes are ours, since its text has lost them."""
MANY = {
    ComputeExtent.FULL: SimulationSettings(sizes=(100, 1000, 10_000), repetitions=200),
    ComputeExtent.QUICK: SimulationSettings(sizes=(100, 1000), repetitions=40),
}
"""Settings with more repetitions than in the paper, on other samples, for the bias and the spread."""
_SEED = 0
_SEED_OF_MANY = 1
_LOOKS = {PARAMETRIC: ("--", "#12426e", "o"), EMPIRICAL: (":", "#b35806", "v")}
_LOST = (
    "Lost parameters: the Gamma distributions, the numbers of losses, delta and the cut of the parametric form are "
    "lost from the paper's text; those here are ours, so no number can be compared.",
    "Thresholds: the paper evaluates distribution functions at two million quantiles; ours finds the supremum over all "
    "thresholds.",
)


@cache
def _simulated(extent: ComputeExtent, separations: int | None = None) -> PaperAndLongSimulation:
    """Return two simulations, one with the paper's ten repetitions and one with more.

    They cover the first `separations` separations between members' and population losses, or all of them.
    """
    simulation_settings = SETTINGS[extent], MANY[extent]
    ten, many_settings = (replace(cell, separations=cell.separations[:separations]) for cell in simulation_settings)
    return PaperAndLongSimulation(ten, many_settings, simulate(ten, _SEED), simulate(many_settings, _SEED_OF_MANY))


_BIASED = "Each estimator is biased, which is what the figure shows"


def figure_4(paper_runs: StoredPaperRuns) -> ItemResult:
    """Return Figure 4: mean and standard deviation of estimated Epsilon* by number of losses, without any leak.

    Members and population have equal loss distributions, so the true value of Epsilon* is 0.
    """
    simulation = _simulated(paper_runs.extent, 1)
    figure = new_figure()
    axes = figure.subplots()
    axes.axhline(0, color=INK, linewidth=1.4, label=THEORY)
    _draw(axes, simulation.ten, "size")
    axes.set_xscale("log")
    finish_axes(axes, "Identical distributions", "Losses in each set (count)", "Epsilon* (nats)")
    legend_below(figure, [axes], columns=3)
    return ItemResult(
        table([*_rows_of_ten(simulation), *_rows_of_many(simulation)]),
        figure,
        f"Mean and standard deviation of {simulation.settings.repetitions} repetitions.",
        (*_LOST, *remarks_of_figure_4(simulation)),
        procedure=simulation.description,
        finding=_BIASED,
    )


def figure_5(paper_runs: StoredPaperRuns) -> ItemResult:
    """Return Figure 5: estimates of Epsilon* (mean and standard deviation) and its true value on simulated losses.

    The horizontal axis is the separation a: the losses of members are drawn from Gamma(shape, 1), and those of the
    population from Gamma(shape + a, 1).
    """
    simulation = _simulated(paper_runs.extent)
    sizes = simulation.settings.sizes
    figure = new_figure(3.0 + 2.2 * ((len(sizes) + 1) // 2))
    panels = figure.subplots((len(sizes) + 1) // 2, 2, sharex=True, sharey=True, squeeze=False).ravel()
    for letter, axes, size in zip("abcdefgh", panels, sizes, strict=False):
        frame = simulation.ten[simulation.ten["size"] == size]
        for column, line, name in (("truth", "-", THEORY), ("narrow_truth", "-.", f"{THEORY}, cut of empirical form")):
            truth = frame.groupby("separation")[column].first()
            axes.plot(truth.index, truth, line, color=INK, linewidth=1.4, label=name)
        _draw(axes, frame, "separation")
        finish_axes(axes, f"({letter}) {size:,} losses", "Separation a (shape)", "Epsilon* (nats)")
        axes.label_outer()
    for axes in panels[len(sizes) :]:
        axes.set_axis_off()
    legend_below(figure, list(panels))
    rows = _rows_of_ten(simulation)
    return ItemResult(
        table([*rows, *_rows_of_sizes(simulation), *_rows_of_many(simulation)]),
        figure,
        f"Mean and standard deviation of {simulation.settings.repetitions} repetitions.",
        (*_LOST, *remarks_of_figure_5(simulation)),
        shown_rows=len(rows) // 2,
        procedure=simulation.description,
        finding=_BIASED,
    )


def claims_of_figure_4(paper_runs: StoredPaperRuns) -> Iterator[PaperClaim]:
    """Yield the claims that section 8.1 makes about a model whose members and population have equal loss distributions.

    Such a model leaks nothing, so its Epsilon* is 0. The claims are tested on the simulation with many repetitions.
    """
    simulation = _simulated(paper_runs.extent, 1)
    of = {key[1:]: cell for key, cell in _columns(simulation.more).items() if key[0] == 0.0}
    sizes = sorted({size for size, _ in of})
    trials = simulation.many.repetitions
    for size in sizes:
        nearer = t_interval(abs(of[size, EMPIRICAL]) - abs(of[size, PARAMETRIC]))
        yield CLAIMS["parametric-nearer-to-zero"].on(f"{size:,} losses", nearer, trials)
    for name in _LOOKS:
        for fewer, larger in pairwise(sizes):
            fall = welch_interval(of[fewer, name], of[larger, name])
            quantity = f"Epsilon* of {fewer:,} losses less that of {larger:,}"
            yield CLAIMS["more-losses-nearer-to-zero"].on(f"{name} form", fall, trials, quantity=quantity)


def claims_of_figure_5(paper_runs: StoredPaperRuns) -> Iterator[PaperClaim]:
    """Yield the claims of section 8.1 on distributions of losses that differ between members and nonmembers.

    The errors of each repetition are averaged over all separations, the distances between the two distributions.
    """
    simulation = _simulated(paper_runs.extent)
    of = _columns(simulation.more)
    trials = simulation.many.repetitions
    apart = [separation for separation in simulation.many.separations if separation > 0]
    below: dict[tuple[int, str], Floats] = {}
    for size in simulation.many.sizes:
        errors = {name: np.stack([of[epsilon, size, name] for epsilon in apart]) for name in _LOOKS}
        below |= {(size, name): -values.mean(axis=0) for name, values in errors.items()}
        where = f"{size:,} losses, all separations"
        yield CLAIMS["empirical-too-small"].on(where, t_interval(below[size, EMPIRICAL]), trials)
        further = t_interval(below[size, EMPIRICAL] - below[size, PARAMETRIC])
        yield CLAIMS["empirical-undershoots-more"].on(where, further, trials)
        squares = {name: (values**2).mean(axis=0) for name, values in errors.items()}
        excess = t_interval(squares[EMPIRICAL] - squares[PARAMETRIC])
        yield CLAIMS["parametric-more-accurate"].on(where, excess, trials)
    for fewer, larger in pairwise(simulation.many.sizes):
        fall = welch_interval(below[fewer, EMPIRICAL], below[larger, EMPIRICAL])
        quantity = f"truth less empirical form, of {fewer:,} losses less that of {larger:,}"
        yield CLAIMS["more-losses-fix-it"].on("all separations", fall, trials, quantity=quantity)


def _columns(estimates: pd.DataFrame) -> dict[Cell, Floats]:
    """Return estimate minus truth in each repetition, (repetitions,), by separation, size and estimator."""
    return {
        key: (cell["estimate"] - cell["truth"]).to_numpy(dtype=np.float64)
        for key, cell in grouped_estimates(estimates).items()
    }


def _draw(axes: Axes, estimates: pd.DataFrame, over: str) -> None:
    for name, (line, colour, marker) in _LOOKS.items():
        groups = estimates[estimates["estimator"] == name].groupby(over)["estimate"]
        mean = groups.mean()
        axes.errorbar(
            mean.index,
            mean,
            yerr=groups.std(),
            linestyle=line,
            color=colour,
            marker=marker,
            markersize=5,
            label=f"{name} form",
            capsize=3,
        )


def _rows_of_ten(simulation: PaperAndLongSimulation) -> list[ItemRow]:
    """Return table rows of the estimates over the paper's ten repetitions: first means, then standard deviations."""
    means = []
    spreads = []
    for (separation, size, name), cell in grouped_estimates(simulation.ten).items():
        if name not in _LOOKS:
            continue
        estimates = cell["estimate"].to_numpy(dtype="float64")
        setting = f"{loss_pair_name(separation)}, {size:,} losses"
        spread = float(estimates.std(ddof=1))
        cut = f"; theory within its own cut {cell['narrow_truth'].iloc[0]:.3f}" if name == EMPIRICAL else ""
        means.append(
            measured_row(
                setting,
                f"mean Epsilon*, {name} form",
                t_interval(estimates),
                estimates.size,
                f"nats; t interval; standard deviation {spread:.3f}{cut}",
                theory=float(cell["truth"].iloc[0]),
            )
        )
        spreads.append(
            ItemRow(
                setting,
                f"standard deviation of Epsilon*, {name} form",
                measured=spread,
                repetitions=estimates.size,
                note="nats; over repetitions",
            )
        )
    return [*means, *spreads]


def _rows_of_many(simulation: PaperAndLongSimulation) -> list[ItemRow]:
    """Return table rows of each estimator's bias, standard deviation and RMSE, over many repetitions."""
    rows = []
    errors = summary(simulation.more)
    for (separation, size, name), apart in _columns(simulation.more).items():
        if name not in _LOOKS:
            continue
        setting = f"{loss_pair_name(separation)}, {size:,} losses, {len(apart)} repetitions"
        count = len(apart)
        error = errors[separation, size, name]
        form = f"of Epsilon*, {name} form"
        rows += [
            measured_row(
                setting,
                f"bias {form}",
                t_interval(apart),
                count,
                "nats; mean less truth; more repetitions than the paper's",
                theory=0.0,
            ),
            ItemRow(setting, f"standard deviation {form}", measured=error.std, repetitions=count, note="nats"),
            ItemRow(setting, f"root mean squared error {form}", measured=error.rmse, repetitions=count, note="nats"),
        ]
    return rows


def _rows_of_sizes(simulation: PaperAndLongSimulation) -> list[ItemRow]:
    """Return table rows with each estimator's RMSE at each number of losses.

    The errors are pooled over all separations, the distances between the loss distributions of members and population.
    """
    return [
        ItemRow(
            f"all separations, {size:,} losses",
            f"root mean squared error of Epsilon*, {name} form",
            measured=rmse,
            repetitions=simulation.settings.repetitions * len(simulation.settings.separations),
            note="nats",
        )
        for size in simulation.settings.sizes
        for name, rmse in errors_of_size(simulation, size).items()
    ]
