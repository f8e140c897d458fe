"""Searches against closed forms and brute force."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fl_audit.root_finding import falling_root, last_true, smallest_number


@given(root=st.floats(1e-6, 1e6))
def test_a_falling_function_is_followed_to_its_root_however_far(root: float) -> None:
    assert falling_root(lambda x: root**3 - x**3) == pytest.approx(root, rel=1e-9, abs=1e-9)


def test_a_function_that_begins_at_0_or_below_has_its_root_there() -> None:
    assert falling_root(lambda x: -x) == 0.0
    assert falling_root(lambda x: -1.0 - x) == 0.0


def test_doubling_ends_at_most_one_doubling_beyond_the_end() -> None:
    tried = []
    assert falling_root(lambda x: tried.append(x) or 100 - x, largest=100.0) == pytest.approx(100)  # type: ignore[func-returns-value]
    assert max(tried) == 128.0


@given(first=st.integers(1, 3000), largest_number=st.integers(1, 2048))
def test_the_smallest_number_is_that_of_brute_force(first: int, largest_number: int) -> None:
    queried_numbers: list[int] = []
    computed_number = smallest_number(lambda number: queried_numbers.append(number) or number >= first, largest_number)  # type: ignore[func-returns-value]
    # Doubling stops above `most`, so a power of 2 up to it is the largest number that is asked about.
    reached = 2 ** math.floor(math.log2(largest_number))
    assert computed_number == (first if first <= reached else None)
    assert len(queried_numbers) <= 2 * math.log2(max(first, 2)) + 3
    assert min(queried_numbers) == 1


@given(edge=st.floats(0, 10))
def test_what_holds_up_to_an_edge_ends_there(edge: float) -> None:
    assert last_true(lambda x: x <= edge, 0.0, 10.0) == pytest.approx(edge, abs=1e-9)
    assert last_true(lambda x: False, 3.0, 10.0) == 3.0
