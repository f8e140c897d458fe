"""The figure of an estimate of Epsilon*, the privacy risk of a released model."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from fl_audit.array_types import Floats
from fl_audit.released_model.empirical_star import ThresholdCounts, definition_ratios, threshold_counts, within_cut
from fl_audit.released_model.mixture_star import threshold_limits, threshold_log_ratios
from fl_audit.released_model.parametric_star import scores_of_pair
from fl_audit.released_model.star_estimate import StarEstimate
from fl_audit.report.figure_style import BIT_STYLES, INK, MUTED, PALE, finish_axes

_MEMBERS = BIT_STYLES[1]
_POPULATION = BIT_STYLES[0]


_LOSS_POINTS = 1500


_SHOWN = 4000


def epsilon_star_figure(estimate: StarEstimate, members: Floats, population: Floats) -> Figure:
    """Return the figure of an estimate of Epsilon*.

    Its three panels show distributions of scores, the ROC curve of the attack that compares scores with a threshold,
    and epsilon by threshold. A score is larger for a smaller loss.

    Parameters
    ----------
    estimate
        The estimate, with its method, threshold attacks and fitted distributions.
    members
        Losses on training records, shape (m,).
    population
        Losses on a sample of the population, shape (p,).
    """
    figure = Figure(figsize=(14, 4.6), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    left_axes, middle, right_axes = figure.subplots(1, 3)
    scores = scores_of_pair(members, population)
    # Scores fall as losses grow, and so must what is counted: -score rises with the loss.
    counts = threshold_counts(-scores[0], -scores[1])
    _draw_densities(left_axes, estimate, scores)
    _draw_roc(middle, estimate, counts)
    _draw_epsilon(right_axes, estimate, counts)
    for panel in (left_axes, middle, right_axes):
        panel.legend(fontsize=9, framealpha=0.92)
    return figure


def _draw_densities(axes: Axes, estimate: StarEstimate, scores: tuple[Floats, Floats]) -> None:
    edges = np.histogram_bin_edges(np.concatenate(scores), bins=50)
    for values, style, name in ((scores[0], _MEMBERS, "members"), (scores[1], _POPULATION, "population")):
        look: dict[str, Any] = {"facecolor": style.fill, "edgecolor": style.colour, "hatch": style.hatch, "alpha": 0.55}
        axes.hist(values, bins=list(edges), density=True, label=f"{name}, losses", linewidth=0.5, **look)
    if estimate.distributions is not None:
        x = np.linspace(edges[0], edges[-1], 600)
        for distribution, style, name in zip(
            estimate.distributions, (_MEMBERS, _POPULATION), ("members", "population"), strict=True
        ):
            label = f"{name}, fitted ({distribution.components})" if distribution.components > 1 else f"{name}, fitted"
            axes.plot(x, np.exp(distribution.log_density(x)), style.line, color=style.colour, linewidth=2, label=label)
    finish_axes(axes, "Scores and their fits", "score (larger: smaller loss)", "density (1 / score)")


def _draw_roc(axes: Axes, estimate: StarEstimate, counts: ThresholdCounts) -> None:
    counted_bins = np.flatnonzero(counts.last)
    rates = np.stack([counts.fpr[counted_bins], 1 - counts.fnr[counted_bins]])
    floor = 0.5 / max(counts.member_total, counts.population_total)
    # Even steps in both rates' logarithms keep the corner that matters, whatever the number of losses.
    keys = np.unique(np.round(np.log(np.maximum(rates, floor)) * 200), axis=1, return_index=True)[1]
    rates = rates[:, np.sort(keys)]
    axes.step(*np.maximum(rates, floor), where="post", color=INK, linewidth=1.6, label="losses")
    if estimate.distributions is not None:
        x = _thresholds(estimate)
        fpr, tpr = (
            np.exp(distribution.log_sf(x)) for distribution in (estimate.distributions[1], estimate.distributions[0])
        )
        axes.plot(fpr, tpr, "--", color=_POPULATION.colour, linewidth=1.8, label="fitted distributions")
    axes.plot([floor, 1], [floor, 1], ":", color=MUTED, linewidth=1.2, label="no leak")
    axes.set(xscale="log", yscale="log", xlim=(floor, 1.1), ylim=(floor, 1.1))
    title = f"Attack by a threshold: AUC {float(estimate.attacks.auc):.3f}"
    finish_axes(axes, title, "false positive rate", "true positive rate")


def _draw_epsilon(axes: Axes, estimate: StarEstimate, counts: ThresholdCounts) -> None:
    inside = counts.last & within_cut(counts.fpr, counts.fnr, estimate.cut)
    counted_bins = np.flatnonzero(inside if inside.any() else counts.last)
    counted_bins = counted_bins[:: max(1, counted_bins.size // _SHOWN)]
    tpr = 1 - counts.fnr[counted_bins]
    tnr = 1 - counts.fpr[counted_bins]
    ratios = definition_ratios(counts.fpr[counted_bins], tnr, counts.fnr[counted_bins], tpr, estimate.delta)
    values = np.log(np.maximum(ratios, 1.0))
    finite = np.isfinite(values)
    at = -counts.thresholds[counted_bins]
    axes.plot(at[finite], values[finite], ".", color=MUTED, markersize=2.5, label="losses, within the cut")
    if estimate.distributions is not None:
        x = _thresholds(estimate)
        curve = np.maximum(threshold_log_ratios(*estimate.distributions, x, estimate.delta), 0.0)
        axes.plot(x, curve, "-", color=_MEMBERS.colour, linewidth=1.8, label="fitted distributions")
        limits = threshold_limits(*estimate.distributions, estimate.cut) if estimate.cut else None
        if limits is not None:
            axes.axvspan(*limits, color=PALE, zorder=0, label=f"error rates within {estimate.cut:g}")
    if np.isfinite(estimate.epsilon_star):
        label = f"Epsilon* = {estimate.epsilon_star:.3g} ({estimate.method}, {estimate.cut_name})"
        axes.axhline(estimate.epsilon_star, linestyle="-.", color=INK, linewidth=1.3, label=label)
    title = f"Epsilon over thresholds, delta {estimate.delta:g}"
    finish_axes(axes, title, "threshold on the score", "largest log ratio (nats)")


def _thresholds(estimate: StarEstimate) -> Floats:
    """Return the thresholds at which the figure's curves are drawn: 1500 equally spaced values.

    They cover both fitted distributions except for tails of probability at most 1e-9.
    """
    assert estimate.distributions is not None
    tail = float(np.log(min(1e-9, max(estimate.delta, 1e-12))))
    low = min(-distribution.mirrored().upper_quantile(tail) for distribution in estimate.distributions)
    high = max(distribution.upper_quantile(tail) for distribution in estimate.distributions)
    return np.linspace(low, high, _LOSS_POINTS)
