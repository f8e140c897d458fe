"""Figures 7 to 9 of Bernau et al. 2021: the audit of epsilon, and membership inference beside it, for one data set."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from experiments.reproductions.bernau2021.published import (
    EPSILON_FROM_ADVANTAGE_LOCAL,
    EPSILON_FROM_BELIEF_LOCAL,
    EPSILON_FROM_SENSITIVITIES_GLOBAL,
    LARGEST_MEMBERSHIP_ADVANTAGE,
    TABLE_2,
    published_repetitions,
)
from experiments.reproductions.bernau2021.runs import InsiderFindings, Played
from experiments.reproductions.bernau2021.settings import MAIN_BELIEF, SCALINGS, InsiderSetting, audit_settings
from experiments.reproductions.bernau2021.slips import explained
from experiments.reproductions.looks import (
    SCALING_LOOKS,
    THEORY,
    CurveLook,
    draw_measured,
    draw_published,
    legend_below,
)
from experiments.reproductions.papers import ItemResult, ItemRow, table
from experiments.reproductions.statistics import median_of_largest, predicted_advantage
from fl_audit.adversaries.membership.loss import chance_spread
from fl_audit.arrays import Floats
from fl_audit.evidence.belief.empirical_epsilon import epsilon_from_measured_advantage
from fl_audit.mechanisms.noise import NoiseScaling
from fl_audit.privacy.scores import epsilon_from_belief, gaussian_advantage, rho_alpha
from fl_audit.report.style import INK, MUTED, finish_axes, new_figure

SENSITIVITIES = "epsilon' from sensitivities"
BELIEF = "epsilon' from the largest belief"
ADVANTAGE = "epsilon' from the advantage"
INSIDER = "advantage of the insider"
MEMBERSHIP = "advantage of Yeom's membership adversary"

_MEMBERSHIP_LOOKS = {
    NoiseScaling.LOCAL: CurveLook("membership adversary, local noise", "#3c3c3c", "", ":", "s", ""),
    NoiseScaling.GLOBAL: CurveLook("membership adversary, global noise", "#8a8a8a", "", "-.", "v", ""),
}


def audit_of_epsilon(played: Played) -> ItemResult:
    """Return the four panels of one data set: epsilon' from sensitivities, belief and advantage, and all advantages."""
    (data,), settings = played.data, audit_settings(played.data)
    rows = {setting: audit_rows(played.runs[setting]) for setting in settings}
    figure = new_figure(7.6)
    panels = figure.subplots(2, 2).ravel()
    for letter, axes, quantity in zip("abc", panels, (SENSITIVITIES, BELIEF, ADVANTAGE), strict=False):
        _draw_epsilons(axes, settings, rows, quantity)
        finish_axes(axes, f"({letter}) {quantity}", "Promised epsilon (nats)", "Empirical epsilon (nats)")
    _draw_advantages(panels[3], settings, rows)
    finish_axes(panels[3], "(d) Insider and membership", "Promised epsilon (nats)", "Advantage")
    legend_below(figure, list(panels))
    return ItemResult(
        table(row for setting in settings for row in rows[setting].values()),
        figure,
        f"{data.title}, one record replaced. On the grey diagonal epsilon' equals the promised epsilon. Bars: in a the "
        "range over worlds, in b an interval of the extreme value, in c and d 95 % intervals; an arrow means that "
        "there is no upper end. The axis ends at twice the largest epsilon at most.",
        explained(
            ("ls-curve", "gs-curve", "extreme", "equation-6", "local-law", "global-law", "membership", "repetitions",
             "order-cap", "second-draw", "bit", "optimizer", "precision", "subset"),
            data.stands_in,
        ),
    )  # fmt: skip


def audit_rows(found: InsiderFindings) -> dict[str, ItemRow]:
    """Return what one run says of epsilon and of both adversaries, by quantity."""
    rows = (_sensitivity_row(found), _belief_row(found), _advantage_row(found), _insider_row(found), _member_row(found))
    return {row.quantity: row for row in rows}


def _number(value: Any, missing: float = math.nan) -> float:
    return missing if value is None else float(value)


def _interval(found: InsiderFindings, name: str) -> tuple[float, float, float]:
    """Return an empirical epsilon of the summary with its interval; a missing value or upper end is infinite."""
    stored = found.summary["empirical_epsilon"]
    interval = stored["intervals"][name]
    return _number(stored[name], math.inf), _number(interval["low"]), _number(interval["high"], math.inf)


def _published(found: InsiderFindings, scaling: NoiseScaling, values: Mapping[Any, Mapping[float, float]]) -> float:
    setting = found.setting
    return values[setting.data.study].get(setting.belief, math.nan) if setting.scaling is scaling else math.nan


def _is_local(found: InsiderFindings) -> bool:
    return found.setting.scaling is NoiseScaling.LOCAL


def _sensitivity_row(found: InsiderFindings) -> ItemRow:
    measured, low, high = _interval(found, "from_sensitivity")
    exact = found.summary["guarantee"]["epsilon"] if _is_local(found) else math.nan
    note = "largest over worlds; low and high: range over worlds, bookkeeping without chance"
    published = _published(found, NoiseScaling.GLOBAL, EPSILON_FROM_SENSITIVITIES_GLOBAL)
    return ItemRow(found.setting.label, SENSITIVITIES, published, exact, measured, low, high, found.repetitions, note)


def _belief_row(found: InsiderFindings) -> ItemRow:
    measured, low, high = _interval(found, "from_belief")
    note = f"extreme value; interval of the median of the largest of {found.repetitions}, from the sample"
    expected = math.nan
    if _is_local(found):
        expected = median_of_largest(found.promised_mu, found.repetitions)
        printed = published_repetitions(found.setting.belief)
        note = (
            f"extreme value; theory: median of the largest of {found.repetitions} by the exact law, interval likewise; "
            f"of {printed}, about as published, it is {median_of_largest(found.promised_mu, printed):.3f}"
        )
    published = _published(found, NoiseScaling.LOCAL, EPSILON_FROM_BELIEF_LOCAL)
    return ItemRow(found.setting.label, BELIEF, published, expected, measured, low, high, found.repetitions, note)


def _advantage_row(found: InsiderFindings) -> ItemRow:
    measured, low, high = _interval(found, "from_advantage")
    expected = epsilon_from_measured_advantage(_expected_advantage(found), found.setting.data.delta)
    note = f"Eq. (6); theory: {'exact' if _is_local(found) else 'approximate'} advantage through Eq. (6)"
    published = _published(found, NoiseScaling.LOCAL, EPSILON_FROM_ADVANTAGE_LOCAL)
    return ItemRow(found.setting.label, ADVANTAGE, published, expected, measured, low, high, found.repetitions, note)


def _expected_advantage(found: InsiderFindings) -> float:
    return gaussian_advantage(found.promised_mu) if _is_local(found) else predicted_advantage(found.mu_of_worlds)


def _insider_row(found: InsiderFindings) -> ItemRow:
    setting, insider = found.setting, found.summary["insider"]
    main = setting.belief == MAIN_BELIEF
    published = TABLE_2[setting.data.study, setting.scaling, setting.relation].advantage if main else math.nan
    bound = rho_alpha(epsilon_from_belief(setting.belief), setting.data.delta)
    return ItemRow(
        setting.label, INSIDER, published, _expected_advantage(found), insider["advantage"], insider["advantage_low"],
        insider["advantage_high"], found.repetitions,
        f"rho_alpha {bound:.4f}{'; published: Table 2' if main else ''}",
    )  # fmt: skip


def _member_row(found: InsiderFindings) -> ItemRow:
    section: Mapping[str, Any] = found.summary.get("membership") or {}
    yeom, bound = _number(section.get("yeom_bound")), _number(section.get("bound"))
    chance = chance_spread(found.config.data.records, found.config.data.population_records)
    return ItemRow(
        found.setting.label, MEMBERSHIP, math.nan, math.nan, _number(section.get("advantage")),
        _number(section.get("low")), _number(section.get("high")), found.repetitions,
        f"mean over worlds; published: under {LARGEST_MEMBERSHIP_ADVANTAGE:g} everywhere; bound of Yeom et al. "
        f"{yeom:.4g}, exact bound {bound:.4g}; by chance, one model: {chance:.3f}",
    )  # fmt: skip


def _promised(settings: Sequence[InsiderSetting]) -> list[float]:
    return [epsilon_from_belief(setting.belief) for setting in settings]


def _draw_epsilons(
    axes: Axes, settings: Sequence[InsiderSetting], rows: Mapping[InsiderSetting, Mapping[str, ItemRow]], quantity: str
) -> None:
    largest = 1.1 * max(_promised(settings))
    axes.plot([0, largest], [0, largest], color=MUTED, linewidth=4, alpha=0.35, label="promised epsilon")
    for scaling in SCALINGS:
        own = [setting for setting in settings if setting.scaling is scaling]
        part, x = [rows[setting][quantity] for setting in own], np.array(_promised(own))
        _draw_with_published(axes, x, part, scaling, SCALING_LOOKS[scaling])
        if scaling is NoiseScaling.LOCAL:
            expected = [row.theory for row in part]
            axes.plot(x, expected, "_", color=INK, markersize=18, markeredgewidth=2, label=f"{THEORY}, local")
    axes.set_ylim(top=min(axes.get_ylim()[1], 2 * largest))


def _draw_advantages(
    axes: Axes, settings: Sequence[InsiderSetting], rows: Mapping[InsiderSetting, Mapping[str, ItemRow]]
) -> None:
    data = settings[0].data
    grid = np.linspace(0, 1.05 * max(_promised(settings)), 120)
    axes.plot(grid, [rho_alpha(x, data.delta) for x in grid], color=MUTED, linewidth=4, alpha=0.35, label="rho_alpha")
    axes.plot(grid, np.minimum(np.expm1(grid), 1), color=INK, linestyle=(0, (1, 3)), label="membership bound (to 1)")
    for scaling in SCALINGS:
        own = [setting for setting in settings if setting.scaling is scaling]
        x = np.array(_promised(own))
        for quantity, look in ((INSIDER, SCALING_LOOKS[scaling]), (MEMBERSHIP, _MEMBERSHIP_LOOKS[scaling])):
            _draw_with_published(axes, x, [rows[setting][quantity] for setting in own], scaling, look)
    axes.set_ylim(-0.3, 1.03)


def _draw_with_published(
    axes: Axes, x: Floats, rows: Sequence[ItemRow], scaling: NoiseScaling, look: CurveLook
) -> None:
    """Draw one curve with its published values; local noise is shifted a little to the left, global to the right."""
    side = -1 if scaling is NoiseScaling.LOCAL else 1
    draw_measured(axes, x + 0.05 * side, [row.found for row in rows], look, look.name)
    draw_published(axes, x + 0.19 * side, [row.published for row in rows], look.colour)
