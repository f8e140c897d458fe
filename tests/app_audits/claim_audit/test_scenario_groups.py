"""Tests of a review in groups: what is said of the mechanism follows from the rule of every verdict."""

from dataclasses import replace

import numpy as np
import pytest

from fl_audit.app_audits.claim_audit.claim import StatedClaim
from fl_audit.app_audits.claim_audit.claim_audit_results import ClaimAudit
from fl_audit.app_audits.claim_audit.transcript import Transcripts
from fl_audit.app_audits.claim_audit.trial_results import ScenarioTexts, findings
from fl_audit.app_audits.review.scenario_groups import (
    ScenarioGroup,
    broken_tests,
    group_of_test,
    is_mechanism_as_claimed,
    merged,
    of_mechanism,
)
from fl_audit.verdict.verdict import Verdict
from tests.app_audits.claim_audit.made_up_trials import Bits, gaussian, result_of, trials_of

_CLAIM = StatedClaim("add-remove-client", epsilon=1.0)
_EARLIER = StatedClaim("add-remove-client", noise_multiplier=1.0)


def _in_scenario(result: ClaimAudit, name: str) -> ClaimAudit:
    tests = [replace(test, distinguisher=replace(test.distinguisher, kind=name)) for test in result.tests]
    return replace(result, tests=tuple(tests))


def _with_number(bits: Bits, random: np.random.Generator) -> Transcripts:
    """Three times too little noise, and a metric that tells everything."""
    trials = gaussian(3.0)(bits, random)
    return trials_of(trials.steps, {"metrics: loss": np.where(bits, 1.5, 1.0)})


@pytest.fixture(scope="module")
def too_little_noise() -> ClaimAudit:
    """Mu .9, where .27 is allowed: no test refutes it, and a reading does."""
    result = result_of(_CLAIM, gaussian(0.9))
    assert result.verdict is Verdict.INCONCLUSIVE
    assert not any(test.is_broken for test in result.tests)
    return _in_scenario(result, "removed")


def test_noise_is_not_as_claimed_beside_a_broken_reading(too_little_noise: ClaimAudit) -> None:
    assert not is_mechanism_as_claimed(too_little_noise)
    assert of_mechanism(too_little_noise).verdict is Verdict.INCONCLUSIVE
    honest = _in_scenario(result_of(_CLAIM, gaussian(0.1)), "removed")
    assert is_mechanism_as_claimed(honest)
    assert of_mechanism(honest).verdict is Verdict.CONSISTENT


def test_a_broken_reading_of_the_second_group_leaves_nothing_consistent(too_little_noise: ClaimAudit) -> None:
    honest = _in_scenario(result_of(_CLAIM, gaussian(0.1)), "removed")
    assert merged(honest, too_little_noise).verdict is Verdict.INCONCLUSIVE
    assert merged(honest, honest).verdict is Verdict.CONSISTENT


def test_a_number_beside_the_model_is_not_explained_by_the_noise() -> None:
    result = _in_scenario(result_of(_EARLIER, _with_number), "removed")
    of_numbers = [test for test in result.tests if test.is_beside_model]
    assert [test.distinguisher.group for test in of_numbers] == ["metrics: loss"]
    assert group_of_test(of_numbers[0]) is ScenarioGroup.BESIDE
    assert broken_tests(result, ScenarioGroup.BESIDE)
    (finding,) = findings(replace(result, tests=tuple(of_numbers)), {"removed": ScenarioTexts("words", "more noise")})
    assert "noise" not in finding.cause
    assert "more noise" not in finding.fix
    assert finding.test.noise is not None
    assert finding.test.noise.ratio > 2


def test_what_a_number_tells_of_an_unusual_reply_is_a_matter_of_this_reply() -> None:
    result = _in_scenario(result_of(_EARLIER, _with_number), "not a number")
    assert {group_of_test(test) for test in result.tests} == {ScenarioGroup.EDGES}
