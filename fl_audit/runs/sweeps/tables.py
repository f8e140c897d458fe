"""Result tables of a sweep: one with a row for each trained model, and one with a row for each point.

A point of a sweep is one configuration. Epsilon* is an estimate of the privacy risk of a released model.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fl_audit.audits.membership.findings_attacks import INSIDER
from fl_audit.errors import require
from fl_audit.federation.result_columns import RESULT_COLUMNS, ResultTable
from fl_audit.learning.metric_names import WORST_CLIENT, Metric, is_smaller_better, metric_column
from fl_audit.parquet_files import read_frame
from fl_audit.privacy.guarantee_line import GUARANTEE_NAMES
from fl_audit.run_files import read_json
from fl_audit.runs.sweeps.grid import Point, describe
from fl_audit.statistics.pareto_front import convex_frontier

CLAIMED = (*GUARANTEE_NAMES, "noise_multiplier", "rounds", "sampling_rate")
ATTACKED = ("attack", "attack_auc", "attack_tpr_at_fpr_001")
"""Columns of the strongest attack in the membership audit."""
UNTRAINED = "epsilon_star_untrained"
"""Column of Epsilon* of a point's untrained models, which cannot leak: the value by chance alone."""
HEADLINE = "headline"
"""Column of the metric that stands for how good the models of a point are."""
_LEFT_OUT = (
    *("bit", "belief", "won", "epsilon_star_counted", "epsilon_star_least"),
    *(
        result_column.name
        for result_column in RESULT_COLUMNS
        if result_column.table is ResultTable.TRIALS and not result_column.is_of_model
    ),
)


def models_table(points: Sequence[Point], directory: Path) -> pd.DataFrame:
    """Return a table with one row for each model that the finished points of a sweep have trained.

    `points`: Points without a finished run are left out.
    """
    keys = list(dict.fromkeys(key for point in points for key, _ in point.settings))
    finished = [point for point in points if (directory / point.name / "summary.json").exists()]
    table = (
        pd.concat([_models_of(point, keys, directory / point.name) for point in finished])
        if finished
        else pd.DataFrame()
    )
    for key in keys if finished else ():
        kinds = {type(value) for point in finished for name, value in point.settings if name == key}
        if len(kinds - {int, float}) > 0 and len(kinds) > 1:
            # A column of a file has one type: numbers beside words are written as words.
            table[key] = table[key].map(str, na_action="ignore")
    return table.reset_index(drop=True)


def _models_of(point: Point, keys: Sequence[str], run: Path) -> pd.DataFrame:
    trials = read_frame(run / "trials.parquet")
    summary = read_json(run / "summary.json")
    settings_given: Mapping[str, Any] = dict(point.settings)
    head: dict[str, Any] = {"point": point.name, **{key: settings_given.get(key) for key in keys}}
    attack_results = (summary.get("attacks") or {}).get("by_name", {})
    if outsiders := {name: attack for name, attack in attack_results.items() if name != INSIDER}:
        name, best = max(outsiders.items(), key=lambda attack: float(attack[1]["auc"]["value"]))
        head |= zip(ATTACKED, (name, best["auc"]["value"], best["tpr_at_fpr_001"]["value"]), strict=True)
    head[HEADLINE] = (summary.get("utility") or {}).get("headline")
    star = summary.get("epsilon_star") or {}
    # Points are held against each other by one estimator, and early ones know normals alone.
    head[UNTRAINED] = (star.get("by_normals") or star).get("untrained_mean")
    head |= {"private": point.config.privacy.private, **{name: summary["guarantee"].get(name) for name in CLAIMED}}
    # A guarantee of nothing is no number; numbers keep their type whatever stands in the first row.
    columns = {name: np.full(len(trials), np.nan if value is None else value) for name, value in head.items()}
    return pd.DataFrame(columns).join(trials.drop(columns=list(_LEFT_OUT), errors="ignore"))


def choose_utility(models: pd.DataFrame, wanted_metric: str | None) -> str:
    """Return the metric that is the utility of a sweep: the requested one, or the headline of its runs.

    `wanted_metric`: None selects accuracy if the headlines differ, or a smaller value of the headline is better; for
    labels that are quantities it selects R2.
    """
    headlines = [str(name) for name in models[HEADLINE].dropna().unique()] if HEADLINE in models else []
    is_usable = len(headlines) == 1 and not is_smaller_better(headlines[0])
    has_r2 = metric_column(Metric.R2) in models
    utility = wanted_metric or (headlines[0] if is_usable else str(Metric.R2 if has_r2 else Metric.ACCURACY))
    column = metric_column(utility)
    is_known = column in models and bool(models[column].notna().all())
    require(is_known, f"utility {utility} was not computed of every model: accepted is {Metric.ACCURACY}")
    return utility


def guarantee_varies(points: pd.DataFrame) -> bool:
    """Return whether all private points of a sweep claim an epsilon, and at least two claim different ones.

    The table has one row for each point, with the columns private and epsilon.
    """
    claimed = points.loc[points["private"].to_numpy(dtype=bool), "epsilon"].to_numpy(dtype=np.float64)
    return bool(np.isfinite(claimed).all()) and np.unique(claimed).size > 1


def points_table(
    models: pd.DataFrame, points: Sequence[Point], utility: str, by_guarantee: bool = True
) -> pd.DataFrame:
    """Return a table with a row for each point of a sweep: results over its models, and whether it is on the frontier.

    `by_guarantee`: Otherwise it is that of utility against Epsilon*, over all points.
    """
    rows = []
    for point in points:
        frame = models[models["point"] == point.name]
        row: dict[str, Any] = {"point": point.name, "settings": describe(point.settings)}
        row |= {"private": bool(frame["private"].iloc[0]), "models": len(frame)}
        row |= {name: frame[name].iloc[0] for name in GUARANTEE_NAMES}
        if WORST_CLIENT in frame:
            row[WORST_CLIENT] = frame[WORST_CLIENT].mean()
        for name, column in (("utility", metric_column(utility)), ("epsilon_star",) * 2, ("membership_advantage",) * 2):
            row |= {name: frame[column].mean(), f"{name}_low": frame[column].min(), f"{name}_high": frame[column].max()}
        rows.append(row | {name: frame[name].iloc[0] for name in ATTACKED if name in frame})
    table = pd.DataFrame(rows)
    risk = "epsilon" if by_guarantee and guarantee_varies(table) else "epsilon_star"
    # Points without a guarantee are on no frontier of guarantees; a model whose Epsilon* is unbounded is on none of
    # that.
    usable = np.flatnonzero(np.isfinite(table[risk]) & np.isfinite(table["utility"]))
    if risk == "epsilon":
        usable = usable[table["private"].to_numpy(dtype=bool)[usable]]
    best = convex_frontier(table[risk][usable], table["utility"][usable]) if len(usable) else usable
    return table.assign(on_frontier=np.isin(np.arange(len(table)), usable[best]))
