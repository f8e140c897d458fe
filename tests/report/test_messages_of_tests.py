"""The words of the tests: every test has them, and every number finds its place."""

import math
import re
from collections.abc import Callable
from dataclasses import replace
from importlib.resources import files

import numpy as np
import pytest
from jinja2 import meta

from fl_audit.adjacency import Adjacency
from fl_audit.audits.reconstruction.candidate_hits import judge_hits
from fl_audit.federation.finished_run import FinishedRun
from fl_audit.mechanisms.noises.registry import STANDARD_GAUSSIAN
from fl_audit.privacy.accounting import Accountant
from fl_audit.privacy.claim import Claim
from fl_audit.privacy.events import gaussian_rounds
from fl_audit.privacy.guarantee import derive_guarantee
from fl_audit.report.template_files import _environment
from fl_audit.report.unit_words import unit_words
from fl_audit.verdict.declared_tests import (
    OF_NOISE,
    OF_OPENED,
    Look,
    NotTestedReason,
    TestName,
    TestNotApplicableError,
    TestResult,
    clearest_of,
)
from fl_audit.verdict.findings_verdict import VerdictFinding
from fl_audit.verdict.judging import judge, judge_scores, run_family
from fl_audit.verdict.scope import scope_text
from fl_audit.verdict.sections_noise import excess_text
from fl_audit.verdict.verdict import VerdictDetails
from fl_audit.verdict.verdict_messages import broken_tests, message_of, reason_text, title_of
from tests.validation.breach_kinds import BREACHES, Breach
from tests.validation.breaches import synthetic_run
from tests.validation.opened_breaches import measured_of
from tests.validation.synthetic_opened import OpenedSetting

WORDS = unit_words(Adjacency.REPLACE_RECORD)
GUARANTEE = derive_guarantee(Claim(Adjacency.REPLACE_RECORD, gaussian_rounds(8.0, 30), 0.01, 0.5, Accountant.GDP))


def judged(name: str) -> VerdictDetails:
    breach = next(candidate for candidate in BREACHES if candidate.name == name)
    return judge(synthetic_run(breach, 0), GUARANTEE, 0.95)


@pytest.fixture(scope="module")
def test_results() -> tuple[TestResult, ...]:
    rng = np.random.default_rng(1)
    scores = judge_scores(rng.standard_normal(50) + 3, rng.standard_normal(50), GUARANTEE, 0.95)
    hits = judge_hits(30, 50, 1 / 100, GUARANTEE, 0.95)
    canaries = TestResult(TestName.CANARIES, 3.0, 0.0, 3.0, 1.5, 2.0, more={"delta": 0.01})
    opened = run_family(measured_of(rng, OpenedSetting()), OF_OPENED)[0]
    return (*judged("noise 2 % too small").tests, *scores.tests, *hits.tests, canaries, *opened)


def test_every_test_says_what_it_measured_and_what_was_claimed(test_results: tuple[TestResult, ...]) -> None:
    assert {test.name for test in test_results} >= set(TestName) - {TestName.DISTINGUISHER}
    for test in test_results:
        message = message_of(test, WORDS, STANDARD_GAUSSIAN)
        texts = [message.measured, message.claimed, message.breach, message.sentence]
        texts += [] if test.name is TestName.SCORES else [message.limit]
        assert all(texts), test.name
        assert not any(re.search(r"[{}]|nan|not determined", text) for text in texts), texts
        assert message.remedy.endswith(".")


def test_every_name_and_reason_has_words() -> None:
    assert all(title_of(name, WORDS) for name in TestName)
    assert all(reason_text(reason).endswith(".") for reason in NotTestedReason)


def test_noise_that_depends_on_the_secret_is_said_first() -> None:
    broken = judged("noise 1.1 times larger under D' only")
    first = broken_tests(broken, WORDS, STANDARD_GAUSSIAN)[0]
    assert first.test.name is TestName.DISTINGUISHER
    assert re.search("depends .*secret", first.sentence)


def test_a_surplus_of_noise_is_harmless_only_where_it_is_blind_to_the_secret() -> None:
    assert "no harmless surplus" in excess_text(judged("noise 1.1 times larger under D' only"))
    louder = synthetic_run(Breach("louder", (), lambda at: 1.2 * at.own), 0)
    assert "16.6\xa0% less noise" in excess_text(judge(louder, GUARANTEE, 0.95))


def test_missing_noise_is_said_before_what_follows_from_it() -> None:
    first = broken_tests(judged("noise for add-remove under a replace claim"), WORDS, STANDARD_GAUSSIAN)[0]
    assert first.test.name in OF_NOISE
    assert first.test.measured == pytest.approx(0.5, abs=0.01)
    assert first.sentence.startswith("The noise is half")


@pytest.mark.parametrize("name", TestName)
def test_a_limit_that_no_size_reaches_is_no_number(name: TestName) -> None:
    test = TestResult(name, 1.0, 1.0, 1.0, 1.0, math.inf)
    template = files("fl_audit.report").joinpath("templates", "test_messages.md").read_text()
    fields = meta.find_undeclared_variables(_environment().parse(template))
    extra_fields = fields - set(vars(WORDS)) - {"measured", "claimed", "limit", "place", "test", "is_gaussian"}
    assert message_of(replace(test, more=dict.fromkeys(extra_fields, 1.0)), WORDS, STANDARD_GAUSSIAN).limit == "nothing"
    unlimited = replace(test, limit=math.nan, more=dict.fromkeys(extra_fields, 1.0))
    assert message_of(unlimited, WORDS, STANDARD_GAUSSIAN).limit == ""


def test_the_limit_of_detection_is_told_in_trials(make_run: Callable[..., FinishedRun]) -> None:
    run = make_run(trials=5)
    judgement = judge(synthetic_run(BREACHES[-1], 0), GUARANTEE, 0.95)
    text = _scope_of(judgement, run)
    for phrase in ("size of the noise", f"{judgement.limit_of_detection:.3g}", f"{judgement.trials_needed} trial"):
        assert phrase in text
    nothing = judge_scores(np.zeros(5), np.zeros(5), GUARANTEE, 0.95)
    assert math.isinf(nothing.limit_of_detection)
    unknown = _scope_of(nothing, run)
    assert "not known" in unknown
    assert not re.search(r"\binf|times the guarantee", unknown)


def _scope_of(details: VerdictDetails, run: FinishedRun) -> str:
    return scope_text(VerdictFinding(details.verdict, details), run, "It covers this run.", "")


def _of_one(name: TestName, look: Look) -> TestResult:
    """Return the result of a test that could ask one of its questions only."""

    def unknown(level: float) -> Look:
        raise TestNotApplicableError(NotTestedReason.TOO_FEW)

    return clearest_of(name, [unknown, lambda _: look])


def test_a_number_that_is_almost_1_or_0_shows_by_how_much() -> None:
    result = _of_one(
        TestName.REPEATED_NOISE, Look("used-twice", 0.5, 1.0, 0.9999, 0.9998, 0.99987, "here", {"pairs": 7})
    )
    words = message_of(result, WORDS, STANDARD_GAUSSIAN)
    assert [re.search(r"[.\d]{4,}", text)[0] for text in (words.measured, words.claimed, words.limit)] == [
        "0.9999",
        "0.9998",
        "0.99987",
    ]
    result = _of_one(TestName.CORRELATED_NOISE, Look("next-round", 0.5, 1.0, -0.00004, 0.0, 1.0))
    words = message_of(result, WORDS, STANDARD_GAUSSIAN)
    assert "-4e-05" in words.measured
    assert re.search(r"of 1\b(?!\.)", words.limit)


def test_a_bar_or_a_line_break_in_a_name_stays_in_its_text() -> None:
    result = TestResult(TestName.NOISE_ROUND, 0.5, 0.5, 0.5, 1.0, 0.1, "'a | b\nlimit | c'", {"best_limit": 0.25})
    message = message_of(result, WORDS, STANDARD_GAUSSIAN)
    assert message.measured.endswith("in 'a | b limit | c'")
    assert message.limit.startswith("noise 10\xa0% below the guarantee")
