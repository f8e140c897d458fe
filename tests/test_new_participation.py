"""A new rule of participation is one file and one line in the registry."""

import itertools
import json
import math
import re
from fractions import Fraction
from pathlib import Path

import pytest
from scipy.stats import norm

from fl_audit.federation.federation import Federation
from fl_audit.federation.run_plan import RunPlan
from fl_audit.mechanisms.participations.participation import ParticipationSettings
from fl_audit.mechanisms.participations.registry import PARTICIPATIONS, REFUSED, foreign_settings
from fl_audit.runs.config.settings_reference import settings
from fl_audit.runs.engine_names import Engine
from fl_audit.runs.run import run_audit
from tests.builders.refusals import assert_refused
from tests.builders.runs import small_plan
from tests.builders.settings import changed_settings
from tests.toy_participation.two_halves import TwoHalves

_HALVES: dict[str, dict[str, object]] = {
    "data": {"clients": 6},
    "training": {"strategy": "dp-fedavg", "local-learning-rate": 0.1, "local-batch": 10, "sampling": "two-halves"},
    "privacy": {"adjacency": "add-remove-client"},
}


def _plan(**sections: dict[str, object]) -> RunPlan:
    stated = {"belief": None, "sensitivity": None, "noise-multiplier": 1.5, "accountant": None}
    usual: dict[str, dict[str, object]] = {
        "privacy": {"adjacency": "add-remove-record"},
        "audit": {"trials": 12, "epsilon-star": False},
        "run": {"trials-per-batch": 12},
    }
    merged = changed_settings(usual, sections)
    return small_plan(**(merged | {"privacy": stated | merged["privacy"]}))


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Add the line to the registry, and take it away after the test."""
    monkeypatch.setitem(PARTICIPATIONS, "two-halves", TwoHalves)


@pytest.mark.usefixtures("registered")
def test_a_new_rule_is_configured_played_judged_and_reported(tmp_path: Path) -> None:
    plan = _plan(**_HALVES)
    pair = plan.federation.pair.index
    assert plan.federation.mechanism.participation == TwoHalves(6, pair)
    assert Federation.from_json(plan.federation.to_json()) == plan.federation
    run_audit(plan, tmp_path / "run", Engine.LOCAL)
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    # Two rounds of four: the guarantee is that of two, and the insider weighs no more.
    expected = 2 * norm.cdf(math.sqrt(2) / 1.5 / 2) - 1
    assert summary["guarantee"]["advantage_bound_exact"] == pytest.approx(expected, rel=1e-9)
    assert summary["verdict"] in ("consistent", "inconclusive")
    assert re.search("halves [^.<]*take turns", (tmp_path / "run" / "report.html").read_text())
    (sampling,) = settings("training.sampling")
    assert sampling.choices == tuple(PARTICIPATIONS)
    assert_refused(r"sampling is 'two-halves' .*'dp-fedsgd', .*records", _plan, training={"sampling": "two-halves"})


@pytest.mark.usefixtures("registered")
def test_a_setting_of_a_rule_is_refused_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TwoHalves, "own_settings", {"local-steps": "two-halves"})
    assert foreign_settings("two-halves") == {"cohort": "cohort"}
    assert foreign_settings("cohort") == foreign_settings(None) == {"local-steps": "two-halves"}
    named = "local-steps = 3 needs sampling = two-halves, and sampling is None"
    assert_refused(named, _plan, training={"strategy": "dp-fedavg", "local-steps": 3})


@pytest.mark.parametrize("name", REFUSED)
def test_a_rule_of_other_libraries_is_refused_by_name_with_the_reason(name: str) -> None:
    assert_refused(f"'{name}': .*; .*everybody, cohort", _plan, training={"sampling": name})


@pytest.mark.parametrize(
    ("training", "privacy", "expected_message"),
    [
        ({"sampling-rate": 0.5}, {"noise": "banded"}, "correlated over rounds"),
        ({"sampling-rate": 0.5}, {"noise": "distributed"}, "'distributed'.*: .*everybody takes part"),
        ({"sampling": "everybody", "sampling-rate": 0.5}, {}, "'everybody' .*rate of 0.5"),
    ],
)
def test_what_does_not_go_together_is_refused(
    training: dict[str, object], privacy: dict[str, object], expected_message: str
) -> None:
    assert_refused(expected_message, _plan, training=training, privacy={"adjacency": "add-remove-record"} | privacy)


def test_every_configuration_without_a_name_implies_exactly_one_rule() -> None:
    for cohort, rate in itertools.product((None, 2, 6), (Fraction(1), Fraction(1, 3))):
        participation_settings = ParticipationSettings(name=None, rate=rate, units=6, cohort=cohort, own={})
        implied = [name for name, kind in PARTICIPATIONS.items() if kind.is_meant(participation_settings)]
        assert len(implied) == 1, (cohort, rate, implied)
