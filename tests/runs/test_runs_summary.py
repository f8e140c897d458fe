"""From the tables of a run to its guarantee: what holds where local noise was raised to its floor."""

from dataclasses import replace
from pathlib import Path

import pytest

from fl_audit.runs.run_report_contents import summarise
from tests.builders.runs import run_locally, small_plan


@pytest.mark.long
def test_a_round_under_the_floor_makes_sensitivities_adaptive(tmp_path: Path) -> None:
    plan = small_plan(privacy={"accountant": "gdp", "sensitivity": "local"})
    contents = run_locally(plan, tmp_path / "run")
    claimed = contents.summary["guarantee"]
    assert claimed["belief_bound"] == claimed["belief_bound_fixed"]
    rounds = contents.rounds.assign(
        local_sensitivity=contents.rounds["local_sensitivity"].where(lambda s: s.index > 0, 0)
    )
    floored = summarise(plan, replace(contents.run.tables, rounds=rounds), contents.summary["timing"])
    assert floored.summary["guarantee"]["belief_bound"] > claimed["belief_bound"]
    assert floored.summary["guarantee"]["belief_bound_fixed"] == claimed["belief_bound_fixed"]
