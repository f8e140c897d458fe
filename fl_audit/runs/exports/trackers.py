"""Export of finished runs to TensorBoard and MLflow, which are optional dependencies."""

import io
import json
import math
import os
import re
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pandas as pd
from matplotlib.image import imread

from fl_audit.errors import InputError, first_line, require
from fl_audit.ordinary_files import read_file, readable, require_ordinary
from fl_audit.runs.epsilon_by_round import EPSILON
from fl_audit.runs.stored_run import Run
from fl_audit.user_modules import title_of_named


@dataclass(frozen=True)
class Series:
    """A time series: one number for each of several rounds."""

    name: str  # name of the series, such as `belief/mean`
    steps: tuple[int, ...]  # rounds from 1, or releases from 0 (the initial model)
    values: tuple[float, ...]  # finite numbers, one for each step


def series_of(run: Run) -> list[Series]:
    """Return the time series of a finished run over its rounds, as means or maxima over the trials.

    The series are the metrics on test records, the epsilon spent, Epsilon* (a model's privacy risk), noise, sensitivity
    and belief. The belief is the insider's posterior probability of the data set that was really used. Series that the
    run does not have are left out.
    """
    releases = run.releases
    rounds = run.rounds
    if "log_odds" in rounds and "bit" in run.trials:
        sign = np.where(run.trials.set_index("trial")["bit"].loc[rounds["trial"]].to_numpy(), 1.0, -1.0)
        prior = float(run.configuration["privacy"]["prior"])
        log_odds = sign * (rounds["log_odds"].to_numpy(dtype=np.float64) + math.log(prior / (1 - prior)))
        rounds = rounds.assign(belief=np.exp(-np.logaddexp(0.0, -log_odds)))
    series = []
    for table, column, statistic, name in (
        *((releases, column, "mean", f"{name}/mean") for name, column in _columns(releases, "test_")),
        *((releases, column, "mean", f"train/{name}") for name, column in _columns(releases, "train_")),
        (releases, EPSILON, "mean", "epsilon/spent"),
        (releases, "epsilon_star", "mean", "epsilon_star/mean"),
        (releases, "epsilon_star", "max", "epsilon_star/max"),
        (rounds, "belief", "mean", "belief/mean"),
        (rounds, "belief", "max", "belief/max"),
        (rounds, "sigma", "mean", "noise/claimed"),
        (rounds, "measured_sigma", "mean", "noise/measured"),
        (rounds, "local_sensitivity", "mean", "sensitivity/mean"),
        (rounds, "local_sensitivity", "max", "sensitivity/max"),
    ):
        if column in table:
            values = table.groupby("round")[column].agg(statistic)
            values = values[np.isfinite(values.to_numpy(dtype=np.float64))]
            if not values.empty:
                series.append(Series(name, tuple(map(int, values.index)), tuple(map(float, values))))
    return series


def _columns(releases: pd.DataFrame, prefix: str) -> list[tuple[str, str]]:
    """Return the columns of metrics with a prefix, as pairs of the metric and the column."""
    names = [str(column) for column in releases if str(column).startswith(prefix)]
    return [(name.removeprefix(prefix), name) for name in names]


def findings_of(run: Run) -> dict[str, float]:
    """Return the finite numbers of the guarantee and of the first page of the report, by name.

    Examples of names are `guarantee.epsilon`, `metric.auroc` and `page/AUC LiRA`. Names have no special characters,
    because trackers do not accept them. All other numbers are in `summary.json`.
    """
    guarantee, utility = (run.summary.get(section) or {} for section in ("guarantee", "utility"))
    named_values = [(f"guarantee.{name}", guarantee.get(name)) for name in ("epsilon", "delta")]
    named_values += [
        (f"metric.{title_of_named(name)}", value) for name, value in (utility.get("metrics") or {}).items()
    ]
    page = [(" ".join(re.findall("[A-Za-z0-9.-]+", row["name"])), row["value"]) for row in run.summary["findings"]]
    named_values += [(f"page/{name}", value) for name, value in page]
    return {name: float(value) for name, value in named_values if value is not None and math.isfinite(value)}


def settings_of(run: Run) -> dict[str, str]:
    """Return the settings of a run as text, by `section.key`; settings without a value are left out."""
    return {
        f"{section}.{key}": value if isinstance(value, str) else json.dumps(value)
        for section, keys in run.configuration.items()
        for key, value in keys.items()
        if value is not None
    }


def to_tensorboard(run: Run, directory: Path) -> Path:
    """Write time series, findings and figures of a run for TensorBoard, and return the directory of the written files.

    `directory`: The files are written to a new directory inside it, which has the run's name.
    """
    try:  # an extra, which an installation may lack
        from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415
    except ImportError:
        raise InputError("tensorboard is not installed: install it with pip install 'fl-audit[tensorboard]'") from None
    path = directory / run.path.resolve().name
    if path.exists() and any(path.iterdir()):
        raise InputError(f"{path} exists: accepted is a log directory without a run of this name")
    with SummaryWriter(str(path)) as writer:
        for series in series_of(run):
            for step, value in zip(series.steps, series.values, strict=True):
                writer.add_scalar(series.name, value, step)
        # Numbers about the whole run are no curves: a table says them.
        rows = "\n".join(f"| {name} | {value:.6g} |" for name, value in findings_of(run).items())
        writer.add_text("findings", f"| finding | value |\n| --- | --- |\n{rows}")
        writer.add_text("verdict", f"**{run.verdict}**. {run.summary['scope']}")
        writer.add_text("configuration", "\n".join(f"    {name} = {text}" for name, text in settings_of(run).items()))
        for name, figure in run.figures.items():
            with readable(figure.path, "no picture that can be read", "a PNG file that the run wrote"):
                pixels = imread(io.BytesIO(read_file(figure.path)))[..., :3]
            writer.add_image(f"figures/{name}", pixels, dataformats="HWC")
    return path


_LONGEST_PARAMETER = 500
_PUBLIC_FILES = ("report.html", "report.pdf", "summary.json")


def to_mlflow(run: Run, tracking_uri: str, experiment: str) -> str:
    """Write a run to MLflow: settings, time series, findings, figures and report; return the id of the MLflow run."""
    try:  # an extra, which an installation may lack
        from mlflow import MlflowClient, entities  # noqa: PLC0415
    except ImportError:
        raise InputError("mlflow is not installed: install it with pip install 'fl-audit[mlflow]'") from None
    _require_answer(tracking_uri)
    try:
        client = MlflowClient(tracking_uri=tracking_uri)
        known_experiment = client.get_experiment_by_name(experiment)
        experiment_id = (
            client.create_experiment(experiment) if known_experiment is None else known_experiment.experiment_id
        )
        begun = client.create_run(experiment_id, run_name=run.path.resolve().name).info.run_id
        _log(client, entities, begun, run)
        client.set_terminated(begun)
    except Exception as error:  # the stores of MLflow raise exceptions of their own libraries too
        raise InputError(f"MLflow at {tracking_uri} refused: {first_line(error)}") from error
    return str(begun)


_SECONDS_TO_ANSWER = 3.0


def _require_answer(tracking_uri: str) -> None:
    """Refuse a tracking server that does not answer within 3 seconds, because MLflow would retry for minutes."""
    # A server that answers and then falls silent is asked once more, unless the user's environment says otherwise.
    try:
        address = urlsplit(tracking_uri)
        host = address.hostname
        port = address.port or (443 if address.scheme == "https" else 80)
    except ValueError as error:
        raise InputError(f"--out {tracking_uri!r} is no address ({error}): accepted is http://HOST:PORT") from error
    if address.scheme.startswith("sqlite"):
        _require_database(tracking_uri, Path(address.path.removeprefix("/")))
    if address.scheme not in ("http", "https"):
        return
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
    require(bool(host), f"--out {tracking_uri!r} names no host: accepted is http://HOST:PORT")
    try:
        socket.create_connection((host, port), _SECONDS_TO_ANSWER).close()
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or first_line(error)
        problem = f"MLflow at {tracking_uri} does not answer ({why})"
        raise InputError(
            f"{problem}: accepted is the address of a server that runs, or a file such as sqlite:///mlflow.db"
        ) from error


def _require_database(tracking_uri: str, path: Path) -> None:
    """Refuse a database that is a directory or no ordinary file, because MLflow would try to open it for a minute."""
    require_ordinary(f"--out {tracking_uri}", path)
    require(path == Path() or not path.is_dir(), f"--out {tracking_uri}: {path} is a directory: accepted is a file")


def _log(client: Any, entities: Any, begun: str, run: Run) -> None:
    """Write a run to the MLflow run with the id `begun`; `entities` is the module `mlflow.entities`."""
    parameters = [entities.Param(name, text[:_LONGEST_PARAMETER]) for name, text in settings_of(run).items()]
    curves = [
        entities.Metric(series.name, value, 0, step)
        for series in series_of(run)
        for step, value in zip(series.steps, series.values, strict=True)
    ]
    # Numbers about the whole run are no curves.
    tags = [entities.RunTag(f"findings/{name}", f"{value:.6g}") for name, value in findings_of(run).items()]
    tags += [entities.RunTag("verdict", str(run.verdict)), entities.RunTag("scope", str(run.summary["scope"]))]
    # One call takes at most 1000 metrics, 100 parameters and 100 tags.
    for start in range(0, len(curves), 900):
        client.log_batch(begun, metrics=curves[start : start + 900])
    for start in range(0, len(parameters), 90):
        client.log_batch(begun, params=parameters[start : start + 90])
    for start in range(0, len(tags), 90):
        client.log_batch(begun, tags=tags[start : start + 90])
    for path in [*(figure.path for figure in run.figures.values()), *(run.path / name for name in _PUBLIC_FILES)]:
        if path.is_file():
            client.log_artifact(begun, str(path), "figures" if path.suffix == ".png" else None)
