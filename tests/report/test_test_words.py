"""The words of the tests: every test has them, and every number finds its place."""

import math
import re

import numpy as np
import pytest

from experiments.studies.breach_kinds import BREACHES, Breach
from experiments.studies.breaches import synthetic_run
from fl_audit.adjacency import Adjacency
from fl_audit.evidence.belief.family import Missing, TestName, TestResult
from fl_audit.evidence.belief.verdict import Judgement, judge, judge_scores
from fl_audit.privacy.accounting import Accountant
from fl_audit.privacy.claim import Claim
from fl_audit.privacy.events import gaussian_rounds
from fl_audit.privacy.guarantee import guarantee
from fl_audit.report import test_words as words_of
from fl_audit.report.units import unit_words

WORDS = unit_words(Adjacency.REPLACE_RECORD)
PROMISE = guarantee(Claim(Adjacency.REPLACE_RECORD, gaussian_rounds(8.0, 30), 0.01, 0.5, Accountant.GDP))


def judged(name: str) -> Judgement:
    breach = next(one for one in BREACHES if one.name == name)
    return judge(synthetic_run(breach, 0), PROMISE, 0.95)


@pytest.fixture(scope="module")
def found() -> tuple[TestResult, ...]:
    rng = np.random.default_rng(1)
    scores = judge_scores(rng.standard_normal(50) + 3, rng.standard_normal(50), PROMISE, 0.95)
    return (*judged("noise 2 % too small").tests, *scores.tests)


def test_every_test_says_what_it_measured_and_what_was_promised(found: tuple[TestResult, ...]) -> None:
    assert {test.name for test in found} >= set(TestName) - {TestName.DISTINGUISHER}
    for test in found:
        said = [function(test, WORDS) for function in (words_of.measured_text, words_of.promised_text,
                                                       words_of.limit_text, words_of.breach_text)]  # fmt: skip
        assert all(said), test.name
        assert not any(re.search(r"[{}]|nan|not determined", text) for text in said), said
        assert words_of.remedy(test).endswith(".")


def test_every_name_and_reason_has_words() -> None:
    assert all(words_of.title_of(name, WORDS) for name in TestName)
    assert all(words_of.why_missing(reason).endswith(".") for reason in Missing)


def test_noise_that_depends_on_the_secret_is_said_first() -> None:
    broken = judged("noise 1.1 times larger under D' only")
    first = words_of.strongest(broken)
    assert first.name is TestName.SECRET_TOTAL
    assert first.measured == pytest.approx(1 / 1.1, abs=0.01)
    assert "depends on the secret" in words_of.breach_in_short(first, WORDS)


def test_a_surplus_of_noise_is_harmless_only_where_it_is_blind_to_the_secret() -> None:
    assert words_of.excess_text(judged("noise 1.1 times larger under D' only"), PROMISE) == ""
    louder = synthetic_run(Breach("louder", (), lambda at: 1.2 * at.own), 0)
    assert "1.20 times" in words_of.excess_text(judge(louder, PROMISE, 0.95), PROMISE)


def test_missing_noise_is_said_before_what_follows_from_it() -> None:
    first = words_of.strongest(judged("noise for add-remove under a replace claim"))
    assert first.name in words_of.OF_NOISE
    assert words_of.breach_in_short(first, WORDS).startswith("The noise is half of what was promised")


def test_the_scope_names_the_pair_the_seed_and_the_limit() -> None:
    kept = judge(synthetic_run(BREACHES[-1], 0), PROMISE, 0.95)
    text = words_of.scope_text(kept, PROMISE, "record 3 replaced by 8", "seed 17", WORDS)
    for part in ("record 3 replaced by 8", "seed 17", f"{kept.limit_of_detection:.3g}", f"{kept.worlds_needed} world"):
        assert part in text
    nothing = judge_scores(np.zeros(5), np.zeros(5), PROMISE, 0.95)
    assert "So many worlds could show" in words_of.detection_text(nothing, PROMISE, WORDS)
    assert math.isfinite(nothing.limit_of_detection)
