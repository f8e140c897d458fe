"""Figures 4 and 5 of Negoescu et al. 2023: the error of estimators of Epsilon*, by number of losses.

Epsilon* is a privacy metric of one model, estimated from its losses on members and on the population.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from fl_audit.array_types import Floats
from fl_audit.experiments.reproductions.claims import PaperClaim
from fl_audit.experiments.reproductions.negoescu2023.simulation import (
    EMPIRICAL,
    NARROW_PARAMETRIC,
    PARAMETRIC,
    Cell,
    SimulationSettings,
    cells,
    simulate,
    summary,
)
from fl_audit.experiments.reproductions.paper_types import (
    ComputeExtent,
    ItemContext,
    ItemResult,
    ItemRow,
    measured_row,
    table,
)
from fl_audit.experiments.reproductions.plot_style import THEORY, legend_below
from fl_audit.experiments.reproductions.statistics import t_interval, welch_interval
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
_SEED, _SEED_OF_MANY = 0, 1
_LOOKS = {PARAMETRIC: ("--", "#12426e", "o"), EMPIRICAL: (":", "#b35806", "v")}
_LOST = (
    "The Gamma distributions, the numbers of losses, delta and the cut of the parametric form are lost from the "
    "paper's text; "
    "those here are ours, so no number can be compared.",
    "The paper evaluates distribution functions at two million quantiles; ours finds the supremum over all thresholds.",
)


@dataclass(frozen=True)
class PaperAndLongSimulation:
    """Settings and results of two simulations: one with the paper's ten repetitions, and one with more repetitions."""

    settings: SimulationSettings  # settings of the first simulation
    many: SimulationSettings  # settings of the second simulation
    ten: pd.DataFrame  # table of the first simulation, see `simulate`
    more: pd.DataFrame  # table of the second simulation, see `simulate`

    @property
    def played(self) -> str:
        """Description of both simulations: distributions, sizes, repetitions and delta."""
        distributions = self.settings
        sizes = ", ".join(f"{size:,}" for size in distributions.sizes)
        return (
            f"Members have losses Gamma({distributions.shape:g}, 1), the population Gamma({distributions.shape:g} + a, "
            "1), "
            f"a = {', '.join(f'{a:g}' for a in distributions.separations)}; sets of {sizes} losses, "
            f"{distributions.repetitions} "
            f"repetitions; for bias and spread {self.many.repetitions} others of sets up to {max(self.many.sizes):,}. "
            f"delta {distributions.delta:g}; rates within {distributions.cut:g} of 0 or 1 are left out, "
            f"{distributions.empirical_cut:g} in the "
            "empirical form. No training."
        )


def _simulated(extent: ComputeExtent, separations: int | None = None) -> PaperAndLongSimulation:
    """Return both simulations, run for the first `separations` distances of the loss distributions; None means all.

    The random numbers of a distance depend on its index, so that its results do not depend on `separations`.
    """
    both = SETTINGS[extent], MANY[extent]
    ten, many = (replace(one, separations=one.separations[:separations]) for one in both)
    return PaperAndLongSimulation(ten, many, simulate(ten, _SEED), simulate(many, _SEED_OF_MANY))


_BIASED = (
    "The estimators are biased, which is what the figure shows: of few losses each is off the truth by more than chance"
)


def figure_4(context: ItemContext) -> ItemResult:
    """Return Figure 4: mean and standard deviation of estimated Epsilon* by number of losses, without any leak.

    Epsilon* is a privacy metric of models. Members and population have equal loss distributions, so its true value is
    0.
    """
    found = _simulated(context.extent, 1)
    figure = new_figure()
    axes = figure.subplots()
    axes.axhline(0, color=INK, linewidth=1.4, label=THEORY)
    _draw(axes, found.ten, "size")
    axes.set_xscale("log")
    finish_axes(axes, "Identical distributions", "Losses in each set (count)", "Epsilon* (nats)")
    legend_below(figure, [axes], columns=3)
    return ItemResult(
        table([*_rows_of_ten(found), *_rows_of_many(found)]),
        figure,
        f"Mean and standard deviation of {found.settings.repetitions} repetitions. Both distributions are the same, so "
        "the true "
        "Epsilon* is 0.",
        (*_LOST, *_remarks_of_figure_4(found)),
        played=found.played,
        finding=_BIASED,
        claims=tuple(_claims_of_figure_4(found)),
    )


def figure_5(context: ItemContext) -> ItemResult:
    """Return Figure 5: mean and standard deviation of estimated Epsilon*, and its true value, by separation.

    Epsilon* is a privacy metric of models. The separation is the distance of the two loss distributions.
    """
    found = _simulated(context.extent)
    sizes = found.settings.sizes
    figure = new_figure(3.0 + 2.2 * ((len(sizes) + 1) // 2))
    panels = figure.subplots((len(sizes) + 1) // 2, 2, sharex=True, sharey=True, squeeze=False).ravel()
    for letter, axes, size in zip("abcdefgh", panels, sizes, strict=False):
        own = found.ten[found.ten["size"] == size]
        for column, line, name in (("truth", "-", THEORY), ("narrow_truth", "-.", f"{THEORY}, cut of empirical form")):
            truth = own.groupby("separation")[column].first()
            axes.plot(truth.index, truth, line, color=INK, linewidth=1.4, label=name)
        _draw(axes, own, "separation")
        finish_axes(axes, f"({letter}) {size:,} losses", "Separation a (shape)", "Epsilon* (nats)")
        axes.label_outer()
    for axes in panels[len(sizes) :]:
        axes.set_axis_off()
    legend_below(figure, list(panels))
    rows = _rows_of_ten(found)
    return ItemResult(
        table([*rows, *_rows_of_sizes(found), *_rows_of_many(found)]),
        figure,
        f"Mean and standard deviation of {found.settings.repetitions} repetitions. Losses of members: "
        f"Gamma({found.settings.shape:g}, 1), of the population: Gamma({found.settings.shape:g} + a, 1).",
        (*_LOST, *_remarks_of_figure_5(found)),
        shown_rows=len(rows) // 2,
        played=found.played,
        finding=_BIASED,
        claims=tuple(_claims_of_figure_5(found)),
    )


def _claims_of_figure_4(found: PaperAndLongSimulation) -> Iterator[PaperClaim]:
    """Yield the claims of section 8.1 on equal loss distributions, tested on the simulation with more repetitions."""
    of = {key[1:]: cell for key, cell in _columns(found.more).items() if key[0] == 0.0}
    sizes = sorted({size for size, _ in of})
    claim = partial(PaperClaim, "8.1", trials=found.many.repetitions)
    for size in sizes:
        nearer = t_interval(abs(of[size, EMPIRICAL]) - abs(of[size, PARAMETRIC]))
        yield claim("where nothing leaks the parametric form is nearer to 0", f"{size:,} losses",
                    "Epsilon*, empirical less parametric form", nearer, 0.0)  # fmt: skip
    for name in _LOOKS:
        for fewer, more in pairwise(sizes):
            yield claim("more losses bring both forms nearer to 0", f"{name} form",
                        f"Epsilon* of {fewer:,} losses less that of {more:,}",
                        welch_interval(of[fewer, name], of[more, name]), 0.0)  # fmt: skip


def _claims_of_figure_5(found: PaperAndLongSimulation) -> Iterator[PaperClaim]:
    """Yield the claims of section 8.1 on separated loss distributions, tested with the larger number of repetitions.

    Samples of different separations are independent. Repetition r is averaged over all separations into one value.
    """
    of, claim = _columns(found.more), partial(PaperClaim, "8.1", trials=found.many.repetitions)
    apart = [one for one in found.many.separations if one > 0]
    below: dict[tuple[int, str], Floats] = {}
    for size in found.many.sizes:
        errors = {name: np.stack([of[one, size, name] for one in apart]) for name in _LOOKS}
        below |= {(size, name): -values.mean(axis=0) for name, values in errors.items()}
        where = f"{size:,} losses, all separations"
        yield claim("where distributions are apart the empirical form is too small", where, "truth less empirical form",
                    t_interval(below[size, EMPIRICAL]), 0.0)  # fmt: skip
        yield claim("it undershoots more than the parametric form", where, "parametric less empirical form",
                    t_interval(below[size, EMPIRICAL] - below[size, PARAMETRIC]), 0.0)  # fmt: skip
        squares = {name: (values**2).mean(axis=0) for name, values in errors.items()}
        yield claim("the parametric form is the more accurate one", where,
                    "mean squared error, empirical less parametric form",
                    t_interval(squares[EMPIRICAL] - squares[PARAMETRIC]), 0.0)  # fmt: skip
    for fewer, more in pairwise(found.many.sizes):
        yield claim("more losses fix it", "all separations",
                    f"truth less empirical form, of {fewer:,} losses less that of {more:,}",
                    welch_interval(below[fewer, EMPIRICAL], below[more, EMPIRICAL]), 0.0)  # fmt: skip


def _columns(estimates: pd.DataFrame) -> dict[Cell, Floats]:
    """Return the errors (estimate minus truth) in each repetition, shape (repetitions,).

    They are keyed by separation, number of losses and estimator.
    """
    return {
        key: (cell["estimate"] - cell["truth"]).to_numpy(dtype=np.float64) for key, cell in cells(estimates).items()
    }


def _draw(axes: Axes, estimates: pd.DataFrame, over: str) -> None:
    for name, (line, colour, marker) in _LOOKS.items():
        groups = estimates[estimates["estimator"] == name].groupby(over)["estimate"]
        mean = groups.mean()
        axes.errorbar(
            mean.index, mean, yerr=groups.std(), linestyle=line, color=colour, marker=marker, markersize=5,
            label=f"{name} form", capsize=3,
        )  # fmt: skip


def _rows_of_ten(found: PaperAndLongSimulation) -> list[ItemRow]:
    """Return table rows of the estimates over the paper's ten repetitions: first means, then standard deviations."""
    means, spreads = [], []
    for (separation, size, name), cell in cells(found.ten).items():
        if name not in _LOOKS:
            continue
        estimates = cell["estimate"].to_numpy(dtype="float64")
        setting, spread = f"{_distribution(separation)}, {size:,} losses", float(estimates.std(ddof=1))
        cut = f"; theory within its own cut {cell['narrow_truth'].iloc[0]:.3f}" if name == EMPIRICAL else ""
        means.append(
            measured_row(setting, f"mean Epsilon*, {name} form", t_interval(estimates), estimates.size,
                         f"nats; t interval; standard deviation {spread:.3f}{cut}",
                         theory=float(cell["truth"].iloc[0]))
        )  # fmt: skip
        spreads.append(
            ItemRow(setting, f"standard deviation of Epsilon*, {name} form", measured=spread,
                repetitions=estimates.size, note="nats; over repetitions")
        )  # fmt: skip
    return [*means, *spreads]


def _rows_of_many(found: PaperAndLongSimulation) -> list[ItemRow]:
    """Return table rows of each estimator's bias, standard deviation and RMSE, over many repetitions."""
    rows, errors = [], summary(found.more)
    for (separation, size, name), apart in _columns(found.more).items():
        if name not in _LOOKS:
            continue
        setting, count = f"{_distribution(separation)}, {size:,} losses, {len(apart)} repetitions", len(apart)
        error, form = errors[separation, size, name], f"of Epsilon*, {name} form"
        rows += [
            measured_row(setting, f"bias {form}", t_interval(apart), count,
                         "nats; mean less truth; more repetitions than the paper's", theory=0.0),
            ItemRow(setting, f"standard deviation {form}", measured=error.std, repetitions=count, note="nats"),
            ItemRow(setting, f"root mean squared error {form}", measured=error.rmse, repetitions=count,
                note="nats"),
        ]  # fmt: skip
    return rows


def _rows_of_sizes(found: PaperAndLongSimulation) -> list[ItemRow]:
    """Return table rows of the RMSE over all separations, one for each number of losses and estimator."""
    return [
        ItemRow(f"all separations, {size:,} losses", f"root mean squared error of Epsilon*, {name} form", measured=rmse,
            repetitions=found.settings.repetitions * len(found.settings.separations), note="nats")
        for size in found.settings.sizes
        for name, rmse in _errors_of_size(found, size).items()
    ]  # fmt: skip


def _errors_of_size(found: PaperAndLongSimulation, size: int) -> dict[str, float]:
    errors = summary(found.ten)
    return {
        name: float(np.sqrt(np.mean([errors[apart, size, name].rmse ** 2 for apart in found.settings.separations])))
        for name in _LOOKS
    }


def _distribution(separation: float) -> str:
    return f"separation {separation:g}" if separation else "identical distributions"


def _remarks_of_figure_4(found: PaperAndLongSimulation) -> tuple[str, ...]:
    errors = summary(found.ten)
    falls = []
    for name in _LOOKS:
        values = [errors[0.0, size, name].bias for size in found.settings.sizes]
        falling = all(left > right for left, right in pairwise(values))
        falls.append(f"the {name} one {'always' if falling else 'not always'} ({_between(values)})")
    return (
        f"The paper finds the parametric form nearer to 0. By means: {_nearer_in_both(found, 'bias')}.",
        f"It finds both forms to shrink as the sets grow. Here, from each size to the next: {', '.join(falls)}.",
    )


def _remarks_of_figure_5(found: PaperAndLongSimulation) -> tuple[str, ...]:
    pairs = {size: _errors_of_size(found, size) for size in found.settings.sizes}
    nearer = sum(errors[PARAMETRIC] < errors[EMPIRICAL] for errors in pairs.values())
    named = ", ".join(
        f"{size:,} losses {errors[PARAMETRIC]:.2f} against {errors[EMPIRICAL]:.2f}" for size, errors in pairs.items()
    )
    return (
        "The paper finds the parametric form nearer to the truth throughout. By root mean squared error: "
        f"{_nearer_in_both(found, 'rmse')}.",
        f"Over all separations together it is nearer at {nearer} of {len(pairs)} sizes: {named} nats.",
        *_remarks_on_bias(found),
    )


def _remarks_on_bias(found: PaperAndLongSimulation) -> tuple[str, ...]:
    """Return remarks on biases that more losses do not remove: of the normal fit, and of cutting error rates.

    The cut leaves out error rates near 0 or 1.
    """
    size = max(found.settings.sizes)
    wide, narrow = summary(found.ten), summary(found.ten, "narrow_truth")
    apart = [separation for separation in found.settings.separations if separation > 0]

    fit = [wide[separation, size, PARAMETRIC] for separation in apart]
    bias, spread = [one.bias for one in fit], [one.std for one in fit]
    cut = [wide[separation, size, EMPIRICAL].bias for separation in apart]
    own = [narrow[separation, size, EMPIRICAL].bias for separation in apart]
    return (
        f"The normal fit to losses that are not normal has a bias of its own: at {size:,} losses {_between(bias)} nats "
        f"over the separations, {'always' if min(bias) > 0 else 'not always'} above the truth, beside a standard "
        f"deviation of {_between(spread)}{'; more losses do not cure it' if min(bias) > 2 * max(spread) else ''}.",
        f"How much of the empirical form's distance is its cut: at {size:,} losses its bias is {_between(cut)} nats "
        f"against the truth, and {_between(own)} against the truth within the same cut.",
        "Within that cut for both, against the truth within it: "
        f"{_nearer(found.ten, 'rmse', found.settings.repetitions, 'narrow_truth', NARROW_PARAMETRIC)}.",
    )


def _between(values: Sequence[float]) -> str:
    return f"{values[0]:.2f}" if len(values) == 1 else f"{min(values):.2f} to {max(values):.2f}"


def _nearer_in_both(found: PaperAndLongSimulation, column: str) -> str:
    both = ((found.ten, found.settings), (found.more, found.many))
    return "; ".join(_nearer(estimates, column, settings.repetitions) for estimates, settings in both)


def _nearer(
    estimates: pd.DataFrame, column: str, repetitions: int, truth: str = "truth", parametric: str = PARAMETRIC
) -> str:
    """Return a phrase on the number of cells in which the parametric estimator has a smaller error than the empirical.

    A cell is a separation of the loss distributions with a number of losses. The phrase also names the cells in which
    the parametric estimator does not have the smaller error.

    Parameters
    ----------
    estimates
        Estimates of all repetitions.
    column
        Kind of error that is compared, such as `rmse`.
    repetitions
        Number of repetitions, for the phrase.
    truth
        Column of true values.
    parametric
        Name of the parametric estimator.
    """
    errors = summary(estimates, truth)
    pairs = {
        key[:2]: (abs(getattr(one, column)), abs(getattr(errors[*key[:2], EMPIRICAL], column)))
        for key, one in errors.items()
        if key[-1] == parametric
    }
    farther = {key: pair for key, pair in pairs.items() if pair[0] >= pair[1]}
    said = f"nearer in {len(pairs) - len(farther)} of {len(pairs)} cells ({repetitions} repetitions)"
    named = "; ".join(
        f"{_distribution(separation)}, {size:,} losses ({ours:.2f} against {empirical:.2f} nats)"
        for (separation, size), (ours, empirical) in farther.items()
    )
    return f"{said}, not at {named}" if farther else said
