"""Tests of the membership adversary in real runs: beside the insider, within its bounds, and turned off."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file
from scipy.stats import binomtest

from fl_audit.federation.loaded_federation import load_federation
from fl_audit.report.report_elements import ReportContents
from fl_audit.runs.engine_names import Engine
from fl_audit.runs.run import run_audit
from tests.builders.refusals import assert_refused
from tests.builders.runs import run_locally, small_plan

FALSE_ALARM = 0.001


def play(directory: Path, privacy: dict[str, Any], trials: int = 400) -> ReportContents:
    """Run a federation that learns twenty images by heart."""
    plan = small_plan(
        data={"name": "digits", "records": 20, "clients": 2, "population-records": 300},
        training={"rounds": 20, "learning-rate": 4.0},
        privacy={"belief": None, "accountant": "gdp"} | privacy,
        audit={"trials": trials, "epsilon-star": False},
        run={"trials-per-batch": 400},
    )
    return run_locally(plan, directory)


def p_value(better: np.ndarray, other_wins: np.ndarray) -> float:
    """Return McNemar's exact one-sided p-value, small if `other` wins more of the trials that only one wins."""
    only_better = int((better & ~other_wins).sum())
    only_other = int((other_wins & ~better).sum())
    if only_better + only_other == 0:
        return 1.0
    return float(binomtest(only_other, only_better + only_other, 0.5, alternative="greater").pvalue)


@pytest.mark.long
@pytest.mark.parametrize(
    "privacy",
    [
        {"noise-multiplier": 1.0, "sensitivity": "local"},
        {"noise-multiplier": 2.0, "sensitivity": "global"},
        {"noise-multiplier": 1.0, "sensitivity": "global", "adjacency": "add-remove-record"},
    ],
    ids=lambda privacy: "-".join(map(str, privacy.values())),
)
def test_the_insider_is_not_beaten_by_the_membership_adversary(privacy: dict[str, Any], tmp_path: Path) -> None:
    """Proposition 1 is tested on the same trials. If it holds, each assertion on chance fails once in a thousand."""
    contents = play(tmp_path / "run", privacy)
    trials = contents.trials
    insider = trials["won"].to_numpy()
    membership = (trials["record_membership_guess"] == trials["bit"]).to_numpy()
    assert p_value(insider, membership) > FALSE_ALARM
    # Not vacuous: the membership adversary knows something, is wrong where the insider is right, and is found out.
    assert binomtest(int(membership.sum()), membership.size, 0.5, alternative="greater").pvalue < FALSE_ALARM
    assert p_value(membership, insider) < FALSE_ALARM
    bound = (1 + contents.summary["membership"]["record"]["bound"]) / 2
    assert binomtest(int(membership.sum()), membership.size, bound, alternative="greater").pvalue > FALSE_ALARM


@pytest.mark.long
def test_an_overfitted_model_gives_its_members_away(tmp_path: Path) -> None:
    summary = play(tmp_path / "run", {"noise-multiplier": 0.3, "sensitivity": "global"}, 100).summary
    assert summary["membership"]["low"] > 0.4
    assert summary["membership"]["record"]["low"] > 0.6
    assert summary["insider"]["advantage"] == 1.0
    noisy = play(tmp_path / "noisy", {"noise-multiplier": 100.0, "sensitivity": "global"}, 50).summary
    assert noisy["membership"]["high"] < 0.12  # by a bound for means of any numbers from -1 to 1, of 50 trials


def attack_by_hand(plan: Any, directory: Path, trials: pd.DataFrame) -> list[tuple[float, bool]]:
    """Return the advantage and the record guess of each trial, computed from the stored final models one by one."""
    federation = load_federation(plan.federation)
    models = torch.cat([load_file(path)["models"] for path in sorted((directory / "public").glob("models-*"))])
    results = []
    for model, bit in zip(models, trials["bit"], strict=True):
        target_records = (
            [federation.differing] if bit else [federation.replacement] if federation.replacement is not None else []
        )
        members, population, common, x = (
            np.concatenate(
                [federation.model.losses(model[None], e.features, e.labels)[0].double().numpy() for e in examples]
            )
            for examples in (
                [federation.common, *target_records],
                [federation.population],
                [federation.common],
                [federation.differing],
            )
        )
        rates = [float((losses <= members.mean()).mean()) for losses in (members, population)]
        results.append((rates[0] - rates[1], bool(x[0] <= common.mean())))
    return results


@pytest.mark.long
@pytest.mark.parametrize(("adjacency", "with_star"), [("replace-record", True), ("add-remove-record", False)])
def test_columns_are_those_of_the_final_models(adjacency: str, with_star: bool, tmp_path: Path) -> None:
    plan = small_plan(privacy={"adjacency": adjacency}, audit={"epsilon-star": with_star, "trials": 8})
    trials = run_locally(plan, tmp_path / "run").trials
    assert set(trials["bit"]) == {0, 1}
    expected = attack_by_hand(plan, tmp_path / "run", trials)
    np.testing.assert_allclose(trials["membership_advantage"], [advantage for advantage, _ in expected])
    assert trials["record_membership_guess"].tolist() == [float(guess) for _, guess in expected]
    assert trials["epsilon_star"].notna().all() == with_star


@pytest.mark.long
def test_summary_and_report_hold_what_was_found(tmp_path: Path) -> None:
    contents = run_audit(small_plan(privacy={"sensitivity": "global"}), tmp_path / "run", Engine.LOCAL)
    membership_summary = json.loads((tmp_path / "run" / "summary.json").read_text())["membership"]
    keys = ["advantage", "low", "high", "confidence", "yeom_bound", "tradeoff_bound", "bound", "bound_scope", "record"]
    assert sorted(membership_summary) == sorted(keys)
    trials = contents.trials
    assert membership_summary["advantage"] == pytest.approx(trials["membership_advantage"].mean())
    assert membership_summary["low"] < membership_summary["advantage"] < membership_summary["high"]
    assert membership_summary["record"]["wins"] == (trials["record_membership_guess"] == trials["bit"]).sum()
    assert (
        membership_summary["bound"]
        == membership_summary["record"]["bound"]
        == contents.summary["guarantee"]["advantage_bound_exact"]
    )
    assert "over data sets" in membership_summary["bound_scope"]
    page = (tmp_path / "run" / "report.html").read_text()
    assert "The membership adversary" in page


@pytest.mark.long
def test_it_can_be_turned_off(tmp_path: Path) -> None:
    on = run_audit(small_plan(), tmp_path / "on", Engine.LOCAL)
    assert "no other record" in on.summary["membership"]["bound_scope"]
    off = run_audit(small_plan(audit={"membership": False}), tmp_path / "off", Engine.LOCAL)
    columns = ["membership_advantage", "record_membership_guess", "record_score"]
    assert off.trials[columns].isna().all(axis=None)
    pd.testing.assert_frame_equal(on.trials.drop(columns=columns), off.trials.drop(columns=columns))
    assert off.summary["membership"] is None
    assert not (tmp_path / "off" / "figures" / "membership.png").exists()


def test_what_it_cannot_use_is_refused_before_the_run(tmp_path: Path) -> None:
    data = {"name": "digits", "records": 2, "clients": 2}
    off = {"epsilon-star": False}
    named = r"membership attack .*2 records in D', .*\b1: .*membership = false"
    assert_refused(named, run_locally, small_plan(data=data, audit=off), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    run_locally(small_plan(data=data, audit=off | {"membership": False}), tmp_path / "run")
