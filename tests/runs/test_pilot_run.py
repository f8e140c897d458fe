"""A pilot run finds how many trials a verdict needs, and the trials that a user is told to take are enough."""

import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from fl_audit.adjacency import Adjacency
from fl_audit.federation.run_plan import RunPlan
from fl_audit.runs.pilot_run import pilot_of_signal
from fl_audit.runs.planned_run_check import check_plan, planned_of_signal, trials_needed
from fl_audit.runs.planning import plan_run
from fl_audit.runs.time_probe import TimeAndMemoryEstimate
from fl_audit.verdict.findings_verdict import VerdictFinding
from fl_audit.verdict.verdict import Verdict
from tests.builders.runs import run_locally, small_plan

# In 30 rounds of large steps a record is learned, so that its contributions become far shorter than the clipping norm.
LEARNED = {
    "data": {"name": "breast-cancer", "records": 300, "clients": 5},
    "training": {"rounds": 30, "learning-rate": 2.0, "optimizer": "sgd"},
    "privacy": {"belief": 0.9, "delta": 0.0003, "accountant": "gdp", "clipping-norm": 1.0, "sensitivity": "global"},
}
QUICK = TimeAndMemoryEstimate(1, 1, 0.0, 1e-4, 0.0, 0, 1, 0.0)
"""An estimate for trials that take hardly any time."""


def learned_record(trials: int) -> RunPlan:
    audit = {"trials": trials, "neighbour": "most-dissimilar", "epsilon-star": False}
    return small_plan(**LEARNED, audit=audit, run={"trials-per-batch": 400})


@pytest.mark.long
def test_a_pilot_run_finds_the_number_that_a_long_run_needs(tmp_path: Path) -> None:
    plan = learned_record(800)
    planned, pilot = planned_of_signal(plan), pilot_of_signal(plan, QUICK)
    summary = run_locally(plan, tmp_path / "run").summary
    needed = summary["signal"]["trials_needed"]
    assert planned is not None
    assert planned.trials_needed is not None
    assert needed > 1.5 * planned.trials_needed  # so that the plan alone would mislead
    assert pilot is not None
    assert pilot.trials_needed == pytest.approx(needed, rel=0.15)
    assert trials_needed(None, planned, pilot) >= pilot.trials_needed


@pytest.mark.long
def test_a_run_with_the_trials_that_check_asks_for_is_conclusive(tmp_path: Path) -> None:
    asked = check_plan(learned_record(200)).trials_for_conclusive_verdict
    assert asked is not None
    plan = learned_record(asked)
    assert check_plan(plan).is_conclusive
    assert not check_plan(learned_record(asked // 2)).is_conclusive
    assert run_locally(plan, tmp_path / "run").summary["verdict"] == "consistent"


@pytest.mark.long
@pytest.mark.parametrize("adjacency", ["replace-record", "add-remove-record"])
@pytest.mark.parametrize("seed", [1, 2])
def test_a_run_with_the_trials_that_a_report_asks_for_is_conclusive(adjacency: str, seed: int, tmp_path: Path) -> None:
    plan = learned_record(150)
    config = plan.config.changed(
        privacy={"adjacency": Adjacency(adjacency)},
        training={"rounds": 10},
        run={"seed": seed, "trials_per_batch": 400},
    )
    few = run_locally(plan_run(config), tmp_path / "few").find(VerdictFinding)
    assert few is not None
    assert few.verdict is Verdict.INCONCLUSIVE
    asked = few.judged.trials_for_conclusive_verdict
    assert asked is not None
    enough = plan_run(config.changed(audit={"trials": asked}))
    summary = run_locally(enough, tmp_path / "enough").summary
    assert summary["verdict"] == "consistent"


@pytest.mark.long
def test_slow_trials_are_not_played_and_nothing_is_left(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    plan = learned_record(30)
    assert pilot_of_signal(plan, replace(QUICK, round_seconds=1.0)) is None
    assert pilot_of_signal(plan, QUICK) is not None
    assert list(tmp_path.iterdir()) == []
