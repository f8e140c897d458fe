"""Files that an app writes in trials: kept apart where that can be done, said where not, and trials of two apps never
meet.
"""

import json
import os
from functools import partial
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import pytest
from flwr.app import Message
from flwr.serverapp.strategy import FedAvg

from fl_audit.adjacency import Adjacency
from fl_audit.app_audits.black_box import AuditedSystem, insider, trials_after_training
from fl_audit.app_audits.black_box.system_audit import audit_system
from fl_audit.app_audits.black_box.working_copy import WorkingCopy, outside_words
from fl_audit.app_audits.claim_audit.claim import StatedClaim
from fl_audit.app_audits.claim_audit.claim_audit_results import TrialBudget
from tests.app_audits.black_box.toy_app import summary_of, toy_audit, toy_run
from tests.builders.refusals import assert_refused


class Writing(FedAvg):
    """Adds a row to a file beside it in every round, by relative and by absolute names, as many apps do."""

    def __init__(self, elsewhere: Path | None = None) -> None:
        super().__init__(fraction_evaluate=0.0)
        self.results, self.folder, self.elsewhere = Path.cwd() / "results.json", str(Path.cwd() / "out"), elsewhere

    def aggregate_train(self, server_round: int, replies: Any) -> Any:
        rows = json.loads(self.results.read_text()) if self.results.exists() else []
        assert len(rows) == server_round - 1, "a trial has seen the rows of another one"
        self.results.write_text(json.dumps([*rows, server_round]))
        os.makedirs(self.folder, exist_ok=True)
        np.save(Path(self.folder, f"{server_round}.npy"), np.zeros(2))
        with Path("log.txt").open("a") as log:
            log.write("a round\n")
        if self.elsewhere is not None:
            self.elsewhere.write_text("of a trial or of the training")
        return super().aggregate_train(server_round, replies)


@pytest.fixture
def app_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "app"
    directory.mkdir()
    (directory / "data.csv").write_text("1,2")
    monkeypatch.chdir(directory)
    return directory


def test_files_have_the_rows_of_the_training_alone(app_directory: Path, tmp_path: Path) -> None:
    toy_run(Writing, toy_audit(tmp_path / "trials", trials=21, contribution="own"))
    assert json.loads((app_directory / "results.json").read_text()) == [1, 2]
    assert (app_directory / "log.txt").read_text() == "a round\n" * 2
    assert sorted(path.name for path in app_directory.rglob("*")) == [
        "1.npy",
        "2.npy",
        "data.csv",
        "log.txt",
        "out",
        "results.json",
    ]
    assert Path.cwd() == app_directory
    summary = summary_of(tmp_path / "trials")
    assert summary["refusals"] == []
    assert not any("outside" in note for note in summary["notes"])
    assert any("1 of the 2 rounds" in note for note in summary["notes"])


def test_what_cannot_be_kept_apart_is_said(
    app_directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # Files of the temporary directory go by themselves: here the one of the test is none.
    monkeypatch.setattr("fl_audit.app_audits.black_box.working_copy.gettempdir", lambda: "/nowhere")
    other_path = tmp_path / "elsewhere.txt"
    toy_run(lambda: Writing(other_path), toy_audit(tmp_path / "trials", trials=21, contribution="own"))
    assert f"wrote to {other_path}, outside" in capsys.readouterr().err
    assert outside_words([]) == ""


def test_a_client_that_writes_does_so_in_a_copy(app_directory: Path, tmp_path: Path) -> None:
    def logging(message: Message, context: Any, call_next: Any) -> Message:
        with Path("client.txt").open("a") as log:
            log.write("a message\n")
        return call_next(message, context)

    toy_run(FedAvg, toy_audit(tmp_path / "trials", trials=21, contribution="own"), mods=[insider, logging], rounds=1)
    # Three clients train and evaluate once.
    assert (app_directory / "client.txt").read_text() == "a message\n" * 6


def test_trials_of_a_strategy_alone_write_nothing(app_directory: Path) -> None:
    budget = TrialBudget(pilot=40, stages=(40,), shares=(1.0,), fewest_tests=1, most_tests=1, deep=1)
    claim = StatedClaim(Adjacency.ADD_REMOVE_CLIENT, epsilon=1.0)
    result = audit_system(AuditedSystem(partial(Writing, None)), claim, budget=budget, include=["removed"])
    assert result.refusals == ()
    assert [path.name for path in app_directory.iterdir()] == ["data.csv"]


def test_a_copy_is_put_back_into_its_first_state(app_directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (app_directory / "inner" / "deep").mkdir(parents=True)
    (app_directory / "inner" / "deep" / "a.txt").write_text("a")
    (app_directory / ".git").mkdir()
    (app_directory / "wandb").mkdir()
    monkeypatch.setattr("fl_audit.app_audits.black_box.working_copy._LARGEST", 10)
    (app_directory / "large.bin").write_bytes(bytes(11))
    orphan = Path(mkdtemp(prefix="fl-audit-trials-999999999-"))
    copy = WorkingCopy(app_directory)
    assert not orphan.exists()
    try:
        here = copy.directory
        assert (here / "large.bin").is_symlink()
        assert (here / ".git").is_symlink()
        assert not (here / "wandb").exists()
        (here / "inner" / "deep" / "a.txt").write_text("changed")
        (here / "data.csv").unlink()
        (here / "new" / "one").mkdir(parents=True)
        copy.restore()
        assert (here / "inner" / "deep" / "a.txt").read_text() == "a"
        assert (here / "data.csv").read_text() == "1,2"
        assert not (here / "new").exists()
        assert copy.path_in_copy(str(app_directory / "out")) == str(here / "out")
        assert copy.path_in_copy("/other/out") == "/other/out"
    finally:
        copy.remove()
    assert not here.exists()
    monkeypatch.setattr("fl_audit.app_audits.black_box.working_copy._MOST_ENTRIES", 3)
    linked = WorkingCopy(app_directory)
    assert (linked.directory / "inner").is_symlink()
    linked.remove()


def test_two_apps_never_meet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With one working directory, one strategy and the same settings: where Flower keeps that of the first app."""
    audit = toy_audit(tmp_path, trials=21, contribution="own")
    for name in ("me/first", "me/second"):
        monkeypatch.setattr(trials_after_training, "_app_of", lambda _, name=name: name)
        toy_run(FedAvg, audit)
    assert sorted(path.name.rpartition("-")[0] for path in tmp_path.iterdir()) == ["me-first", "me-second"]
    assert_refused(r"me/first, me/second: .*such as ", audit.verdict)


@pytest.mark.long
def test_changed_clients_play_new_trials(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def scaled(factor: float) -> Any:
        def mod(message: Message, context: Any, call_next: Any) -> Message:
            assert factor
            return call_next(message, context)

        return mod

    audit = toy_audit(tmp_path, trials=21, contribution="own")
    for mods in ([scaled(1.0), insider], [scaled(1.0), insider], [scaled(2.0), insider], [insider, scaled(2.0)]):
        toy_run(FedAvg, audit, mods=mods)
    assert len(list(tmp_path.iterdir())) == 3
    assert capsys.readouterr().err.count("of the code") == 2
