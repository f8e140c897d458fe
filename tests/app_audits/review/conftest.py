"""Fixtures of tests of reviews."""

import sys

import pytest

from fl_audit.app_audits.black_box.scenarios import BY_NAME
from fl_audit.app_audits.claim_audit.claim_audit_results import TrialBudget
from fl_audit.app_audits.review.scenario_groups import SideChannel


@pytest.fixture
def searched_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules are searched after the test where they were searched before."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))


@pytest.fixture
def plainest_scenario_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """A review plays a few trials of one scenario, in which a client is removed, and one number beside the model."""
    small = TrialBudget(
        pilot=40, stages=(40,), shares=(1.0,), fewest_tests=1, most_tests=1, deep=1, scout=40, plainest=True
    )
    for name in ("_FEWER", "_FEWEST"):
        monkeypatch.setattr(f"fl_audit.app_audits.review.plan.{name}", small)
    monkeypatch.setattr("fl_audit.app_audits.review.plan.relevant_scenarios", lambda *_, **__: [BY_NAME["removed"]])
    monkeypatch.setattr("fl_audit.app_audits.review.review.NUMBERS", {SideChannel.METRICS: "metrics"})
