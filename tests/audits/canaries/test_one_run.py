"""One-run auditing: published values, the theorem by other means, and how often certificates are false."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog
from scipy.special import expit, ndtr
from scipy.stats import binom

from fl_audit.audits.canaries.bounds import bound_of_guesses, one_run_bound
from fl_audit.audits.canaries.guessing_bounds import (
    Guesses,
    approximate_inverse,
    gaussian_inverse,
    guesses_of_scores,
    is_possible,
    one_run_p_value,
    steinke_epsilon,
    tradeoff_mu,
)
from fl_audit.audits.canaries.one_run_methods import OneRunMethod
from fl_audit.audits.membership.attack_results import relative_tradeoff
from tests.builders.refusals import assert_refused

COUNTS = st.integers(1, 60).flatmap(
    lambda m: st.integers(0, m).flatmap(lambda r: st.integers(0, r).map(lambda v: Guesses(m, r, v)))
)


@pytest.mark.parametrize(
    ("coins", "guessed", "right", "delta", "epsilon"),
    [
        (1000, 100, 100, 0.0, 3.493),
        (1000, 100, 100, 1e-5, 3.465),
        (1000, 1000, 700, 1e-5, 0.732),
        (5000, 500, 490, 1e-5, 3.336),
    ],
)
def test_published_values(coins: int, guessed: int, right: int, delta: float, epsilon: float) -> None:
    assert steinke_epsilon(Guesses(coins, guessed, right), delta, 0.05) == pytest.approx(epsilon, abs=5e-4)


@given(COUNTS, st.floats(0, 6), st.floats(0, 0.01))
def test_the_p_value_is_the_theorem_written_out(guesses: Guesses, epsilon: float, delta: float) -> None:
    m = guesses.coins
    r = guesses.guessed
    v = guesses.right
    q = math.exp(epsilon) / (1 + math.exp(epsilon))
    distribution = [math.comb(r, k) * q**k * (1 - q) ** (r - k) for k in range(r + 1)]
    alpha = max(sum(distribution[k] for k in range(max(0, v - i), v)) / i for i in range(1, m + 1))
    expected = min(1.0, sum(distribution[v:]) + 2 * m * delta * alpha)
    assert one_run_p_value(guesses, epsilon, delta) == pytest.approx(expected, abs=1e-9)


@given(COUNTS, st.sampled_from([0.0, 1e-5, 0.01]))
def test_more_right_guesses_never_lower_the_bound_and_none_exceeds_its_ceiling(guesses: Guesses, delta: float) -> None:
    bound = bound_of_guesses(guesses, delta, method=OneRunMethod.STEINKE)
    assert 0 <= bound.epsilon <= bound.limit_of_detection + 1e-9
    if guesses.right < guesses.guessed:
        better_guesses = Guesses(guesses.coins, guesses.guessed, guesses.right + 1)
        assert steinke_epsilon(better_guesses, delta, 0.05) >= bound.epsilon - 1e-7
        assert tradeoff_mu(better_guesses, 0.05) >= tradeoff_mu(guesses, 0.05) - 1e-9


@pytest.mark.long
def test_false_certificates_are_at_most_as_many_as_the_level_says() -> None:
    """Randomised response on every coin is the worst pure mechanism; 2000 runs, 100 false ones are the level."""
    draw = np.random.default_rng(1)
    epsilon = 1.0
    false = by_tradeoff = 0
    for _ in range(2000):
        coins = draw.random(200) < 0.5
        responses = coins ^ (draw.random(200) > expit(epsilon))
        guesses = guesses_of_scores(responses + draw.random(200) / 2, coins, 40, 40)
        false += one_run_p_value(guesses, epsilon, 0.0) <= 0.05
        by_tradeoff += not is_possible(guesses, 0.05, approximate_inverse(epsilon, 0.0))
    assert 0 < false <= 100
    assert by_tradeoff <= 100


@pytest.mark.long
def test_false_certificates_about_a_gaussian_mechanism() -> None:
    """The best attack on independent releases N(coin mu, 1); at delta 1e-5 mu = 1 has epsilon 4.38."""
    draw = np.random.default_rng(2)
    mu, epsilon = 1.0, 4.3776
    coins = draw.random((2000, 200)) < 0.5
    scores = coins * mu + draw.normal(size=coins.shape)
    guesses = [guesses_of_scores(s, c, 20, 20) for s, c in zip(scores, coins, strict=True)]
    assert sum(one_run_p_value(g, epsilon, 1e-5) <= 0.05 for g in guesses) <= 100
    assert sum(not is_possible(g, 0.05, gaussian_inverse(mu)) for g in guesses) <= 100


@pytest.mark.few_cases(4)
@pytest.mark.parametrize(("coins", "guessed", "right"), [(10, 10, 8), (30, 12, 10), (25, 20, 13), (12, 5, 5)])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 0.0), (1.0, 0.01), (0.1, 0.2)])
def test_the_largest_tail_is_that_of_a_linear_programme(
    coins: int, guessed: int, right: int, epsilon: float, delta: float
) -> None:
    """For (epsilon, delta)-DP the inequalities of the module are linear in the distribution of the number of right
    guesses.
    """
    number = np.arange(guessed + 1)
    rows = []
    limits = []
    for t in range(1, guessed + 1):
        a = np.where(number >= t, number, 0) / coins
        b = np.where(number >= t - 1, guessed - number, 0) / coins
        rows += [a - math.exp(epsilon) * b, a * math.exp(epsilon) - b]
        limits += [delta, math.exp(epsilon) - 1 + delta]
    ones = np.ones((1, guessed + 1))
    best = linprog(-(number >= right).astype(float), rows, limits, ones, [1.0], method="highs")
    inverse = approximate_inverse(epsilon, delta)
    guesses = Guesses(coins, guessed, right)
    assert is_possible(guesses, -best.fun - 1e-7, inverse)
    assert best.fun < -1 + 1e-7 or not is_possible(guesses, -best.fun + 1e-7, inverse)


@pytest.mark.parametrize("mu", [0.3, 1.0, 2.0])
@pytest.mark.parametrize("right", [30, 36, 40])
def test_a_gaussian_mechanism_itself_is_possible(mu: float, right: int) -> None:
    """Forty coins, each told with N(coin mu, 1) by itself and all guessed: binomial with Phi(mu / 2)."""
    tail = float(binom.sf(right - 1, 40, ndtr(mu / 2)))
    assert is_possible(Guesses(40, 40, right), tail, gaussian_inverse(mu))


@pytest.mark.few_cases(1)
@pytest.mark.parametrize("method", [method for method in OneRunMethod if method.guesses])
@pytest.mark.parametrize("in_first", [False, True])
def test_scores_that_say_nothing_certify_nothing_where_files_are_sorted_by_the_coins(
    method: OneRunMethod, in_first: bool
) -> None:
    """Equal scores: 0. Scores 0 or 1 by coins of their own: a bound of 95 % is above 0 in 5 % of the files at most.

    More than 66 of 1000 such files would come up in 1 of 100 trials by chance at 5 %.
    """
    for size in (20, 200, 1000, 4999):
        coins = (np.arange(size) < size // 2) == in_first
        assert one_run_bound(np.full(size, 0.3), coins, 1e-5, method=method).epsilon == 0
    draw = np.random.default_rng(3)
    coins = (np.arange(300) < 150) == in_first
    above = 0
    side = 30
    for _ in range(1000):
        guesses = guesses_of_scores(draw.integers(2, size=300), coins, side, side)
        match method:
            case OneRunMethod.STEINKE:
                above += one_run_p_value(guesses, 0.0, 1e-5) <= 0.05
            case _:
                above += not is_possible(guesses, 0.05, approximate_inverse(0.0, 1e-5))
    assert above <= 66


def test_guesses_take_the_ends_and_break_ties_by_lot() -> None:
    coins = np.array([True, True, False, False])
    assert guesses_of_scores(np.zeros(4), coins, 2, 2) == Guesses(4, 4, 2)
    in_order = np.arange(1000) < 500
    half = guesses_of_scores(np.append(np.zeros(999), -1.0), in_order, 100, 100)
    assert 70 <= half.right <= 130
    assert guesses_of_scores(np.array([0.0, 1, 2, 3]), coins, 2, 1) == Guesses(4, 3, 0)
    assert guesses_of_scores(np.array([4.0, 3, 2, 1]), coins, 0, 0) == Guesses(4, 0, 0)
    assert guesses_of_scores([3.0, 2, 1, 0], [True, False, False, False], 1, 1) == Guesses(4, 2, 2)
    assert steinke_epsilon(Guesses(4, 0, 0), 0.0, 0.05) == 0
    assert tradeoff_mu(Guesses(4, 0, 0), 0.05) == 0


def test_phi_is_the_papers_ratio_with_its_limits() -> None:
    assert relative_tradeoff(0.7, 0.65, 0.8, 0.6, 10) == pytest.approx((0.05 / 0.2) / (0.2 / 0.7))
    assert relative_tradeoff(0.7, 0.75, 0.8, 0.6, 10) == 0
    assert relative_tradeoff(0.7, 0.5, 0.8, 0.79, 10) == 2
    assert relative_tradeoff(0.7, 0.6, 0.8, 0.85, 10) == 2
    assert math.isnan(relative_tradeoff(0.5, 0.5, 0.8, 0.6, 10))
    assert_refused(r"AUC is 1\.1", relative_tradeoff, 1.1, 0.5, 0.8, 0.6, 10)


def test_a_million_coins_take_no_longer_than_a_thousand() -> None:
    """A recursion that stands still ends, with the result that it would have had at the last step."""

    def to_the_end(guesses: Guesses, tail: float, inverse: Callable[[float], float]) -> bool:
        coins = guesses.coins
        guessed = guesses.guessed
        right = guesses.right
        a = tail * right / coins
        b = tail * (guessed - right) / coins
        for step in range(right, 0, -1):
            lower = max(b, inverse(a))
            a = a + (lower - b) * (step - 1) / (guessed - step + 1)
            b = lower
            if a + b > guessed / coins:
                return False
        return True

    for coins, guessed, right in ((3000, 1000, 1000), (3000, 1000, 600), (500, 500, 400), (40, 0, 0)):
        guesses = Guesses(coins, guessed, right)
        for inverse in (gaussian_inverse(1.5), gaussian_inverse(4.0), approximate_inverse(3.0, 1e-5)):
            assert is_possible(guesses, 0.05, inverse) == to_the_end(guesses, 0.05, inverse)
    calls = []
    inverse = gaussian_inverse(4.0)
    assert is_possible(Guesses(10**6, 200_000, 200_000), 0.05, lambda y: calls.append(y) or inverse(y))
    assert len(calls) < 1000
