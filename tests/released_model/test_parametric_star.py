import math
import time

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import log_ndtr, logit, ndtr

from fl_audit.learning.metrics import TestOutputs
from fl_audit.privacy.gaussian import gdp_epsilon
from fl_audit.released_model.parametric_star import epsilon_star_gaussian, loss_scores, parametric_epsilon_star
from tests.builders.refusals import assert_refused
from tests.few_examples import examples

Array = NDArray[np.float64]


def four_log_ratios(t: Array, distribution: tuple[float, float, float, float], delta: float) -> Array:
    """The four ratios of definition 2 at thresholds t, straight from the paper: FPR, FNR and their complements."""
    member_mean, member_std, population_mean, population_std = distribution
    member = (t - member_mean) / member_std
    population = (t - population_mean) / population_std
    pairs = ((population, member), (-member, -population), (-population, -member), (member, population))
    with np.errstate(divide="ignore"):
        return np.stack([np.log(np.maximum(ndtr(a) - delta, 0)) - log_ndtr(b) for a, b in pairs])


def brute_force(distribution: tuple[float, float, float, float], delta: float) -> float:
    """A very fine grid, then a local search around the best point of each ratio."""
    ends = [mean + side * 12 * std for mean, std in (distribution[:2], distribution[2:]) for side in (-1, 1)]
    grid = np.linspace(min(ends), max(ends), 100_001)
    best = 0.0
    for which, values in enumerate(four_log_ratios(grid, distribution, delta)):
        top = int(np.argmax(values))
        bounds = grid[max(top - 1, 0)], grid[min(top + 1, grid.size - 1)]

        def loss(t: float, which: int = which) -> float:
            return min(-float(four_log_ratios(np.array([t]), distribution, delta)[which, 0]), 1e9)

        best = max(best, -float(minimize_scalar(loss, bounds=bounds, method="bounded", options={"xatol": 1e-13}).fun))
    return best


@pytest.mark.few_cases(10)
@pytest.mark.parametrize("mu", [1e-4, 0.01, 0.3, 1.0, 5.0, 40.0, 1e3])
@pytest.mark.parametrize("delta", [1e-300, 1e-12, 1e-5, 0.01, 0.1, 0.45])
def test_equal_spreads_are_gaussian_differential_privacy(mu: float, delta: float) -> None:
    computed_star = float(epsilon_star_gaussian(2 + 3 * mu, 3.0, 2.0, 3.0, delta))
    assert computed_star == pytest.approx(gdp_epsilon(delta, mu), rel=1e-9, abs=1e-11)


@pytest.mark.long
@pytest.mark.parametrize("distributions", [30, 150])
def test_supremum_agrees_with_brute_force(distributions: int) -> None:
    rng = np.random.default_rng(21)
    for _ in range(distributions):
        means = rng.normal(size=2) * rng.choice([0.01, 0.3, 1.0, 5.0])
        stds = np.exp(rng.normal(size=2) * rng.choice([1e-6, 0.05, 0.5, 1.5]))
        delta = 10.0 ** rng.uniform(-12, -1)
        distribution = float(means[0]), float(stds[0]), float(means[1]), float(stds[1])
        computed_star = float(epsilon_star_gaussian(*distribution, delta))
        assert computed_star == pytest.approx(brute_force(distribution, delta), rel=1e-9, abs=1e-7)


DISTRIBUTIONS = st.tuples(st.floats(-3, 3), st.floats(0.05, 20), st.floats(-3, 3), st.floats(0.05, 20))


@given(DISTRIBUTIONS, st.floats(-12, -1))
@settings(max_examples=examples(150), derandomize=True)
def test_no_threshold_beats_it_and_delta_lowers_it(
    distribution: tuple[float, float, float, float], log_delta: float
) -> None:
    delta = 10.0**log_delta
    computed_star = float(epsilon_star_gaussian(*distribution, delta))
    ends = [mean + side * 9 * std for mean, std in (distribution[:2], distribution[2:]) for side in (-1, 1)]
    assert np.max(four_log_ratios(np.linspace(min(ends), max(ends), 5000), distribution, delta)) <= computed_star + 1e-9
    assert float(epsilon_star_gaussian(*distribution, delta * 1.1)) <= computed_star + 1e-12


@given(DISTRIBUTIONS, st.floats(-12, -1), st.floats(0.01, 100), st.floats(-50, 50))
@settings(derandomize=True)
def test_roles_and_linear_maps_change_nothing(
    distribution: tuple[float, float, float, float], log_delta: float, scale: float, origin: float
) -> None:
    delta = 10.0**log_delta
    member_mean, member_std, population_mean, population_std = distribution
    computed_star = float(epsilon_star_gaussian(*distribution, delta))
    swapped = epsilon_star_gaussian(population_mean, population_std, member_mean, member_std, delta)
    moved_means = scale * member_mean + origin, scale * population_mean + origin
    moved = epsilon_star_gaussian(moved_means[0], scale * member_std, moved_means[1], scale * population_std, delta)
    mirrored = epsilon_star_gaussian(-member_mean, member_std, -population_mean, population_std, delta)
    assert float(swapped) == pytest.approx(computed_star, rel=1e-9, abs=1e-9)
    assert float(mirrored) == pytest.approx(computed_star, rel=1e-9, abs=1e-9)
    assert float(moved) == pytest.approx(computed_star, rel=1e-6, abs=1e-6)


def test_degenerate_distributions() -> None:
    def star(mean_1: float, std_1: float, mean_0: float, std_0: float, delta: float = 1e-3) -> float:
        return float(epsilon_star_gaussian(mean_1, std_1, mean_0, std_0, delta))

    assert star(1.0, 2.0, 1.0, 2.0) == 0.0
    assert star(1.0, 2.0, 1.0, 2.0, delta=0.0) == 0.0
    assert star(1.0, 2.0, 1.1, 2.0, delta=0.0) == math.inf
    assert star(1.0, 2.0, 1.0, 2.1, delta=0.0) == math.inf
    assert star(1.0, 0.0, 1.0, 0.0) == 0.0
    assert star(1.0, 0.0, 2.0, 0.0) == math.inf
    assert star(1.0, 0.0, 1.0, 1.0) == math.inf
    assert star(1.0, 1.0, 1.0, 0.0) == math.inf
    assert star(1.0, 1.0, 1.0, 1.0 + 1e-12) == 0.0
    assert star(1e-9, 1.0, 0.0, 1.0) < 1e-6
    assert math.isfinite(star(0.0, 1e-9, 0.0, 1.0))


def test_leading_axes_are_free() -> None:
    rng = np.random.default_rng(22)
    members = rng.gamma(2, 1, (3, 4, 50))
    population = rng.gamma(3, 1, (3, 4, 70))
    stars = parametric_epsilon_star(members, population, 1e-3)
    assert stars.shape == (3, 4)
    for index in np.ndindex(3, 4):
        alone = parametric_epsilon_star(members[index], population[index], 1e-3)
        assert alone.shape == ()
        assert float(alone) == pytest.approx(float(stars[index]), rel=1e-12)
    assert parametric_epsilon_star(np.ones((0, 5)), np.ones((0, 4)), 1e-3).shape == (0,)


def test_scores_are_the_four_steps_of_the_appendix() -> None:
    losses = np.array([0.5, 1.0, 2.5])
    normalised = (losses - 0.5) / 2.0
    np.testing.assert_allclose(loss_scores(losses, 0.5, 2.5), logit(np.exp(-(normalised + 1))), rtol=1e-13)
    small = loss_scores(losses, 0.5, 2.5, shift=1e-9)
    assert small[0] == pytest.approx(-math.log(1e-9), rel=1e-9)


def test_parametric_value_is_that_of_the_fitted_normals_with_common_extremes() -> None:
    rng = np.random.default_rng(23)
    members = rng.gamma(2, 1, 300)
    population = rng.gamma(2.5, 1, 400)
    low = min(members.min(), population.min())
    high = max(members.max(), population.max())
    member_scores, zero = (logit(np.exp(-((x - low) / (high - low) + 1))) for x in (members, population))
    expected = brute_force((member_scores.mean(), member_scores.std(), zero.mean(), zero.std()), 1e-3)
    assert float(parametric_epsilon_star(members, population, 1e-3)) == pytest.approx(expected, abs=1e-7)
    moved = parametric_epsilon_star(7 * members + 2, 7 * population + 2, 1e-3)
    assert float(moved) == pytest.approx(expected, abs=1e-7)


def test_constant_losses() -> None:
    varied = np.random.default_rng(24).gamma(2, 1, 50)
    assert float(parametric_epsilon_star(np.full(7, 0.1), np.full(9, 0.1), 1e-3)) == 0.0
    assert float(parametric_epsilon_star(np.full(7, 0.1), np.full(9, 0.3), 1e-3)) == math.inf
    assert float(parametric_epsilon_star(np.full(7, 0.1), varied, 1e-3)) == math.inf


def test_wrong_input_is_named() -> None:
    fine = np.array([0.1, 0.2, 0.3])
    for wrong in (-0.5, math.nan, math.inf):
        named = f"member losses .*{wrong}: .*from 0"
        assert_refused(named, parametric_epsilon_star, np.array([0.1, wrong]), fine, 1e-3)
        assert_refused("population losses contain", parametric_epsilon_star, fine, np.array([0.1, wrong]), 1e-3)
    for delta in (-0.1, 1.0, math.nan):
        assert_refused("delta is", parametric_epsilon_star, fine, fine, delta)
    assert_refused("2 or more losses", parametric_epsilon_star, np.array([0.1]), fine, 1e-3)
    assert_refused("leading axes", parametric_epsilon_star, np.ones((2, 3)), fine, 1e-3)
    assert_refused("deviation is negative", epsilon_star_gaussian, 0.0, -1.0, 0.0, 1.0, 1e-3)
    assert_refused("NaN or infinite", epsilon_star_gaussian, math.nan, 1.0, 0.0, 1.0, 1e-3)
    assert_refused("low to high", loss_scores, fine, 0.2, 0.3)
    assert_refused("shift is 0", loss_scores, fine, 0.1, 0.3, shift=0.0)


def test_speed() -> None:
    rng = np.random.default_rng(25)
    for shape, limit in (((10**6,), 1.0), ((1000, 200), 0.3)):
        members = rng.gamma(2, 1, shape)
        population = rng.gamma(3, 1, shape)
        times = []
        for _ in range(3):
            start = time.process_time()
            parametric_epsilon_star(members, population, 1e-3)
            times.append(time.process_time() - start)
        assert min(times) < limit


def test_two_classes_are_compared_as_the_largest_is_found() -> None:
    """The first of two equal logits is the prediction, as `argmax` has it."""
    logits = torch.tensor([[[0.0, 1.0], [1.0, 0.0], [2.0, 2.0], [-1.0, -0.5]]])
    three = torch.randn(4, 5, 3, generator=torch.Generator().manual_seed(0))
    for outputs in (logits, three):
        for label in range(outputs.shape[-1]):
            labels = torch.full(outputs.shape[1:2], label)
            assert (TestOutputs(outputs, labels).right == (outputs.argmax(dim=-1) == label)).all()
