"""Advantage, delta(eps) and eps(delta) from beliefs, their intervals by betting, and calibration."""

import math

import numpy as np
import pytest
from few_examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats
from scipy.special import logit, ndtr

from fl_audit.audits.identifiability.calibration import _poisson_binomial, _poisson_binomial_p, calibration
from fl_audit.audits.identifiability.estimates_from_beliefs import (
    _delta_terms,
    _epsilon_interval,
    _foreseen_terms,
    advantage_from_beliefs,
    chance_of_being_right,
    counted_delta,
    delta_from_beliefs,
    epsilon_from_beliefs,
)
from fl_audit.errors import InputError
from fl_audit.privacy.gaussian import gdp_delta, gdp_epsilon
from fl_audit.statistics.advantage import MeanBettingTest, mean_interval

MU = 0.65


def played(
    rng: np.random.Generator, trials: int, mu: float = MU, coin: float = 0.5
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    members = rng.random(trials) < coin
    return np.where(members, 0.5, -0.5) * mu**2 + mu * rng.standard_normal(trials), members


@pytest.mark.parametrize(
    "draw",
    [
        lambda rng: rng.uniform(0, 1, 60),
        lambda rng: (rng.random(60) < 0.05).astype(np.float64),
        lambda rng: rng.beta(0.3, 3, 200),
        lambda rng: 0.5 + 0.01 * rng.standard_normal(40).clip(-3, 3),
    ],
    ids=["uniform", "rare", "skewed", "narrow"],
)
def test_the_betting_interval_covers(draw) -> None:  # type: ignore[no-untyped-def]
    """400 intervals of confidence .9; the misses must not pass the binomial bound at 1e-4."""
    rng = np.random.default_rng(1)
    truth = {60: None, 200: 0.3 / 3.3, 40: 0.5}
    missed = 0
    for _ in range(400):
        values = draw(rng)
        mean = truth[values.size]
        mean = (0.05 if set(np.unique(values)) <= {0.0, 1.0} else 0.5) if mean is None else mean
        bets = MeanBettingTest.of(values, 0.9)
        missed += bets.refutes_too_small(mean) or bets.refutes_too_large(mean)
    assert missed <= stats.binom.ppf(1 - 1e-4, 400, 0.1)


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=50), st.floats(0.5, 0.999))
def test_the_interval_holds_what_it_does_not_refute(numbers: list[float], confidence: float) -> None:
    values = np.array(numbers)
    found, bets = mean_interval(values, confidence), MeanBettingTest.of(values, confidence)
    assert 0 <= found.low <= found.mean <= found.high <= 1
    for candidate in np.linspace(0, 1, 23):
        refuted = bets.refutes_too_small(candidate) or bets.refutes_too_large(candidate)
        assert refuted or found.low - 1e-9 <= candidate <= found.high + 1e-9
    wider = mean_interval(values * 3 - 1, confidence, -1.0, 2.0)
    assert (wider.low, wider.high) == pytest.approx((3 * found.low - 1, 3 * found.high - 1), abs=1e-6)


def test_the_interval_is_near_the_normal_one_and_never_empty() -> None:
    values = np.random.default_rng(2).normal(0.5, 0.1, 10_000).clip(0, 1)
    found = mean_interval(values, 0.95)
    assert (found.high - found.low) / (2 * 1.96 * found.standard_error) < 1.6
    # all equal, or sorted: the mean stays within
    for odd in (np.zeros(10), np.ones(3), np.sort(values), np.array([0.2])):
        assert mean_interval(odd, 0.95).low <= odd.mean() <= mean_interval(odd, 0.95).high
    assert mean_interval(np.zeros(1000), 0.95).high < 0.01
    with pytest.raises(InputError, match="lies outside 0 to 1"):
        mean_interval(np.array([1.1]), 0.95)
    with pytest.raises(InputError, match="values have shape"):
        mean_interval(np.empty(0), 0.95)


def test_advantage_from_beliefs_is_unbiased_and_four_times_as_exact_as_counting() -> None:
    """200 runs of 1000 trials at mu = .65: mean within 4 standard errors; the published target is a quarter."""
    rng, truth = np.random.default_rng(3), 2 * ndtr(MU / 2) - 1
    expected, counted, covered = [], [], 0
    for _ in range(200):
        log_odds, members = played(rng, 1000)
        found = advantage_from_beliefs(log_odds, 0.95)
        expected.append(found.mean)
        counted.append(2 * np.mean((log_odds > 0) == members) - 1)
        covered += found.low <= truth <= found.high
    assert abs(np.mean(expected) - truth) < 4 * np.std(expected) / math.sqrt(200)
    assert np.std(expected) <= np.std(counted) / 4
    assert found.standard_error == pytest.approx(np.std(expected), rel=0.2)
    assert covered >= stats.binom.ppf(1e-4, 200, 0.95)


@pytest.mark.parametrize(("prior", "coin"), [(0.8, 0.5), (0.8, 0.8), (0.3, 0.6)])
def test_advantage_with_uneven_priors_is_what_is_counted(prior: float, coin: float) -> None:
    """The insider guesses by its prior, the challenger draws by its coin; 100 runs, 4 standard errors."""
    rng = np.random.default_rng(4)
    expected, counted = [], []
    for _ in range(100):
        log_odds, members = played(rng, 500, mu=1.5, coin=coin)
        expected.append(advantage_from_beliefs(log_odds, 0.95, prior, coin).mean)
        counted.append(2 * np.mean((log_odds + logit(prior) > 0) == members) - 1)
    exact = coin * ndtr((1.125 + logit(prior)) / 1.5) + (1 - coin) * ndtr((1.125 - logit(prior)) / 1.5)
    assert abs(np.mean(expected) - (2 * exact - 1)) < 4 * np.std(expected) / 10
    assert abs(np.mean(counted) - (2 * exact - 1)) < 4 * np.std(counted) / 10
    assert np.std(expected) < np.std(counted)
    assert chance_of_being_right(np.array([-1.0]), 0.9, 0.5)[0] < 0.5


def test_delta_and_epsilon_of_the_pair_are_covered_on_both_sides() -> None:
    rng, epsilon, delta = np.random.default_rng(5), 0.5, 0.1
    true_delta, true_epsilon = gdp_delta(epsilon, 1.0), gdp_epsilon(delta, 1.0)
    runs = [played(rng, 600, 1.0) for _ in range(60)]
    deltas = [delta_from_beliefs(*run, epsilon, 0.95) for run in runs]
    epsilons = [epsilon_from_beliefs(*played(rng, 600, 1.0), delta, 0.95) for _ in range(60)]
    assert sum(one.low <= true_delta <= one.high for one in deltas) >= stats.binom.ppf(1e-4, 60, 0.95)
    assert sum(one.low <= true_epsilon <= one.high for one in epsilons) >= stats.binom.ppf(1e-4, 60, 0.95)
    means = [_delta_terms(log_odds[members], epsilon).mean() for log_odds, members in runs]
    assert np.mean(means) == pytest.approx(true_delta, abs=0.01)
    assert np.median([one.value for one in epsilons]) == pytest.approx(true_epsilon, rel=0.1)
    assert max(one.high - one.low for one in epsilons) < 1.2


def test_counted_delta_is_that_of_the_gaussian_pair() -> None:
    """With 40,000 trials the interval is narrow; each of five fails on an honest run with a chance of 5 % at most."""
    generator, mu = np.random.default_rng(5), 1.2
    members = np.arange(40_000) % 2 == 0
    log_odds = np.where(members, 1, -1) * mu**2 / 2 + mu * generator.standard_normal(40_000)
    for epsilon in (0.0, 0.3, 1.0, 2.0):
        found = counted_delta(log_odds, members, epsilon, 0.95)
        truth = gdp_delta(epsilon, mu)
        assert found.low < truth < found.high
        assert found.low <= found.value <= found.high
        assert found.high - found.low < 0.2
    # One direction alone leaks: it must be the one that is reported.
    one_sided = np.where(members, np.where(np.arange(40_000) % 8 == 0, 3.0, 0.0), 0.0)
    assert counted_delta(one_sided, members, 1.0, 0.95).value == pytest.approx(0.25)


def test_both_directions_count() -> None:
    """A pair whose D' gives itself away in a tenth of the trials, and D hardly ever: the larger direction decides."""
    members = np.arange(2000) < 1000
    gone = np.arange(2000) % 10 == 0
    log_odds = np.where(members, math.log(1 / 0.9), np.where(gone, -50.0, math.log(1 / 0.9)))
    found = delta_from_beliefs(log_odds, members, 1.0, 0.95)
    with_d, without = (
        mean_interval(_delta_terms(part, 1.0), 0.975) for part in (log_odds[members], -log_odds[~members])
    )
    assert with_d.mean == 0
    assert without.mean == pytest.approx(0.1, abs=1e-6)
    ends = max(without.low, with_d.low), max(without.high, with_d.high)
    assert (found.value, found.low, found.high) == (without.mean, *ends)


@given(st.integers(0, 2**32 - 1), st.integers(20, 80), st.floats(0.3, 3.0), st.floats(0.01, 0.4))
@settings(max_examples=examples(150), deadline=None, derandomize=True)
def test_the_interval_of_epsilon_is_all_that_is_not_refuted(
    seed: int, trials: int, spread: float, delta: float
) -> None:
    """With heavy tails: on a grid, every epsilon outside the interval is refuted and none inside is."""
    rng = np.random.default_rng(seed)
    log_odds = spread * rng.standard_t(2, trials)
    stakes = MeanBettingTest.of(_foreseen_terms(log_odds, delta), 0.5)
    _, low, high = _epsilon_interval(log_odds, delta, 0.5)
    for epsilon in np.linspace(0.0, 1.1 * max(0.1, float(log_odds.max())), 40):
        bets = stakes.with_numbers(_delta_terms(log_odds, float(epsilon)))
        if epsilon > low + 1e-9:
            assert not bets.refutes_too_small(delta)
        elif 0 < epsilon < low - 1e-9:
            assert bets.refutes_too_small(delta)
        if epsilon > high + 1e-9:
            assert bets.refutes_too_large(delta)


def test_stakes_on_epsilon_know_the_past_alone() -> None:
    log_odds, _ = played(np.random.default_rng(15), 200, 1.0)
    terms = _foreseen_terms(log_odds, 0.1)
    for known in (5, 16, 17, 64, 130):
        changed = np.concatenate([log_odds[:known], 5 + log_odds[known:]])
        np.testing.assert_array_equal(_foreseen_terms(changed, 0.1)[:known], terms[:known])


def test_a_delta_that_the_trials_cannot_resolve_leaves_epsilon_open_above() -> None:
    log_odds, members = played(np.random.default_rng(6), 400, 1.0)
    found = epsilon_from_beliefs(log_odds, members, 1e-4, 0.95)
    assert math.isinf(found.high)
    assert 0 <= found.low < gdp_epsilon(1e-4, 1.0)
    zero = epsilon_from_beliefs(np.zeros(400), members, 0.05, 0.95)
    assert (zero.value, zero.low, zero.high) == (0.0, 0.0, 0.0)
    with pytest.raises(InputError, match="kind of trial"):
        epsilon_from_beliefs(np.zeros(3), np.ones(3, dtype=bool), 0.1, 0.95)
    np.testing.assert_allclose(_delta_terms(np.array([2.0, -1.0]), 1.0), [1 - math.exp(-1), 0.0])


def test_calibrated_beliefs_pass_and_p_values_are_never_too_small() -> None:
    rng = np.random.default_rng(7)
    found = [calibration(*played(rng, 200, 1.2), 0.95) for _ in range(80)]
    for values in ([one.p_value for one in found], [one.wins_p_value for one in found]):
        assert stats.kstest(values, "uniform", alternative="greater").pvalue > 1e-4
    bins = [part for one in found for part in one.bins]
    covered = sum(part.low <= part.mean_belief <= part.high for part in bins)
    assert covered >= stats.binom.ppf(1e-4, len(bins), 0.95)
    assert sum(part.trials for part in found[0].bins) == 200
    assert found[0].expected_wins == pytest.approx(200 * ndtr(0.6), rel=0.1)


def test_beliefs_that_are_too_sure_are_found() -> None:
    log_odds, members = played(np.random.default_rng(8), 2000, 1.2)
    found = calibration(3 * log_odds, members, 0.95)
    assert found.p_value < 1e-6
    assert found.wins_p_value < 1e-6
    first, last = found.bins[0], found.bins[-1]
    assert first.low > first.mean_belief
    assert last.high < last.mean_belief
    # a wrong sign too
    assert calibration(-log_odds, members, 0.95).p_value < 1e-6


def test_the_poisson_binomial_is_the_binomial_for_equal_chances() -> None:
    for count in (0, 3, 20):
        tails = stats.binom.cdf(count, 20, 0.3), stats.binom.sf(count - 1, 20, 0.3)
        assert _poisson_binomial_p(count, np.full(20, 0.3)) == pytest.approx(min(1.0, 2 * min(tails)), abs=1e-12)
    chances = np.random.default_rng(9).random(301)
    np.testing.assert_allclose(_poisson_binomial(chances), stats.poisson_binom(chances).pmf(np.arange(302)), atol=1e-14)
    assert calibration(np.zeros(1), np.array([True]), 0.95).p_value == 1
