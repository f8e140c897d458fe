"""What a run has to show over its rounds, and its findings as flat numbers: the same for every tool."""

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fl_audit.api.stored_run import Run


@dataclass(frozen=True)
class Series:
    """A number over the rounds."""

    name: str  # such as `belief/mean`
    steps: tuple[int, ...]  # rounds, or releases from 0, the initial model
    values: tuple[float, ...]  # finite numbers, as many


def series_of(run: Run) -> list[Series]:
    """Return what a run has over its rounds: accuracy, Epsilon*, beliefs, noise and sensitivities.

    Beliefs are those in the data set that was really used, with the prior of the run.
    """
    releases, rounds = run.releases, _with_beliefs(run)
    found = [
        _over(releases, "test_accuracy", "mean", "accuracy/mean"),
        _over(releases, "epsilon_star", "mean", "epsilon_star/mean"),
        _over(releases, "epsilon_star", "max", "epsilon_star/max"),
        _over(rounds, "belief", "mean", "belief/mean"),
        _over(rounds, "belief", "max", "belief/max"),
        _over(rounds, "sigma", "mean", "noise/promised"),
        _over(rounds, "measured_sigma", "mean", "noise/measured"),
        _over(rounds, "local_sensitivity", "mean", "sensitivity/mean"),
        _over(rounds, "local_sensitivity", "max", "sensitivity/max"),
    ]
    return [series for series in found if series is not None]


def findings_of(run: Run) -> dict[str, float]:
    """Return every finite number of the summary by section and key, `guarantee.epsilon`, and of the report's page.

    Those of the page are named as there, but for characters that no tool takes: `page/AUC LiRA`.
    """
    page = ((entry["name"], entry["value"]) for entry in run.summary.get("findings", []) if entry["value"] is not None)
    named = ((f"page/{' '.join(re.findall('[A-Za-z0-9.-]+', name))}", float(value)) for name, value in page)
    return {name: value for name, value in (*_flat(run.summary), *named) if math.isfinite(value)}


def settings_of(run: Run) -> dict[str, str]:
    """Return every setting of the configuration as text, by `section.key`; those left out are missing."""
    return {
        f"{section}.{key}": value if isinstance(value, str) else json.dumps(value)
        for section, keys in run.configuration.items()
        for key, value in keys.items()
        if value is not None
    }


def _with_beliefs(run: Run) -> pd.DataFrame:
    rounds = run.rounds
    if "log_odds" not in rounds or "bit" not in run.worlds:
        return rounds
    sign = np.where(run.worlds.set_index("world")["bit"].loc[rounds["world"]].to_numpy(), 1.0, -1.0)
    prior = float(run.configuration["privacy"]["prior"])
    log_odds = sign * (rounds["log_odds"].to_numpy(dtype=np.float64) + math.log(prior / (1 - prior)))
    return rounds.assign(belief=np.exp(-np.logaddexp(0.0, -log_odds)))


def _over(table: pd.DataFrame, column: str, how: str, name: str) -> Series | None:
    """Return a statistic over the worlds of each round, None where the run has no such numbers."""
    if column not in table:
        return None
    values = table.groupby("round")[column].agg(how)
    values = values[np.isfinite(values.to_numpy(dtype=np.float64))]
    if values.empty:
        return None
    return Series(name, tuple(map(int, values.index)), tuple(map(float, values)))


def _flat(values: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, float]]:
    for key, value in values.items():
        name = f"{before}{key}"
        match value:
            case Mapping():
                yield from _flat(value, f"{name}.")
            case bool() | int() | float():
                yield name, float(value)
            case _:
                pass  # words and lists are in the report
