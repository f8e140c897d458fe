"""Tests of the run directory, of replay and resume, and of the views."""

import json
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file
from scipy.special import expit
from sklearn.metrics import roc_auc_score

from fl_audit.errors import InputError
from fl_audit.federation.loaded_federation import load_federation
from fl_audit.federation.result_columns import ResultTable, columns_of
from fl_audit.runs.cluster import ray_connection
from fl_audit.runs.cluster.ray_connection import cluster_at
from fl_audit.runs.engine_names import Engine
from fl_audit.runs.replay import ReplayMatch, replay
from fl_audit.runs.run import run_audit
from fl_audit.runs.run_directory import RunDirectory
from fl_audit.runs.run_report import rebuild_report
from fl_audit.verdict.noise_statistics import NoiseStatistics
from tests.builders.refusals import assert_refused
from tests.builders.runs import run_locally, small_plan


def test_the_run_directory_holds_what_the_readme_says(tmp_path: Path) -> None:
    run_audit(small_plan(), tmp_path / "run", Engine.LOCAL)
    top = {path.name for path in (tmp_path / "run").iterdir()}
    assert {"summary.json", "trials.parquet", "rounds.parquet", "releases.parquet", "report.html", "figures"} <= top
    assert {"public", "challenger"} <= top
    assert not [path for path in (tmp_path / "run").rglob("*") if ".part" in path.name]
    trials = pd.read_parquet(tmp_path / "run" / "trials.parquet")
    log_odds, *other_columns = columns_of(ResultTable.TRIALS)
    of_star = ("epsilon_star_counted", "epsilon_star_least", "epsilon_star_fit")
    assert list(trials) == ["trial", "bit", log_odds, "belief", "won", *other_columns, *of_star]
    assert trials["trial"].tolist() == list(range(6))
    truth = np.where(trials["bit"] == 1, 1, -1)
    np.testing.assert_allclose(trials["belief"], expit(truth * trials["log_odds"]))
    assert (trials["won"] == ((trials["log_odds"] > 0) == (trials["bit"] == 1))).all()
    rounds = pd.read_parquet(tmp_path / "run" / "rounds.parquet")
    assert list(rounds) == ["trial", "round", *columns_of(ResultTable.ROUNDS)]
    residuals = NoiseStatistics.of_table(pd.read_parquet(tmp_path / "run" / "residuals.parquet"))
    np.testing.assert_allclose(residuals.sigma.reshape(-1), rounds["measured_sigma"])
    assert rounds.groupby("trial")["log_odds"].last().tolist() == trials["log_odds"].tolist()
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["schema"] == 1
    assert summary["insider"]["wins"] == trials["won"].sum()


def test_area_under_the_roc_is_that_of_scikit_learn(tmp_path: Path) -> None:
    plan = small_plan()
    contents = run_locally(plan, tmp_path / "run")
    stored = [load_file(path)["models"] for path in sorted((tmp_path / "run" / "public").glob("models-*"))]
    federation = load_federation(plan.federation)
    scores = federation.model.logits(torch.cat(stored), federation.test.features).double().softmax(dim=2)[..., 1]
    expected = [roc_auc_score(federation.test.labels.numpy(), row) for row in scores.numpy()]
    np.testing.assert_allclose(contents.trials["test_auroc"], expected, atol=1e-9)
    assert contents.summary["utility"]["test_auroc"] == pytest.approx(np.mean(expected))


def test_of_many_classes_there_is_no_area(tmp_path: Path) -> None:
    plan = small_plan(data={"name": "digits"}, audit={"trials": 2})
    contents = run_locally(plan, tmp_path / "run")
    assert contents.trials["test_auroc"].isna().all()
    assert contents.summary["utility"]["test_auroc"] is None


@pytest.mark.long
def test_only_every_so_many_releases_are_evaluated_and_always_the_last(tmp_path: Path) -> None:
    every = run_locally(small_plan(), tmp_path / "all")
    partial_run = run_locally(small_plan(audit={"evaluate-every": 3}), tmp_path / "some")
    assert sorted(set(every.releases["round"])) == [0, 1, 2, 3, 4]
    assert sorted(set(partial_run.releases["round"])) == [0, 3, 4]
    shared = every.releases[every.releases["round"].isin([0, 3, 4])].reset_index(drop=True)
    pd.testing.assert_frame_equal(partial_run.releases, shared)
    pd.testing.assert_frame_equal(partial_run.trials, every.trials)


def test_public_files_hold_no_seed_and_no_bit(tmp_path: Path) -> None:
    run_locally(small_plan(run={"seed": 271828}), tmp_path / "run")
    public = tmp_path / "run" / "public"
    stored = json.loads((public / "configuration.json").read_text())
    assert "seed" not in stored["configuration"]["run"]
    assert "271828" not in (public / "configuration.json").read_text()
    for path in public.glob("*.safetensors"):
        assert set(load_file(path)) <= {"trials", "batch_trials", "initial", "releases", "models"}


def replayed(directory: Path, in_another_process: bool) -> dict[str, Any]:
    """Replay a run, and return the JSON output of the command."""
    if not in_another_process:
        replay_result = replay(directory)
        last = replay_result.log_odds[:, -1]
        return {"trials": replay_result.trials.tolist(), "log_odds": last, "noise_ratio": replay_result.noise_ratio}
    command = [sys.executable, "-m", "fl_audit.cli.main", "replay", str(directory), "--json"]
    return dict(json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout))


@pytest.mark.few_cases(1)
@pytest.mark.parametrize(
    ("view", "optimizer", "in_another_process"),
    [
        *(("update", "sgd", False), ("update", "adam", False), ("model", "sgd", False), ("model", "momentum", False)),
        pytest.param("update", "adam", True, marks=pytest.mark.long),
    ],
)
def test_replay_without_the_challenger_gives_the_same_log_odds(
    view: str, optimizer: str, in_another_process: bool, tmp_path: Path
) -> None:
    plan = small_plan(audit={"view": view}, training={"optimizer": optimizer, "rounds": 6})
    contents = run_locally(plan, tmp_path / "run")
    shutil.copytree(tmp_path / "run" / "public", tmp_path / "elsewhere" / "public")
    shutil.rmtree(tmp_path / "run")
    again = replayed(tmp_path / "elsewhere", in_another_process)
    assert again["trials"] == [0, 1, 2, 3]
    np.testing.assert_allclose(again["log_odds"], contents.trials["log_odds"][:4], rtol=0, atol=1e-6)
    rounds = contents.rounds[contents.rounds["trial"] < 4]
    ratio = (rounds["measured_sigma"] / rounds["sigma"]).to_numpy().reshape(4, 6)
    np.testing.assert_allclose(again["noise_ratio"], np.sqrt((ratio**2).mean(axis=1)), rtol=0, atol=1e-6)


@pytest.mark.long
def test_replay_says_to_how_many_digits_it_agrees(small_run: Path, tmp_path: Path) -> None:
    result = replay(small_run)
    agreement = result.agreement(small_run)
    assert agreement is not None
    assert agreement.agrees
    assert agreement.digits >= 6
    shutil.copytree(small_run / "public", tmp_path / "alone" / "public")
    assert result.agreement(tmp_path / "alone") is None
    assert [ReplayMatch(difference).digits for difference in (0.0, 2e-9, 0.5, 70.0)] == [15, 8, 0, 0]
    assert [ReplayMatch(difference).agrees for difference in (0.0, 1e-6, 1.1e-6)] == [True, True, False]


@pytest.mark.long
def test_replay_notices_a_changed_release(small_run: Path) -> None:
    from safetensors.torch import save_file

    path = next((small_run / "public").glob("releases-*"))
    stored = load_file(path)
    stored["releases"][1, 0, 0] += 1.0
    save_file(stored, path)
    agreement = replay(small_run).agreement(small_run)
    assert agreement is not None
    assert not agreement.agrees
    assert abs(replay(small_run).log_odds[0, -1] - pd.read_parquet(small_run / "trials.parquet")["log_odds"][0]) > 1e-3


@pytest.mark.parametrize(
    ("changes", "engine", "address", "named"),
    [
        (
            {"data": {"records": 2, "clients": 2, "seed": 1}, "privacy": {"adjacency": "add-remove-record"}},
            Engine.LOCAL,
            None,
            "Epsilon\\* needs 2 records in D', there are 1",
        ),
        ({}, Engine.RAY, "127.0.0.1:1", r"127\.0\.0\.1:1: .*no Ray cluster"),
    ],
)
def test_what_cannot_run_is_refused_and_leaves_nothing(
    changes: dict[str, dict[str, Any]], engine: Engine, address: str | None, named: str, tmp_path: Path
) -> None:
    assert_refused(named, run_audit, small_plan(**changes), tmp_path / "run", engine, address, with_report=False)
    assert not (tmp_path / "run").exists()


@pytest.mark.long
def test_the_view_model_says_what_the_view_update_says(tmp_path: Path) -> None:
    runs = [
        run_locally(small_plan(audit={"view": view}), tmp_path / view).trials["log_odds"]
        for view in ("update", "model")
    ]
    np.testing.assert_allclose(runs[0], runs[1], atol=1e-3)


def test_an_existing_directory_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "notes.txt").write_text("mine")
    for is_resumed in (False, True):
        assert_refused("holds no run", run_locally, small_plan(), tmp_path / "run", resume=is_resumed)
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["notes.txt"]


def test_the_report_can_be_rebuilt(small_run: Path) -> None:
    before = (small_run / "summary.json").read_text()
    assert rebuild_report(small_run).summary == json.loads(before)
    assert (small_run / "report.html").exists()
    assert (small_run / "summary.json").read_text() == before


@pytest.mark.long
def test_who_learns_nothing_is_right_by_chance(tmp_path: Path) -> None:
    """If the insider sees that the record takes part in no round, D and D' stay equally likely."""
    plan = small_plan(
        training={"sampling-rate": 0.2},
        privacy={"accountant": "pld", "sensitivity": "global"},
        audit={"participation": "seen", "trials": 40},
    )
    trials = run_locally(plan, tmp_path / "run").trials
    nothing = trials[trials["log_odds"] == 0]
    assert set(nothing["bit"]) == {0, 1}
    assert (nothing["won"] == (nothing["bit"] == 0)).all()


def test_a_removed_record_and_a_prior(tmp_path: Path) -> None:
    plan = small_plan(privacy={"adjacency": "add-remove-record", "prior": 0.2})
    contents = run_audit(plan, tmp_path / "run", Engine.LOCAL)
    trials = contents.trials
    truth = np.where(trials["bit"] == 1, 1, -1)
    np.testing.assert_allclose(trials["belief"], expit(truth * (trials["log_odds"] + np.log(0.25))))
    assert (trials["won"] == ((trials["log_odds"] > np.log(4)) == (trials["bit"] == 1))).all()
    assert re.search(r"20\s% likely before", (tmp_path / "run" / "report.html").read_text())
    assert trials["epsilon_star"].notna().all()


def test_a_resumed_run_may_change_how_it_is_carried_out(small_run: Path) -> None:
    before = json.loads((small_run / "summary.json").read_text())
    (small_run / "timing.json").unlink()
    changed = small_plan(run={"client-time-limit": 9.0, "actors": 1, "seed": None})
    after = run_locally(changed, small_run, resume=True)
    assert after.summary["insider"] == before["insider"]
    assert after.summary["timing"]["training_seconds"] is None


@pytest.mark.long
def test_trials_added_after_a_report_are_a_further_look_and_the_report_says_so(tmp_path: Path) -> None:
    """A report that is written again is no further look, and neither is the resumption of a run without a verdict."""
    directory = tmp_path / "run"
    extended_plan = small_plan(audit={"trials": 9})
    first = run_audit(small_plan(), directory, Engine.LOCAL)
    again = rebuild_report(directory)
    assert again.summary == first.summary
    assert (first.summary["looks"], "judged before" in first.summary["scope"]) == ([6], False)
    assert "at one look" not in (directory / "report.html").read_text()
    second = run_audit(extended_plan, directory, Engine.LOCAL, resume=True)
    assert second.summary["looks"] == rebuild_report(directory).summary["looks"] == [6, 9]
    judged_before = r"judged before, [^<]*\b6 trials"
    assert re.search(judged_before, second.summary["scope"])
    page = (directory / "report.html").read_text()
    for text in (judged_before, r"\b2 in 1,000 audits", r"\b1 in 1,000 audits [^<]*one look"):
        assert re.search(text, page)
    (directory / "summary.json").unlink()  # as of a run that was ended before it was judged
    unjudged = run_locally(extended_plan, directory, resume=True)
    assert unjudged.summary["looks"] == [9]


def test_auto_is_the_only_cluster_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object, **__: object) -> None:
        raise ConnectionError("Found multiple active Ray instances")

    def ray_at(address: str) -> SimpleNamespace:
        context = SimpleNamespace(gcs_address=address)
        doing_nothing = lambda *_, **__: None  # noqa: E731
        return SimpleNamespace(init=doing_nothing, shutdown=doing_nothing, get_runtime_context=lambda: context)

    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        monkeypatch.setattr(ray_connection, "_asks_for_token", lambda address: False)
        monkeypatch.setattr(ray_connection, "ray", ray_at(address))
        assert cluster_at("auto") == cluster_at(address) == address
        assert cluster_at(None) is None
    monkeypatch.setattr(ray_connection.ray, "init", none)
    assert_refused(r"exactly one Ray .*Found multiple", cluster_at, "auto")


def _open(run: RunDirectory, finished: str | None = None) -> None:
    """Open a run directory, make a directory in it, and refuse the input."""
    with run.opened(small_plan(), resume=False):
        if finished is not None:
            (run.path / finished).mkdir(parents=True)
        raise InputError("late")


def test_wrong_input_that_shows_late_leaves_nothing_in_the_way(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "run")
    for _ in range(2):  # the second try finds the place free
        assert_refused("late", _open, run)
        assert not run.path.exists()
    assert_refused("late", _open, run, "challenger/batches/batch-00000")
    assert run.is_begun, "what was finished is kept"


def test_a_run_that_another_process_holds_is_refused_and_left_as_it_is(small_run: Path) -> None:
    run_directory = RunDirectory(small_run)
    plan = small_plan()
    configuration = small_run / "public" / "configuration.json"
    before = configuration.read_bytes()
    extended_plan = small_plan(audit={"trials": 2 * plan.config.audit.trials})
    with run_directory.locked():
        assert_refused("in use", run_locally, extended_plan, small_run, resume=True)
    assert configuration.read_bytes() == before


def test_two_runs_that_begin_in_one_place_at_once_are_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both find the directory empty. The second is refused during the first one and after it, and changes nothing."""
    monkeypatch.setattr("fl_audit.runs.run_directory.require_new_run_path", lambda path, resume: None)
    first = RunDirectory(tmp_path / "run")
    plan = small_plan()
    files = [first.path / "challenger" / "seed.json", first.path / "public" / "configuration.json"]
    with first.opened(plan, resume=False):
        begun = [file.read_bytes() for file in files]
        assert_refused("in use", _open, first)
    assert_refused("has begun", _open, first)
    assert [file.read_bytes() for file in files] == begun


def test_a_run_that_was_killed_before_it_began_stands_in_nobodys_way(tmp_path: Path) -> None:
    run_directory = RunDirectory(tmp_path / "run")
    for room in ("challenger", "public"):
        (run_directory.path / room).mkdir(parents=True)
    (run_directory.path / "challenger" / "seed.json").write_text("{}")
    for name in ("challenger/.lock", "public/.configuration.7.part.json"):
        (run_directory.path / name).touch()
    with run_directory.opened(small_plan(), resume=False) as plan:
        assert run_directory.is_begun
        assert run_directory.secret().seed == plan.config.run.seed
    assert not list(run_directory.path.rglob(".*.part*"))
    (tmp_path / "other" / "challenger").mkdir(parents=True)
    (tmp_path / "other" / "thesis.txt").touch()
    assert_refused(r"other .*no run", _open, RunDirectory(tmp_path / "other"))
