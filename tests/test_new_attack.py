"""A new membership attack is one file and one line in the registry; when both are gone, nothing is left of it."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fl_audit.audits.membership.attacks.registry import ATTACKS, default_attacks, names_of_attacks
from fl_audit.federation.run_plan import RunPlan
from fl_audit.runs.config.settings_reference import settings
from fl_audit.runs.engine_names import Engine
from fl_audit.runs.run import run_audit
from tests.builders.refusals import assert_refused
from tests.builders.runs import small_plan
from tests.toy_attack.entropy import ENTROPY

_NAME = ENTROPY.name


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Add the line to the registry, and take it away after the test."""
    monkeypatch.setitem(ATTACKS, _NAME, ENTROPY)


def _plan(**audit: object) -> RunPlan:
    usual = {"kind": "membership", "trials": 8, "targets": 20, "attacks": [_NAME], "epsilon-star": False}
    return small_plan(privacy={"sensitivity": None}, audit=usual | audit)


@pytest.mark.usefixtures("registered")
def test_a_new_attack_is_configured_played_and_reported(tmp_path: Path) -> None:
    contents = run_audit(_plan(attacks=[_NAME, "loss"]), tmp_path / "run", Engine.LOCAL)
    results = contents.summary["attacks"]["by_name"]
    assert 0 < results[_NAME]["auc"]["value"] < 1
    assert results[_NAME]["lower_bound"] is not None, "trials are no shadow models of each other"
    targets = contents.run.tables.targets
    assert targets is not None
    # With two classes the entropy is smallest where the confidence is farthest from 1/2, whatever the label.
    order = np.argsort(targets[f"score_{_NAME}"].to_numpy())
    assert np.all(np.diff(np.abs(targets["confidence"].to_numpy())[order]) > -1e-4)
    page = (tmp_path / "run" / "report.html").read_text()
    assert re.search(f"{ENTROPY.label}</t[dh]>", page)
    assert "L. Song, P. Mittal (2021)" in page


@pytest.mark.usefixtures("registered")
def test_settings_and_refusals_name_a_new_attack() -> None:
    (attacks,) = settings("audit.attacks")
    assert f"'{_NAME}'" in attacks.accepted
    assert_refused(f"attacks is 'misspelt': .*'{_NAME}'", _plan, attacks=["misspelt"])
    assert _NAME not in default_attacks(of_records=True)


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize(
    ("fact", "audit", "expected_message"),
    [
        ("learns_from_shadows", {}, f"trials = 8 .*: accepted with {_NAME} are 24"),
        ("sees_gradients", {}, f"targets = 20 .*: accepted with {_NAME} are 60"),
    ],
)
def test_the_facts_of_a_new_attack_are_checked(
    fact: str, audit: dict[str, object], expected_message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts: dict[str, Any] = {fact: True}
    monkeypatch.setitem(ATTACKS, _NAME, replace(ENTROPY, **facts))
    assert_refused(expected_message, _plan, **audit)


@pytest.mark.usefixtures("registered")
def test_a_new_attack_on_records_is_refused_about_clients() -> None:
    audit = {"kind": "membership", "trials": 8, "targets": 2, "attacks": [_NAME], "insider": False}
    named = f"attacks {_NAME} .*: accepted about clients are (?!.*{_NAME}).*loss"
    assert_refused(named, small_plan, training={"strategy": "dp-fedavg"}, privacy={"sensitivity": None}, audit=audit)


def test_without_its_line_an_attack_is_unknown() -> None:
    assert_refused(f"attacks is '{_NAME}': accepted are .*'loss'", _plan)
    assert _NAME not in names_of_attacks()


def test_every_attack_is_registered_under_its_own_name() -> None:
    assert {name: attack.name for name, attack in ATTACKS.items()} == {name: name for name in ATTACKS}
    assert all(attack.sees and attack.label for attack in ATTACKS.values())
