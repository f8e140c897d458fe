"""Figures of commands: a guarantee as a function of noise, rounds and delta, and an estimate of Epsilon*.

Epsilon* is the privacy risk of a released model.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from fl_audit.array_types import Floats
from fl_audit.errors import InputError, require
from fl_audit.privacy.accounting import Accountant
from fl_audit.privacy.claim import Claim
from fl_audit.privacy.guarantee import Guarantee, derive_guarantee
from fl_audit.released_model.empirical_star import ThresholdCounts, definition_ratios, threshold_counts, within_cut
from fl_audit.released_model.mixture_star import threshold_limits, threshold_log_ratios
from fl_audit.released_model.parametric_star import scores_of_pair
from fl_audit.released_model.star_estimate import StarEstimate
from fl_audit.report.figure_style import BIT_STYLES, INK, MUTED, PALE, finish_axes

_STYLES: dict[Accountant, tuple[str, str, float]] = {
    Accountant.RDP_CLASSIC: ("-", "#12426e", 1.5),
    Accountant.RDP: ("-.", "#3c3c3c", 1.5),
    Accountant.GDP: ("-", "#e0a860", 4.0),
    # Without sampling pld lies on gdp: thin dots on a broad line show both.
    Accountant.PLD: (":", "#7a0c0c", 2.0),
}
_POINTS = 9


@dataclass(frozen=True)
class _Axis:
    """A column of the figure of a guarantee: the quantity on the horizontal axis, and its values."""

    label: str
    values: Floats
    here: float
    guarantee: Callable[[Accountant, float], Guarantee]
    plain: bool = True


_ROWS: tuple[tuple[str, Callable[[Guarantee], float]], ...] = (
    ("epsilon (nats)", lambda guarantee: guarantee.epsilon),
    ("belief bound (probability)", lambda guarantee: guarantee.belief_bound),
    ("advantage bound", lambda guarantee: guarantee.advantage_bound_exact),
)


def guarantee_figure(guarantee: Guarantee) -> Figure:
    """Return a figure of how a guarantee depends on noise, rounds and delta, with one curve per accountant.

    The figure has a grid of panels. Its rows show epsilon, belief bound and advantage bound, and its columns vary
    noise, rounds and delta. A dot in every panel marks the given guarantee.

    Parameters
    ----------
    guarantee
        A guarantee of Gaussian noise.
    """
    figure = Figure(figsize=(11, 8.5), layout="constrained")
    FigureCanvasAgg(figure)
    claim = guarantee.claim
    z = claim.noise_multiplier
    noise = "" if z is None else f"noise multiplier {z:.4g} over the sensitivity, "
    sampled = "" if claim.sampling_rate == 1 else f", sampling rate {claim.sampling_rate:g}"
    neighbours = f"neighbours: {claim.adjacency}, sensitivities: {claim.sensitivities}"
    figure.suptitle(f"{noise}{claim.rounds} rounds, delta {claim.delta:g}{sampled}\n{neighbours}")
    panels = figure.subplots(3, 3, sharex="col")
    for column, axis in enumerate(_axes(guarantee)):
        curves = {accountant: list(_curve(axis, accountant)) for accountant in _STYLES}
        here = axis.guarantee(guarantee.accountant, axis.here)
        for row, (label, read) in enumerate(_ROWS):
            panel = panels[row][column]
            for accountant, guarantees in curves.items():
                dashes, colour, width = _STYLES[accountant]
                if shown := [(x, read(claimed)) for x, claimed in guarantees]:
                    panel.plot(*zip(*shown, strict=True), dashes, color=colour, linewidth=width, label=str(accountant))
            panel.plot([axis.here], [read(here)], "ko", label=f"this guarantee ({guarantee.accountant})")
            panel.set_xscale("log")
            if axis.plain:
                panel.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
                panel.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
                panel.xaxis.set_minor_formatter(NullFormatter())
            panel.grid(True, color="0.88")
            if column == 0:
                panel.set_ylabel(label)
            if row == len(_ROWS) - 1:
                panel.set_xlabel(axis.label)
    figure.legend(*panels[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=5, frameon=False)
    return figure


def _axes(guarantee: Guarantee) -> tuple[_Axis, ...]:
    claim = guarantee.claim
    z, k, delta = claim.noise_multiplier, claim.rounds, claim.delta
    require(z is not None, "the guarantee has no Gaussian noise: accepted for a figure are guarantees with it")
    assert z is not None
    rounds = np.unique(np.maximum(1, np.round(np.geomspace(max(1, k / 10), k * 10, _POINTS))))
    deltas = np.geomspace(delta / 1e3, max(delta, min(0.4, delta * 1e2)), _POINTS)

    def by(varied: Callable[[float], Claim]) -> Callable[[Accountant, float], Guarantee]:
        return lambda accountant, x: derive_guarantee(replace(varied(x), accountant=accountant))

    return (
        _Axis("noise over sensitivity", np.geomspace(z / 4, z * 4, _POINTS), z, by(lambda x: claim.with_noise(x / z))),
        _Axis("rounds", rounds, k, by(lambda x: claim.with_rounds(int(x)))),
        _Axis("delta", deltas, delta, by(lambda x: replace(claim, delta=x)), plain=False),
    )


def _curve(axis: _Axis, accountant: Accountant) -> Iterator[tuple[float, Guarantee]]:
    """Yield pairs of a value on a figure's horizontal axis and the guarantee at this value, by one accountant.

    Values for which the accountant cannot compute a guarantee are left out.

    Parameters
    ----------
    axis
        Values of the varied quantity (noise, rounds or delta), and the function that returns the guarantee at a value.
    accountant
        The accountant whose curve is drawn.
    """
    for x in map(float, axis.values):
        with suppress(InputError):
            yield x, axis.guarantee(accountant, x)


_MEMBERS, _POPULATION = BIT_STYLES[1], BIT_STYLES[0]
_LOSS_POINTS = 1500
_SHOWN = 4000


def epsilon_star_figure(found: StarEstimate, members: Floats, population: Floats) -> Figure:
    """Return the figure of an estimate of Epsilon*, the privacy risk of a model.

    Its three panels show distributions of scores, the ROC curve of the attack that compares scores with a threshold,
    and epsilon by threshold. A score is larger for a smaller loss.

    Parameters
    ----------
    found
        The estimate, with its method, threshold attacks and fitted distributions.
    members
        Losses on training records, shape (m,).
    population
        Losses on a sample of the population, shape (p,).
    """
    figure = Figure(figsize=(14, 4.6), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    left, middle, right = figure.subplots(1, 3)
    scores = scores_of_pair(members, population)
    # Scores fall as losses grow, and so must what is counted: -score rises with the loss.
    counts = threshold_counts(-scores[0], -scores[1])
    _draw_densities(left, found, scores)
    _draw_roc(middle, found, counts)
    _draw_epsilon(right, found, counts)
    for panel in (left, middle, right):
        panel.legend(fontsize=9, framealpha=0.92)
    return figure


def _draw_densities(axes: Axes, found: StarEstimate, scores: tuple[Floats, Floats]) -> None:
    edges = np.histogram_bin_edges(np.concatenate(scores), bins=50)
    for values, style, name in ((scores[0], _MEMBERS, "members"), (scores[1], _POPULATION, "population")):
        look: dict[str, Any] = {"facecolor": style.fill, "edgecolor": style.colour, "hatch": style.hatch, "alpha": 0.55}
        axes.hist(values, bins=list(edges), density=True, label=f"{name}, losses", linewidth=0.5, **look)
    if found.distributions is not None:
        x = np.linspace(edges[0], edges[-1], 600)
        for distribution, style, name in zip(
            found.distributions, (_MEMBERS, _POPULATION), ("members", "population"), strict=True
        ):
            label = f"{name}, fitted ({distribution.components})" if distribution.components > 1 else f"{name}, fitted"
            axes.plot(x, np.exp(distribution.log_density(x)), style.line, color=style.colour, linewidth=2, label=label)
    finish_axes(axes, "Scores and their fits", "score (larger: smaller loss)", "density (1 / score)")


def _draw_roc(axes: Axes, found: StarEstimate, counts: ThresholdCounts) -> None:
    shown = np.flatnonzero(counts.last)
    rates = np.stack([counts.fpr[shown], 1 - counts.fnr[shown]])
    floor = 0.5 / max(counts.member_total, counts.population_total)
    # Even steps in both rates' logarithms keep the corner that matters, whatever the number of losses.
    keys = np.unique(np.round(np.log(np.maximum(rates, floor)) * 200), axis=1, return_index=True)[1]
    rates = rates[:, np.sort(keys)]
    axes.step(*np.maximum(rates, floor), where="post", color=INK, linewidth=1.6, label="losses")
    if found.distributions is not None:
        x = _thresholds(found)
        fpr, tpr = (np.exp(distribution.log_sf(x)) for distribution in (found.distributions[1], found.distributions[0]))
        axes.plot(fpr, tpr, "--", color=_POPULATION.colour, linewidth=1.8, label="fitted distributions")
    axes.plot([floor, 1], [floor, 1], ":", color=MUTED, linewidth=1.2, label="no leak")
    axes.set(xscale="log", yscale="log", xlim=(floor, 1.1), ylim=(floor, 1.1))
    title = f"Attack by a threshold: AUC {float(found.attacks.auc):.3f}"
    finish_axes(axes, title, "false positive rate", "true positive rate")


def _draw_epsilon(axes: Axes, found: StarEstimate, counts: ThresholdCounts) -> None:
    inside = counts.last & within_cut(counts.fpr, counts.fnr, found.cut)
    shown = np.flatnonzero(inside if inside.any() else counts.last)
    shown = shown[:: max(1, shown.size // _SHOWN)]
    tpr, tnr = 1 - counts.fnr[shown], 1 - counts.fpr[shown]
    ratios = definition_ratios(counts.fpr[shown], tnr, counts.fnr[shown], tpr, found.delta)
    values = np.log(np.maximum(ratios, 1.0))
    finite = np.isfinite(values)
    at = -counts.thresholds[shown]
    axes.plot(at[finite], values[finite], ".", color=MUTED, markersize=2.5, label="losses, within the cut")
    if found.distributions is not None:
        x = _thresholds(found)
        curve = np.maximum(threshold_log_ratios(*found.distributions, x, found.delta), 0.0)
        axes.plot(x, curve, "-", color=_MEMBERS.colour, linewidth=1.8, label="fitted distributions")
        limits = threshold_limits(*found.distributions, found.cut) if found.cut else None
        if limits is not None:
            axes.axvspan(*limits, color=PALE, zorder=0, label=f"error rates within {found.cut:g}")
    if np.isfinite(found.epsilon_star):
        label = f"Epsilon* = {found.epsilon_star:.3g} ({found.method}, {found.cut_name})"
        axes.axhline(found.epsilon_star, linestyle="-.", color=INK, linewidth=1.3, label=label)
    title = f"Epsilon over thresholds, delta {found.delta:g}"
    finish_axes(axes, title, "threshold on the score", "largest log ratio (nats)")


def _thresholds(found: StarEstimate) -> Floats:
    """Return 1500 equally spaced thresholds that cover both fitted distributions, shape (1500,).

    Their ends are extreme quantiles, beyond which a distribution has a probability of at most 1e-9.

    Parameters
    ----------
    found
        An estimate of Epsilon* with fitted distributions.
    """
    assert found.distributions is not None
    tail = float(np.log(min(1e-9, max(found.delta, 1e-12))))
    low = min(-distribution.mirrored().upper_quantile(tail) for distribution in found.distributions)
    high = max(distribution.upper_quantile(tail) for distribution in found.distributions)
    return np.linspace(low, high, _LOSS_POINTS)
