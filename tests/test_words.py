import math

import numpy as np
import pytest

from fl_audit.words import MISSING, number_text, one_in, percent, plural


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
        "1 in 20", "1 in 2,500", "3 in 10", "about 12 in 1,000"
    )  # fmt: skip
    assert one_in(0) == "zero"
    assert plural(1, "trial") == "1 trial"
    assert plural(2000, "trial") == "2,000 trials"
