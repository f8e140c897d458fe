"""Values taken for numbers, and values refused in one line."""

import math

import numpy as np
import pytest

from fl_audit.errors import in_a_line
from fl_audit.value_checks import as_whole, require_number, require_switch
from tests.builders.refusals import assert_refused


def test_whole_numbers_are_taken_however_they_are_written_and_keep_every_digit() -> None:
    assert as_whole("labels", ["1.0", "2"]).tolist() == [1, 2]
    assert as_whole("labels", np.array([3.0], dtype=np.float32)).tolist() == [3]
    assert as_whole("labels", [2**60 + 1]).tolist() == [2**60 + 1]


@pytest.mark.parametrize(
    ("value", "expected_message"), [("x", "labels are .*'x'.*: .*numbers"), (1.5, "labels have 1.5: .*whole")]
)
def test_what_is_no_whole_number_is_refused(value: object, expected_message: str) -> None:
    assert_refused(expected_message, as_whole, "labels", [value])  # type: ignore[list-item]


@pytest.mark.parametrize(
    "accepted", ["numbers belwo 1", "hole numbers", "number above 0", "numbers above", "numbers from one", ""]
)
def test_a_kind_of_number_with_unknown_words_is_a_mistake_of_the_caller(accepted: str) -> None:
    with pytest.raises(ValueError, match="no description"):
        require_number("x is", 0.5, accepted)


@pytest.mark.parametrize(
    ("accepted", "inside", "outside"),
    [
        ("numbers from 0 to below 1", 0, 1),
        ("numbers above 0 and up to 0.5", 0.5, 0),
        ("numbers above 0.5, below 1", 0.6, 1),
        ("whole numbers of pixels from 1", 1, 1.5),
        ("positive finite numbers to 1e100", 1, math.inf),
        ("whole numbers from 1 to 5, the number of rounds", 5, 6),
        ("numbers from -1 to 1", -1, -2),
    ],
)
def test_ranges_are_read_as_they_are_written(accepted: str, inside: float, outside: float) -> None:
    require_number("x is", inside, accepted)
    assert_refused(None, require_number, "x is", outside, accepted)


@pytest.mark.parametrize("value", [True, np.True_, "0.7", None, math.nan, math.inf, 0.5, 1, 10**400, 1 + 0j])
def test_a_number_is_of_the_kind_that_the_message_names(value: object) -> None:
    for number in (0.7, np.float32(0.7)):
        require_number("confidence is", number, "numbers above 0.5 and below 1")
    named = r"^confidence is .*: .* above 0\.5 and below 1$"
    assert_refused(named, require_number, "confidence is", value, "numbers above 0.5 and below 1")


@pytest.mark.parametrize("value", [True, False, 1.5, "2", None, math.nan, -1])
def test_a_switch_is_no_whole_number(value: object) -> None:
    assert_refused(r"^rounds are .*: .* from 0$", require_number, "rounds are", value, "whole numbers from 0")


def test_a_word_is_no_switch() -> None:
    for switch in (True, np.False_):
        require_switch("is_clipped", switch)
    for value in ("no", 0, None, math.nan):
        assert_refused(r"^is_clipped is .*: .* True and False$", require_switch, "is_clipped", value)


class Wordless(Exception):
    """Cannot say what it is."""

    def __str__(self) -> str:
        """Raise."""
        raise RuntimeError("no words")


def test_an_error_that_has_no_words_is_named_in_a_line() -> None:
    assert in_a_line(Wordless()) == "Wordless: no message"
