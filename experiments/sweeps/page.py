"""One page over a sweep: the landscape, what was varied, and every point."""

from html import escape
from urllib.parse import quote

import pandas as pd

from experiments.sweeps.landscape import UTILITY_NAMES
from experiments.sweeps.sweep import RUNS, Sweep
from experiments.sweeps.tables import ATTACKED
from fl_audit.report.law_words import SIMULATION_NOTICE
from fl_audit.report.page.markup import html_figure, html_table
from fl_audit.report.page.shell import html_page
from fl_audit.report.style import to_png
from fl_audit.report.wording import number_text, plural

CAPTION = (
    "Each point is the mean over its models, with the range from the smallest to the largest. The frontier joins "
    "the points that no mixture of two others equals in both respects and beats in one. On top and at the right all "
    "models, with and without privacy: as kernel densities, or one by one where they are fewer than twenty. Points "
    "with an unbounded Epsilon* stand in the table alone, where each leads to the directory of its run; fl-audit "
    "report writes the page of a run there."
)
_READING = (
    "Epsilon* is found from the losses of one released model; epsilon is what training with differential privacy "
    "promises of any model. Epsilon* is above 0 by chance where nothing leaks, and may lie above the promise where "
    "fitted normals are followed into tails that no sample reaches; below the promise it proves nothing, for other "
    "attacks may tell more."
)


def sweep_page(sweep: Sweep, title: str) -> str:
    """Return the page.

    Parameters
    ----------
    sweep
        What was found.
    title
        Its heading.
    """
    opening = (
        f"{plural(len(sweep.points), 'setting')}, {plural(len(sweep.models), 'model')}; on the convex frontier of "
        f"Epsilon* and utility: {int(sweep.points['on_frontier'].sum())}. {_READING}"
    )
    figure = html_figure(to_png(sweep.figure), f"{title}: {CAPTION}", escape(CAPTION))
    body = f"{figure}\n<h2>Points</h2>\n{points_html(sweep)}"
    subtitle = f"Utility: {UTILITY_NAMES[sweep.utility]}"
    return html_page(title, title, subtitle, opening, body, f"Written by fl_audit. {SIMULATION_NOTICE}")


def points_html(sweep: Sweep) -> str:
    """Return the points as a table, the frontier marked, by rising Epsilon*."""
    columns: tuple[str, ...] = (
        "Setting",
        "Promised epsilon",
        "Models",
        "Utility",
        "Range",
        "Epsilon*",
        "Range",
        "Frontier",
    )
    rows = [_row(row) for _, row in sweep.points.sort_values("epsilon_star").iterrows()]
    if ATTACKED[0] in sweep.points:
        columns += ("Strongest attack", "Its AUC", "Its TPR at 1 % FPR")
    ordered = sweep.points.sort_values("epsilon_star")
    links = [f"{RUNS}/{quote(str(point))}/" for point in ordered["point"]]
    return html_table(columns, rows, numbers=range(1, len(columns)), links=links)


def _row(row: "pd.Series[float]") -> list[str]:
    promised = number_text(row["epsilon"]) if pd.notna(row["epsilon"]) else "none"
    cells = [str(row["settings"]), promised, str(row["models"])]
    for name in ("utility", "epsilon_star"):
        cells += [number_text(row[name]), f"{number_text(row[f'{name}_low'])} to {number_text(row[f'{name}_high'])}"]
    cells.append("on it" if row["on_frontier"] else "")
    if ATTACKED[0] not in row:
        return cells
    if pd.isna(row[ATTACKED[0]]):
        return [*cells, "none", "", ""]
    return [*cells, str(row[ATTACKED[0]]), *(number_text(row[column], 3) for column in ATTACKED[1:])]
