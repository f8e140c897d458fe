import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.stats import binom, binomtest, ttest_1samp

from fl_audit.statistics.advantage import (
    MeanBettingTest,
    clopper_pearson,
    empirical_advantage,
    mean_advantage,
    mean_interval,
)
from tests.builders.refusals import assert_refused
from tests.few_examples import examples


@pytest.mark.few_cases(6)
@pytest.mark.parametrize(("successes", "trials"), [(0, 1), (1, 1), (0, 50), (50, 50), (613, 1000), (3, 7)])
@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.999])
def test_interval_agrees_with_the_binomial_test(successes: int, trials: int, confidence: float) -> None:
    expected = binomtest(successes, trials).proportion_ci(confidence, method="exact")
    assert clopper_pearson(successes, trials, confidence) == pytest.approx((expected.low, expected.high), abs=1e-10)


@pytest.mark.parametrize("probability", [0.05, 0.5, 0.61])
def test_interval_covers_exactly_enumerated(probability: float) -> None:
    trials = 40
    weights = binom.pmf(np.arange(trials + 1), trials, probability)
    intervals = [clopper_pearson(wins, trials, 0.95) for wins in range(trials + 1)]
    misses = sum(w for w, (low, high) in zip(weights, intervals, strict=True) if not low <= probability <= high)
    assert misses <= 0.05


def test_advantage_maps_the_success_rate() -> None:
    won = np.array([True] * 613 + [False] * 387)
    estimate = empirical_advantage(won, 0.95)
    low, high = clopper_pearson(613, 1000, 0.95)
    assert (estimate.trials, estimate.wins) == (1000, 613)
    assert estimate.advantage == pytest.approx(0.226)
    assert (estimate.low, estimate.high) == pytest.approx((2 * low - 1, 2 * high - 1))


def test_mean_advantage_holds_where_students_interval_is_far_too_narrow() -> None:
    """5 trials of 2 records: nearly all are 0. Of 400 runs 95 % or more must cover, but for 4 standard errors."""
    draw = np.random.default_rng(2)
    truth = 0.03
    values = draw.binomial(2, truth, (400, 5)) / 2
    covered = [interval.low <= truth <= interval.high for interval in (mean_advantage(row, 0.95) for row in values)]
    student = [ttest_1samp(row, 0).confidence_interval(0.95) for row in values if np.ptp(row) > 0]
    assert np.mean(covered) >= 0.95 - 4 * np.sqrt(0.95 * 0.05 / 400)
    assert sum(interval.low <= truth <= interval.high for interval in student) < 0.5 * 400


def test_mean_advantage_of_many_trials_is_about_as_narrow_as_students() -> None:
    values = np.random.default_rng(1).binomial(10, 0.55, 1000) / 10 - 0.5
    estimate = mean_advantage(values, 0.9)
    expected = ttest_1samp(values, 0).confidence_interval(0.9)
    assert (estimate.trials, estimate.advantage) == (1000, pytest.approx(values.mean()))
    assert estimate.low < expected.low < expected.high < estimate.high
    assert estimate.high - estimate.low < 1.4 * (expected.high - expected.low)


def test_mean_advantage_of_one_trial_says_next_to_nothing() -> None:
    interval = mean_advantage(np.array([0.3]), 0.95)
    assert interval.advantage == 0.3
    assert (interval.low, interval.high) == (-1.0, 1.0)


def test_wrong_numbers_are_named() -> None:
    assert_refused("trials is 0", empirical_advantage, np.array([], dtype=bool), 0.95)
    assert_refused("successes is 4", clopper_pearson, 4, 3, 0.95)
    for confidence in (0.0, 1.0, math.nan):
        assert_refused("confidence is", clopper_pearson, 1, 3, confidence)
    assert_refused("trials is 0", mean_advantage, np.array([]), 0.95)
    assert_refused("outside -1 to 1", mean_advantage, np.array([0.0, math.nan]), 0.95)
    assert_refused(r"confidence is 1\.0", mean_advantage, np.array([0.0]), 1.0)


# --- The betting interval of the mean of bounded numbers: its coverage, and what it holds


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


@settings(max_examples=examples(40))
@given(st.lists(st.floats(0, 1), min_size=1, max_size=50), st.floats(0.5, 0.999))
def test_the_interval_holds_what_it_does_not_refute(numbers: list[float], confidence: float) -> None:
    values = np.array(numbers)
    interval = mean_interval(values, confidence)
    bets = MeanBettingTest.of(values, confidence)
    assert 0 <= interval.low <= interval.value <= interval.high <= 1
    for candidate in np.linspace(0, 1, 23):
        refuted = bets.refutes_too_small(candidate) or bets.refutes_too_large(candidate)
        assert refuted or interval.low - 1e-9 <= candidate <= interval.high + 1e-9
    wider = mean_interval(values * 3 - 1, confidence, -1.0, 2.0)
    assert (wider.low, wider.high) == pytest.approx((3 * interval.low - 1, 3 * interval.high - 1), abs=1e-6)


def test_the_interval_is_near_the_normal_one_and_never_empty() -> None:
    values = np.random.default_rng(2).normal(0.5, 0.1, 10_000).clip(0, 1)
    interval = mean_interval(values, 0.95)
    assert (interval.high - interval.low) / (2 * 1.96 * values.std(ddof=1) / np.sqrt(values.size)) < 1.6
    # all equal, or sorted: the mean stays within
    for odd in (np.zeros(10), np.ones(3), np.sort(values), np.array([0.2])):
        assert mean_interval(odd, 0.95).low <= odd.mean() <= mean_interval(odd, 0.95).high
    assert mean_interval(np.zeros(1000), 0.95).high < 0.01
    assert_refused("lies outside 0 to 1", mean_interval, np.array([1.1]), 0.95)
    assert_refused("values have shape", mean_interval, np.empty(0), 0.95)
