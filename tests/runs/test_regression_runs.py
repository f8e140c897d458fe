"""Runs whose labels are quantities: labels are scaled by known ranges, and models learn what least squares finds."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression

from fl_audit.data.catalogue import DataSpec, load_source
from fl_audit.federation.loaded_federation import load_federation
from fl_audit.federation.run_plan import RunPlan
from fl_audit.runs.config import parse_config
from fl_audit.runs.config_file import values_of
from fl_audit.runs.engine_names import Engine
from fl_audit.runs.planning import plan_run
from fl_audit.runs.run import run_audit
from fl_audit.runs.stored_run import Run, read_run
from tests.builders.refusals import assert_refused
from tests.builders.settings import changed_settings, toml_text
from tests.builders.tables import load_table


def table(directory: Path, records: int = 400) -> Path:
    draw = np.random.default_rng(0)
    features = draw.uniform(-1, 1, (records, 3))
    pressure = 120 + features @ [30.0, -20.0, 5.0] + draw.normal(0, 2, records)
    path = directory / "pressure.csv"
    pd.DataFrame(features, columns=["a", "b", "c"]).assign(pressure=pressure).to_csv(path, index=False)
    return path


def settings(directory: Path, **changes: dict[str, object]) -> dict[str, dict[str, object]]:
    data = {"name": "table", "path": str(table(directory)), "label": "pressure", "task": "regression", "records": 250}
    base: dict[str, dict[str, object]] = {
        "data": data | {"clients": 3, "test-records": 80},
        "model": {"name": "logistic"},
        "training": {"rounds": 60, "learning-rate": 0.4},
        "privacy": {"private": False},
        "audit": {"trials": 1, "insider": False},
        "run": {"seed": 1},
    }
    return changed_settings(base, changes)


def plan_of(directory: Path, **changes: dict[str, object]) -> RunPlan:
    return plan_run(parse_config(values_of(toml_text(settings(directory, **changes)), "test", directory)))


def played(directory: Path, **changes: dict[str, object]) -> Run:
    run_audit(plan_of(directory, **changes), directory / "run", Engine.LOCAL)
    return read_run(directory / "run")


def test_labels_are_scaled_by_the_range_of_the_training_records(tmp_path: Path) -> None:
    path = tmp_path / "known.csv"
    path.write_text("age,days\n20,5\n30,15\n40,10\n50,25\n")
    source = load_table(path, "days", task="regression")
    assert source.pool.has_quantities
    assert source.pool.labels.tolist() == [0.0, 0.5, 0.25, 1.0]
    assert (source.pool.label_range, source.pool.classes, source.class_names) == ((5.0, 25.0), 1, ())
    assert source.pool.take([3]).label_range == (5.0, 25.0)
    test = tmp_path / "test.csv"
    test.write_text("age,days\n20,45\n30,5\n")
    tested = load_table(path, "days", task="regression", test_path=str(test))
    assert tested.test is not None
    assert tested.test.labels.tolist() == [2.0, 0.0], "test labels beyond the range are not cut"


def test_arrays_hold_quantities_as_they_are(tmp_path: Path) -> None:
    values = np.array([0.5, -3.25, 7.0])
    np.savez(tmp_path / "arrays.npz", x=np.eye(3, dtype=np.float32), y=values)
    options = (("path", str(tmp_path / "arrays.npz")), ("task", "regression"))
    source = load_source(DataSpec("npz", options=options))
    assert (source.pool.labels.tolist(), source.pool.label_range) == (values.tolist(), (0.0, 1.0))


@pytest.mark.parametrize("days", [[0.5 * number for number in range(40)], list(range(30)) * 4])
def test_numbers_that_look_like_a_quantity_are_refused_with_the_task_that_learns_it(
    tmp_path: Path, days: list[float]
) -> None:
    path = tmp_path / "days.csv"
    pd.DataFrame({"a": np.random.default_rng(0).random(len(days)), "days": days}).to_csv(path, index=False)
    error = assert_refused("looks like a quantity", load_table, path, "days")
    (remedy,) = [candidate for candidate in (*error.remedies, *error.choices) if candidate.key == "task"]
    assert str(remedy) in str(error)
    assert load_table(path, "days", task=remedy.value).pool.has_quantities


def test_a_label_of_words_is_no_quantity(tmp_path: Path) -> None:
    path = tmp_path / "words.csv"
    path.write_text("age,group\n20,young\n30,old\n")
    named = "label column group has words, and task is 'regression'"
    assert_refused(named, load_table, path, "group", task="regression")


@pytest.mark.long
def test_a_federated_regression_finds_what_least_squares_finds(tmp_path: Path) -> None:
    run = played(tmp_path, training={"rounds": 300})
    federation = load_federation(plan_of(tmp_path).federation)
    low, high = federation.test_records.label_range
    inside = federation.training
    exact = LinearRegression().fit(inside.features.numpy(), low + (high - low) * inside.labels.numpy())
    truth = low + (high - low) * federation.test_records.labels
    rmse = float(np.sqrt(np.mean((exact.predict(federation.test_records.features) - truth) ** 2)))
    utility = run.summary["utility"]
    assert utility["headline"] == "rmse"
    assert utility["metrics"]["rmse"] == pytest.approx(rmse, rel=0.05)
    assert utility["metrics"]["r2"] > 0.95
    assert utility["test_accuracy"] is None
    assert "accuracy" not in utility["metrics"]
    assert np.isfinite(run.history["test_rmse"]).all()
    text = run.report.read_text()
    assert "nan" not in text.lower().split("<body")[1].replace("finance", "")


@pytest.mark.long
@pytest.mark.parametrize(
    "changes",
    [
        {"audit": {"trials": 40, "kind": "membership", "targets": 40}},
        {"audit": {"trials": 30, "insider": True}, "training": {"rounds": 10, "learning-rate": 0.2}},
        {
            "training": {"strategy": "dp-fedavg", "rounds": 5, "learning-rate": 1.0},
            "privacy": {"adjacency": "add-remove-client"},
            "audit": {"trials": 20, "insider": True},
            "data": {"clients": 10},
        },
        {"training": {"strategy": "dp-sgd-clients", "rounds": 3, "learning-rate": 1.0}, "audit": {"trials": 3}},
    ],
    ids=["membership", "insider", "clients", "opacus"],
)
def test_audits_of_a_regression_are_consistent(tmp_path: Path, changes: dict[str, dict[str, object]]) -> None:
    privacy = {"private": True, "epsilon": 4.0, "adjacency": "add-remove-record"} | changes.get("privacy", {})
    run = played(tmp_path, **(changes | {"privacy": privacy}))
    assert run.verdict in ("consistent", "inconclusive", "not audited")
    assert run.summary["verdict"] != "violated"
    assert np.isfinite(run.trials["test_rmse"]).all()
    if changes["audit"].get("kind") == "membership":
        assert set(run.summary["attacks"]["by_name"]) >= {"loss", "lira", "rmia"}
        assert "shadow" not in run.summary["attacks"]["by_name"]
