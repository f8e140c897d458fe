"""Figures 7 to 9 of Bernau et al. 2021, one for each data set.

Each figure shows estimates of epsilon and the advantages of two adversaries. One is the insider, which tells D from D'.
The other infers membership.
"""

from collections.abc import Iterator, Mapping, Sequence
from math import expm1, inf, log, nan
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from scipy.special import ndtri

from fl_audit.array_types import Floats
from fl_audit.audits.identifiability.bernau_empirical_epsilons import epsilon_from_measured_advantage
from fl_audit.audits.membership.yeom_attack import chance_spread
from fl_audit.experiments.papers import plot_style
from fl_audit.experiments.papers.bernau2021.discrepancies import explained
from fl_audit.experiments.papers.bernau2021.published import (
    EPSILON_FROM_ADVANTAGE_LOCAL,
    EPSILON_FROM_BELIEF_LOCAL,
    EPSILON_FROM_SENSITIVITIES_GLOBAL,
    LARGEST_MEMBERSHIP_ADVANTAGE,
    TABLE_2,
    published_repetitions,
)
from fl_audit.experiments.papers.bernau2021.runs import InsiderResultsBySetting, InsiderRunResults
from fl_audit.experiments.papers.bernau2021.settings import (
    MAIN_BELIEF,
    SCALINGS,
    InsiderDatasetRecipe,
    InsiderSetting,
    audit_settings,
)
from fl_audit.experiments.papers.item_results import ItemResult, ItemRow, measured_row, table
from fl_audit.privacy.accounting_enums import SensitivityKind
from fl_audit.privacy.identifiability_bounds import epsilon_from_belief, rho_alpha
from fl_audit.report.figure_style import INK, MUTED, finish_axes, new_figure
from fl_audit.statistics.interval_estimates import IntervalEstimate

SENSITIVITIES = "epsilon' from sensitivities"
BELIEF = "epsilon' from the largest belief"
ADVANTAGE = "epsilon' from the advantage"
INSIDER = "advantage of the insider"
MEMBERSHIP = "advantage of Yeom's membership adversary"

_MEMBERSHIP_LOOKS = {
    SensitivityKind.LOCAL: plot_style.CurveLook("membership adversary, local noise", "#3c3c3c", "", ":", "s", ""),
    SensitivityKind.GLOBAL: plot_style.CurveLook("membership adversary, global noise", "#8a8a8a", "", "-.", "v", ""),
}


def audit_of_epsilon(played: InsiderResultsBySetting) -> ItemResult:
    """Return the figure of one data set from its runs: three estimates of epsilon, and two adversaries' advantages.

    Epsilon is estimated from sensitivities, from the insider's beliefs, and from its advantage.
    """
    (data,), settings = played.data, audit_settings(played.data)
    return audit_of({setting: audit_rows(played.runs[setting]) for setting in settings}, data)


def audit_of(rows: Mapping[InsiderSetting, Mapping[str, ItemRow]], data: InsiderDatasetRecipe) -> ItemResult:
    """Return the figure of one data set, with four panels, from rows that are already computed."""
    settings = tuple(rows)
    figure = new_figure(7.6)
    panels = figure.subplots(2, 2).ravel()
    for letter, axes, quantity in zip("abc", panels, (SENSITIVITIES, BELIEF, ADVANTAGE), strict=False):
        _draw_epsilons(axes, settings, rows, quantity)
        finish_axes(axes, f"({letter}) {quantity}", "Claimed epsilon (nats)", "Empirical epsilon (nats)")
    _draw_advantages(panels[3], settings, rows)
    finish_axes(panels[3], "(d) Insider and membership", "Claimed epsilon (nats)", "Advantage")
    plot_style.legend_below(figure, list(panels))
    return ItemResult(
        table(row for setting in settings for row in rows[setting].values()),
        figure,
        f"{data.title}, one record replaced. On the grey diagonal epsilon' equals the claimed epsilon. Bars: in a the "
        "range over trials, in b an interval of the extreme value, in c and d 95 % intervals; an arrow means that "
        "there is no upper end. The axis ends at twice the largest epsilon at most.",
        explained(
            ("ls-curve", "gs-curve", "extreme", "equation-6", "local-distribution", "global-distribution",
                "membership", "repetitions",
             "order-cap", "second-draw", "bit", "optimizer", "precision", "subset"),
            data.is_substitute,
        ),
    )  # fmt: skip


def audit_rows(found: InsiderRunResults) -> dict[str, ItemRow]:
    """Return the table rows of one run, keyed by quantity: three estimates of epsilon, two adversaries' advantages."""
    return {row.quantity: row for row in (*_epsilon_rows(found), *_advantage_rows(found))}


def _number(value: Any, missing: float = nan) -> float:
    return missing if value is None else float(value)


def _median_of_largest(mu: float, trials: int) -> float:
    """Return the median of the maximum of `trials` independent log-odds N(mu^2/2, mu^2), but at least 0."""
    return max(0.0, mu * mu / 2 - mu * float(ndtri(-expm1(-log(2) / trials))))


def _epsilon_rows(found: InsiderRunResults) -> Iterator[ItemRow]:
    """Yield the rows of a run's three empirical epsilons; a missing value or upper end counts as infinite."""
    setting, trials, stored = found.setting, found.repetitions, found.summary["empirical_epsilon"]

    def row(quantity: str, name: str, printed: Mapping[float, float], theory: float, note: str) -> ItemRow:
        ends = stored["intervals"][name]
        measured = IntervalEstimate(_number(stored[name], inf), _number(ends["low"]), _number(ends["high"], inf))
        published = printed.get(setting.belief, nan)
        return measured_row(setting.label, quantity, measured, trials, note, published=published, theory=theory)

    local, study = setting.is_local, setting.data.study
    note = "largest over trials; low and high: range over trials, bookkeeping without chance"
    by_sensitivities = {} if local else EPSILON_FROM_SENSITIVITIES_GLOBAL[study]
    exact = found.summary["guarantee"]["epsilon"] if local else nan
    yield row(SENSITIVITIES, "from_sensitivity", by_sensitivities, exact, note)
    note = f"extreme value; interval of the median of the largest of {trials}, from the sample"
    if local:
        printed = published_repetitions(setting.belief)
        note = (
            f"extreme value; theory: median of the largest of {trials} by the exact distribution, interval likewise; "
            f"of {printed}, about as published, it is {_median_of_largest(found.claimed_mu, printed):.3f}"
        )
    largest = _median_of_largest(found.claimed_mu, trials) if local else nan
    yield row(BELIEF, "from_belief", EPSILON_FROM_BELIEF_LOCAL[study] if local else {}, largest, note)
    expected = epsilon_from_measured_advantage(found.expected_advantage, setting.data.delta)
    note = f"Eq. (6); theory: {'exact' if local else 'approximate'} advantage through Eq. (6)"
    yield row(ADVANTAGE, "from_advantage", EPSILON_FROM_ADVANTAGE_LOCAL[study] if local else {}, expected, note)


def _advantage_rows(found: InsiderRunResults) -> Iterator[ItemRow]:
    """Yield the rows of the advantages of the insider and of Yeom's membership adversary."""
    setting, insider, config = found.setting, found.summary["insider"], found.config
    main = setting.belief == MAIN_BELIEF
    published = TABLE_2[setting.data.study, setting.scaling, setting.relation].advantage if main else nan
    bound = rho_alpha(epsilon_from_belief(setting.belief), setting.data.delta)
    measured = IntervalEstimate(*(insider[name] for name in ("advantage", "advantage_low", "advantage_high")))
    note = f"rho_alpha {bound:.4f}{'; published: Table 2' if main else ''}"
    yield measured_row(
        setting.label, INSIDER, measured, found.repetitions, note, published=published, theory=found.expected_advantage
    )
    section: Mapping[str, Any] = found.summary.get("membership") or {}
    yeom, bound = _number(section.get("yeom_bound")), _number(section.get("bound"))
    chance = chance_spread(config.data.records, config.data.population_records)
    member = IntervalEstimate(*(_number(section.get(name)) for name in ("advantage", "low", "high")))
    yield measured_row(
        setting.label, MEMBERSHIP, member, found.repetitions,
        f"mean over trials; published: under {LARGEST_MEMBERSHIP_ADVANTAGE:g} everywhere; bound of Yeom et al. "
        f"{yeom:.4g}, exact bound {bound:.4g}; by chance, one model: {chance:.3f}",
    )  # fmt: skip


def _claimed(settings: Sequence[InsiderSetting]) -> list[float]:
    return [epsilon_from_belief(setting.belief) for setting in settings]


def _draw_epsilons(
    axes: Axes, settings: Sequence[InsiderSetting], rows: Mapping[InsiderSetting, Mapping[str, ItemRow]], quantity: str
) -> None:
    largest = 1.1 * max(_claimed(settings))
    axes.plot([0, largest], [0, largest], color=MUTED, linewidth=4, alpha=0.35, label="claimed epsilon")
    for scaling in SCALINGS:
        own = [setting for setting in settings if setting.scaling is scaling]
        part, x = [rows[setting][quantity] for setting in own], np.array(_claimed(own))
        _draw_with_published(axes, x, part, scaling, plot_style.SCALING_LOOKS[scaling])
        if scaling is SensitivityKind.LOCAL:
            expected = [row.theory for row in part]
            axes.plot(
                x, expected, "_", color=INK, markersize=18, markeredgewidth=2, label=f"{plot_style.THEORY}, local"
            )
    axes.set_ylim(top=min(axes.get_ylim()[1], 2 * largest))


def _draw_advantages(
    axes: Axes, settings: Sequence[InsiderSetting], rows: Mapping[InsiderSetting, Mapping[str, ItemRow]]
) -> None:
    data = settings[0].data
    grid = np.linspace(0, 1.05 * max(_claimed(settings)), 120)
    axes.plot(grid, [rho_alpha(x, data.delta) for x in grid], color=MUTED, linewidth=4, alpha=0.35, label="rho_alpha")
    axes.plot(grid, np.minimum(np.expm1(grid), 1), color=INK, linestyle=(0, (1, 3)), label="membership bound (to 1)")
    for scaling in SCALINGS:
        own = [setting for setting in settings if setting.scaling is scaling]
        x = np.array(_claimed(own))
        for quantity, look in ((INSIDER, plot_style.SCALING_LOOKS[scaling]), (MEMBERSHIP, _MEMBERSHIP_LOOKS[scaling])):
            _draw_with_published(axes, x, [rows[setting][quantity] for setting in own], scaling, look)
    axes.set_ylim(-0.3, 1.03)


def _draw_with_published(
    axes: Axes, x: Floats, rows: Sequence[ItemRow], scaling: SensitivityKind, look: plot_style.CurveLook
) -> None:
    """Draw the measured values of `rows` as a curve over `x`, and the published values beside them.

    Values of runs with noise scaled to the local sensitivity are shifted to the left, and those with the global
    sensitivity to the right, so that both can be seen.
    """
    side = -1 if scaling is SensitivityKind.LOCAL else 1
    plot_style.draw_measured(axes, x + 0.05 * side, [row.found for row in rows], look, look.name)
    plot_style.draw_published(axes, x + 0.19 * side, [row.published for row in rows], look.colour)
