"""From a configuration to rounds, sampling rate and guarantee, and pilot runs that find the number of trials."""

import math
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from dp_accounting.pld import privacy_loss_distribution
from dp_accounting.privacy_accountant import NeighboringRelation
from hypothesis import given, settings
from hypothesis import strategies as st
from opacus.accountants import RDPAccountant
from opacus.accountants.analysis.rdp import compute_rdp

from fl_audit.adjacency import Adjacency
from fl_audit.federation.run_plan import RunPlan
from fl_audit.privacy.renyi import RDP_ORDERS
from fl_audit.runs.config import RunConfig, parse_config
from fl_audit.runs.mechanism_of_config import rounds_of, sampling_rate
from fl_audit.runs.pilot_run import pilot_of_signal
from fl_audit.runs.planned_run_check import check_plan, planned_of_signal, trials_needed
from fl_audit.runs.planning import plan_run
from fl_audit.runs.time_probe import TimeAndMemoryEstimate
from fl_audit.verdict.findings_verdict import VerdictFinding
from fl_audit.verdict.verdict import Verdict
from tests.builders.runs import run_locally, small_plan
from tests.builders.settings import small_settings

ALONE = {"insider": False}


def _config(**training: Any) -> RunConfig:
    privacy = {"sensitivity": "global", "adjacency": "add-remove-record", "accountant": "rdp"}
    return parse_config(small_settings(training={"rounds": None} | training, audit=ALONE, privacy=privacy))


def sampled_plan(accountant: str, adjacency: str = "add-remove-record", **privacy: Any) -> RunPlan:
    privacy_settings = {"belief": None, "noise-multiplier": 1.3} | privacy
    return small_plan(
        training={"rounds": 40, "sampling-rate": 0.05},
        privacy=privacy_settings | {"sensitivity": "global", "adjacency": adjacency, "accountant": accountant},
        audit=ALONE,
    )


@pytest.mark.parametrize(
    ("training", "rate", "rounds"),
    [
        ({}, 1.0, 30),
        ({"rounds": 7}, 1.0, 7),
        ({"epochs": 3}, 1.0, 3),
        ({"epochs": 3, "sampling-rate": 0.1}, 0.1, 30),  # 3 / 0.1 is no whole number in binary
        ({"epochs": 0.3, "sampling-rate": 0.1}, 0.1, 3),
        ({"epochs": 20, "expected-batch": 7}, 7 / 60, 172),
        ({"epochs": 1, "expected-batch": 60}, 1.0, 1),
        ({"rounds": 5, "sampling-rate": 1.0}, 1.0, 5),
    ],
)
def test_epochs_and_batches_become_rounds_and_a_rate(training: dict[str, Any], rate: float, rounds: int) -> None:
    config = _config(**training)
    assert float(sampling_rate(config)) == rate
    assert rounds_of(config) == rounds


@given(st.integers(1, 60), st.integers(1, 400))
@settings(derandomize=True)
def test_rounds_are_the_fewest_that_reach_the_epochs(batch: int, tenths: int) -> None:
    rounds = rounds_of(_config(**{"epochs": tenths / 10, "expected-batch": batch}))
    assert (rounds - 1) * batch * 10 < tenths * 60 <= rounds * batch * 10


def test_the_guarantee_of_a_sampled_run_is_that_of_opacus() -> None:
    theirs = RDPAccountant()
    theirs.history = [(1.3, 0.05, 40)]
    guarantee = sampled_plan("rdp").guarantee
    assert guarantee is not None
    assert guarantee.epsilon == pytest.approx(theirs.get_epsilon(0.01), rel=1e-9)
    orders = RDP_ORDERS
    divergences = compute_rdp(q=0.05, noise_multiplier=1.3, steps=40, orders=orders.tolist())
    classic = sampled_plan("rdp-classic").guarantee
    assert classic is not None
    assert classic.epsilon == pytest.approx(min(divergences + math.log(100) / (orders - 1)), rel=1e-9)


@pytest.mark.long
@pytest.mark.parametrize(
    ("adjacency", "relation", "unit"),
    [
        ("add-remove-record", NeighboringRelation.ADD_OR_REMOVE_ONE, 1.0),
        # dp-accounting measures the noise in C, the mechanism in the sensitivity 2C
        ("replace-record", NeighboringRelation.REPLACE_ONE, 2.0),
    ],
)
def test_the_guarantee_of_a_sampled_run_is_that_of_dp_accounting(
    adjacency: str, relation: NeighboringRelation, unit: float
) -> None:
    plan = sampled_plan("pld", adjacency)
    theirs = privacy_loss_distribution.from_gaussian_mechanism(
        1.3 * unit, sampling_prob=0.05, neighboring_relation=relation
    ).self_compose(40)
    assert plan.guarantee is not None
    assert plan.guarantee.epsilon == pytest.approx(theirs.get_epsilon_for_delta(0.01), rel=1e-4)
    mechanism = plan.federation.mechanism
    assert mechanism.noise_multiplier * mechanism.global_sensitivity == pytest.approx(1.3 * unit * 1.0)


@pytest.mark.parametrize(("adjacency", "times"), [("add-remove-record", 1.0), ("replace-record", 2.0)])
def test_a_multiplier_over_the_clipping_norm_is_that_of_other_libraries(adjacency: str, times: float) -> None:
    """sigma is z C between whichever neighbours, and a replaced record moves the sum by 2C."""
    privacy = {"noise-over": "clipping-norm", "noise-multiplier": 1.3}
    plan = sampled_plan("pld", adjacency, **privacy)
    mechanism = plan.federation.mechanism
    assert mechanism.noise_multiplier * mechanism.global_sensitivity == pytest.approx(1.3 * mechanism.clipping_norm)
    assert mechanism.noise_multiplier == pytest.approx(1.3 / times)
    assert plan.guarantee is not None
    assert plan.guarantee.noise_over_clipping_norm == pytest.approx(1.3)


@pytest.mark.parametrize("accountant", ["rdp", "rdp-classic", "pld"])
def test_noise_for_a_sampled_run_is_calibrated_with_its_sampling(accountant: str) -> None:
    target = {"noise-multiplier": None, "epsilon": 1.5}
    plan = sampled_plan(accountant, **target)
    assert plan.guarantee is not None
    assert plan.guarantee.epsilon == pytest.approx(1.5, rel=1e-4)
    whole = small_plan(
        training={"rounds": 40},
        privacy={"belief": None, "epsilon": 1.5, "sensitivity": "global", "accountant": accountant},
    )
    assert plan.federation.mechanism.noise_multiplier < 0.4 * whole.federation.mechanism.noise_multiplier


def test_a_stored_configuration_means_the_same_when_it_is_read_again() -> None:
    for training in ({}, {"epochs": 2, "expected-batch": 7}, {"rounds": 3, "sampling-rate": 0.5}):
        config = _config(**training)
        assert parse_config(config.as_dict()) == config
    nothing = dict.fromkeys(("belief", "clipping-norm", "sensitivity")) | {"private": False}
    baseline = parse_config(small_settings(audit=ALONE, privacy=nothing))
    assert parse_config(baseline.as_dict()) == baseline
    assert "clipping-norm" not in baseline.as_dict()["privacy"]


QUICK = TimeAndMemoryEstimate(1, 1, 0.0, 1e-4, 0.0, 0, 1, 0.0)
"""An estimate for trials that take hardly any time."""


def learned_record(trials: int) -> RunPlan:
    """Return a plan of large steps, which learn a record: its contributions become far shorter than the norm."""
    return small_plan(
        data={"records": 300, "clients": 5},
        training={"rounds": 30, "learning-rate": 2.0},
        privacy={"delta": 0.0003, "accountant": "gdp", "sensitivity": "global"},
        audit={"trials": trials, "neighbour": "most-dissimilar", "epsilon-star": False},
        run={"trials-per-batch": 400},
    )


@pytest.mark.long
def test_a_pilot_run_finds_the_number_that_a_long_run_needs(tmp_path: Path) -> None:
    plan = learned_record(800)
    planned = planned_of_signal(plan)
    pilot = pilot_of_signal(plan, QUICK)
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
    needed_trials = check_plan(learned_record(200)).trials_for_conclusive_verdict
    assert needed_trials is not None
    plan = learned_record(needed_trials)
    assert check_plan(plan).is_conclusive
    assert not check_plan(learned_record(needed_trials // 2)).is_conclusive
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
    small_finding = run_locally(plan_run(config), tmp_path / "few").find(VerdictFinding)
    assert small_finding is not None
    assert small_finding.verdict is Verdict.INCONCLUSIVE
    needed_trials = small_finding.judged.trials_for_conclusive_verdict
    assert needed_trials is not None
    enough = plan_run(config.changed(audit={"trials": needed_trials}))
    summary = run_locally(enough, tmp_path / "enough").summary
    assert summary["verdict"] == "consistent"


@pytest.mark.long
def test_slow_trials_are_not_played_and_nothing_is_left(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    plan = learned_record(30)
    assert pilot_of_signal(plan, replace(QUICK, round_seconds=1.0)) is None
    assert pilot_of_signal(plan, QUICK) is not None
    assert list(tmp_path.iterdir()) == []
