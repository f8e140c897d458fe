"""Accuracy beside the same training without privacy, where such a run is named."""

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fl_audit.federation.federation_records import split_of
from fl_audit.run_files import read_json
from fl_audit.runs.config import parse_config
from fl_audit.runs.non_private_run import note_unprotected, unprotected_config, unprotected_place
from fl_audit.runs.planning import plan_run
from fl_audit.runs.run_report import rebuild_report
from tests.builders.refusals import assert_refused
from tests.builders.runs import run_locally, small_plan
from tests.builders.settings import small_settings

# One worker plays the runs that tests of this file share.
pytestmark = pytest.mark.xdist_group("without privacy")
FREE = {"private": False, "belief": None, "clipping-norm": None, "sensitivity": None}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A private run, the same without privacy, and one of another training without privacy."""
    directory = tmp_path_factory.mktemp("beside")
    without = {"privacy": FREE, "audit": {"insider": False}}
    kinds = {"private": {}, "free": without, "other": without | {"training": {"rounds": 1}}}
    for name, changes in kinds.items():
        run_locally(small_plan(**changes), directory / name)
    return directory


@pytest.mark.long
def test_the_report_shows_both_from_then_on(runs: Path) -> None:
    rebuild_report(runs / "private", runs / "free")
    releases = pd.read_parquet(runs / "free" / "releases.parquet")
    final = releases.loc[releases["round"] == releases["round"].max(), "test_accuracy"].mean()
    utility = read_json(runs / "private" / "summary.json")["utility"]
    assert utility["test_accuracy_without_privacy"] == pytest.approx(final)
    assert utility["test_accuracy"] != pytest.approx(final)
    rebuild_report(runs / "private")
    assert "without privacy" in (runs / "private" / "report.html").read_text()
    assert read_json(runs / "private" / "summary.json")["utility"] == utility


@pytest.mark.long
@pytest.mark.parametrize(
    ("of", "beside", "expected_message"),
    [
        ("free", "private", r"private .*--without-privacy .*private = false"),
        ("private", "other", r"other .*training\.rounds is 1 and was"),
        ("private", "nothing", "nothing"),
    ],
)
def test_another_training_is_refused(of: str, beside: str, expected_message: str, runs: Path) -> None:
    assert_refused(expected_message, rebuild_report, runs / of, runs / beside)
    assert not (runs / "other" / "public" / "without-privacy.json").exists()


def test_a_run_that_was_changed_is_refused(runs: Path, tmp_path: Path) -> None:
    """A joined table is not believed, and the batches only as they were written."""
    changed = shutil.copytree(runs / "free", tmp_path / "free")
    note_path = runs / "private" / "public" / "without-privacy.json"
    note_unprotected(runs / "private", changed)
    expected = read_json(note_path)
    frame = pd.read_parquet(changed / "releases.parquet")
    frame.assign(test_accuracy=1.0).to_parquet(changed / "releases.parquet")
    note_unprotected(runs / "private", changed)
    assert read_json(note_path) == expected
    batch = next(changed.glob("challenger/batches/*/releases.parquet"))
    pd.read_parquet(batch).assign(test_accuracy=1.0).to_parquet(batch)
    assert_refused("missing or damaged", note_unprotected, runs / "private", changed)


def test_the_same_training_is_made_from_the_run_itself(runs: Path) -> None:
    config = parse_config(small_settings())
    plain = unprotected_config(config)
    assert (plain.data, plain.model, plain.training) == (config.data, config.model, config.training)
    assert not plain.privacy.private
    assert not plain.audit.insider
    directory = unprotected_place(runs / "private")
    assert directory == runs / "private-without-privacy"
    run_locally(plan_run(plain), directory)
    contents = rebuild_report(runs / "private", directory)
    names = [entry["name"] for entry in contents.summary["findings"]]
    metrics = read_json(runs / "private" / "public" / "without-privacy.json")["metrics"]
    played = pd.read_parquet(directory / "trials.parquet")
    assert metrics["auroc"] == pytest.approx(played["test_auroc"].mean())
    assert metrics["loss"] == pytest.approx(played["test_loss"].mean())
    assert {"Test accuracy", "Accuracy of naming one class", "Test accuracy without privacy"} <= set(names)
    assert_refused("without privacy already", unprotected_config, plain)


@pytest.mark.parametrize("adjacency", ["replace-user", "add-remove-user", "replace-record", "add-remove-record"])
def test_the_same_records_train_without_privacy(adjacency: str, tmp_path: Path) -> None:
    table = pd.DataFrame({"patient": [n // 3 for n in range(120)], "age": range(120), "outcome": [0, 1, 1, 0] * 30})
    table.to_csv(tmp_path / "patients.csv", index=False)
    data = {"name": "csv", "path": str(tmp_path / "patients.csv"), "label": "outcome", "user": "patient"}
    privacy = {"adjacency": adjacency, "accountant": "gdp", "sensitivity": "global"}
    private = small_plan(data=data, privacy=privacy)
    free = plan_run(unprotected_config(private.config))
    trained = [split_of(plan.federation).inside.features for plan in (private, free)]
    assert private.config.as_dict()["data"] == free.config.as_dict()["data"]
    np.testing.assert_array_equal(*trained)
