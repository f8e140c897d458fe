"""The order-statistic bound: its distribution by simulation, its proof by brute force, what it certifies and where it
fails.
"""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit, ndtr
from scipy.stats import binom

from fl_audit.audits.canaries.bounds import bound_of_guesses, one_run_bound
from fl_audit.audits.canaries.guessing_bounds import Guesses, gaussian_inverse, guesses_of_scores, is_possible
from fl_audit.audits.canaries.one_run_methods import OneRunMethod
from fl_audit.audits.canaries.order_statistic import order_statistic_mu, order_statistic_p_value
from fl_audit.errors import InputError
from fl_audit.privacy.gaussian import gdp_mu

ALARM = 1e-4


def ideal_errors(draw: np.random.Generator, runs: int, coins: int, guessed: int, mu: float) -> tuple[np.ndarray, ...]:
    """Draw losses, keep the largest, toss their coins: errors among the surest guesses, and among the rest."""
    side = np.where(draw.random((runs, coins)) < 0.5, 0.5, -0.5)
    losses = np.abs(mu * (mu * side + draw.normal(size=side.shape)))
    errs = draw.random(side.shape) < expit(-np.sort(losses, axis=1)[:, ::-1])
    return errs[:, :guessed].sum(axis=1), errs[:, guessed:].sum(axis=1)


@pytest.mark.parametrize(("coins", "guessed", "mu"), [(40, 10, 1.0), (40, 39, 0.5), (40, 40, 2.0), (200, 100, 1.5)])
def test_the_distribution_is_that_of_simulated_errors(coins: int, guessed: int, mu: float) -> None:
    """Each probability lies within what 20,000 simulations allow, with a false alarm of 1e-4 each."""
    runs = 20_000
    top, rest = ideal_errors(np.random.default_rng(coins + guessed), runs, coins, guessed, mu)
    for share in (0.02, 0.05, 0.3, 0.8):
        errors = int(np.quantile(top, share))
        for rest_errors in {int(np.median(rest)), coins - guessed}:
            seen = int(((top < errors) | ((top == errors) & (rest <= rest_errors))).sum())
            guesses = Guesses(coins, guessed, guessed - errors, coins - guessed - rest_errors)
            p = order_statistic_p_value(guesses, mu)
            assert binom.cdf(seen, runs, p) > ALARM
            assert binom.sf(seen - 1, runs, p) > ALARM


def test_no_other_order_of_guesses_is_better() -> None:
    """The exchange in the proof, by brute force: all orders of five coins, all thresholds, weights that only fall."""
    draw = np.random.default_rng(5)
    outcomes = np.array(list(itertools.product((0, 1), repeat=5)))
    for _ in range(20):
        chances = np.sort(draw.uniform(0.5, 1, 5))[::-1]
        weights = np.sort(draw.integers(0, 4, 5))[::-1]

        orders = np.array(list(itertools.permutations(range(5))))
        chance = chances[orders][:, np.newaxis]
        probability = np.prod(np.where(outcomes == 1, chance, 1 - chance), axis=2)
        totals = outcomes @ weights
        reached = np.stack([probability[:, totals >= t].sum(axis=1) for t in range(int(weights.sum()) + 1)], axis=1)
        assert np.all(reached <= reached[0] + 1e-12), "the first order is the sorted one"


@given(
    st.integers(1, 60).flatmap(
        lambda m: st.integers(0, m).flatmap(
            lambda r: st.tuples(st.just(m), st.just(r), st.integers(0, r), st.integers(0, m - r))
        )
    ),
    st.floats(0, 8),
    st.floats(0, 2),
)
def test_the_p_value_is_one_and_grows_with_mu_and_with_errors(
    counts: tuple[int, int, int, int], mu: float, more: float
) -> None:
    m, r, v, rest = counts
    p = order_statistic_p_value(Guesses(m, r, v, rest), mu)
    assert 0 <= p <= 1
    assert order_statistic_p_value(Guesses(m, r, v, rest), mu + more) >= p - 1e-9
    if v < r:
        assert order_statistic_p_value(Guesses(m, r, v + 1, rest), mu) <= p + 1e-12
    if rest < m - r:
        assert order_statistic_p_value(Guesses(m, r, v, rest + 1), mu) <= p + 1e-12


def test_where_all_coins_are_guessed_it_is_the_binomial_distribution() -> None:
    assert order_statistic_p_value(Guesses(100, 100, 80), 1.0) == pytest.approx(binom.cdf(20, 100, ndtr(-0.5)))


def test_where_nothing_is_told_guesses_are_coins() -> None:
    assert order_statistic_p_value(Guesses(100, 60, 40), 0.0) == pytest.approx(binom.sf(39, 60, 0.5), rel=1e-9)


@pytest.mark.long
@pytest.mark.parametrize(("truth", "at_least"), [(4.38, 3.7), (10.0, 9.0)])
def test_ideal_gaussian_canaries_certify_most_of_the_truth(truth: float, at_least: float) -> None:
    """1000 canaries, 500 guesses, delta 1e-5: the mean of 300 runs, and at most 5 % above the truth (and chance)."""
    draw = np.random.default_rng(26)
    mu = gdp_mu(truth, 1e-5)
    coins = draw.random((300, 1000)) < 0.5
    found = [
        one_run_bound(s, c, 1e-5, method=OneRunMethod.ORDER_STATISTIC, guessed=500).epsilon
        for s, c in zip(mu * coins + draw.normal(size=coins.shape), coins, strict=True)
    ]
    assert np.mean(found) >= at_least
    assert sum(one > truth for one in found) <= binom.ppf(1 - ALARM, 300, 0.05)


@pytest.mark.long
def test_coins_that_leak_together_break_it_but_not_the_trade_off_bound() -> None:
    """In one run of ten all records pass randomised response at 2: each is .907-GDP, and a tenth of runs says more."""
    draw = np.random.default_rng(7)
    by_order = by_tradeoff = 0
    for _ in range(2000):
        coins = draw.random(1000) < 0.5
        said = (coins ^ (draw.random(1000) >= expit(2.0))) * 1.0 if draw.random() < 0.1 else draw.normal(size=1000)
        guesses = guesses_of_scores(said, coins, 250, 250)
        by_order += order_statistic_p_value(guesses, 0.9072) < 0.05
        by_tradeoff += not is_possible(guesses, 0.05, gaussian_inverse(0.9072))
    assert by_order > binom.ppf(1 - ALARM, 2000, 0.05)
    assert by_tradeoff <= binom.ppf(1 - ALARM, 2000, 0.05)


def test_it_is_never_the_default_and_names_what_it_asks_for() -> None:
    scores, coins = np.arange(20.0), np.arange(20) >= 10
    bound = one_run_bound(scores, coins, 1e-5)
    assert bound.method is OneRunMethod.TRADE_OFF
    assert [one for one in OneRunMethod if one.is_for_any_mechanism] == [OneRunMethod.TRADE_OFF, OneRunMethod.STEINKE]
    assert [one for one in OneRunMethod if "independent given" in one.assumption] == [OneRunMethod.ORDER_STATISTIC]
    assert set(bound.to_json()) >= {"epsilon", "method", "confidence", "limit_of_detection", "mu", "assumption"}


def test_the_extremes_are_numbers() -> None:
    for guesses in (Guesses(1, 1, 1), Guesses(2, 1, 1, 1), Guesses(1000, 0, 0, 500), Guesses(10**6, 20, 20, 5 * 10**5)):
        values = [order_statistic_p_value(guesses, mu) for mu in (0.0, 1e-6, 1.0, 30.0)]
        assert np.all(np.isfinite(values))
        assert np.all(np.diff(values) >= -1e-12)
    assert order_statistic_mu(Guesses(1000, 500, 500, 500), 0.05) == pytest.approx(5.497, abs=1e-3)


def test_wrong_input_is_named() -> None:
    scores, coins = np.arange(4.0), np.array([True, False, True, False])
    order = OneRunMethod.ORDER_STATISTIC
    with pytest.raises(InputError, match=r"delta is 0: .*order-statistic"):
        one_run_bound(scores, coins, 0, method=order)
    with pytest.raises(InputError, match="guesses are 5 about 4 coins"):
        one_run_bound(scores, coins, 1e-5, method=order, guessed=5)
    with pytest.raises(InputError, match="mu is -1"):
        order_statistic_p_value(Guesses(4, 2, 1), -1.0)
    with pytest.raises(InputError, match=r"3 right.* other 2 coins"):
        Guesses(4, 2, 1, 3)
    with pytest.raises(InputError, match="dimension with order-statistic"):
        one_run_bound(scores, coins, 1e-5, method=order, dimension=2000)
    with pytest.raises(InputError, match="shift needs scores"):
        bound_of_guesses(Guesses(4, 2, 1), 1e-5, method=OneRunMethod.SHIFT)
