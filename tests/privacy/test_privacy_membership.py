"""Bounds on the membership advantage: against linear programs, simulation of the worst case, and each other."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from fl_audit.adjacency import Adjacency
from fl_audit.privacy.accounting import Accountant
from fl_audit.privacy.claim import Claim
from fl_audit.privacy.events import gaussian_rounds
from fl_audit.privacy.gaussian import gdp_delta
from fl_audit.privacy.guarantee import (
    Guarantee,
    _tradeoff_advantage_bound,
    derive_guarantee,
    membership_bounds,
    yeom_bound,
)

REPLACE, ADD_REMOVE = Adjacency.REPLACE_RECORD, Adjacency.ADD_REMOVE_RECORD


def claimed(adjacency: Adjacency, noise_multiplier: float, rounds: int, delta: float) -> Guarantee:
    return derive_guarantee(Claim(adjacency, gaussian_rounds(noise_multiplier, rounds), delta, 0.5, Accountant.GDP))


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 0.001), (1.1, 0.01), (2.2, 1e-5), (0.0, 0.2)])
def test_tradeoff_bound_is_the_best_of_all_error_rates_that_the_guarantee_allows(epsilon: float, delta: float) -> None:
    """Maximise TPR - FPR subject to the four inequalities that define (epsilon, delta)-DP, by linear programming."""
    e = math.exp(epsilon)
    # TPR <= e FPR + delta, FPR <= e TPR + delta, and the same for 1 - TPR and 1 - FPR.
    rows, limits = [[1, -e], [-e, 1], [-1, e], [e, -1]], [delta, delta, e - 1 + delta, e - 1 + delta]
    found = linprog([-1, 1], A_ub=rows, b_ub=limits, bounds=[(0, 1), (0, 1)])
    assert _tradeoff_advantage_bound(epsilon, delta) == pytest.approx(-found.fun, abs=1e-9)


def test_known_values() -> None:
    assert yeom_bound(math.log(2)) == pytest.approx(1)
    assert yeom_bound(1e4) == math.inf
    assert _tradeoff_advantage_bound(math.log(3), 1e-12) == pytest.approx(0.5)
    assert _tradeoff_advantage_bound(1e4, 0.1) == 1


@given(epsilon=st.floats(0, 50), delta=st.floats(1e-12, 0.99))
def test_the_tradeoff_bound_is_at_most_yeoms_with_delta(epsilon: float, delta: float) -> None:
    assert delta - 1e-12 <= _tradeoff_advantage_bound(epsilon, delta) <= min(1, yeom_bound(epsilon) + delta) + 1e-12


@given(
    multiplier=st.floats(0.3, 50),
    rounds=st.integers(1, 60),
    delta=st.floats(1e-6, 0.1),
    adjacency=st.sampled_from([REPLACE, ADD_REMOVE]),
)
def test_the_exact_bound_is_the_tightest(multiplier: float, rounds: int, delta: float, adjacency: Adjacency) -> None:
    bounds = membership_bounds(claimed(adjacency, multiplier, rounds, delta))
    assert bounds.exact <= bounds.tradeoff + 1e-9
    assert adjacency is ADD_REMOVE or bounds.exact <= bounds.yeom + delta


@pytest.mark.parametrize(("adjacency", "factor"), [(REPLACE, 1), (ADD_REMOVE, 2)])
def test_the_exact_bound_is_reached_by_the_best_adversary(adjacency: Adjacency, factor: int) -> None:
    """Sum queries at the worst pair: a record at +C against one at -C, or, where records come and go, the same pair.

    The noise is z C there and z 2C for replaced records. 400000 draws err by 0.0022; 0.009 is four errors.
    """
    z, rounds = 4.0, 3
    guarantee = claimed(adjacency, z, rounds, 0.01)
    sigma = z * (2 if adjacency is REPLACE else 1)
    draw = np.random.default_rng(7)
    means = [draw.normal(centre, sigma / math.sqrt(rounds), 200_000) for centre in (1.0, -1.0)]
    reached = np.mean(means[0] > 0) - np.mean(means[1] > 0)
    bounds = membership_bounds(guarantee)
    assert reached == pytest.approx(bounds.exact, abs=0.009)
    assert bounds.exact == pytest.approx(gdp_delta(0.0, factor * guarantee.mu))
    # A bound that forgot that two records differ where records come and go would be broken by this adversary.
    assert (adjacency is REPLACE) == (reached < guarantee.advantage_bound_exact + 0.009)
