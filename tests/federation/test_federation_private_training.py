"""Tests of client-side DP-SGD: clients train privately, the server averages, and insiders score what they see."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fl_audit.errors import FederationError
from fl_audit.federation.loaded_federation import load_federation
from fl_audit.privacy.accounting import Accountant, client_epsilons
from fl_audit.runs.engine_names import Engine
from fl_audit.runs.replay import replay
from fl_audit.runs.run import HONEST, ClientAppAndStrategy, run_audit
from fl_audit.strategies.queries import _read
from tests.builders.refusals import assert_refused
from tests.builders.runs import run_locally, small_plan
from tests.builders.settings import changed_settings
from tests.federation.elsewhere import AppElsewhere


def plan_of(**changes: dict[str, Any]) -> Any:
    settings: dict[str, dict[str, Any]] = {
        "training": {"strategy": "dp-sgd-clients", "rounds": 3, "local-batch": 8, "learning-rate": None},
        "privacy": {"belief": None, "noise-multiplier": 1.2, "sensitivity": None, "clipping-norm": 1.0},
        "data": {"partition": "linear", "clients": 3},
        "audit": {"epsilon-star": False, "membership": False},
    }
    return small_plan(**changed_settings(settings, changes))


@pytest.mark.long
def test_clients_guarantee_what_their_accountants_counted(tmp_path: Path) -> None:
    plan = plan_of()
    contents = run_audit(plan, tmp_path / "run", Engine.LOCAL)
    client_guarantees = contents.summary["client_guarantees"]
    sizes = [len(shard) for shard in load_federation(plan.federation).shards]
    assert [guarantee["records"] for guarantee in client_guarantees] == sizes
    assert len(set(sizes)) > 1
    assert plan.federation.mechanism.contribution.shards == tuple(sorted(set(sizes)))
    claimed = client_epsilons(sizes, 8, 3, 1.2, 0.01, Accountant.RDP, epochs=1)
    assert [guarantee["epsilon_opacus"] for guarantee in client_guarantees] == pytest.approx(list(claimed), rel=1e-9)
    assert contents.summary["guarantee"]["epsilon"] == pytest.approx(
        max(guarantee["epsilon"] for guarantee in client_guarantees)
    )
    table = pd.read_parquet(tmp_path / "run" / "clients.parquet")
    last = table[(table["trial"] == 0) & (table["round"] == 3)]
    assert last["accounted_steps"].tolist() == [3 * -(-size // 8) for size in sizes]


@pytest.mark.parametrize("steps", ["3.9", "Infinity", "NaN", '"3"', "null"])
def test_steps_that_are_no_whole_number_are_refused(steps: str) -> None:
    state = '{{"history": [[1.2, 0.1, {}]]}}'
    assert _read(state.format("3.0"), 0, 1).steps == 3
    with pytest.raises(FederationError, match="client 0 sent no"):
        _read(state.format(steps), 0, 1)


def test_scores_stand_where_beliefs_cannot(tmp_path: Path) -> None:
    contents = run_audit(plan_of(audit={"trials": 12}), tmp_path / "run", Engine.LOCAL)
    trials = contents.trials
    rounds = contents.rounds
    assert trials[["log_odds", "belief", "won"]].isna().all().all()
    assert np.isfinite(trials["score"]).all()
    np.testing.assert_allclose(rounds.groupby("trial")["score"].sum(), trials["score"])
    assert contents.summary["insider"] is None
    assert contents.summary["scores"]["is_likelihood_ratio"] is False
    assert contents.summary["scores"]["trials"] == 12
    assert contents.summary["verdict"] == "inconclusive"
    assert contents.summary["empirical_epsilon"] is None
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "no likelihood ratio" in page
    assert "guarantees its own" in page


@pytest.mark.long
def test_scores_that_are_no_log_odds_are_not_replayed(tmp_path: Path) -> None:
    plan = plan_of(audit={"trials": 6}, run={"seed": 3})
    run_locally(plan, tmp_path / "run")
    assert_refused(r"scores and .*log-odds", replay, tmp_path / "run")


@pytest.mark.long
def test_trials_are_the_same_in_whatever_batches(tmp_path: Path) -> None:
    """Two batches at the same time overwrite each other's accountant state, and nothing else."""
    runs = [
        run_locally(plan_of(run=changes), tmp_path / str(number))
        for number, changes in enumerate(({"trials-per-batch": 3}, {"trials-per-batch": 6}, {"trials-per-batch": 2}))
    ]
    for other_run in runs[1:]:
        assert other_run.summary["client_guarantees"] == runs[0].summary["client_guarantees"]
        # The insider's stacked passes differ in their last bits between batch sizes.
        np.testing.assert_allclose(runs[0].trials["score"], other_run.trials["score"], rtol=1e-3, atol=1e-4)


@pytest.mark.long
def test_scores_find_the_record_where_there_is_hardly_any_noise(tmp_path: Path) -> None:
    """With full batches only noise hides the record, and the mean score is the record's part in the steps."""
    contents = run_locally(
        plan_of(
            training={"local-batch": 100, "local-steps": 2}, privacy={"noise-multiplier": 0.05}, audit={"trials": 30}
        ),
        tmp_path / "run",
    )
    assert contents.summary["scores"]["area"] == 1.0


@pytest.mark.few_cases(2)
@pytest.mark.parametrize("audit", [{"adversary": "server"}, {"colluders": 1}, {"view": "model"}, {"insider": False}])
def test_other_places_and_views(tmp_path: Path, audit: dict[str, Any]) -> None:
    plan = plan_of(audit={"trials": 3} | audit)
    contents = run_locally(plan, tmp_path / "run")
    assert np.isfinite(contents.trials["score"]).all() if audit.get("insider", True) else "score" not in contents.trials
    assert contents.summary["client_guarantees"] is not None


@pytest.mark.long
@pytest.mark.xdist_group("elsewhere")
def test_clients_in_another_process_give_the_same_trials(app_elsewhere: AppElsewhere, tmp_path: Path) -> None:
    """The state of the accountant is sent with the client's context."""
    plan = plan_of(training={"rounds": 2}, audit={"trials": 4}, run={"trials-per-batch": 2})
    earlier_calls = app_elsewhere.calls
    local, apart = (
        run_locally(plan, tmp_path / name, parties=parties)
        for name, parties in (("local", HONEST), ("apart", ClientAppAndStrategy(client_app=app_elsewhere)))
    )
    assert app_elsewhere.calls > earlier_calls
    np.testing.assert_array_equal(local.trials["score"], apart.trials["score"])
    np.testing.assert_array_equal(local.trials["test_accuracy"], apart.trials["test_accuracy"])
    assert apart.summary["client_guarantees"] == local.summary["client_guarantees"]
    summary = json.loads((tmp_path / "apart" / "summary.json").read_text())
    assert summary["scores"] == apart.summary["scores"]
