"""The function that reads a number by its interval: nothing but the interval decides, and all words are earned."""

import math
import re

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fl_audit.report.report_elements import ReportNumber
from fl_audit.statistics.advantage import clopper_pearson
from fl_audit.statistics.claim_comparisons import (
    READING_LEVEL,
    Reading,
    compare_with_claim,
    finding_text,
    interval_by_confidence,
)

ENDS = st.tuples(st.floats(-2, 2), st.floats(-2, 2)).map(lambda ends: (min(ends), max(ends)))
CLAIMS = st.floats(0.01, 1)
SIDES = st.booleans()
KEPT = Reading.KEPT
BROKEN = Reading.BROKEN
OPEN = Reading.NO_CONTRADICTION
FEW = Reading.TOO_FEW


@given(ends=ENDS, claim=CLAIMS, is_least=SIDES)
def test_the_word_is_that_of_the_interval(ends, claim, is_least):
    low, high = ends if not is_least else (-ends[1], -ends[0])
    bound = claim if not is_least else -claim
    expected = {KEPT} if high <= bound else {BROKEN} if low > bound else {OPEN, FEW}
    assert compare_with_claim(ends, claim, is_least=is_least).reading in expected


@given(ends=ENDS, claim=CLAIMS, is_least=SIDES, largest=st.sampled_from([1.0, math.inf]))
def test_too_few_are_those_whose_interval_holds_claim_and_twofold(ends, claim, is_least, largest):
    reading = compare_with_claim(ends, claim, is_least=is_least, largest=largest).reading
    twofold = claim / 2 if is_least or 2 * claim > largest else 2 * claim
    assert (reading is FEW) == (ends[0] <= twofold <= ends[1] and reading not in (KEPT, BROKEN, Reading.NO_LIMIT))


@given(ends=ENDS, margin=st.floats(0, 1), claim=CLAIMS, is_least=SIDES)
def test_a_wider_interval_says_no_more(ends, margin, claim, is_least):
    """Neither kept nor broken comes from less evidence, and too few trials stay too few."""
    narrow = compare_with_claim(ends, claim, is_least=is_least).reading
    wide = compare_with_claim((ends[0] - margin, ends[1] + margin), claim, is_least=is_least).reading
    assert wide is narrow if wide in (KEPT, BROKEN) else narrow is not FEW or wide is FEW


@given(ends=ENDS, claim=CLAIMS, unit=st.floats(0.1, 10), is_least=SIDES)
def test_units_do_not_matter(ends, claim, unit, is_least):
    twofold = claim / 2 if is_least else 2 * claim
    assume(all(abs(end - at) > 1e-6 for end in ends for at in (claim, twofold)))
    scaled = compare_with_claim((unit * ends[0], unit * ends[1]), unit * claim, is_least=is_least)
    assert scaled.reading is compare_with_claim(ends, claim, is_least=is_least).reading


@given(ends=ENDS, claim=st.floats(0.01, 0.49))
def test_an_auc_is_read_like_the_advantage_that_it_is(ends, claim):
    assume(all(abs(end - at) > 1e-6 for end in ends for at in (claim, claim / 2, 2 * claim)))
    area = compare_with_claim((0.5 + ends[0] / 2, 0.5 + ends[1] / 2), 0.5 + claim / 2, origin=0.5, largest=1.0)
    assert area.reading is compare_with_claim(ends, claim, largest=1.0).reading


@given(bound=st.floats(0, 5), claim=CLAIMS)
def test_a_lower_bound_contradicts_and_never_keeps(bound, claim):
    row = ReportNumber("epsilon", bound, limit=claim, is_bound=True)
    assert row.reading is (BROKEN if bound > claim else OPEN)


@given(number=st.floats(0, 5), claim=CLAIMS)
def test_a_computed_number_is_kept_or_broken(number, claim):
    assert ReportNumber("epsilon", number, limit=claim).reading is (KEPT if number <= claim else BROKEN)


@pytest.mark.parametrize(
    ("value", "low", "high", "claim", "is_least", "word"),
    [
        (1.0, 0.9995, 1.0003, 1.0, True, OPEN),
        (0.99, 0.975, 1.005, 1.0, True, OPEN),
        (1.02, 1.001, 1.04, 1.0, True, KEPT),
        (0.9, 0.4, 1.6, 1.0, True, FEW),
        (0.0, -0.975, 0.975, 0.2191, False, FEW),
        (0.0, -0.975, 0.975, 0.8, False, FEW),
        (0.6, 0.5, 0.7, 0.6, False, OPEN),
        (0.05, -0.1, 0.2, 0.2191, False, KEPT),
        (0.0, 0.0, 0.5, 0.0, False, OPEN),
        (5.0, 4.0, math.inf, 4.5, False, OPEN),
    ],
)
def test_readings_of_numbers_as_reports_have_them(value, low, high, claim, is_least, word):
    largest = math.inf if is_least or claim > 1 else 1.0
    row = ReportNumber("a number", value, "", low, high, 0.95, claim, is_least=is_least, largest=largest)
    assert row.reading is word
    assert word in finding_text(row.to_json()) or math.isinf(high)


def test_beyond_the_printed_interval_the_wider_one_decides_and_is_printed():
    def row(hits: int) -> ReportNumber:
        ends = clopper_pearson(hits, 800, 0.95)
        return ReportNumber(
            "share",
            hits / 800,
            "",
            *ends,
            0.95,
            0.1,
            is_share=True,
            largest=1.0,
            wide=lambda confidence: clopper_pearson(hits, 800, confidence),
        )

    lucky = row(100)
    broken = row(320)
    assert lucky.low > 0.1
    assert lucky.reading is OPEN
    text = finding_text(lucky.to_json()).replace("\N{NO-BREAK SPACE}", " ")
    wide = r"\(7\.9 % to 18\.3 % at 99\.999 %\)"
    assert re.fullmatch(rf"12\.5 % \(10\.3 % to 15 %\), .* 10 %: {OPEN} {wide}", text)
    assert broken.reading is BROKEN
    assert finding_text(broken.to_json()).count("broken") == 1


def test_a_number_without_another_interval_is_widened_as_a_normal_one():
    row = ReportNumber("mean", 0.25, "", 0.21, 0.29, 0.95, 0.2)
    assert row.reading is OPEN
    assert ReportNumber("mean", 0.3, "", 0.28, 0.32, 0.95, 0.2).reading is BROKEN
    low, high = interval_by_confidence(0.3, (0.21, 0.39), 0.95)(1 - 2 * READING_LEVEL)
    assert (0.3 - low, high - 0.3) == pytest.approx((0.09 * 4.4172 / 1.95996,) * 2, rel=1e-4)


def test_under_a_violated_verdict_nothing_is_kept():
    row = ReportNumber("share", 0.0, "", 0.0, 0.05, 0.95, 0.2, is_violated=True)
    assert row.reading is Reading.ALONE
    assert ReportNumber("share", 0.5, "", 0.4, 0.6, None, 0.2, is_violated=True).reading is BROKEN


def test_what_is_not_known_has_no_reading():
    for row in (
        ReportNumber("share", None, limit=0.1),
        ReportNumber("share", math.nan, limit=0.1),
        ReportNumber("share", 0.1),
    ):
        assert row.reading is None
        assert row.reading_text == row.comparison_in_brackets == ""


def test_words_of_earlier_versions_are_not_repeated():
    old = {"value": 0.3, "low": 0.2, "high": 0.4, "confidence": 0.95, "claimed": 0.25, "is_share": False}
    text = finding_text(old | {"is_least": False, "reading": "not as claimed, within chance"})
    assert text == "0.3 (0.2 to 0.4)"


def test_an_honest_number_is_called_broken_as_rarely_as_is_said():
    """At the claim itself: three of 20,000 come up in one of 6,000 tests, where 500 printed intervals miss."""
    draw = np.random.default_rng(1)
    words = []
    for hits in draw.binomial(400, 0.2, size=20_000):
        low, high = clopper_pearson(int(hits), 400, 0.95)
        wide = lambda confidence, hits=int(hits): clopper_pearson(hits, 400, confidence)  # noqa: E731
        words.append(ReportNumber("share", hits / 400, "", low, high, 0.95, 0.2, wide=wide).reading)
    assert words.count(BROKEN) <= 2
    assert words.count(KEPT) < 0.025 * 20_000
