"""The convex frontier against its definition, in exact fractions."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtr, ndtri
from scipy.stats import binom, binomtest

from fl_audit.statistics.pareto_front import convex_frontier
from fl_audit.statistics.roc import tradeoff_band
from tests.builders.refusals import assert_refused

points = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), min_size=1, max_size=8)


def best_mixture_beats(index: int, positions: list[tuple[int, int]]) -> bool:
    """Whether a mixture of two others has at most the risk and at least the utility, and one of them better."""
    risk, utility = positions[index]
    for (x, y), (u, v) in product(positions, repeat=2):
        shares = {Fraction(0), Fraction(1)} | ({Fraction(u - risk, u - x)} if u != x else set())
        shares |= {Fraction(v - utility, v - y)} if v != y else set()
        for share in (candidate_share for candidate_share in shares if 0 <= candidate_share <= 1):
            mixed_risk = share * x + (1 - share) * u
            mixed_utility = share * y + (1 - share) * v
            as_good = mixed_risk <= risk and mixed_utility >= utility
            if as_good and (mixed_risk, mixed_utility) != (risk, utility):
                return True
    return False


@given(points)
def test_on_the_frontier_is_what_no_mixture_beats(positions: list[tuple[int, int]]) -> None:
    frontier = convex_frontier(*np.array(positions, dtype=float).T).tolist()
    unbeaten = {position for index, position in enumerate(positions) if not best_mixture_beats(index, positions)}
    assert {positions[index] for index in frontier} == unbeaten
    assert len(frontier) == len(unbeaten)
    assert all(positions.index(positions[index]) == index for index in frontier)


@given(points)
def test_units_and_order_do_not_matter(positions: list[tuple[int, int]]) -> None:
    risk, utility = np.array(positions, dtype=float).T
    plain = convex_frontier(risk, utility)
    assert np.all(np.diff(risk[plain]) > 0)
    assert np.all(np.diff(utility[plain]) > 0)
    turned = convex_frontier(risk[::-1], utility[::-1])
    assert risk[::-1][turned].tolist() == risk[plain].tolist()
    doubled = convex_frontier(risk * 2.0**3, utility * 2.0**-2)
    assert doubled.tolist() == plain.tolist()


@pytest.mark.parametrize(("risk", "utility"), [([], []), ([1.0], [1.0, 2.0]), ([np.nan], [1.0]), ([1.0], [np.inf])])
def test_wrong_input(risk: list[float], utility: list[float]) -> None:
    assert_refused(None, convex_frontier, risk, utility)


# --- The band of the trade-off: it covers where thresholds are estimated, and orders as counts do


@pytest.mark.long
@pytest.mark.parametrize(("size", "mu", "share"), [(100, 0.52, 0.1), (500, 1.0, 0.01), (30, 1.0, 0.9)])
def test_band_covers_the_true_rate_as_often_as_it_says(size: int, mu: float, share: float) -> None:
    """1,000 runs; coverage of exactly 95 % would fail with a probability of 1e-4 (3.7 standard errors)."""
    rng = np.random.default_rng(5)
    alarms = np.array([share])
    truth = float(ndtr(ndtri(share) + mu))
    covered = 0
    for _ in range(1000):
        band = tradeoff_band(rng.normal(mu, 1, size), rng.normal(0, 1, size), alarms, 0.95)
        covered += bool(band.low[0] <= truth <= band.high[0])
    assert covered >= 1000 * 0.95 - 3.7 * np.sqrt(1000 * 0.95 * 0.05)


def test_ends_are_those_of_two_binomial_tests() -> None:
    """The rank of the threshold and the share above it have intervals: each end of each at a quarter of the level.

    Together they cover more often than they say, so that counting how often does not show a level that is too large.
    """
    draw = np.random.default_rng(1)
    alarm = 0.2
    side = 0.05 / 4
    ranks = range(1, 61)
    found_in = draw.normal(1, 1, 80)
    reference_scores = np.sort(draw.normal(0, 1, 60))[::-1]
    low_rank = max(rank for rank in ranks if binom.sf(rank - 1, 60, alarm) >= 1 - side)
    high_rank = min(rank for rank in ranks if binom.sf(rank - 1, 60, alarm) <= side)
    above = int(np.sum(found_in > reference_scores[low_rank - 1]))
    reaching = int(np.sum(found_in >= reference_scores[high_rank - 1]))
    band = tradeoff_band(found_in, reference_scores, np.array([alarm]), 0.95)
    assert band.low[0] == pytest.approx(binomtest(above, 80).proportion_ci(1 - 2 * side).low, rel=1e-9)
    assert band.high[0] == pytest.approx(binomtest(reaching, 80).proportion_ci(1 - 2 * side).high, rel=1e-9)


def test_band_of_few_scores_says_nothing_where_no_rank_can_stand_for_the_threshold() -> None:
    band = tradeoff_band(np.arange(5.0), np.arange(5.0), np.array([0.0, 1e-3, 1.0]), 0.95)
    assert band.low[:2].tolist() == [0.0, 0.0]
    assert band.high[2] == 1.0
    assert bool((band.low <= band.rates).all() and (band.rates <= band.high).all())


def test_equal_scores_are_covered_whichever_side_a_test_puts_them_on() -> None:
    """Coins: at a false-alarm rate of .1 no threshold finds anything, a randomised test a ninth of nine tenths."""
    band = tradeoff_band(np.repeat([0.0, 1.0], [10, 90]), np.repeat([0.0, 1.0], [10, 90]), np.array([0.1]), 0.95)
    assert band.rates[0] == 0.0 == band.low[0]
    assert band.high[0] > 0.1


def test_wrong_numbers_are_refused_in_one_line() -> None:
    for groups, alarms, confidence in ((([], [1.0]), 0.1, 0.95), (([1.0], [1.0]), 1.1, 0.95), (([1.0], [1.0]), 0.1, 1)):
        assert_refused("accepted", tradeoff_band, *map(np.array, groups), np.array([alarms]), confidence)
