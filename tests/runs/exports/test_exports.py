"""Runs in the tools that people follow experiments with: what is written is read back through their own libraries."""

import json
import os
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from fl_audit.cli.main import app
from fl_audit.runs.exports.badge import badge
from fl_audit.runs.exports.trackers import _require_answer, findings_of, series_of
from fl_audit.runs.stored_run import Run, read_run
from tests.builders.commands import printed_by
from tests.builders.refusals import assert_refused
from tests.one_pixel import ONE_PIXEL

LOG_ODDS = [[1.0, 2.0], [-0.5, 1.5], [0.2, -3.0]]  # of D against D', of three trials over two rounds


def stored(directory: Path) -> Path:
    """Write a run of three trials and two rounds whose numbers are known."""
    (directory / "public").mkdir(parents=True)
    (directory / "figures").mkdir()
    (directory / "figures" / "beliefs.png").write_bytes(ONE_PIXEL)
    summary = {
        "schema": 1,
        "verdict": "consistent",
        "scope": "one pair",
        "guarantee": {"epsilon": 2.0, "delta": 0.001},
        "epsilon_star": None,
        "utility": {"metrics": {"auroc": 0.8}},
        "noise": {"tests": [], "ratio": 1.01},
        "findings": [{"name": "Share at 10\xa0% (nats)", "value": 0.2}, {"name": "AUC", "value": None}],
    }
    (directory / "summary.json").write_text(json.dumps(summary))
    configuration = {"privacy": {"prior": 0.5, "epsilon": 2.0}, "run": {"device": "cpu"}, "data": {"path": None}}
    (directory / "public" / "configuration.json").write_text(json.dumps({"configuration": configuration}))
    trials = {"trial": [0, 1, 2], "bit": [True, True, False], "log_odds": [row[-1] for row in LOG_ODDS]}
    pd.DataFrame(trials | dict.fromkeys(("belief", "won", "test_accuracy"), 0.5)).to_parquet(
        directory / "trials.parquet"
    )
    round_rows: list[dict[str, Any]] = [
        {"trial": trial, "round": number, "sigma": 3.0, "local_sensitivity": 1.0 + trial, "log_odds": value}
        for trial, row in enumerate(LOG_ODDS)
        for number, value in enumerate(row, start=1)
    ]
    pd.DataFrame(round_rows).to_parquet(directory / "rounds.parquet")
    releases = [
        {"trial": w, "round": r, "test_accuracy": 0.1 * w + 0.2 * r, "test_auroc": 0.5}
        for w in range(3)
        for r in range(3)
    ]
    pd.DataFrame(releases).to_parquet(directory / "releases.parquet")
    return directory


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return read_run(stored(tmp_path / "first"))


def test_series_are_statistics_over_the_trials_of_a_round(run: Run) -> None:
    series_by_name = {series.name: series for series in series_of(run)}
    assert set(series_by_name) == {
        "accuracy/mean",
        "auroc/mean",
        "belief/mean",
        "belief/max",
        "noise/claimed",
        "sensitivity/mean",
        "sensitivity/max",
    }
    # Beliefs are in the data set that was really used: D, D and D'.
    right = 1 / (1 + np.exp(-np.array(LOG_ODDS) * np.array([[1], [1], [-1]])))
    assert series_by_name["belief/mean"].steps == (1, 2)
    assert series_by_name["belief/mean"].values == pytest.approx(right.mean(axis=0))
    assert series_by_name["belief/max"].values == pytest.approx(right.max(axis=0))
    assert series_by_name["accuracy/mean"].steps == (0, 1, 2)
    assert series_by_name["accuracy/mean"].values == pytest.approx([0.1, 0.3, 0.5])
    assert series_by_name["sensitivity/max"].values == (3.0, 3.0)
    assert findings_of(run) == {
        "guarantee.epsilon": 2.0,
        "guarantee.delta": 0.001,
        "metric.auroc": 0.8,
        "page/Share at 10 nats": 0.2,
    }


def test_tensorboard_reads_what_was_written(run: Run, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    output = printed_by("export", run.path, "--to", "tensorboard", "--out", tmp_path / "logs")
    assert output == f"tensorboard: {tmp_path / 'logs' / 'first'}\n"
    events = EventAccumulator(str(tmp_path / "logs" / "first"))
    events.Reload()
    assert [event.step for event in events.Scalars("accuracy/mean")] == [0, 1, 2]
    assert [event.value for event in events.Scalars("accuracy/mean")] == pytest.approx([0.1, 0.3, 0.5])
    scalars = events.Tags()["scalars"]
    assert all(len(events.Scalars(name)) > 1 for name in scalars), "a number about the whole run is no curve"
    assert "findings/text_summary" in events.Tags()["tensors"]
    assert events.Tags()["images"] == ["figures/beliefs"]
    again = CliRunner().invoke(app, ["export", str(run.path), "--to", "tensorboard", "--out", str(tmp_path / "logs")])
    assert f"{tmp_path / 'logs' / 'first'} exists: " in str(again.exception)


@pytest.mark.long
def test_mlflow_reads_what_was_written(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mlflow import MlflowClient

    monkeypatch.chdir(tmp_path)  # MLflow keeps artifacts where it is run
    address = f"sqlite:///{tmp_path / 'runs.db'}"
    printed_by("export", run.path, "--to", "mlflow", "--out", address, "--experiment", "audits")
    client = MlflowClient(tracking_uri=address)
    experiment = client.get_experiment_by_name("audits")
    assert experiment is not None
    (mlflow_run,) = client.search_runs([experiment.experiment_id])
    assert mlflow_run.info.run_name == "first"
    assert mlflow_run.info.status == "FINISHED"
    assert mlflow_run.data.tags["verdict"] == "consistent"
    assert mlflow_run.data.params == {"privacy.prior": "0.5", "privacy.epsilon": "2.0", "run.device": "cpu"}
    assert mlflow_run.data.tags["findings/metric.auroc"] == "0.8"
    assert not [name for name in mlflow_run.data.metrics if name.startswith("findings")], "a single number is no curve"
    assert [
        metric.value for metric in client.get_metric_history(mlflow_run.info.run_id, "accuracy/mean")
    ] == pytest.approx([0.1, 0.3, 0.5])
    assert {item.path for item in client.list_artifacts(mlflow_run.info.run_id)} == {"figures", "summary.json"}


def test_the_badge_says_the_verdict(run: Run, tmp_path: Path) -> None:
    printed_by("export", run.path, "--to", "badge", "--out", tmp_path / "badge.svg")
    root = ElementTree.fromstring((tmp_path / "badge.svg").read_text())
    assert root.attrib["aria-label"] == "privacy audit: consistent, epsilon 2"
    assert "#1a7f37" in badge(run.summary)
    violated = {**run.summary, "verdict": "violated", "guarantee": None}
    assert "#b3261e" in badge(violated)
    assert ">violated</text>" in badge(violated)


@pytest.mark.parametrize(
    ("arguments", "expected_message"),
    [(["--to", "paper"], "'paper': accepted are tensorboard, mlflow"), (["--to", "badge"], "one run")],
)
def test_what_cannot_be_exported_is_refused(arguments: list[str], expected_message: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["export", "a", "b", *arguments, "--out", str(tmp_path / "x")])
    assert expected_message in str(result.exception)


def test_a_badge_takes_the_place_of_no_directory(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    for directory in (".", str(run.path)):
        result = CliRunner().invoke(app, ["export", str(run.path), "--to", "badge", "--out", directory])
        assert isinstance(result.exception, IsADirectoryError)
        assert result.exception.filename == directory  # so that the command says it in one line
    assert sorted(tmp_path.rglob("*")) == before


def test_a_directory_as_database_is_refused_before_mlflow_waits_for_it(tmp_path: Path) -> None:
    for directory in (tmp_path, tmp_path / "pipe"):
        if directory != tmp_path:
            os.mkfifo(directory)
        assert_refused("accepted", _require_answer, f"sqlite:///{directory}")
    _require_answer(f"sqlite:///{tmp_path / 'mlflow.db'}")
    _require_answer("sqlite://")
