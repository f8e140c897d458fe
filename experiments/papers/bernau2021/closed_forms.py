"""Table 3 of Bernau et al. 2021, which needs no runs: epsilon and the bounds rho_beta and rho_alpha.

rho_beta bounds the adversary's belief in the true data set, and rho_alpha its advantage.
"""

from collections.abc import Mapping

import numpy as np

from fl_audit.adjacency import Adjacency
from fl_audit.experiments.papers.bernau2021.discrepancies import explained
from fl_audit.experiments.papers.bernau2021.insider_runs import CANDIDATES, PRINTED, ROUNDS
from fl_audit.experiments.papers.item_results import ItemResult, ItemRow, table
from fl_audit.experiments.papers.papers import StoredPaperRuns
from fl_audit.experiments.papers.plot_style import draw_published, legend_below
from fl_audit.privacy.accounting import Accountant
from fl_audit.privacy.calibration import noise_multiplier_for
from fl_audit.privacy.claim import Claim
from fl_audit.privacy.events import gaussian_rounds
from fl_audit.privacy.guarantee import Guarantee, derive_guarantee
from fl_audit.privacy.identifiability_bounds import epsilon_from_belief, rho_alpha
from fl_audit.privacy.targets import BeliefTarget
from fl_audit.report.figure_style import INK, finish_axes, new_figure

_LOOKS_OF_TABLE_3 = {0.01: ("-", "#12426e"), 0.001: ("--", "#b35806")}  # by delta


Column = Mapping[str, str]
"""A column of Table 3: delta, epsilon and rho_alpha as printed."""


def printed_columns() -> dict[tuple[str, float], Column]:
    """Return the columns of Table 3 by data set and rho_beta."""
    columns: dict[tuple[str, float], dict[str, str]] = {}
    for number in PRINTED.at("Table 3"):
        belief = float(number.setting.removeprefix("rho_beta "))
        columns.setdefault((number.data, belief), {})[number.quantity] = number.printed
    return dict(columns)


def table_3(_: StoredPaperRuns | None = None) -> ItemResult:
    """Return Table 3: printed values, closed forms, and the guarantee of the noise, by rho_beta and delta."""
    columns = printed_columns()
    rows = [row for key, column in columns.items() for row in _rows_of_column(*key, column)]
    figure = new_figure(4.1)
    left_axes, right_axes = figure.subplots(1, 2)
    beliefs = np.linspace(0.515, 0.995, 200)
    left_axes.plot(beliefs, [epsilon_from_belief(x) for x in beliefs], color=INK, linewidth=1.8, label="Eq. (5)")
    for delta, (line, colour) in _LOOKS_OF_TABLE_3.items():
        bounds = [rho_alpha(epsilon_from_belief(x), delta) for x in beliefs]
        right_axes.plot(beliefs, bounds, line, color=colour, linewidth=1.8, label=f"Theorem 3, delta {delta:g}")
        coarse = beliefs[beliefs > 0.53][::8]
        exact = [calibrated(float(x), delta).advantage_bound_exact for x in coarse]
        right_axes.plot(coarse, exact, ":", color=colour, linewidth=2.2, label=f"exact, rdp-classic, {delta:g}")
    for study in CANDIDATES:
        column_by_belief = {belief: column for (data, belief), column in columns.items() if data == study}
        draw_published(
            left_axes, list(column_by_belief), [float(column["epsilon"]) for column in column_by_belief.values()]
        )
        draw_published(
            right_axes, list(column_by_belief), [float(column["rho_alpha"]) for column in column_by_belief.values()]
        )
    finish_axes(left_axes, "(a) epsilon", "rho_beta (probability)", "epsilon (nats)")
    finish_axes(right_axes, "(b) Advantage bound", "rho_beta (probability)", "Advantage")
    legend_below(figure, (left_axes, right_axes), columns=3)
    return ItemResult(
        table(rows),
        figure,
        "Lines: Eq. (5) and Theorem 3. Dotted: the exact advantage under the noise that rdp-classic calibrates over "
        f"{ROUNDS} rounds. Diamonds: Table 3.",
        (
            "rho_alpha in the table is Theorem 3, which holds for noise by Eq. (1). The runs have noise calibrated by "
            "classic Rényi accounting, which is larger: the exact advantage 2 Phi(mu / 2) - 1 under that noise is "
            "smaller than the table's everywhere here (at rho_beta = .9 it is .256 for .28 and .217 for .23).",
            *explained(("order-cap",)),
        ),
    )


def calibrated(belief: float, delta: float) -> Guarantee:
    """Calibrate the noise, by the paper's accountant, to a belief after all 30 rounds, and return its guarantee."""
    # Without sampling the adjacency changes only the sensitivity, and the noise is stated in units of that.
    claim = Claim(Adjacency.REPLACE_RECORD, gaussian_rounds(1.0, ROUNDS), delta, 0.5, Accountant.RDP_CLASSIC)
    return derive_guarantee(claim.with_noise(noise_multiplier_for(BeliefTarget(belief), claim)))


def _rows_of_column(study: str, belief: float, column: Column) -> list[ItemRow]:
    delta = float(column["delta"])
    epsilon = epsilon_from_belief(belief)
    guarantee = calibrated(belief, delta)
    bound = rho_alpha(epsilon, delta)
    setting = f"{study}, rho_beta {belief:g}"
    used = "measured: what the accountant reports of the calibrated noise"
    return [
        ItemRow(
            setting,
            "delta",
            published=delta,
            theory=CANDIDATES[study][0][0]["privacy.delta"],
            note="as printed; given, not derived",
        ),
        ItemRow(
            setting,
            "epsilon",
            published=float(column["epsilon"]),
            theory=epsilon,
            measured=guarantee.epsilon,
            note=f"{_agreement(epsilon, column['epsilon'])}; Eq. (5); {used}",
        ),
        ItemRow(
            setting,
            "rho_alpha",
            published=float(column["rho_alpha"]),
            theory=bound,
            measured=guarantee.rho_alpha or 0.0,
            note=f"{_agreement(bound, column['rho_alpha'])}; Theorem 3; {used}",
        ),
        ItemRow(
            setting,
            "exact advantage",
            theory=guarantee.advantage_bound_exact,
            note="2 Phi(mu / 2) - 1 of the calibrated noise; not in the paper",
        ),
        ItemRow(
            setting,
            "noise multiplier",
            theory=guarantee.noise_multiplier or np.nan,
            note="rdp-classic, orders up to 63; not in the paper",
        ),
    ]


def _agreement(value: float, printed: str) -> str:
    decimals = len(printed.partition(".")[2])
    return "as printed" if f"{value:.{decimals}f}" == printed else f"{value:.{decimals}f}, not {printed} as printed"
