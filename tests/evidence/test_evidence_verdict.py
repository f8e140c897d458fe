import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom

from fl_audit.adjacency import Adjacency
from fl_audit.evidence.belief.verdict import Verdict, VerdictResult, judge, limit_of_detection
from fl_audit.evidence.bounds.shift import shift_epsilon_lower_bound
from fl_audit.privacy.accounting import Accountant
from fl_audit.privacy.claim import Claim
from fl_audit.privacy.events import gaussian_rounds
from fl_audit.privacy.gaussian import gdp_epsilon, gdp_mu
from fl_audit.privacy.guarantee import Guarantee, guarantee
from fl_audit.privacy.release import NoiseScaling


def promised(accountant: Accountant, noise_multiplier: float) -> Guarantee:
    return guarantee(Claim(Adjacency.REPLACE_RECORD, gaussian_rounds(noise_multiplier, 30), 0.001, 0.5, accountant))


PROMISE = promised(Accountant.GDP, 10.0)


def log_odds(rng: np.random.Generator, mu: float, n: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    return rng.normal(mu**2 / 2, mu, n), rng.normal(-(mu**2) / 2, mu, n)


def verdict(
    mu: float, n: int, seed: int, promise: Guarantee = PROMISE, scaling: NoiseScaling = NoiseScaling.LOCAL
) -> VerdictResult:
    one, zero = log_odds(np.random.default_rng(seed), mu, n)
    return judge(one, zero, promise, 0.95, "record 3 replaced by 8", "seed 0", scaling)


def test_an_honest_federation_is_consistent() -> None:
    """True mu exactly as promised by gdp: 2000 verdicts, false alarms binomial(2000, 0.001)."""
    alarms = sum(verdict(PROMISE.mu, 50, seed).verdict is Verdict.VIOLATED for seed in range(2000))
    assert alarms <= binom.ppf(1 - 1e-4, 2000, 0.001)


def test_half_the_noise_is_found_and_the_spread_is_not_taken_from_the_claim() -> None:
    result = verdict(2 * PROMISE.mu, 500, 1)
    assert result.verdict is Verdict.VIOLATED
    # the insider believes the claimed sigma: its log-odds are half as large, the verdict is the same
    one, zero = log_odds(np.random.default_rng(1), 2 * PROMISE.mu, 500)
    claimed = judge(one / 4, zero / 4, PROMISE, 0.95, "", "", NoiseScaling.LOCAL)
    assert claimed.lower_bound == pytest.approx(result.lower_bound, rel=1e-9)


def test_a_breach_at_the_limit_of_detection_is_found_nine_times_in_ten() -> None:
    limit = limit_of_detection(100, 100, PROMISE.epsilon, PROMISE.delta)
    found = sum(verdict(gdp_mu(limit, 0.001), 100, seed).verdict is Verdict.VIOLATED for seed in range(1000))
    assert binom.ppf(1e-4, 1000, 0.9) <= found <= binom.ppf(1 - 1e-4, 1000, 0.9)


def test_what_the_result_says() -> None:
    one, zero = log_odds(np.random.default_rng(2), PROMISE.mu, 100)
    result = judge(one, zero, PROMISE, 0.9, "record 3 replaced by 8", "seed 17", NoiseScaling.LOCAL)
    assert result.lower_bound == shift_epsilon_lower_bound(one, zero, 0.001, 0.9)
    assert result.lower_bound_at_violation_level == shift_epsilon_lower_bound(one, zero, 0.001, 0.999)
    assert result.lower_bound_at_violation_level < result.lower_bound
    assert (result.method, result.confidence, result.violation_level) == ("gaussian-shift", 0.9, 0.001)
    for part in ("record 3 replaced by 8", "seed 17", f"{result.limit_of_detection:.3g}", "0.001"):
        assert part in result.scope
    assert "exact under local scaling" in result.assumption
    assert "approximate under global scaling" in verdict(0.5, 10, 0, scaling=NoiseScaling.GLOBAL).assumption


def test_the_verdict_turns_where_the_bound_passes_the_promise() -> None:
    one, zero = log_odds(np.random.default_rng(3), 2.0, 200)
    bound = shift_epsilon_lower_bound(one, zero, 0.001, 0.999)
    for promised_epsilon, expected in ((bound * 1.001, Verdict.CONSISTENT), (bound * 0.999, Verdict.VIOLATED)):
        noise_multiplier = math.sqrt(30) / gdp_mu(promised_epsilon, 0.001)
        promise = promised(Accountant.GDP, noise_multiplier)
        assert judge(one, zero, promise, 0.95, "", "", NoiseScaling.LOCAL).verdict is expected


def test_few_worlds_detect_nothing_and_say_so() -> None:
    result = judge(np.array([3.0]), np.array([-3.0, -2.0]), PROMISE, 0.95, "", "", NoiseScaling.LOCAL)
    assert (result.verdict, result.lower_bound, result.limit_of_detection) == (Verdict.CONSISTENT, 0.0, math.inf)
    assert "too few" in result.scope


def test_limit_of_detection_lies_above_the_promise_and_nears_it() -> None:
    promise = promised(Accountant.RDP_CLASSIC, 9.95)
    limits = [limit_of_detection(n, n, promise.epsilon, 0.001) for n in (20, 500, 100_000)]
    assert limits[0] > limits[1] > limits[2] > promise.epsilon
    assert limits[2] == pytest.approx(promise.epsilon, rel=0.05)
    assert gdp_epsilon(0.001, gdp_mu(promise.epsilon, 0.001)) == pytest.approx(promise.epsilon, rel=1e-9)
