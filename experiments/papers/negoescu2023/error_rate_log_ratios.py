"""Figure 3 of Negoescu et al. 2023: log ratios of error rates and their noise, as functions of the loss threshold.

Epsilon*, a privacy metric of models, is the largest of these log ratios.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from matplotlib.axes import Axes
from scipy.special import ndtr, ndtri

from fl_audit.array_types import Floats
from fl_audit.experiments.papers.claims import PaperClaim
from fl_audit.experiments.papers.claims import exact as known
from fl_audit.experiments.papers.item_results import ItemResult, ItemRow, measured_row, table
from fl_audit.experiments.papers.negoescu2023.epsilon_star_runs import CLAIMS
from fl_audit.experiments.papers.papers import ComputeExtent, StoredPaperRuns
from fl_audit.experiments.papers.plot_style import legend_below
from fl_audit.experiments.papers.statistics import reproducible_generator, t_interval
from fl_audit.released_model.empirical_star import definition_ratios, largest_ratio, threshold_counts
from fl_audit.report.figure_style import finish_axes, new_figure
from fl_audit.words import number_text

POPULATION_MEAN = 3.0  # mean of the non-training losses, which are N(3, 1); the training losses are N(0, 1)
DELTA = 1e-5
CUT = 1e-4
MIDDLE = 0.01  # a threshold is in the middle of the curves if both of its error rates are at least this
LOSSES = {ComputeExtent.FULL: 10_000, ComputeExtent.QUICK: 1000}
SAMPLES = {ComputeExtent.FULL: 200, ComputeExtent.QUICK: 50}
NAMES = ("log (1 - delta - FPR) / FNR", "log (1 - delta - FNR) / FPR")
_STYLES = (("-", "#12426e", "first quantity"), ("--", "#b35806", "second quantity"))


@dataclass(frozen=True)
class ErrorRateLogRatios:
    """The log ratios ln(TNR / FNR) and ln(TPR / FPR) of threshold tests, as in definition 2 of Negoescu et al. 2023."""

    fpr: Floats  # false-positive rates, shape (..., thresholds)
    fnr: Floats  # false-negative rates, shape (..., thresholds)
    # Log ratios of TNR to FNR and of TPR to FPR, shape (2, ..., thresholds), in nats; NaN where a rate is below the
    # cut.
    values: Floats


def _curves(fpr: Floats, tnr: Floats, fnr: Floats, tpr: Floats, cut: float) -> ErrorRateLogRatios:
    is_shown = (fpr >= cut) & (fnr >= cut)
    with np.errstate(divide="ignore"):
        ratios = np.log([largest_ratio([pair], DELTA) for pair in ((tnr, fnr), (tpr, fpr))])
    return ErrorRateLogRatios(fpr, fnr, np.where(is_shown, ratios, np.nan))


def _exact_curves(thresholds: Floats, cut: float = CUT) -> ErrorRateLogRatios:
    """Return the log ratios of error rates at thresholds, computed from the exact distributions of the losses.

    A log ratio is NaN where an error rate is below `cut`.
    """
    from_population = thresholds - POPULATION_MEAN
    return _curves(ndtr(from_population), ndtr(-from_population), ndtr(-thresholds), ndtr(thresholds), cut)


def _sampled_curves(losses: int, samples: int, random: np.random.Generator) -> tuple[Floats, ErrorRateLogRatios]:
    """Draw normal losses of members and population `samples` times; return thresholds and log ratios of error rates.

    `losses` is the number of losses in each set. The thresholds have the shape (samples, thresholds).
    """
    members = random.standard_normal((samples, losses))
    population = POPULATION_MEAN + random.standard_normal((samples, losses))
    counts = threshold_counts(members, population)
    curves = _curves(counts.fpr, 1 - counts.fpr, counts.fnr, counts.members / counts.member_total, CUT)
    return counts.thresholds, curves


@cache
def _curves_and_errors(extent: ComputeExtent) -> tuple[ErrorRateLogRatios, ErrorRateLogRatios, Floats, Floats]:
    """Return log ratios, exact and from samples, and the largest error of each sample, (samples,).

    The first errors are those where an error rate is below `MIDDLE`, the second those elsewhere.
    """
    exact = _exact_curves(np.linspace(POPULATION_MEAN + ndtri(CUT), -ndtri(CUT), 2001), cut=0.0)
    random = reproducible_generator("negoescu2023-fig3")
    thresholds, sampled = _sampled_curves(LOSSES[extent], SAMPLES[extent], random)
    distances = np.abs(sampled.values - _exact_curves(thresholds, cut=0.0).values)
    errors = np.max(np.where(np.isfinite(sampled.values), distances, 0.0), axis=0)
    middle = np.minimum(sampled.fpr, sampled.fnr) >= MIDDLE
    at_ends, in_middle = (np.max(np.where(inside, errors, 0.0), axis=-1) for inside in (~middle, middle))
    return exact, sampled, at_ends, in_middle


def _rates_at_the_largest(exact: ErrorRateLogRatios) -> list[float]:
    """Return the smaller of FPR and FNR at which each log ratio is largest."""
    return [float(min(exact.fpr[top], exact.fnr[top])) for top in np.nanargmax(exact.values, axis=-1)]


def figure_3(paper_runs: StoredPaperRuns) -> ItemResult:
    """Return Figure 3: two log ratios over the FPR, exact and from samples.

    They are log (1 - delta - FPR) / FNR and log (1 - delta - FNR) / FPR. Epsilon* is the largest of four such ratios.
    """
    losses = LOSSES[paper_runs.extent]
    samples = SAMPLES[paper_runs.extent]
    exact, sampled, at_ends, in_middle = _curves_and_errors(paper_runs.extent)
    figure = new_figure(4.1)
    panels = figure.subplots(1, 2, sharey=True)
    _draw(panels[0], exact)
    _draw(panels[1], ErrorRateLogRatios(sampled.fpr[0], sampled.fnr[0], sampled.values[:, 0]))
    finish_axes(panels[0], "(a) Exact distributions", "FPR (probability)", "Log ratio (nats)")
    finish_axes(panels[1], f"(b) Samples of {losses:,}", "FPR (probability)", "")
    legend_below(figure, list(panels))
    rows = [*_rows_of_largest(exact, sampled, losses), *_rows_of_errors(in_middle, at_ends, losses)]
    return ItemResult(
        table(rows),
        figure,
        f"Training losses N(0, 1), non-training losses N({POPULATION_MEAN:g}, 1), delta {DELTA:g}. First quantity: "
        f"{NAMES[0]}; second: {NAMES[1]}. Rates below {CUT:g} are left out.",
        _remarks(rows, _rates_at_the_largest(exact)),
        procedure=f"{samples} samples of {losses:,} losses from each distribution; panel b shows the first.",
        finding="The largest ratio of a sample lies above that of the distributions, which is what the figure shows",
    )


def claims_of_figure_3(paper_runs: StoredPaperRuns) -> Iterator[PaperClaim]:
    """Yield the claims of section 8 on where noise and signal lie."""
    exact, _, at_ends, in_middle = _curves_and_errors(paper_runs.extent)
    excess = t_interval(at_ends - in_middle)
    setting = _setting(LOSSES[paper_runs.extent])
    yield CLAIMS["noise-at-the-ends"].on(setting, excess, SAMPLES[paper_runs.extent])
    rate = max(_rates_at_the_largest(exact))
    yield CLAIMS["signal-at-the-ends"].on("N(0, 1) and N(3, 1), exact", known(rate))


def _draw(axes: Axes, curves: ErrorRateLogRatios) -> None:
    for values, (line, colour, name) in zip(curves.values, _STYLES, strict=True):
        is_finite = np.isfinite(values)
        axes.plot(curves.fpr[is_finite], values[is_finite], line, color=colour, linewidth=1.6, label=name)
    axes.set_xscale("log")


def _rows_of_largest(exact: ErrorRateLogRatios, sampled: ErrorRateLogRatios, losses: int) -> Iterator[ItemRow]:
    for index, name in enumerate(NAMES):
        top = int(np.nanargmax(exact.values[index]))
        largest = np.nanmax(sampled.values[index], axis=-1)
        yield measured_row(
            _setting(losses),
            f"largest {name}",
            t_interval(largest),
            len(largest),
            theory=float(exact.values[index, top]),
            note=f"nats; mean over samples, standard deviation {number_text(float(largest.std(ddof=1)))}; by the "
            "distributions "
            f"it stands at FPR {number_text(float(exact.fpr[top]))}, FNR {number_text(float(exact.fnr[top]))}",
        )


def _rows_of_errors(in_middle: Floats, at_ends: Floats, losses: int) -> Iterator[ItemRow]:
    gaps = {f"both rates at least {MIDDLE:g}": in_middle, f"one rate below {MIDDLE:g}": at_ends}
    note = "nats; distance from the distributions at the same threshold, mean over samples"
    for name, largest in gaps.items():
        quantity = f"largest error of the two quantities, {name}"
        yield measured_row(_setting(losses), quantity, t_interval(largest), len(largest), note, theory=0.0)


def _setting(losses: int) -> str:
    return f"N(0, 1) and N({POPULATION_MEAN:g}, 1), {losses:,} losses each"


def _remarks(rows: list[ItemRow], rates: Sequence[float]) -> tuple[str, ...]:
    """Return remarks on the error rates at which the log ratios vary most by chance, and at which they are largest.

    `rates` has one number for each log ratio: the smaller of FPR and FNR at its maximum.
    """
    middle = rows[-2].measured
    ends = rows[-1].measured
    noise = "So it is" if ends > 2 * middle else "This does not show"
    return (
        "The paper's text has lost the cut, delta and the size of the samples; those here are ours.",
        f"The paper finds most noise at the ends of the curves. {noise} here: the largest error is {ends:.2g} nats "
        f"where a rate is below {MIDDLE:g}, and {middle:.2g} where both are above, {ends / middle:.1f} times less.",
        f"It finds most signal there too: both quantities are largest where the smaller rate is {rates[0]:.2g} and "
        f"{rates[1]:.2g}, beside a cut of {CUT:g}.",
    )


def theorem_2() -> PaperClaim:
    """Return the claim of Theorem 2, tested on an example: mean Epsilon* of models against Epsilon* of their mechanism.

    The theorem says that the mean is at least as large as Epsilon* of the mechanism. The losses of the mechanism are
    the mixture of the losses of its models. In the example, half of the models leak nothing. The other half have losses
    N(0, 1) on members and N(1, 1) on nonmembers.
    """
    fpr = np.logspace(-12, 0, 4001)[:-1]
    fpr = np.concatenate([fpr, 1 - fpr[::-1]])
    silent = 1 - fpr
    leaking = ndtr(-ndtri(fpr) - 1)

    def star(fnr: np.ndarray[tuple[int], np.dtype[np.float64]]) -> float:
        with np.errstate(divide="ignore", invalid="ignore"):
            return max(0.0, float(np.nanmax(np.log(definition_ratios(fpr, 1 - fpr, fnr, 1 - fnr, 1e-5)))))

    mean = (star(silent) + star(leaking)) / 2
    mixture = star((silent + leaking) / 2)
    where = f"two kinds of models: {mean:.2f} and {mixture:.2f} nats"
    return CLAIMS["theorem-2"].on(where, known(mean - mixture))
