"""Tests of breaches in real federations on the local engine; `tests.validation.breaches` repeats all of them often."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fl_audit.experiments.studies.study_runs import results_of_run
from fl_audit.runs.engine_names import Engine
from fl_audit.runs.run import run_audit
from fl_audit.verdict.declared_tests import OF_OPENED, TestName
from fl_audit.verdict.judging import run_family
from fl_audit.verdict.stored_measurements import measured_in
from tests.validation.breach_kinds import BREACHES
from tests.validation.breaches import _real_run
from tests.validation.engine_runs import breach_plan, measured_run, parties_of


# Made-up noise of the kinds behind the first is found among the tests of noise.
@pytest.mark.few_cases(1)
@pytest.mark.parametrize(
    "name",
    [
        "noise missing on the smallest tensor",
        "the same noise in two trials",
        "float16 draws, then scaled",
        "one client does not clip",
        "noise 1.1 times larger under D' only",
    ],
)
def test_a_breach_of_a_real_federation_is_found(name: str) -> None:
    breach = next(candidate for candidate in BREACHES if candidate.name == name)
    broken = {test.name for test in run_family(_real_run(breach, 4))[0] if test.violated}
    assert set(breach.tests) & broken


def test_an_honest_real_federation_breaks_nothing_and_offers_every_test() -> None:
    tests, missing = run_family(measured_run(breach_plan(6)))
    assert not any(test.violated for test in tests)
    opened = {TestName.EXACT_STEPS}  # everybody takes part here, and the server adds noise
    assert {name for name, _ in missing} == set(OF_OPENED) - opened
    # These stand where most of the others cannot be made.
    alone = {TestName.SCORES, TestName.CANDIDATES, TestName.CANARIES}
    assert {test.name for test in tests} == set(TestName) - alone - {name for name, _ in missing}


@pytest.mark.long
def test_a_report_on_noise_that_depends_on_the_secret_says_so_first(tmp_path: Path) -> None:
    breach = next(candidate for candidate in BREACHES if candidate.name == "noise 1.1 times larger under D' only")
    contents = run_audit(breach_plan(5), tmp_path / "run", Engine.LOCAL, parties=parties_of(breach))
    assert contents.summary["verdict"] == "violated"
    page = (tmp_path / "run" / "report.html").read_text()
    page_text = re.sub(r"<(style|script|svg|title)[^>]*>.*?</\1>", "", page, flags=re.S)
    page_text = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page_text))
    assert (
        page_text.partition("Verdict: Violated")[2]
        .strip()
        .startswith("The guarantee below does not hold. The noise depends")
    )
    assert "breaks no guarantee" not in page_text


def test_a_run_that_is_only_measured_has_the_measurements_of_a_whole_run() -> None:
    changes: dict[str, dict[str, Any]] = {"training": {"rounds": 3, "learning-rate": 0.5}, "audit": {"trials": 6}}
    plan = breach_plan(3, **changes, run={"trials-per-batch": 6})
    measurement = measured_run(plan)
    whole = measured_in(results_of_run(plan).run)
    np.testing.assert_array_equal(measurement.noise.as_array(), whole.noise.as_array())
    np.testing.assert_array_equal(measurement.innovations, whole.innovations)
    assert [test.p_value for test in run_family(measurement)[0]] == [test.p_value for test in run_family(whole)[0]]
