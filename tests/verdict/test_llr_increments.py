import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom, kstest

from fl_audit.audits.identifiability.sections_innovations import LlrIncrementTest, check_scores
from fl_audit.privacy.log_odds_distribution import increments_of
from fl_audit.verdict.log_odds_innovations import SMALLEST_SIGNAL, innovations
from tests.builders.refusals import assert_refused

Run = tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]


def check_innovations(
    increments: NDArray[np.float64], signal: NDArray[np.float64], bits: NDArray[np.integer]
) -> LlrIncrementTest:
    return check_scores(innovations(increments, signal, bits), bits)


def adaptive_run(seed: int, trials: int = 400, noise: float = 1.0) -> Run:
    """Increments whose signal depends on the log-odds so far, some rounds without signal; noise 1 is honest."""
    rng = np.random.default_rng(seed)
    bits = rng.integers(2, size=trials)
    total = np.zeros(trials)
    history = []
    signals = []
    for _ in range(12):
        signal = 0.5 / (1 + np.exp(-total)) * (rng.random(trials) > 0.1)
        history.append(signal**2 * (bits - 0.5) + noise * signal * rng.normal(size=trials))
        total = total + history[-1]
        signals.append(signal)
    return np.stack(history, axis=1), np.stack(signals, axis=1), bits


def test_innovations_are_the_standard_normal_draws() -> None:
    rng = np.random.default_rng(1)
    draws = rng.normal(size=(6, 5))
    signal = rng.uniform(0.1, 2, (6, 5))
    bits = np.array([0, 1, 1, 0, 1, 0])
    signal[2, 3] = 0.0
    steps = signal * draws + np.where(bits, 1, -1)[:, None] * signal**2 / 2
    computed_innovations = innovations(steps, signal, bits)
    expected = np.where(signal > 0, draws, np.nan)
    np.testing.assert_allclose(computed_innovations, expected, atol=1e-12)
    np.testing.assert_array_equal(computed_innovations, innovations(steps, signal, bits.astype(bool)))


def test_tiny_signals_beside_large_ones_keep_their_distribution() -> None:
    """Differences of cumulated log-odds lose them to rounding; signals under the smallest are left out."""
    rng = np.random.default_rng(2)
    draws = rng.normal(size=(3000, 4))
    bits = rng.integers(2, size=3000)
    signal = np.broadcast_to(np.array([3000.0, 2e-9, 1e-12, 1e-16]), draws.shape)
    steps = signal * draws + np.where(bits, 1, -1)[:, None] * signal**2 / 2
    computed_innovations = innovations(steps, signal, bits)
    np.testing.assert_allclose(computed_innovations[:, :2], draws[:, :2], rtol=1e-6, atol=1e-6)
    assert np.isnan(computed_innovations[:, 2:]).all()
    assert SMALLEST_SIGNAL == 1e-9
    assert check_innovations(steps, signal, bits).holds
    assert not check_innovations(increments_of(np.cumsum(steps, axis=1)), signal, bits).holds


def test_false_alarms_are_rare() -> None:
    """300 honest runs. Each fails with about 0.0024 (2 Kolmogorov-Smirnov tests at .001, 6 z-scores at 4)."""
    failures = sum(not check_innovations(*adaptive_run(seed)).holds for seed in range(300))
    assert failures <= binom.ppf(1 - 1e-4, 300, 0.0024)


def test_z_scores_are_standard() -> None:
    groups = [check_innovations(*adaptive_run(seed, trials=100)).members for seed in range(400)]
    for name in ("mean_z", "variance_z", "serial_correlation_z"):
        scores = np.array([getattr(group, name) for group in groups])
        assert abs(scores.mean()) < 0.25
        assert scores.std() == pytest.approx(1.0, abs=0.15)


def test_final_log_odds_of_an_adaptive_run_are_not_normal_but_innovations_are() -> None:
    increments, signal, bits = adaptive_run(5, trials=4000)
    final = increments.sum(axis=1)[bits == 1]
    assert kstest((final - final.mean()) / final.std(), "norm").pvalue < 1e-3
    assert check_innovations(increments, signal, bits).holds


@pytest.mark.parametrize("noise", [0.9, 1.1])
def test_wrong_noise_is_found(noise: float) -> None:
    check = check_innovations(*adaptive_run(2, trials=1000, noise=noise))
    assert not check.holds
    assert check.members.variance == pytest.approx(noise**2, rel=0.1)
    assert abs(check.members.variance_z) > 4


def test_wrong_bits_are_found() -> None:
    increments, signal, bits = adaptive_run(3, trials=2000)
    check = check_innovations(increments, signal, 1 - bits)
    assert check.members.mean_z < -4 < 4 < check.nonmembers.mean_z


def test_noise_used_twice_is_found() -> None:
    rng = np.random.default_rng(4)
    bits = rng.integers(2, size=500)
    signal = np.full((500, 10), 0.3)
    draws = rng.normal(size=(500, 10))
    draws = (draws + np.roll(draws, 1, axis=1)) / math.sqrt(2)
    steps = signal * draws + np.where(bits, 1, -1)[:, None] * signal**2 / 2
    check = check_innovations(steps, signal, bits)
    assert check.members.serial_correlation == pytest.approx(0.45, abs=0.1)
    assert check.members.serial_correlation_z > 4


def test_pairs_stay_within_a_trial_and_skip_silent_rounds() -> None:
    increments, signal, bits = adaptive_run(6, trials=50)
    check = check_innovations(increments, signal, bits)
    values = innovations(increments, signal, bits)[bits == 1]
    used = ~np.isnan(values)
    assert check.members.count == used.sum()
    pairs = int((used[:, 1:] & used[:, :-1]).sum())
    ratio = check.members.serial_correlation_z / check.members.serial_correlation
    assert ratio == pytest.approx(math.sqrt(pairs))


def test_nothing_to_test_holds_and_shows_its_count() -> None:
    check = check_innovations(np.zeros((3, 2)), np.zeros((3, 2)), np.array([1, 1, 0]))
    assert check.holds
    assert (check.members.count, check.nonmembers.count) == (0, 0)
    assert (check.rounds, check.left_out) == (6, 6)


def test_wrong_shapes_and_values_are_named() -> None:
    fine = np.ones((2, 3))
    bits = np.array([0, 1])
    assert_refused("signal has shape", innovations, fine, np.ones((2, 2)), bits)
    assert_refused("bits have shape", innovations, fine, fine, np.array([1]))
    assert_refused("increments have shape", innovations, np.ones(3), fine, bits)
    assert_refused("increments contain NaN", innovations, fine * math.nan, fine, bits)
    assert_refused("signal contains", innovations, fine, -fine, bits)
