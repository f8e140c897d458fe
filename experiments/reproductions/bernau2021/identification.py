"""Table 2 of Bernau et al. 2021: advantage and share of beliefs above rho_beta, at rho_beta = 0.9."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes

from experiments.reproductions.bernau2021.published import TABLE_2, TABLE_2_REPETITIONS
from experiments.reproductions.bernau2021.runs import InsiderFindings
from experiments.reproductions.bernau2021.settings import (
    RELATION_LETTERS,
    SCALING_LETTERS,
    SCALINGS,
    InsiderData,
    InsiderSetting,
    main_settings,
)
from experiments.reproductions.bernau2021.slips import explained
from experiments.reproductions.items import CONFIDENCE, ItemResult, ItemRow, table
from experiments.reproductions.looks import (
    SCALING_LOOKS,
    THEORY,
    draw_measured,
    draw_published,
    legend_below,
    name_panel,
)
from experiments.reproductions.statistics import predicted_advantage, predicted_exceedance, z_against, z_between
from fl_audit.evidence.belief.advantage import clopper_pearson, empirical_advantage
from fl_audit.mechanisms.noise import NoiseScaling
from fl_audit.privacy.scores import gaussian_advantage
from fl_audit.report.style import INK, new_figure

ADVANTAGE = "advantage"
EXCEEDED = "delta' (share of beliefs above rho_beta)"


def table_2(data: Sequence[InsiderData], runs: Mapping[InsiderSetting, InsiderFindings]) -> ItemResult:
    """Return Table 2.

    Parameters
    ----------
    data, runs
        The data sets; what was found in each run.
    """
    rows = [row for setting in main_settings(data) for row in identified(runs[setting])]
    frame = table(rows)
    figure = new_figure(2.2 + 2.1 * 2)
    panels = figure.subplots(2, len(data), squeeze=False, sharey="row")
    for column, one in enumerate(data):
        settings = main_settings([one])
        part = [[row for row in rows if row.setting == setting.label] for setting in settings]
        for panel, index, name in (
            (panels[0][column], 0, "Advantage"),
            (panels[1][column], 1, "delta' (share of beliefs)"),
        ):
            _draw(panel, settings, [pair[index] for pair in part])
            title = one.short_title if index == 0 else ""
            name_panel(panel, "", title, "", name if column == 0 else "")
        panels[1][column].set_ylim(bottom=-0.06 * panels[1][column].get_ylim()[1])
        promised = runs[settings[0]].summary["guarantee"]["delta"]
        panels[1][column].axhline(promised, color=INK, linestyle=":", linewidth=1.4, label="delta, as promised")
    legend_below(figure, [panel for row in panels for panel in row], columns=2)
    return ItemResult(
        frame,
        figure,
        "Advantage of the insider (top) and share of its beliefs above rho_beta = 0.9 (bottom), with 95 % intervals. "
        "LS, GS: noise by local or global sensitivity; B, U: a record is replaced or removed. LS is not a private "
        "release.",
        explained(
            ("local-law", "global-law", "repetitions", "second-draw", "bit", "optimizer", "calibration", "eq-9", "ssim",
             "network", "subset"),
            any(one.stands_in for one in data),
        ),
    )  # fmt: skip


def identified(found: InsiderFindings) -> tuple[ItemRow, ItemRow]:
    """Return the two rows of a run: its advantage, and its share of beliefs above rho_beta."""
    setting, worlds = found.setting, found.repetitions
    mu = found.mu_of_worlds
    local = setting.scaling is NoiseScaling.LOCAL
    expected = gaussian_advantage(found.promised_mu) if local else predicted_advantage(mu)
    measured = empirical_advantage(found.worlds["won"].to_numpy(), CONFIDENCE)
    published = TABLE_2[setting.data.study, setting.scaling, setting.relation]
    against = z_between(measured.advantage, worlds, published.advantage, TABLE_2_REPETITIONS)
    law = "exact" if local else "approximate, from the sensitivities of each world"
    note = (
        f"theory {law}; z against theory {z_against(measured.advantage, expected, worlds):+.2f}, against the published "
        f"{against:+.2f}{_floored(found)}"
    )
    passed = int(np.sum(found.worlds["belief"] > setting.belief))
    low, high = clopper_pearson(passed, worlds, CONFIDENCE)
    exceeded = ItemRow(
        setting.label, EXCEEDED, published.exceeded, predicted_exceedance(mu, setting.belief), passed / worlds, low,
        high, worlds, f"{passed} of {worlds}; promised is at most {setting.data.delta:g}",
    )  # fmt: skip
    return (
        ItemRow(setting.label, ADVANTAGE, published.advantage, expected, measured.advantage, measured.low,
            measured.high, worlds, note),
        exceeded,
    )  # fmt: skip


def _floored(found: InsiderFindings) -> str:
    share = found.floored_share
    if share == 0 or found.setting.scaling is NoiseScaling.GLOBAL:
        return ""
    seen = predicted_advantage(found.mu_of_worlds)
    return f"; {100 * share:.2g} % of rounds without evidence, which leaves {seen:.4f}"


def _draw(axes: Axes, settings: Sequence[InsiderSetting], rows: Sequence[ItemRow]) -> None:
    for scaling in SCALINGS:
        own = [index for index, setting in enumerate(settings) if setting.scaling is scaling]
        part = [rows[index] for index in own]
        look = SCALING_LOOKS[scaling]
        draw_measured(
            axes, own, [row.measured for row in part], [row.low for row in part], [row.high for row in part], look,
            look.name, joined=False,
        )  # fmt: skip
    places = np.arange(len(rows))
    for place, row in enumerate(rows):
        axes.plot([place - 0.33, place + 0.33], [row.theory] * 2, color=INK, linewidth=2.2, label=THEORY)
        look = SCALING_LOOKS[settings[place].scaling]
        draw_published(axes, [place + 0.22], [row.published], look.colour)
    axes.set_xticks(places, [f"{SCALING_LETTERS[s.scaling]} {RELATION_LETTERS[s.relation]}" for s in settings])
    axes.set_xlim(-0.6, len(rows) - 0.4)
