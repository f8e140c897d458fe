"""Breaches of real federations on the local engine; `experiments.studies.verdicts` plays all of them many times."""

import pytest

from experiments.studies.engine_runs import ENGINE_BREACHES, breach_plan, measured_run
from fl_audit.evidence.belief.family import TestName
from fl_audit.evidence.belief.verdict import run_family

TRIED = (
    "noise missing on the smallest tensor",
    "the same noise in two worlds",
    "float16 draws, then scaled",
    "three times the clipping norm for one client",
)


@pytest.mark.parametrize("name", TRIED)
def test_a_breach_of_a_real_federation_is_found(name: str) -> None:
    parties, expected = next((parties, tests) for label, parties, tests in ENGINE_BREACHES if label == name)
    broken = {test.name for test in run_family(measured_run(breach_plan(5), parties))[0] if test.violated}
    assert set(expected) <= broken


def test_an_honest_real_federation_breaks_nothing_and_offers_every_test() -> None:
    tests, missing = run_family(measured_run(breach_plan(6)))
    assert not any(test.violated for test in tests)
    assert not missing
    assert len(tests) == len(TestName) - 1  # no scores where noise is measured
