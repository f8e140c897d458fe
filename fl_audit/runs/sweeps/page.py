"""HTML page about a sweep: a plot of utility against privacy, and a table of all points.

A point of a sweep is one configuration. Epsilon* is an estimate of the privacy risk of a released model.
"""

import math
from typing import Any
from urllib.parse import quote

import numpy as np
import pandas as pd

from fl_audit.learning.metric_names import WORST_CLIENT
from fl_audit.privacy.private_selection import selection_text
from fl_audit.released_model.normal_fit_tests import FIT, rejected
from fl_audit.released_model.star_methods import PARAMETRIC_CUT, cut_text
from fl_audit.report.figure_style import to_png
from fl_audit.report.mechanism_messages import SIMULATION_NOTICE
from fl_audit.report.page import (
    Banner,
    VerdictLook,
    heading_html,
    html_figure,
    html_page,
    joined_html,
    list_html,
    page_table,
)
from fl_audit.runs.sweeps.privacy_utility_plot import utility_name
from fl_audit.runs.sweeps.sweep import RUNS, SweepResults
from fl_audit.runs.sweeps.tables import ATTACKED, UNTRAINED, guarantee_varies
from fl_audit.words import number_text, plural, rounded

_ON_FRONTIER = "The frontier joins the points that no mixture of two others equals in both and beats in one."
_BY_GUARANTEE = (
    f"Each point is the mean over its models, with their range; its number is that of the table. {_ON_FRONTIER} Models "
    "without privacy guarantee nothing: they are a level, and on no frontier."
)
_BY_STAR = (
    f"Each point is the mean over its models, with their range, numbered as in the table. {_ON_FRONTIER} The "
    "margins at the top and on the right show all models. Points with an unbounded Epsilon* are in the table only."
)
STAR_CAUTION = (
    "Epsilon* is found from losses of one released model, and is another quantity than the claimed epsilon, which is "
    "of all repetitions: below the guarantee it proves nothing, for other attacks may tell more, and single models may "
    "exceed the guarantee by chance."
)
_READING = f"Epsilon is what training with differential privacy guarantees of any model. {STAR_CAUTION}"
_STEP = (
    "Take the smallest epsilon on the frontier whose utility is enough, and audit that run with more trials: "
    f"fl-audit report {RUNS}/NAME writes its page."
)


def chance_text(sweep: SweepResults) -> str:
    """Return a sentence on the mean Epsilon* of untrained models, which shows what chance alone reaches.

    The text is empty if Epsilon* was not computed for untrained models.
    """
    if UNTRAINED not in sweep.models or not (series := sweep.models[UNTRAINED].dropna()).size:
        return ""
    smallest, largest = (number_text(end, 3) for end in (series.min(), series.max()))
    reaches = smallest if smallest == largest else f"{smallest} to {largest}"
    return f" Chance alone reaches {reaches} on average: that is what untrained models score, which cannot leak."


def fit_text(sweep: SweepResults) -> str:
    """Return a sentence on whether the losses follow normal distributions, as the sweep's Epsilon* assumes.

    The sentence says for how many models a statistical test rejects the assumption.
    """
    by_normals = "Epsilon* is that of normals for all points, so that they can be held against each other"
    tested, against = rejected(sweep.models[FIT].to_numpy(dtype=np.float64)) if FIT in sweep.models else (0, 0)
    if not tested:
        return f"{by_normals}; whether normals fit was not tested."
    fit_found = f"a test rejects these in {against:,} of {plural(tested, 'model')}"
    counting = "" if not against else "; the reports of points count losses where it rejects most"
    return f"{by_normals}; {fit_found}{counting}."


def sweep_page(sweep: SweepResults, title: str) -> str:
    """Return the HTML page of a sweep."""
    points = sweep.points
    by_guarantee = guarantee_varies(sweep.points)
    caption = _BY_GUARANTEE if by_guarantee else _BY_STAR
    figure = html_figure(to_png(sweep.figure), f"{title}: {caption}", caption)
    best = points[points["on_frontier"]].sort_values("utility")
    line = f"{plural(len(points), 'setting')}, {plural(len(sweep.models), 'model')}; {_best_text(best)}"
    counting = f"Epsilon* counts {cut_text(PARAMETRIC_CUT)}."
    sentences = [fit_text(sweep), counting, *(f"{claim}." for claim in claims_text(sweep)), *selection_texts(sweep)]
    sentences += better_than_no_privacy_texts(sweep)
    return html_page(
        title=title,
        heading=title,
        subtitle=f"Utility: {utility_name(sweep.utility)}",
        opening=f"{_READING}{chance_text(sweep)}",
        body=joined_html(
            figure, heading_html("Points"), points_html(sweep), heading_html("About the numbers"), list_html(sentences)
        ),
        footer=SIMULATION_NOTICE,
        banner=Banner(
            "Nothing private was played" if best.empty else "What the guarantee costs", line, VerdictLook.NONE
        ),
        step=_STEP,
    )


def _best_text(best: "pd.DataFrame") -> str:
    """Return a sentence on the two points at the ends of the frontier of utility against privacy.

    `best` holds the points of the frontier by ascending utility.
    """
    if best.empty:
        return "none of them is on a frontier."
    ends = []
    for row in (best.iloc[0], best.iloc[-1]):
        epsilon = f", epsilon {number_text(row['epsilon'], 3)}" if pd.notna(row["epsilon"]) else ""
        ends.append(f"{row['settings']} (utility {number_text(row['utility'], 3)}{epsilon})")
    return f"the frontier goes from {ends[0]} to {ends[1]}." if len(best) > 1 else f"on the frontier is {ends[0]}."


def better_than_no_privacy_texts(sweep: SweepResults) -> list[str]:
    """Return a sentence on private points that are better than the best without privacy; none if no point is.

    Noise makes no training better on average, so such a point is a matter of chance, of a choice among many points, or
    of settings without privacy that can be improved.
    """
    points = sweep.points
    private = points["private"].to_numpy(dtype=bool)
    if private.all() or not private.any():
        return []
    best = float(points.loc[~private, "utility"].max())
    better = points[private & (points["utility"] > best)]
    if better.empty:
        return []
    numbers = ", ".join(str(int(str(position)) + 1) for position in better.index)
    are = f"Point {numbers} is" if len(better) == 1 else f"Points {numbers} are"
    gain = number_text(float(better["utility"].max()) - best, 2)
    repeated = points[points["models"] > 1]
    width = float((repeated["utility_high"] - repeated["utility_low"]).max()) if len(repeated) else math.nan
    width_text = f" Models of one point differ by up to {number_text(width, 2)}." if math.isfinite(width) else ""
    return [
        f"{are} better than the best without privacy, by {gain} at most.{width_text} Noise improves no training, "
        "so this is "
        f"chance, the choice among {plural(len(points), 'point')}, or a training without privacy whose settings can be "
        "improved; audit.trials repeats each point more often, and --baseline-over tries more settings without privacy."
    ]


def selection_texts(sweep: SweepResults) -> list[str]:
    """Return a sentence on what the best of a sweep's private points spends; none if fewer than two are private."""
    return [selection_text(sweep.selection)] if int(sweep.points["private"].sum()) > 1 else []


def claims_text(sweep: SweepResults) -> list[str]:
    """Return a sentence for each kind of claim in a sweep: delta, accountant, adjacency and unit."""
    names = ["delta", "accountant", "adjacency", "unit"]
    terms = sweep.points[[*names, "gdp_regret"]].dropna(subset=["adjacency"])
    claims = []
    kinds = terms.groupby(names, sort=False, dropna=False).max().reset_index()
    for row in kinds.to_dict("records"):
        unit = "" if pd.isna(row["unit"]) else f" (the unit is a {row['unit']})"  # earlier versions name none
        sentence = (
            f"Claims: epsilon at delta {row['delta']:g} by {row['accountant']}, neighbours by {row['adjacency']}{unit}"
        )
        of_mu = f"; mu is that of mu-GDP, with a regret of at most {row['gdp_regret']:.2g} (the error of its fit)"
        claims.append(sentence + ("" if pd.isna(row["gdp_regret"]) else of_mu))
    return claims


def claimed_text(value: Any) -> str:
    """Return a claimed epsilon, or a claimed mu of Gaussian DP, as text; "none" if the value is missing."""
    return number_text(value) if pd.notna(value) else "none"


def points_html(sweep: SweepResults) -> str:
    """Return the HTML table of a sweep's points, which marks the points on the frontier of utility against privacy.

    The points are sorted by claimed epsilon if it varies, else by Epsilon*.
    """
    columns = [
        "Setting",
        "Claimed epsilon",
        "Claimed mu",
        "Models",
        "Utility",
        "Range",
        "Epsilon*",
        "Range",
        "Frontier",
    ]
    if WORST_CLIENT in sweep.points:
        columns.append("Worst client (not private)")
    risk = "epsilon" if guarantee_varies(sweep.points) else "epsilon_star"
    ordered = sweep.points.sort_values(risk)
    rows = [_row(int(str(row_number)) + 1, row) for row_number, row in ordered.iterrows()]
    if ATTACKED[0] in sweep.points:
        columns += ["Strongest attack", "Its AUC", "Its TPR at 1 % FPR"]
    links = [f"{RUNS}/{quote(str(point))}/" for point in ordered["point"]]
    return page_table(columns, rows, numbers=range(1, len(columns)), links=links)


def _row(number: int, row: "pd.Series[float]") -> list[str]:
    claimed = [claimed_text(row[name]) for name in ("epsilon", "gdp_mu")]
    cells = [f"{number}. {row['settings']}", *claimed, str(row["models"])]
    for name in ("utility", "epsilon_star"):
        interval = rounded(row[name], row[f"{name}_low"], row[f"{name}_high"])
        cells += [interval.value, interval.interval]
    cells.append("on it" if row["on_frontier"] else "")
    if WORST_CLIENT in row:
        cells.append(number_text(row[WORST_CLIENT], 3))
    if ATTACKED[0] not in row:
        return cells
    if pd.isna(row[ATTACKED[0]]):
        return [*cells, "none", "", ""]
    return [*cells, str(row[ATTACKED[0]]), *(number_text(row[column], 3) for column in ATTACKED[1:])]
