import math

import numpy as np
import pytest
from scipy.stats import binom, binomtest, ttest_1samp

from fl_audit.errors import InputError
from fl_audit.statistics.advantage import clopper_pearson, empirical_advantage, mean_advantage


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
    found = empirical_advantage(won, 0.95)
    low, high = clopper_pearson(613, 1000, 0.95)
    assert (found.trials, found.wins) == (1000, 613)
    assert found.advantage == pytest.approx(0.226)
    assert (found.low, found.high) == pytest.approx((2 * low - 1, 2 * high - 1))


def test_mean_advantage_holds_where_students_interval_is_far_too_narrow() -> None:
    """5 trials of 2 records: nearly all are 0. Of 400 runs 95 % or more must cover, but for 4 standard errors."""
    draw, truth = np.random.default_rng(2), 0.03
    values = draw.binomial(2, truth, (400, 5)) / 2
    covered = [one.low <= truth <= one.high for one in (mean_advantage(row, 0.95) for row in values)]
    student = [ttest_1samp(row, 0).confidence_interval(0.95) for row in values if np.ptp(row) > 0]
    assert np.mean(covered) >= 0.95 - 4 * np.sqrt(0.95 * 0.05 / 400)
    assert sum(one.low <= truth <= one.high for one in student) < 0.5 * 400


def test_mean_advantage_of_many_trials_is_about_as_narrow_as_students() -> None:
    values = np.random.default_rng(1).binomial(10, 0.55, 1000) / 10 - 0.5
    found, expected = mean_advantage(values, 0.9), ttest_1samp(values, 0).confidence_interval(0.9)
    assert (found.trials, found.advantage) == (1000, pytest.approx(values.mean()))
    assert found.low < expected.low < expected.high < found.high
    assert found.high - found.low < 1.4 * (expected.high - expected.low)


def test_mean_advantage_of_one_trial_says_next_to_nothing() -> None:
    found = mean_advantage(np.array([0.3]), 0.95)
    assert found.advantage == 0.3
    assert (found.low, found.high) == (-1.0, 1.0)


def test_wrong_numbers_are_named() -> None:
    with pytest.raises(InputError, match="trials is 0"):
        empirical_advantage(np.array([], dtype=bool), 0.95)
    with pytest.raises(InputError, match="successes is 4"):
        clopper_pearson(4, 3, 0.95)
    for confidence in (0.0, 1.0, math.nan):
        with pytest.raises(InputError, match="confidence is"):
            clopper_pearson(1, 3, confidence)
    with pytest.raises(InputError, match="trials is 0"):
        mean_advantage(np.array([]), 0.95)
    with pytest.raises(InputError, match="outside -1 to 1"):
        mean_advantage(np.array([0.0, math.nan]), 0.95)
    with pytest.raises(InputError, match=r"confidence is 1\.0"):
        mean_advantage(np.array([0.0]), 1.0)
