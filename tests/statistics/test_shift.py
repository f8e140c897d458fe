import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import gammainc, ndtr
from scipy.stats import binom, nct, t, ttest_ind

from fl_audit.privacy.gaussian import gdp_epsilon
from fl_audit.statistics.shift_bound import (
    _noncentral_t_cdf,
    detectable_shift,
    gaussian_shift,
    gaussian_slope,
    noncentral_t_quantile,
    noncentrality_at,
)
from tests.builders.refusals import assert_refused


def log_odds(rng: np.random.Generator, mu: float, n1: int, n0: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    return rng.normal(mu**2 / 2, mu, n1), rng.normal(-(mu**2) / 2, mu, n0)


@pytest.mark.long
@pytest.mark.parametrize(("mu", "n1", "n0"), [(1e-6, 10, 10), (0.55, 40, 60), (3.0, 5, 4), (0.55, 300, 300)])
@pytest.mark.parametrize("confidence", [0.95, 0.999])
def test_false_certificates_are_as_rare_as_claimed(mu: float, n1: int, n0: int, confidence: float) -> None:
    """2000 honest runs: the bound is exact, so certificates above the truth are binomial(2000, 1 - confidence)."""
    rng = np.random.default_rng(7)
    false = sum(gaussian_shift(*log_odds(rng, mu, n1, n0), confidence).low > mu for _ in range(2000))
    low, high = (binom.ppf(tail, 2000, 1 - confidence) for tail in (1e-4, 1 - 1e-4))
    assert low <= false <= high


def test_no_leak_is_certified_as_often_as_a_one_sided_t_test_rejects() -> None:
    rng = np.random.default_rng(8)
    for _ in range(300):
        member_scores = rng.normal(size=12)
        nonmember_scores = rng.normal(size=9)
        rejected = ttest_ind(member_scores, nonmember_scores, alternative="greater").pvalue < 0.05
        assert (gaussian_shift(member_scores, nonmember_scores, 0.95).low > 0) == rejected


def test_published_comparison_is_reached() -> None:
    """mu = 1, 500 + 500 scores: about 3.9 of the true 4.38 at delta 1e-5."""
    rng = np.random.default_rng(9)
    bounds = [gdp_epsilon(1e-5, gaussian_shift(*log_odds(rng, 1.0, 500, 500), 0.95).low) for _ in range(100)]
    assert np.mean(bounds) == pytest.approx(3.9, abs=0.05)
    assert gdp_epsilon(1e-5, 1.0) == pytest.approx(4.377, abs=1e-3)


def test_shift_ignores_scale_and_origin() -> None:
    rng = np.random.default_rng(10)
    member_scores, nonmember_scores = log_odds(rng, 1.0, 30, 20)
    plain = gaussian_shift(member_scores, nonmember_scores, 0.95)
    for scale, origin in ((3.0, 5.0), (1e-200, 0.0), (1e300, 0.0)):
        moved = gaussian_shift(member_scores * scale + origin, nonmember_scores * scale + origin, 0.95)
        assert (moved.shift, moved.low) == pytest.approx((plain.shift, plain.low), rel=1e-9)
    squares = np.sum((member_scores - member_scores.mean()) ** 2) + np.sum(
        (nonmember_scores - nonmember_scores.mean()) ** 2
    )
    assert plain.shift == pytest.approx(
        (member_scores.mean() - nonmember_scores.mean()) / math.sqrt(squares / 48), rel=1e-12
    )


def test_hardly_any_noise_still_has_a_bound() -> None:
    rng = np.random.default_rng(12)
    shift_estimate = gaussian_shift(*log_odds(rng, 1e6, 400, 400), 0.95)
    assert 0.9e6 < shift_estimate.low < 1e6


def test_negative_shift_and_few_scores_certify_nothing() -> None:
    member_scores = np.array([0.0, 1.0, 2.0])
    nonmember_scores = np.array([5.0, 6.0, 7.5])
    assert gaussian_shift(member_scores, nonmember_scores, 0.95).low == 0.0
    assert gaussian_shift(member_scores, nonmember_scores, 0.95).shift < 0
    lone_estimate = gaussian_shift(np.array([9.0]), nonmember_scores, 0.95)
    assert (lone_estimate.shift, lone_estimate.low) == (0.0, 0.0)
    assert gaussian_shift(np.array([]), np.array([]), 0.95).low == 0.0


def test_constant_scores() -> None:
    assert gaussian_shift(np.full(3, 2.0), np.full(4, 2.0), 0.95).low == 0.0
    assert gaussian_shift(np.zeros(3), np.zeros(4), 0.95).low == 0.0
    assert_refused(r"constant, 2\.0 and 1\.0", gaussian_shift, np.full(3, 2.0), np.full(4, 1.0), 0.95)


def test_wrong_scores_are_named() -> None:
    fine = np.arange(3.0)
    for wrong in (math.nan, math.inf):
        assert_refused(f"score 1 .*nonmembers is {wrong}: .*finite", gaussian_shift, fine, np.array([0.0, wrong]), 0.95)
    assert_refused("2 axes", gaussian_shift, np.ones((2, 2)), fine, 0.95)
    for confidence in (0.4, 1.0, math.nan):
        assert_refused("confidence is", gaussian_shift, fine, fine, confidence)


@pytest.mark.long
@pytest.mark.parametrize(("n1", "n0", "claimed"), [(40, 60, 0.55), (8, 8, 0.0), (200, 200, 2.0)])
def test_limit_of_detection_is_detected_with_its_power(n1: int, n0: int, claimed: float) -> None:
    """2000 runs at the limit: detections are binomial(2000, 0.9)."""
    rng = np.random.default_rng(13)
    limit = detectable_shift(n1, n0, claimed, 0.01, 0.9)
    assert limit > claimed
    detections = sum(gaussian_shift(*log_odds(rng, limit, n1, n0), 0.99).low > claimed for _ in range(2000))
    low, high = (binom.ppf(tail, 2000, 0.9) for tail in (1e-4, 1 - 1e-4))
    assert low <= detections <= high


def test_limit_of_detection_shrinks_to_the_guarantee() -> None:
    limits = [detectable_shift(n, n, 0.55, 0.001) for n in (5, 50, 500, 50_000)]
    assert limits == sorted(limits, reverse=True)
    assert limits[-1] == pytest.approx(0.55, abs=0.03)
    assert detectable_shift(1, 1000, 0.55, 0.001) == math.inf
    assert detectable_shift(500, 500, 0.55, 0.5, 0.5) == pytest.approx(0.55, rel=1e-9)


def test_limit_of_detection_refuses_wrong_numbers() -> None:
    for claimed, level, power, quantity in ((-1.0, 0.1, 0.9, "mu"), (1.0, 0.6, 0.9, "level"), (1.0, 0.1, 1.0, "power")):
        assert_refused(f"{quantity} is", detectable_shift, 10, 10, claimed, level, power)


def test_a_slope_over_parts_of_0_and_1_is_the_shift() -> None:
    rng = np.random.default_rng(21)
    member_scores = rng.normal(1.0, 2.0, 30)
    nonmember_scores = rng.normal(0.0, 2.0, 50)
    canary_shares = np.append(np.ones(30), np.zeros(50))
    slope_estimate = gaussian_slope(canary_shares, np.append(member_scores, nonmember_scores), 0.95)
    same = gaussian_shift(member_scores, nonmember_scores, 0.95)
    assert slope_estimate.shift == pytest.approx(same.shift, rel=1e-12)
    assert slope_estimate.low == pytest.approx(same.low, rel=1e-9)


@pytest.mark.long
def test_slopes_are_certified_above_the_truth_as_rarely_as_claimed() -> None:
    rng = np.random.default_rng(22)
    false = 0
    for _ in range(2000):
        canary_shares = rng.binomial(5, 0.3, 60) / np.sqrt(5) * rng.integers(2, size=60)
        false += gaussian_slope(canary_shares, 3.0 + 2.0 * (0.7 * canary_shares + rng.normal(size=60)), 0.95).low > 0.7
    low, high = (binom.ppf(tail, 2000, 0.05) for tail in (1e-4, 1 - 1e-4))
    assert low <= false <= high


def test_nothing_is_certified_of_scores_that_hold_nothing() -> None:
    assert gaussian_slope(np.zeros(9), np.arange(9.0), 0.95).low == 0
    # As of a training without any noise: refused as by `gaussian_shift`, and no division by zero.
    halves = np.repeat([1.0, 0.0], 2)
    assert gaussian_slope(halves, np.full(4, 2.0), 0.95).low == 0
    assert_refused("scores that vary", gaussian_slope, halves, halves, 0.95)
    assert_refused(r"3 parts .* 2 scores: .*as many", gaussian_slope, np.ones(3), np.ones(2), 0.95)


@pytest.mark.parametrize("degrees", [2, 5, 30, 998, 99_998])
@pytest.mark.parametrize("noncentrality", [0.0, 0.7, 8.0, 100.0, 2000.0])
def test_cdf_agrees_with_scipy_where_scipy_holds(degrees: int, noncentrality: float) -> None:
    spread = np.sqrt(1 + noncentrality**2 / (2 * degrees))
    for point in noncentrality + spread * np.array([-4.0, -1.0, 0.0, 1.0, 4.0]):
        if point >= 0:
            expected = nct.cdf(point, degrees, noncentrality) if noncentrality else t.cdf(point, degrees)
            assert _noncentral_t_cdf(point, degrees, noncentrality) == pytest.approx(expected, abs=1e-9)


def test_both_integrals_agree_where_they_meet() -> None:
    for degrees in (2, 3, 10, 1000, 10**6):
        edge = np.sqrt(2 * degrees)
        for noncentrality in (0.0, edge / 2, edge):
            below = _noncentral_t_cdf(np.nextafter(edge, 0), degrees, noncentrality)
            assert _noncentral_t_cdf(edge * (1 + 1e-15), degrees, noncentrality) == pytest.approx(below, abs=1e-10)


def test_huge_noncentralities_follow_the_spread_alone() -> None:
    # T / ncp -> 1/S, and P(S >= x) is a chi-square tail: here scipy returns NaN
    for degrees in (2, 10, 998):
        for ratio in (0.8, 1.0, 1.3):
            expected = 1 - gammainc(degrees / 2, degrees / 2 / ratio**2)
            assert _noncentral_t_cdf(ratio * 1e9, degrees, 1e9) == pytest.approx(expected, abs=1e-8)


def test_simulated_probabilities() -> None:
    rng = np.random.default_rng(3)
    degrees = 7
    noncentrality = 4.2
    runs = 10**6
    draws = (rng.normal(size=runs) + noncentrality) / np.sqrt(rng.chisquare(degrees, runs) / degrees)
    for point in (2.0, 4.0, 8.0):
        assert _noncentral_t_cdf(point, degrees, noncentrality) == pytest.approx(np.mean(draws <= point), abs=0.0025)


@pytest.mark.parametrize("degrees", [2, 30, 998, 99_998])
def test_roots_invert_the_distribution(degrees: int) -> None:
    for point in (0.5, 6.0, 300.0, 1e7):
        for probability in (0.5, 0.95, 0.999):
            noncentrality = noncentrality_at(probability, point, degrees)
            if noncentrality == 0:
                assert t.cdf(point, degrees) <= probability
                continue
            assert _noncentral_t_cdf(point, degrees, noncentrality) == pytest.approx(probability, abs=1e-9)
            assert noncentral_t_quantile(probability, degrees, noncentrality) == pytest.approx(point, rel=1e-7)


def test_quantile_is_never_below_zero() -> None:
    assert noncentral_t_quantile(0.1, 10, 0.0) == 0.0
    assert noncentral_t_quantile(0.95, 10, 0.0) == pytest.approx(t.ppf(0.95, 10), rel=1e-9)
    assert ndtr(-3.0) == pytest.approx(_noncentral_t_cdf(0.0, 10, 3.0), rel=1e-9)
