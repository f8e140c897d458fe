"""The convex frontier against its definition, in exact fractions."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fl_audit.errors import InputError
from fl_audit.statistics.pareto_front import convex_frontier

points = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), min_size=1, max_size=8)


def best_mixture_beats(index: int, places: list[tuple[int, int]]) -> bool:
    """Whether a mixture of two others has at most the risk and at least the utility, and one of them better."""
    risk, utility = places[index]
    for (x, y), (u, v) in product(places, repeat=2):
        shares = {Fraction(0), Fraction(1)} | ({Fraction(u - risk, u - x)} if u != x else set())
        shares |= {Fraction(v - utility, v - y)} if v != y else set()
        for share in (one for one in shares if 0 <= one <= 1):
            mixed_risk, mixed_utility = share * x + (1 - share) * u, share * y + (1 - share) * v
            as_good = mixed_risk <= risk and mixed_utility >= utility
            if as_good and (mixed_risk, mixed_utility) != (risk, utility):
                return True
    return False


@given(points)
def test_on_the_frontier_is_what_no_mixture_beats(places: list[tuple[int, int]]) -> None:
    found = convex_frontier(*np.array(places, dtype=float).T).tolist()
    unbeaten = {place for index, place in enumerate(places) if not best_mixture_beats(index, places)}
    assert {places[index] for index in found} == unbeaten
    assert len(found) == len(unbeaten)
    assert all(places.index(places[index]) == index for index in found)


@given(points)
def test_units_and_order_do_not_matter(places: list[tuple[int, int]]) -> None:
    risk, utility = np.array(places, dtype=float).T
    plain = convex_frontier(risk, utility)
    assert np.all(np.diff(risk[plain]) > 0)
    assert np.all(np.diff(utility[plain]) > 0)
    turned = convex_frontier(risk[::-1], utility[::-1])
    assert risk[::-1][turned].tolist() == risk[plain].tolist()
    doubled = convex_frontier(risk * 2.0**3, utility * 2.0**-2)
    assert doubled.tolist() == plain.tolist()


@pytest.mark.parametrize(("risk", "utility"), [([], []), ([1.0], [1.0, 2.0]), ([np.nan], [1.0]), ([1.0], [np.inf])])
def test_wrong_input(risk: list[float], utility: list[float]) -> None:
    with pytest.raises(InputError):
        convex_frontier(risk, utility)
