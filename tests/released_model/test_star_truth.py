"""Epsilon* against truth: known normals at fifty digits, and samples of them."""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from fl_audit.released_model.empirical_star import empirical_epsilon_star
from fl_audit.released_model.mixture_star import epsilon_star_mixtures
from fl_audit.released_model.normal_mixture import normal
from fl_audit.released_model.parametric_star import epsilon_star_gaussian, fit_normal, parametric_epsilon_star
from tests.few_examples import examples

Array = NDArray[np.float64]
Distribution = tuple[float, float, float, float]


def precise(distribution: Distribution, delta: float) -> float:
    """The supremum at fifty digits: a scan of each ratio, then a ternary search around its best point."""
    member_mean, member_std, population_mean, population_std = distribution
    members = (member_mean, member_std)
    population = (population_mean, population_std)
    best = mpmath.mpf(0)
    with mpmath.workdps(50):

        def tail(of: tuple[float, float], t: mpmath.mpf, sign: int) -> mpmath.mpf:
            return mpmath.erfc(sign * (t - of[0]) / (of[1] * mpmath.sqrt(2))) / 2

        for numerator, denominator in ((members, population), (population, members)):
            for sign in (1, -1):

                def ratio(
                    t: mpmath.mpf,
                    numerator: tuple[float, float] = numerator,
                    denominator: tuple[float, float] = denominator,
                    s: int = sign,
                ) -> mpmath.mpf:
                    over = tail(numerator, t, s) - mpmath.mpf(delta)
                    return mpmath.log(over / tail(denominator, t, s)) if over > 0 else mpmath.mpf("-inf")

                points = [numerator[0] + sign * numerator[1] * (x / 25) for x in range(-200, 201)]
                values = [ratio(mpmath.mpf(t)) for t in points]
                top = max(range(len(points)), key=values.__getitem__)
                low, high = (mpmath.mpf(points[min(max(top + step, 0), len(points) - 1)]) for step in (-1, 1))
                for _ in range(110):
                    a = low + (high - low) / 3
                    b = high - (high - low) / 3
                    low, high = (a, high) if ratio(a) < ratio(b) else (low, b)
                best = max(best, ratio(low), values[top])
    return float(best)


@pytest.mark.few_cases(1)
@pytest.mark.parametrize("delta", [1e-12, 1e-8, 1e-5, 1e-3, 0.1, 0.7])
@pytest.mark.parametrize("distribution", [(1.0, 1.0, 0.0, 1.0), (0.0, 0.7, 0.1, 1.1), (-0.3, 1.3, 0.4, 1.0)], ids=str)
def test_known_normals_at_fifty_digits(distribution: Distribution, delta: float) -> None:
    expected = precise(distribution, delta)
    assert float(epsilon_star_gaussian(*distribution, delta)) == pytest.approx(expected, rel=1e-9, abs=1e-9)
    certified = epsilon_star_mixtures(normal(*distribution[:2]), normal(*distribution[2:]), delta)
    assert certified.epsilon_star == pytest.approx(expected, rel=1e-9, abs=2e-9)
    assert certified.gap <= 1e-9


@pytest.mark.parametrize("mu", [0.0, 2.0])
def test_bias_and_spread_from_samples_of_normals(mu: float) -> None:
    """As figures 4 and 5: without a leak, and with a strong one, the parametric form is nearer at every size."""
    rng = np.random.default_rng(41)
    truth = float(epsilon_star_gaussian(mu, 1.0, 0.0, 1.0, 1e-3))
    biases = []
    spreads = []
    for size in (100, 1000, 10_000):
        parametric, empirical = _estimates(mu, size, rng)
        biases.append(abs(parametric.mean() - truth))
        spreads.append(parametric.std())
        assert biases[-1] < abs(empirical.mean() - truth)
    assert biases[-1] < 0.2
    assert biases == sorted(biases, reverse=True)
    assert spreads == sorted(spreads, reverse=True)


def test_at_a_moderate_leak_the_biases_of_the_empirical_form_cancel() -> None:
    """Upwards from the maximum, downwards from the cut: at shift 1 it is the nearer one, by chance of the setting."""
    parametric, empirical = _estimates(1.0, 1000, np.random.default_rng(43), repetitions=100)
    truth = float(epsilon_star_gaussian(1.0, 1.0, 0.0, 1.0, 1e-3))
    assert 0 < parametric.mean() - truth < 0.5
    assert abs(empirical.mean() - truth) < 0.15


def _estimates(mu: float, size: int, rng: np.random.Generator, repetitions: int = 60) -> tuple[Array, Array]:
    members = rng.normal(20 + mu, 1, (repetitions, size))
    population = rng.normal(20, 1, (repetitions, size))
    (mean_1, std_1), (mean_0, std_0) = fit_normal(members), fit_normal(population)
    parametric = epsilon_star_gaussian(mean_1, std_1, mean_0, std_0, 1e-3)
    return parametric, empirical_epsilon_star(members, population, 1e-3)


def test_identical_distributions_shrink_to_zero_with_sample_size() -> None:
    rng = np.random.default_rng(42)
    for estimator in (parametric_epsilon_star, empirical_epsilon_star):
        means = [estimator(*rng.beta(2, 2, (2, 60, size)), 1e-3).mean() for size in (100, 1000, 10_000)]
        assert means == sorted(means, reverse=True)
        assert means[0] > 0.3
        assert means[-1] < 0.35


LOSSES = st.lists(st.floats(0, 50, width=32), min_size=4, max_size=40)


@given(LOSSES, LOSSES, st.floats(0.02, 50), st.floats(0, 20), st.sampled_from([1e-6, 1e-2, 0.3]))
@settings(max_examples=examples(120), derandomize=True)
def test_roles_shifts_and_scales(
    member_losses: list[float], zero: list[float], scale: float, origin: float, delta: float
) -> None:
    """Exchanged roles change nothing, nor do shifted and rescaled losses; the empirical form knows ranks alone."""
    members, population = (np.round(np.array(x), 2) for x in (member_losses, zero))
    for estimator in (parametric_epsilon_star, empirical_epsilon_star):
        star = float(estimator(members, population, delta))
        assert float(estimator(population, members, delta)) == pytest.approx(star, rel=1e-9, abs=1e-9)
        if estimator is empirical_epsilon_star or _well_spread(members, population):
            moved = float(estimator(scale * members + origin, scale * population + origin, delta))
            assert moved == pytest.approx(star, rel=1e-4, abs=1e-6)
    bent = float(empirical_epsilon_star(members**2 * (members + 1), population**2 * (population + 1), delta))
    assert bent == float(empirical_epsilon_star(members, population, delta))


def _well_spread(*sets: NDArray[np.float64]) -> bool:
    """Whether rounding of moved losses cannot turn nearly equal ones into equal ones, or the reverse."""
    return all(np.ptp(losses) > 0.05 for losses in sets)


def test_delta_zero_is_unbounded_but_within_a_cut() -> None:
    assert float(epsilon_star_gaussian(1.0, 1.0, 0.0, 1.0, 0.0)) == math.inf
    # Equal spreads and delta 0: the ratio of tails is largest at the end of the cut, FPR = c.
    expected = math.log(ndtr(ndtri(1e-6) + 1) / 1e-6)
    assert float(epsilon_star_gaussian(1.0, 1.0, 0.0, 1.0, 0.0, cut=1e-6)) == pytest.approx(expected, rel=1e-9)
    assert float(epsilon_star_gaussian(99.0, 1.0, 0.0, 1.0, 0.0, cut=1e-3)) == math.inf
