"""Figures 7 to 9 of Bernau et al. 2021, one for each data set.

Each figure shows estimates of epsilon and the advantages of two adversaries. One is the insider, which tells D from D'.
The other infers membership.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import expm1, inf, isnan, log, nan
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from scipy.special import ndtri

from fl_audit.array_types import Floats
from fl_audit.audits.identifiability.bernau_empirical_epsilons import epsilon_from_measured_advantage
from fl_audit.audits.membership.yeom_attack import chance_spread
from fl_audit.experiments.papers import plot_style
from fl_audit.experiments.papers.bernau2021.discrepancies import explained
from fl_audit.experiments.papers.bernau2021.insider_runs import (
    MAIN_BELIEF,
    MAIN_REPETITIONS,
    OTHER_REPETITIONS,
    PRINTED,
    SENSITIVITIES,
    audit_runs,
    claimed_mu,
    expected_advantage,
    is_local,
    run_row,
)
from fl_audit.experiments.papers.item_results import ItemResult, ItemRow, measured_row, table
from fl_audit.experiments.papers.papers import PaperRun, StoredPaperRun, StoredPaperRuns
from fl_audit.privacy.accounting_enums import SensitivityKind
from fl_audit.privacy.identifiability_bounds import epsilon_from_belief, rho_alpha
from fl_audit.report.figure_style import INK, MUTED, finish_axes, new_figure
from fl_audit.statistics.interval_estimates import IntervalEstimate

BY_SENSITIVITIES = "epsilon' from sensitivities"
BY_BELIEF = "epsilon' from the largest belief"
BY_ADVANTAGE = "epsilon' from the advantage"
INSIDER = "advantage of the insider"
MEMBERSHIP = "advantage of Yeom's membership adversary"
LARGEST_MEMBERSHIP_ADVANTAGE = 0.02
"""Upper limit of the advantage of Yeom's adversary in every setting, from panel d of Figures 7 to 9."""

_MEMBERSHIP_LOOKS = {
    SensitivityKind.LOCAL: plot_style.CurveLook("membership adversary, local noise", "#3c3c3c", "", ":", "s", ""),
    SensitivityKind.GLOBAL: plot_style.CurveLook("membership adversary, global noise", "#8a8a8a", "", "-.", "v", ""),
}


def audit_of_epsilon(paper_runs: StoredPaperRuns) -> ItemResult:
    """Return the figure of one data set from its runs: three estimates of epsilon, and two adversaries' advantages.

    Epsilon is estimated from sensitivities, from the insider's beliefs, and from its advantage.
    """
    (data,) = paper_runs.data
    rows = {run: audit_rows(paper_runs[run]) for run in audit_runs(data)}
    figure = new_figure(7.6)
    panels = figure.subplots(2, 2).ravel()
    for letter, axes, quantity in zip("abc", panels, (BY_SENSITIVITIES, BY_BELIEF, BY_ADVANTAGE), strict=False):
        _draw_epsilons(axes, rows, quantity)
        finish_axes(axes, f"({letter}) {quantity}", "Claimed epsilon (nats)", "Empirical epsilon (nats)")
    _draw_advantages(panels[3], rows)
    finish_axes(panels[3], "(d) Insider and membership", "Claimed epsilon (nats)", "Advantage")
    plot_style.legend_below(figure, list(panels))
    return ItemResult(
        table(row for of_run in rows.values() for row in of_run.values()),
        figure,
        f"{data.title}, one record replaced. On the grey diagonal epsilon' equals the claimed epsilon. Bars: in a the "
        "range over trials, in b an interval of the extreme value, in c and d 95 % intervals; an arrow means that "
        "there is no upper end.",
        explained(
            (
                "ls-curve",
                "gs-curve",
                "extreme",
                "equation-6",
                "local-distribution",
                "global-distribution",
                "membership",
                "repetitions",
                "order-cap",
                "second-draw",
                "bit",
                "optimizer",
                "precision",
                "subset",
            ),
            paper_runs.stands_in,
        ),
    )


def audit_rows(paper_run: StoredPaperRun) -> dict[str, ItemRow]:
    """Return the table rows of one run, keyed by quantity: three estimates of epsilon, two adversaries' advantages."""
    return {row.quantity: row for row in (*_epsilon_rows(paper_run), *_advantage_rows(paper_run))}


def _number(value: Any, missing: float = nan) -> float:
    return missing if value is None else float(value)


def _median_of_largest(mu: float, trials: int) -> float:
    """Return the median of the maximum of `trials` independent log-odds N(mu^2/2, mu^2), but at least 0."""
    return max(0.0, mu * mu / 2 - mu * float(ndtri(-expm1(-log(2) / trials))))


def _epsilon_rows(paper_run: StoredPaperRun) -> Iterator[ItemRow]:
    """Yield the rows of a run's three empirical epsilons; a missing value or upper end counts as infinite."""
    run = paper_run.run
    trials = paper_run.repetitions
    stored = paper_run.summary["empirical_epsilon"]

    def row(quantity: str, name: str, theory: float, note: str) -> ItemRow:
        ends = stored["intervals"][name]
        measured = IntervalEstimate(_number(stored[name], inf), _number(ends["low"]), _number(ends["high"], inf))
        return run_row(paper_run, quantity, measured, note, theory)

    local = is_local(run)
    note = "largest over trials; low and high: range over trials, bookkeeping without chance"
    exact = paper_run.summary["guarantee"]["epsilon"] if local else nan
    yield row(BY_SENSITIVITIES, "from_sensitivity", exact, note)
    note = f"extreme value; interval of the median of the largest of {trials}, from the sample"
    if local:
        printed = MAIN_REPETITIONS if run["privacy.belief"] == MAIN_BELIEF else OTHER_REPETITIONS
        note = (
            f"extreme value; theory: median of the largest of {trials} by the exact distribution, interval likewise; "
            f"of {printed}, about as published, it is {_median_of_largest(claimed_mu(paper_run), printed):.3f}"
        )
    largest = _median_of_largest(claimed_mu(paper_run), trials) if local else nan
    yield row(BY_BELIEF, "from_belief", largest, note)
    expected = epsilon_from_measured_advantage(expected_advantage(paper_run), run["privacy.delta"])
    note = f"Eq. (6); theory: {'exact' if local else 'approximate'} advantage through Eq. (6)"
    yield row(BY_ADVANTAGE, "from_advantage", expected, note)


def _advantage_rows(paper_run: StoredPaperRun) -> Iterator[ItemRow]:
    """Yield the rows of the advantages of the insider and of Yeom's membership adversary."""
    run = paper_run.run
    insider = paper_run.summary["insider"]
    config = paper_run.config
    published = PRINTED.of(run, "advantage")
    bound = rho_alpha(epsilon_from_belief(run["privacy.belief"]), run["privacy.delta"])
    measured = IntervalEstimate(*(insider[name] for name in ("advantage", "advantage_low", "advantage_high")))
    note = f"rho_alpha {bound:.4f}{'' if isnan(published) else '; published: Table 2'}"
    yield measured_row(
        run.label,
        INSIDER,
        measured,
        paper_run.repetitions,
        note,
        published=published,
        theory=expected_advantage(paper_run),
    )
    section: Mapping[str, Any] = paper_run.summary.get("membership") or {}
    yeom = _number(section.get("yeom_bound"))
    bound = _number(section.get("bound"))
    chance = chance_spread(config.data.records, config.data.population_records)
    member = IntervalEstimate(*(_number(section.get(name)) for name in ("advantage", "low", "high")))
    yield run_row(
        paper_run,
        MEMBERSHIP,
        member,
        f"mean over trials; published: under {LARGEST_MEMBERSHIP_ADVANTAGE:g} everywhere; bound of Yeom et al. "
        f"{yeom:.4g}, exact bound {bound:.4g}; by chance, one model: {chance:.3f}",
    )


RunRows = Mapping[PaperRun, Mapping[str, ItemRow]]  # the rows of each run by their quantity


def _claimed(runs: Iterable[PaperRun]) -> list[float]:
    return [epsilon_from_belief(run["privacy.belief"]) for run in runs]


def _draw_epsilons(axes: Axes, rows: RunRows, quantity: str) -> None:
    largest = 1.1 * max(_claimed(rows))
    axes.plot([0, largest], [0, largest], color=MUTED, linewidth=4, alpha=0.35, label="claimed epsilon")
    for sensitivity in SENSITIVITIES:
        runs = [run for run in rows if run["privacy.sensitivity"] is sensitivity]
        of_quantity = [rows[run][quantity] for run in runs]
        x = np.array(_claimed(runs))
        _draw_with_published(axes, x, of_quantity, sensitivity, plot_style.SENSITIVITY_LOOKS[sensitivity])
        if sensitivity is SensitivityKind.LOCAL:
            expected = [row.theory for row in of_quantity]
            name = f"{plot_style.THEORY}, local"
            axes.plot(x, expected, "_", color=INK, markersize=18, markeredgewidth=2, label=name)
    axes.set_ylim(top=min(axes.get_ylim()[1], 2 * largest))


def _draw_advantages(axes: Axes, rows: RunRows) -> None:
    delta = next(iter(rows))["privacy.delta"]
    grid = np.linspace(0, 1.05 * max(_claimed(rows)), 120)
    axes.plot(grid, [rho_alpha(x, delta) for x in grid], color=MUTED, linewidth=4, alpha=0.35, label="rho_alpha")
    axes.plot(grid, np.minimum(np.expm1(grid), 1), color=INK, linestyle=(0, (1, 3)), label="membership bound (to 1)")
    for sensitivity, insider_look in plot_style.SENSITIVITY_LOOKS.items():
        runs = [run for run in rows if run["privacy.sensitivity"] is sensitivity]
        x = np.array(_claimed(runs))
        for quantity, look in ((INSIDER, insider_look), (MEMBERSHIP, _MEMBERSHIP_LOOKS[sensitivity])):
            _draw_with_published(axes, x, [rows[run][quantity] for run in runs], sensitivity, look)
    axes.set_ylim(-0.3, 1.03)


def _draw_with_published(
    axes: Axes, x: Floats, rows: Sequence[ItemRow], sensitivity: SensitivityKind, look: plot_style.CurveLook
) -> None:
    """Draw the measured values of `rows` as a curve over `x`, and the published values beside them.

    Values of runs with noise scaled to the local sensitivity are shifted to the left, and those with the global
    sensitivity to the right, so that both can be seen.
    """
    side = -1 if sensitivity is SensitivityKind.LOCAL else 1
    plot_style.draw_measured(axes, x + 0.05 * side, [row.interval for row in rows], look, look.name)
    plot_style.draw_published(axes, x + 0.19 * side, [row.published for row in rows], look.colour)
