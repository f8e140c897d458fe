"""The betting interval of the mean of bounded numbers: its coverage, and what it holds."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from fl_audit.errors import InputError
from fl_audit.statistics.advantage import MeanBettingTest, mean_interval
from tests.few_examples import examples


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
    assert 0 <= found.low <= found.value <= found.high <= 1
    for candidate in np.linspace(0, 1, 23):
        refuted = bets.refutes_too_small(candidate) or bets.refutes_too_large(candidate)
        assert refuted or found.low - 1e-9 <= candidate <= found.high + 1e-9
    wider = mean_interval(values * 3 - 1, confidence, -1.0, 2.0)
    assert (wider.low, wider.high) == pytest.approx((3 * found.low - 1, 3 * found.high - 1), abs=1e-6)


def test_the_interval_is_near_the_normal_one_and_never_empty() -> None:
    values = np.random.default_rng(2).normal(0.5, 0.1, 10_000).clip(0, 1)
    found = mean_interval(values, 0.95)
    assert (found.high - found.low) / (2 * 1.96 * values.std(ddof=1) / np.sqrt(values.size)) < 1.6
    # all equal, or sorted: the mean stays within
    for odd in (np.zeros(10), np.ones(3), np.sort(values), np.array([0.2])):
        assert mean_interval(odd, 0.95).low <= odd.mean() <= mean_interval(odd, 0.95).high
    assert mean_interval(np.zeros(1000), 0.95).high < 0.01
    with pytest.raises(InputError, match="lies outside 0 to 1"):
        mean_interval(np.array([1.1]), 0.95)
    with pytest.raises(InputError, match="values have shape"):
        mean_interval(np.empty(0), 0.95)
