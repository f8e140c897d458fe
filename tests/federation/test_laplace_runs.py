"""Runs under Laplace noise: consistent where they are honest, violated where noise or clipping is another."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fl_audit.clients import owner_contributions
from fl_audit.federation.loaded_federation import LoadedFederation
from fl_audit.federation.run_plan import RunPlan
from fl_audit.learning.model_passes import ModelPasses
from fl_audit.mechanisms.noises import laplace
from fl_audit.privacy.accounting_enums import VectorNorm
from fl_audit.runs.engine_names import Engine
from fl_audit.runs.replay import replay
from fl_audit.runs.run import run_audit
from tests.builders.runs import small_plan

LAPLACE = {"belief": None, "sensitivity": None, "accountant": None, "noise": "laplace", "noise-multiplier": 0.4}


def plan_of(trials: int = 60, **sections: dict[str, Any]) -> RunPlan:
    audit = {"trials": trials, "epsilon-star": False} | sections.pop("audit", {})
    run = {"trials-per-batch": 30, "client-time-limit": 600.0}
    return small_plan(privacy=LAPLACE | sections.pop("privacy", {}), audit=audit, run=run, **sections)


def summary_of(plan: RunPlan, directory: Path) -> dict[str, Any]:
    run_audit(plan, directory, Engine.LOCAL, with_report=False)
    summary: dict[str, Any] = json.loads((directory / "summary.json").read_text())
    return summary


def violated(summary: dict[str, Any]) -> set[str]:
    return {test["name"] for test in summary["noise"]["tests"] if test["violated"]}


def test_an_honest_run_is_consistent_and_is_replayed(tmp_path: Path) -> None:
    summary = summary_of(plan_of(), tmp_path / "run")
    assert summary["verdict"] == "consistent"
    # 240 releases of 62 coordinates: the standard error of the ratio is 0.6 % of the noise.
    assert summary["noise"]["ratio"] == pytest.approx(1.0, abs=0.03)
    assert summary["guarantee"]["accountant"] == "pld"
    match = replay(tmp_path / "run").agreement(tmp_path / "run")
    assert match is not None
    assert match.agrees


def test_seven_tenths_of_the_noise_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from_normal = laplace._from_normal
    monkeypatch.setattr(laplace, "_from_normal", lambda normal: 0.7 * from_normal(normal))
    summary = summary_of(plan_of(), tmp_path / "run")
    assert summary["verdict"] == "violated"
    assert {"noise-total", "noise-along-record"} <= violated(summary)
    assert summary["noise"]["ratio"] == pytest.approx(0.7, abs=0.03)


def test_a_victim_that_clips_in_the_other_norm_is_found_by_the_signal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The victim clips the record in question in the L2 norm, and the insider expects it clipped in the L1 norm."""
    honest = owner_contributions.differing_contributions

    def in_l2(federation: LoadedFederation, *arguments: Any) -> Any:
        return honest(replace(federation, model=federation.model.clipping_in(VectorNorm.L2)), *arguments)

    monkeypatch.setattr(owner_contributions, "differing_contributions", in_l2)
    summary = summary_of(plan_of(), tmp_path / "run")
    assert summary["verdict"] == "violated"
    assert {"signal", "signal-round"} <= violated(summary)


@pytest.mark.long
def test_clipping_by_everybody_in_the_other_norm_exceeds_the_sensitivity(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ModelPasses, "_squared_norms", lambda _, gradients: gradients.square().sum(2))
    summary = summary_of(plan_of(), tmp_path / "run")
    assert summary["verdict"] == "violated"
    assert "sensitivity" in violated(summary)


@pytest.mark.long
def test_clients_as_units_are_audited(tmp_path: Path) -> None:
    training = {"strategy": "dp-fedavg", "rounds": 4, "local-batch": 5}
    plan = plan_of(30, training=training, privacy={"adjacency": "add-remove-client"})
    summary = summary_of(plan, tmp_path / "run")
    assert summary["verdict"] in ("consistent", "inconclusive")
    assert summary["noise"]["ratio"] == pytest.approx(1.0, abs=0.05)


@pytest.mark.long
@pytest.mark.ray
def test_both_engines_give_the_same_trials(tmp_path: Path) -> None:
    plan = plan_of(4)
    tables = []
    for engine in (Engine.LOCAL, Engine.RAY):
        run_audit(plan, tmp_path / engine, engine, with_report=False)
        tables.append(pd.read_parquet(tmp_path / engine / "rounds.parquet"))
    for column in ("increment", "sigma", "local_sensitivity", "score_present"):
        np.testing.assert_array_equal(tables[0][column], tables[1][column])
