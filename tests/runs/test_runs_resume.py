"""Going on with a run: what counts as the same run, what differs said by name, and more trials of the same run."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fl_audit.data.catalogue import load_source
from fl_audit.data.record_selection import select_records
from fl_audit.report.report_elements import ReportContents
from fl_audit.runs.run_directory import RunDirectory, read_public
from tests.builders.refusals import assert_refused
from tests.builders.runs import run_locally, small_plan

QUICK = {"epsilon-star": False, "membership": False}


def play(directory: Path, resume: bool = False, **changes: dict[str, object]) -> ReportContents:
    changes["audit"] = QUICK | changes.get("audit", {})
    plan = small_plan(training={"rounds": 2, **changes.pop("training", {})}, **changes)
    return run_locally(plan, directory, resume=resume)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nobody changes."""
    directory = tmp_path_factory.mktemp("finished") / "run"
    play(directory)
    return directory


def test_a_run_goes_on_with_more_trials(tmp_path: Path) -> None:
    small_changes = {"audit": {"trials": 5}}
    large_changes = {"audit": {"trials": 11}}
    at_once = play(tmp_path / "at once", **large_changes)
    first = play(tmp_path / "run", **small_changes)
    batches = tmp_path / "run" / "challenger" / "batches"
    written = {path: path.stat().st_mtime_ns for path in batches.glob("*/*.parquet")}
    continued_run = play(tmp_path / "run", resume=True, **large_changes)
    assert {path: path.stat().st_mtime_ns for path in written} == written
    assert continued_run.trials["trial"].tolist() == list(range(11))
    pd.testing.assert_frame_equal(continued_run.trials[:5], first.trials, check_exact=True)
    # Trials 0 to 2 and 5 to 10 were played in other batches than at once, so their last bits may differ.
    assert continued_run.trials["bit"].tolist() == at_once.trials["bit"].tolist()
    np.testing.assert_allclose(continued_run.trials["log_odds"], at_once.trials["log_odds"], atol=1e-4)
    assert read_public(tmp_path / "run")[1]["audit"]["trials"] == 11
    assert sorted(path.name for path in batches.glob("batch-*")) == [f"batch-{index:05d}" for index in range(4)]
    assert_refused(r"audit\.trials is 5 and was 11, .*added", play, tmp_path / "run", resume=True, **small_changes)


@pytest.mark.few_cases(2)
@pytest.mark.parametrize(
    ("changes", "expected_message"),
    [
        ({"run": {"seed": 1}}, r"run\.seed is another"),
        ({"model": {"seed": 3}}, r"model\.seed is 3 and was 0"),
        ({"training": {"learning-rate": 2.0}}, r"training\.learning-rate is 2\.0 and was 1\.0"),
        ({"run": {"trials-per-batch": 2}}, r"run\.trials-per-batch is 2 and was 3"),
        ({"privacy": {"belief": None, "epsilon": 1.0}}, r"privacy\.belief is .*was 0\.9; privacy\.epsilon is 1\.0"),
        ({"data": {"partition-parameters": {"alpha": 2.0}, "partition": "dirichlet"}}, r"data\.partition is dirichlet"),
    ],
)
def test_what_differs_is_named(changes: dict[str, dict[str, object]], expected_message: str, finished: Path) -> None:
    error = assert_refused("another configuration", play, finished, resume=True, **changes)
    assert re.search(expected_message, str(error))


def test_where_a_built_in_set_is_looked_for_is_no_difference(tmp_path: Path) -> None:
    play(tmp_path / "run", data={"data-dir": str(tmp_path)})
    play(tmp_path / "run", resume=True, data={"data-dir": None})
    assert RunDirectory(tmp_path / "run").is_begun


def _csv(path: Path, shift: float) -> None:
    draw = np.random.default_rng(0)
    features = draw.normal(size=(120, 3))
    table = pd.DataFrame(features, columns=["a", "b", "c"]).assign(y=(features[:, 0] > 0).astype(int))
    table.loc[3, "a"] += shift
    table.to_csv(path, index=False)


@pytest.mark.long
def test_the_same_records_may_lie_elsewhere_and_others_may_not(tmp_path: Path) -> None:
    _csv(tmp_path / "here.csv", 0.0)
    _csv(tmp_path / "there.csv", 0.0)
    _csv(tmp_path / "others.csv", 0.5)
    data_settings = {
        name: {"name": "csv", "path": str(tmp_path / f"{name}.csv"), "label": "y", "records": 80, "test-records": 30}
        for name in ("here", "there", "others")
    }
    first = play(tmp_path / "run", data=data_settings["here"])
    (tmp_path / "here.csv").unlink()
    continued_run = play(tmp_path / "run", resume=True, data=data_settings["there"], audit={"trials": 9})
    pd.testing.assert_frame_equal(continued_run.trials[:6], first.trials, check_exact=True)
    named = "records are others"
    assert_refused(named, play, tmp_path / "run", resume=True, data=data_settings["others"], audit={"trials": 9})


def test_a_run_goes_on_with_the_same_records_outside_the_training_set_alone(tmp_path: Path) -> None:
    """A record outside D, one of which stands in D' for the differing one, is another; an older run noted no digest."""
    features = np.random.default_rng(5).normal(size=(120, 3)).astype(np.float32)
    labels = (features[:, 0] > 0).astype(np.int64)
    held_out = features[:30].copy()

    def written(name: str) -> dict[str, object]:
        np.savez(tmp_path / name, x=features, y=labels, x_test=held_out, y_test=labels[:30])
        return {"name": "npz", "path": str(tmp_path / name), "records": 80, "test-records": 30}

    data = written("here.npz")
    play(tmp_path / "run", data=data)
    plan = small_plan(data=data)
    split = select_records(load_source(plan.federation.data), 80, 30, plan.config.data.seed)
    assert split.outside is not None
    features[np.argmin(np.abs(features - split.outside.features[0]).sum(axis=1)), 1] += 0.25
    data = written("there.npz")
    assert_refused(r"records outside .*others", play, tmp_path / "run", resume=True, data=data, audit={"trials": 9})
    secret = tmp_path / "run" / "challenger" / "seed.json"
    secret.write_text(
        json.dumps({key: value for key, value in json.loads(secret.read_text()).items() if key != "outside"})
    )
    play(tmp_path / "run", resume=True, data=data, audit={"trials": 9})


@pytest.mark.long
def test_a_run_whose_machine_is_lost_goes_on_from_a_copy_of_its_directory(tmp_path: Path) -> None:
    _csv(tmp_path / "here.csv", 0.0)
    data = {"name": "csv", "path": str(tmp_path / "here.csv"), "label": "y", "records": 80, "test-records": 30}
    undisturbed = play(tmp_path / "undisturbed", data=data, audit={"trials": 9})
    play(tmp_path / "lost", data=data)
    other_directory = tmp_path / "other" / "machine"
    shutil.copytree(tmp_path / "lost", other_directory / "run")
    (tmp_path / "here.csv").rename(other_directory / "data.csv")
    shutil.rmtree(tmp_path / "lost")
    continued_run = play(
        other_directory / "run",
        resume=True,
        data=data | {"path": str(other_directory / "data.csv")},
        audit={"trials": 9},
    )
    pd.testing.assert_frame_equal(continued_run.trials, undisturbed.trials, check_exact=True)
    pd.testing.assert_frame_equal(continued_run.rounds, undisturbed.rounds, check_exact=True)


def test_a_run_goes_on_with_the_federation_that_follows_from_its_configuration(tmp_path: Path) -> None:
    first = play(tmp_path / "run")
    path = tmp_path / "run" / "public" / "configuration.json"
    stored = path.read_text()
    path.write_text(stored.replace('"clients": 3,\n    "partition"', '"clients": 2,\n    "partition"'))
    assert path.read_text() != stored
    continued_run = play(tmp_path / "run", resume=True, audit={"trials": 9})
    assert read_public(tmp_path / "run")[0].clients == 3
    pd.testing.assert_frame_equal(continued_run.trials[:6], first.trials, check_exact=True)


def test_two_runs_cannot_begin_in_one_directory(tmp_path: Path) -> None:
    (tmp_path / "run" / "challenger" / "batches").mkdir(parents=True)
    assert_refused(r"exists .*no run", play, tmp_path / "run")
