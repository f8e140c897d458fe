"""Numbers in words, and the one rounding of an interval: sides and order are never hidden."""

import math
import re
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fl_audit.words import MISSING, NO_LIMIT, interval_text, number_text, one_in, percent, plural, rounded, side_of


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, MISSING),
        (math.nan, MISSING),
        (math.inf, "unbounded"),
        (True, "yes"),
        (1234, "1,234"),
        (np.int64(1234), "1,234"),
        (np.float64(2.19722), "2.197"),
        (0.0, "0"),
        (12345.678, "12,345.7"),
        (1.234e-5, "1.234e-5"),
        (1e-9, "1e-9"),
        (2.5e7, "2.5e7"),
        ("sgd", "sgd"),
    ],
)
def test_numbers(value, text):
    assert number_text(value) == text


@pytest.mark.parametrize(
    ("share", "text"),
    [(0.9, "90"), (0.88312, "88.3"), (0.99996, "99.996"), (0.001, "0.1"), (1e-5, "0.001"), (0, "0"), (1, "100")],
)
def test_percentages_never_round_to_certainty(share, text):
    assert percent(share) == f"{text}\N{NO-BREAK SPACE}%"


def test_no_share_is_infinite():
    assert percent(math.inf) == "unbounded"
    assert percent(math.nan) == percent(None) == MISSING


def test_chances_and_counts():
    assert one_in(0.001) == "1 in 1,000"
    assert one_in(0.0003) == "3 in 10,000"
    assert one_in(1 / 3333) == one_in(3.004e-4) == "about 3 in 10,000"
    assert (one_in(0.05), one_in(0.0004), one_in(0.3), one_in(0.0123)) == (
        "1 in 20",
        "1 in 2,500",
        "3 in 10",
        "about 12 in 1,000",
    )
    assert one_in(0) == "zero"
    assert plural(1, "trial") == "1 trial"
    assert plural(2000, "trial") == "2,000 trials"


NUMBERS = st.one_of(
    st.floats(-1e9, 1e9), st.floats(-3, 3), st.floats(0.999, 1.001), st.sampled_from([0.0, 0.5, 1.0, 1e-12])
)


def number_of(text: str) -> Decimal:
    """Return what a text says, with all its digits."""
    share = text.endswith("%")
    return Decimal(text.rstrip("%\N{NO-BREAK SPACE}").replace(",", "")) / (100 if share else 1)


def side(first_number: Decimal, second_number: Decimal) -> int:
    return (first_number > second_number) - (first_number < second_number)


@given(ends=st.lists(NUMBERS, min_size=3, max_size=3), claim=NUMBERS, is_share=st.booleans())
def test_every_text_lies_on_the_side_of_the_claim_on_which_its_number_lies(ends, claim, is_share):
    low, value, high = sorted(ends)
    rounded_interval = rounded(value, low, high, claim, is_share)
    texts = [number_of(text) for text in (rounded_interval.low, rounded_interval.value, rounded_interval.high)]
    assert texts == sorted(texts)
    for text, number in zip(texts, (low, value, high), strict=True):
        assert side(text, number_of(rounded_interval.claim)) == side_of(number, claim)
        if side_of(number, claim) != 0:
            assert side(text, Decimal(0)) == side_of(number, 0.0)
            assert not is_share or side(text, Decimal(1)) == side(Decimal(repr(number)), Decimal(1))


@given(low=NUMBERS, width=st.floats(1e-9, 1e6))
def test_an_interval_keeps_its_width(low, width):
    high = low + width
    assume(high - low > 1e-12 * abs(low))  # what is narrower has no second digit in a double
    ends = [number_of(text) for text in interval_text(low, high).split(" to ")]
    assert float(ends[1] - ends[0]) == pytest.approx(high - low, rel=0.06)


@pytest.mark.parametrize(
    ("numbers", "claim", "text"),
    [
        ((0.9999, 0.9995, 1.0003), 1.0, "0.9999 (0.9995 to 1.0003), 1"),
        ((1.0, 0.99951, 1.0000004), 1.0, "1 (0.99951 to 1.0000004), 1"),
        ((0.5, 0.4912, 0.5091), 1.0, "0.5 (0.4912 to 0.5091), 1"),
        ((0.0, -0.975, 0.975), 0.2191, "0 (-0.98 to 0.98), 0.2191"),
        ((0.004, 0.0001, 120.3), None, "0.004 (0.0001 to 120), not determined"),
        ((1.9e-7, 0.0, 4.2e-7), 1e-7, "1.9e-7 (0 to 4.2e-7), 1e-7"),
        ((1_234.5, 1_200.1, 1_300.7), 1_250, "1,234 (1,200 to 1,301), 1,250"),
        ((0.3, 0.1, 0.5), 0.1 + 0.2, "0.3 (0.1 to 0.5), 0.3"),
        ((0.5, 0.2, float("inf")), 1.0, f"0.5 (0.2 to {NO_LIMIT}), 1"),
        ((float("nan"), None, None), None, f"not determined ({NO_LIMIT} to {NO_LIMIT}), not determined"),
    ],
)
def test_intervals_as_they_are_printed(numbers, claim, text):
    rounded_interval = rounded(*numbers, claim)
    assert f"{rounded_interval.value} ({rounded_interval.interval}), {rounded_interval.claim}" == text


def test_shares_are_per_cent():
    assert interval_text(0.0, 0.0596, 0.0003, is_share=True).replace("\N{NO-BREAK SPACE}", " ") == "0 % to 6 %"
    assert interval_text(0.995, 0.99999, is_share=True).replace("\N{NO-BREAK SPACE}", " ") == "99.5 % to 99.999 %"


def test_nobody_else_writes_an_interval():
    """No formatted string of what users read joins two ends by itself."""
    joined = re.compile(r"\b(?:number_text|percent|_said)\([^{}]*low\b[^{}]*\)\} to \{|\{\w*low:[^{}]*\} to \{")
    assert joined.search('f"{low:.4g} to {high:.4g}"')
    assert joined.search('f"{percent(first.low)} to {percent(first.high)}"')
    root = Path(__file__).parents[1]
    directories = [
        root / name
        for name in (
            "fl_audit/report",
            "fl_audit/api",
            "fl_audit/audits/common",
            "fl_audit/cli",
            "fl_audit/runs/sweeps",
            "fl_audit/runs",
            "strategies",
        )
    ]
    sources = [file for directory in directories for file in sorted(directory.rglob("*.py"))]
    assert len(sources) > 80
    assert not [str(file) for file in sources if joined.search(file.read_text(encoding="utf-8"))]
