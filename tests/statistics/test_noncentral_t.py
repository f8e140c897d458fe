import numpy as np
import pytest
from scipy.special import gammainc, ndtr
from scipy.stats import nct, t

from fl_audit.statistics.shift_bound import _noncentral_t_cdf, noncentral_t_quantile, noncentrality_at


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
    degrees, noncentrality, runs = 7, 4.2, 10**6
    draws = (rng.normal(size=runs) + noncentrality) / np.sqrt(rng.chisquare(degrees, runs) / degrees)
    for point in (2.0, 4.0, 8.0):
        assert _noncentral_t_cdf(point, degrees, noncentrality) == pytest.approx(np.mean(draws <= point), abs=0.0025)


@pytest.mark.parametrize("degrees", [2, 30, 998, 99_998])
def test_roots_invert_the_distribution(degrees: int) -> None:
    for point in (0.5, 6.0, 300.0, 1e7):
        for probability in (0.5, 0.95, 0.999):
            found = noncentrality_at(probability, point, degrees)
            if found == 0:
                assert t.cdf(point, degrees) <= probability
                continue
            assert _noncentral_t_cdf(point, degrees, found) == pytest.approx(probability, abs=1e-9)
            assert noncentral_t_quantile(probability, degrees, found) == pytest.approx(point, rel=1e-7)


def test_quantile_is_never_below_zero() -> None:
    assert noncentral_t_quantile(0.1, 10, 0.0) == 0.0
    assert noncentral_t_quantile(0.95, 10, 0.0) == pytest.approx(t.ppf(0.95, 10), rel=1e-9)
    assert ndtr(-3.0) == pytest.approx(_noncentral_t_cdf(0.0, 10, 3.0), rel=1e-9)
