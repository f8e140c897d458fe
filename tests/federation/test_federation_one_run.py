"""Tests of the canary audit in a simulated training: bounds that canaries certify, and breaches that they find."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from torch import Tensor

from fl_audit.audits.canaries.canary_contributions import PublicCanaryFacts
from fl_audit.audits.canaries.sections_one_run import judge_canaries, measure_one_run
from fl_audit.federation.findings import Findings
from fl_audit.federation.finished_run import FinishedRun
from fl_audit.federation.loaded_federation import load_federation
from fl_audit.federation.run_plan import RunPlan
from fl_audit.runs.engine_names import Engine
from fl_audit.runs.run import ClientAppAndStrategy, run_audit
from fl_audit.strategies.trial_batch_strategy import TrialBatchStrategy
from fl_audit.trial_batches import TrialBatch
from fl_audit.verdict.verdict import Verdict
from tests.builders.runs import run_locally, small_plan
from tests.builders.settings import changed_settings

AVERAGED = {"strategy": "dp-fedavg", "rounds": 40, "learning-rate": 1.0}
PRIVATE = {"strategy": "dp-sgd-clients", "rounds": 12, "local-steps": 4, "local-batch": 10}


def one_run_plan(training: dict[str, Any], **changes: dict[str, Any]) -> RunPlan:
    sections: dict[str, dict[str, Any]] = {
        "data": {"clients": 6},
        "model": {"name": "dense-128"},
        "training": training,
        "privacy": {"belief": None, "noise-multiplier": 1.0, "sensitivity": None, "accountant": "gdp"},
        "audit": {"kind": "canaries", "trials": None, "canaries": 6, "epsilon-star": False, "evaluate-every": 40},
        "run": {"trials-per-batch": None},
    }
    return small_plan(**changed_settings(sections, changes))


def slope(table: pd.DataFrame) -> tuple[float, float]:
    """Return the slope of scores over the part of a canary, with its standard error; decoys are included."""
    canary_shares = (table["part"] * table["is_in"]).to_numpy(dtype=np.float64)
    (fitted_slope, _), covariance = np.polyfit(canary_shares, table["score"], 1, cov=True)
    return fitted_slope, float(np.sqrt(covariance[0, 0]))


@pytest.mark.long
@pytest.mark.parametrize(
    ("training", "privacy", "canaries", "decoys"),
    [
        (AVERAGED, {}, 6, 20),
        (AVERAGED, {"adjacency": "replace-client"}, 6, 0),
        (AVERAGED, {"clipping": "adaptive", "clipping-norm": 0.3}, 6, 20),
        (AVERAGED | {"sampling-rate": 0.5}, {"accountant": "pld"}, 6, 20),
        (AVERAGED | {"strategy": "dp-fedsgd"}, {"adjacency": "add-remove-record"}, 6, 20),
        (PRIVATE, {"accountant": "pld"}, 6, 20),
    ],
    ids=["fedavg", "replace", "adaptive", "sampled", "fedsgd", "opacus"],
)
def test_scores_hold_their_canaries_and_the_noise_of_the_mechanism(
    training: dict[str, Any], privacy: dict[str, Any], canaries: int, decoys: int, tmp_path: Path
) -> None:
    """A canary that is in moves its score by one, and the spread of scores is that of the noise or a little more.

    If clients are replaced, a canary that is out is sent with the opposite sign, and the noise is twice as large.
    """
    plan = one_run_plan(training, privacy=privacy, audit={"trials": 2})
    contents = run_locally(plan, tmp_path / "run")
    table = contents.run.tables.canaries
    numbers = contents.summary["one_run"]
    assert table is not None
    rounds = plan.federation.rounds
    assert len(table) == 2 * rounds * (canaries + decoys)
    doubled = 2.0 if decoys == 0 else 1.0
    step, error = slope(table)
    assert step == pytest.approx(doubled, abs=4.5 * error)
    out = table[~table["is_in"]]["score"]
    # Other clients' updates lie along a direction by chance, six of them by less than a third of the noise's spread.
    assert 0.85 < out.std() / doubled < 1.2
    assert numbers["mu_true"] == pytest.approx(1.0)
    assert numbers["mu"] == pytest.approx(1.0, abs=0.5)
    assert 0 < numbers["mu_lower"] < 1.3
    assert numbers["trials"] == 2
    assert (numbers["canaries"], numbers["rounds"], numbers["method"]) == (canaries, rounds, "shift")
    assert contents.summary["verdict"] in ("consistent", "inconclusive")
    guarantee = contents.plan.guarantee
    assert guarantee is not None
    assert numbers["epsilon_claimed"] == pytest.approx(guarantee.epsilon, rel=1e-6)


def test_noise_that_is_missing_is_found(tmp_path: Path) -> None:
    class TenthOfTheNoise(TrialBatchStrategy):
        """Strategy that adds a tenth of the noise of its mechanism."""

        def noise(self, batch: TrialBatch, server_round: int, total: Tensor, sigma: NDArray[np.float64]) -> Tensor:
            return super().noise(batch, server_round, total, sigma / 10)

    plan = one_run_plan(AVERAGED | {"rounds": 20})
    contents = run_locally(plan, tmp_path / "run", parties=ClientAppAndStrategy(strategy=TenthOfTheNoise))
    assert contents.summary["verdict"] == "violated"
    assert contents.summary["one_run"]["mu_lower"] > 2 * contents.summary["one_run"]["mu_claimed"]


def verdict_on(run: FinishedRun) -> Verdict:
    """Return the verdict on a run."""
    judged = judge_canaries(run)
    assert judged is not None
    return judged.verdict


@pytest.mark.long
def test_an_accountant_that_starts_afresh_every_round_is_caught(tmp_path: Path) -> None:
    plan = one_run_plan(PRIVATE | {"rounds": 20}, privacy={"accountant": "pld"}, audit={"canaries": 20})
    run = run_locally(plan, tmp_path / "run").run
    assert verdict_on(run) != "violated"
    client_table = run.tables.clients
    assert client_table is not None
    afresh = client_table.assign(accounted_steps=client_table["accounted_steps"].clip(upper=4))
    spoiled = replace(run, tables=replace(run.tables, clients=afresh))
    assert verdict_on(spoiled) == "violated"
    honest, spoiled_measurement = (measure_one_run(canary_run, Findings({})) for canary_run in (run, spoiled))
    assert honest is not None
    assert spoiled_measurement is not None
    assert spoiled_measurement.is_reported_epsilon_too_low
    assert not honest.is_reported_epsilon_too_low
    assert honest.bounds.mu_lower >= 0.8


@pytest.mark.long
def test_only_what_updates_of_others_cannot_hide_is_conclusive(tmp_path: Path) -> None:
    """As in a live audit. If the claimed epsilon is 0, the breach to be found is two thirds of the noise."""
    audit = {"trials": 12, "canaries": 12}
    privacy = {"delta": 1 - 1e-12}
    plan = one_run_plan(AVERAGED, data={"clients": 3}, privacy=privacy, audit=audit)
    run = run_locally(plan, tmp_path / "run").run
    facts = run.find(PublicCanaryFacts)
    table = run.tables.canaries
    assert facts is not None
    assert table is not None
    assert (facts.others, facts.size) == (3.0, load_federation(plan.federation).model.layout.size)
    assert run.plan.guarantee is not None
    assert run.plan.guarantee.epsilon == 0
    judgement = judge_canaries(run)
    assert judgement is not None
    assert judgement.verdict == "consistent"
    # Behind so many others nothing would be found, and in eight rounds two thirds of the noise would not.
    crowd = replace(run, of_audit=Findings({PublicCanaryFacts: replace(facts, others=300.0)}))
    short = replace(run, tables=replace(run.tables, canaries=table[(table["trial"] == 0) & (table["round"] <= 8)]))
    for spoiled_run, limit in ((crowd, np.inf), (short, 0.0)):
        judged = judge_canaries(spoiled_run)
        assert judged is not None
        assert (judged.verdict, judged.limit_of_detection) == ("inconclusive", limit)


@pytest.mark.long
def test_everybody_trains_and_only_canaries_toss_coins(tmp_path: Path) -> None:
    contents = run_locally(one_run_plan(AVERAGED | {"rounds": 30}, audit={"trials": 3}), tmp_path / "run")
    table = contents.run.tables.canaries
    assert table is not None
    assert contents.run.bits.all()
    coins = table[table["canary"] < 6]["is_in"]
    assert 0.4 < coins.mean() < 0.6
    assert not table[table["canary"] >= 6]["is_in"].any()
    by_trial = coins.to_numpy().reshape(3, -1)
    assert (by_trial[0] != by_trial[1]).any()


@pytest.mark.campaign
@pytest.mark.ray
def test_ray_gives_the_canaries_of_the_local_engine(tmp_path: Path) -> None:
    plan = one_run_plan(AVERAGED | {"rounds": 3}, data={"clients": 3}, run={"actors": 2})
    local = run_locally(plan, tmp_path / "local")
    ray = run_audit(plan, tmp_path / "ray", Engine.RAY, with_report=False)
    assert local.run.tables.canaries is not None
    assert ray.run.tables.canaries is not None
    pd.testing.assert_frame_equal(ray.run.tables.canaries, local.run.tables.canaries, check_exact=True)


@pytest.mark.long
def test_a_report_says_what_the_canaries_certify(tmp_path: Path) -> None:
    run_audit(one_run_plan(AVERAGED), tmp_path / "run", Engine.LOCAL)
    page = (tmp_path / "run" / "report.html").read_text()
    assert "its own audit" in page
    assert "neighbour in [audit]" not in page
