import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit
from scipy.stats import binom, kstest, norm

from fl_audit.released_model.mechanism_star import (
    mechanism_lower_bound,
    mechanism_star_gaussian,
    parametric_mechanism_star,
)
from fl_audit.released_model.mixture_star import epsilon_star_mixtures, threshold_limits, threshold_log_ratios
from fl_audit.released_model.normal_mixture import NormalMixture, choose_mixture, fit_mixture, ks_check, normal
from fl_audit.released_model.parametric_star import epsilon_star_gaussian
from tests.builders.refusals import assert_refused
from tests.few_examples import examples
from tests.released_model.rates import epsilon_star_of_rates


def random_mixture(rng: np.random.Generator, components: int) -> NormalMixture:
    weights = rng.dirichlet(np.full(components, 2.0))
    return NormalMixture(weights, rng.normal(size=components), np.exp(rng.normal(size=components) - 1))


@pytest.mark.long
def test_one_component_is_the_closed_form_cut_or_not() -> None:
    rng = np.random.default_rng(51)
    for _ in range(100):
        means = rng.normal(size=2) * rng.choice([0.01, 0.3, 1.0, 5.0])
        stds = np.exp(rng.normal(size=2) * rng.choice([1e-6, 0.05, 0.5, 1.5]))
        delta = 10.0 ** rng.uniform(-12, -0.05)
        cut = float(rng.choice([0.0, 1e-6, 1e-3, 0.1]))
        star_result = epsilon_star_mixtures(normal(means[0], stds[0]), normal(means[1], stds[1]), delta, cut)
        expected = float(epsilon_star_gaussian(means[0], stds[0], means[1], stds[1], delta, cut))
        assert star_result.gap <= 1e-9
        assert star_result.epsilon_star == pytest.approx(expected, rel=2e-9, abs=2e-9)


@pytest.mark.few_cases(2)
@pytest.mark.parametrize("components", [2, 5, 20])
@pytest.mark.parametrize("delta", [1e-9, 1e-4, 0.1])
def test_no_threshold_beats_a_mixture_and_one_comes_near(components: int, delta: float) -> None:
    rng = np.random.default_rng([52, components])
    members = random_mixture(rng, components)
    population = random_mixture(rng, components)
    star_result = epsilon_star_mixtures(members, population, delta)
    grid = np.linspace(-60, 60, 60_001)
    best = float(threshold_log_ratios(members, population, grid, delta).max())
    assert star_result.gap <= 1e-9
    assert best - 1e-8 <= star_result.epsilon_star <= best + 0.03 * max(best, 1)
    swapped = epsilon_star_mixtures(population, members, delta)
    assert swapped.epsilon_star == pytest.approx(star_result.epsilon_star, abs=3e-9)
    within = epsilon_star_mixtures(members, population, delta, cut=0.01)
    low, high = threshold_limits(members, population, 0.01) or (0, 0)
    inner = threshold_log_ratios(members, population, np.linspace(low, high, 20_001), delta)
    assert within.epsilon_star == pytest.approx(max(0.0, float(inner.max())), abs=1e-4)


def test_a_narrow_component_is_not_missed() -> None:
    """A spike of weight 0.05 and width 1e-7: a threshold on either side of it tells its whole weight apart."""
    wide = normal(0.0, 1.0)
    spiked = NormalMixture(np.array([0.95, 0.05]), np.array([0.0, 5.0]), np.array([1.0, 1e-7]))
    expected = math.log((0.95 * norm.sf(5) + 0.05 - 1e-6) / norm.sf(5))
    assert epsilon_star_mixtures(spiked, wide, 1e-6).epsilon_star == pytest.approx(expected, abs=1e-3)


@pytest.mark.long
def test_delta_zero() -> None:
    first_mixture = normal(0.0, 1.0)
    second_mixture = normal(0.1, 1.0)
    assert epsilon_star_mixtures(first_mixture, second_mixture, 0.0).epsilon_star == math.inf
    assert math.isfinite(epsilon_star_mixtures(first_mixture, second_mixture, 0.0, cut=1e-6).epsilon_star)
    assert epsilon_star_mixtures(first_mixture, first_mixture, 0.0).epsilon_star == 0.0
    # Two mixtures with the same widest component: the ratio of tails ends at that of its weights.
    half = NormalMixture(np.array([0.5, 0.5]), np.zeros(2), np.array([1.0, 2.0]))
    heavy_mixture = NormalMixture(np.array([0.1, 0.9]), np.zeros(2), np.array([1.0, 2.0]))
    star_result = epsilon_star_mixtures(half, heavy_mixture, 0.0, tolerance=1e-5)
    assert star_result.epsilon_star == pytest.approx(math.log(0.9 / 0.5), abs=1e-4)


def test_fits_find_what_was_drawn_and_the_check_tells_misfits() -> None:
    rng = np.random.default_rng(53)
    mechanism = NormalMixture(np.array([0.3, 0.7]), np.array([-3.0, 1.0]), np.array([0.5, 1.0]))
    scores = mechanism.sample(4000, rng)
    chosen = choose_mixture(scores, rng)
    assert chosen.components == 2
    order = np.argsort(chosen.means)
    np.testing.assert_allclose(chosen.means[order], mechanism.means, atol=0.1)
    np.testing.assert_allclose(chosen.weights[order], mechanism.weights, atol=0.03)
    assert kstest(scores, lambda x: -np.expm1(chosen.log_sf(x))).pvalue > 0.01
    assert ks_check(scores, 1, 1000, rng) < 1e-4
    assert ks_check(scores, 2, 1000, rng) > 0.01
    single = fit_mixture(scores, 1, rng)
    assert single.means[0] == pytest.approx(scores.mean())
    assert single.stds[0] == pytest.approx(scores.std(), rel=1e-5)
    again = fit_mixture(scores, 5, np.random.default_rng(1)), fit_mixture(scores, 5, np.random.default_rng(1))
    assert np.array_equal(again[0].means, again[1].means)


def test_wrong_mixtures_are_refused() -> None:
    rng = np.random.default_rng(54)
    for scores, components in ((np.ones(50), 1), (np.arange(50.0), 21), (np.array([1.0, math.nan]), 1)):
        assert_refused(None, fit_mixture, scores, components, rng)
    assert_refused("sum 1", NormalMixture, np.array([0.4, 0.4]), np.zeros(2), np.ones(2))
    assert_refused("evaluation size", ks_check, np.arange(50.0), 1, 49, rng)
    assert_refused("standard deviation", normal, 0.0, 0.0)


def test_theorem_2_does_not_hold_as_printed() -> None:
    """Half the models without a leak, half with shift 1: the mechanism exceeds the mean of its models."""
    star_result = mechanism_star_gaussian(np.array([0.0, 1.0]), 1.0, 0.0, 1.0, 1e-5)
    assert star_result.mean_of_models == pytest.approx(2.19, abs=0.005)
    assert star_result.mechanism == pytest.approx(3.53, abs=0.005)
    # The same from error rates alone, at common false positive rates.
    alpha = norm.sf(np.linspace(-6, 6, 4001))
    fnr = np.stack([norm.cdf(norm.isf(alpha) - shift) for shift in (0.0, 1.0)])
    model_stars = epsilon_star_of_rates(np.broadcast_to(alpha, fnr.shape), fnr, 1e-5)
    assert float(epsilon_star_of_rates(alpha, fnr.mean(axis=0), 1e-5)) == pytest.approx(star_result.mechanism, abs=1e-3)
    assert model_stars.mean() == pytest.approx(star_result.mean_of_models, abs=1e-3)


def test_the_other_order_occurs_too() -> None:
    """Models that leak in opposite directions cancel in the average."""
    star_result = mechanism_star_gaussian(np.array([-1.0, 1.0]), 1.0, 0.0, 1.0, 1e-2)
    assert star_result.mechanism < star_result.mean_of_models


def test_mechanism_of_many_models_from_losses() -> None:
    rng = np.random.default_rng(55)
    members = rng.beta(2, 4, (200, 100))
    population = rng.beta(2, 3, (200, 150))
    star_result = parametric_mechanism_star(members, population, 1e-2)
    assert star_result.models == 200
    assert star_result.mechanism > 0
    alike = parametric_mechanism_star(np.tile(members[0], (5, 1)), np.tile(population[0], (5, 1)), 1e-2)
    assert alike.mechanism == pytest.approx(alike.mean_of_models, abs=2e-6)


# --- The lower confidence bound on the epsilon of a training mechanism


def test_nothing_is_certified_where_nothing_leaks_and_the_estimate_errs() -> None:
    """200 runs: false certificates at most binomial(200, .05) but for 1e-4; the estimate is far from 0 all the time."""
    rng = np.random.default_rng(71)
    false = 0
    estimates = []
    for run in range(200):
        members = rng.beta(2, 2, (10, 100))
        population = rng.beta(2, 2, (10, 100))
        false += mechanism_lower_bound(members, population, 1e-3) > 0
        if run < 10:
            star = parametric_mechanism_star(members, population, 1e-3)
            assert (star.lower_bound, star.confidence) == (mechanism_lower_bound(members, population, 1e-3), 0.95)
            estimates.append(star.mechanism)
    assert false <= binom.ppf(1 - 1e-4, 200, 0.05)
    assert np.mean(estimates) > 0.08


@pytest.mark.long
@pytest.mark.parametrize("together", [False, True])
def test_it_holds_on_the_edge_of_what_is_allowed(together: bool) -> None:
    """Losses by randomised response at epsilon 1, record by record or one answer for all members of a model."""
    rng = np.random.default_rng(72)
    false = 0
    honest = float(expit(1.0))
    for _ in range(200):
        low = rng.random((40, 1 if together else 50)) < honest
        members = np.where(low, 0, 1) + rng.random((40, 50))
        population = np.where(rng.random((40, 50)) < 1 - honest, 0, 1) + rng.random((40, 50))
        false += mechanism_lower_bound(members, population, 0.0) > 1
    assert false <= binom.ppf(1 - 1e-4, 200, 0.05)


def test_a_leak_is_certified_below_the_truth_and_more_models_certify_more() -> None:
    """Normal losses, every other model with a shift of 1: the mechanism has 3.53."""
    rng = np.random.default_rng(73)
    truth = mechanism_star_gaussian(np.array([0.0, 1.0]), 1.0, 0.0, 1.0, 1e-5).mechanism
    bounds = []
    for models in (4, 20, 100):
        shift = np.arange(models)[:, None] % 2
        members = np.exp(rng.normal(-shift, 1, (models, 500)))
        bounds.append(mechanism_lower_bound(members, np.exp(rng.normal(0, 1, (models, 500))), 1e-5))
    assert bounds == sorted(bounds)
    assert 1 < bounds[-1] < truth


@settings(max_examples=examples(60), derandomize=True)
@given(
    seed=st.integers(0, 999), models=st.integers(1, 12), m=st.integers(1, 20), p=st.integers(1, 20), gap=st.floats(0, 4)
)
def test_ranks_alone_count_and_models_have_no_order(seed: int, models: int, m: int, p: int, gap: float) -> None:
    rng = np.random.default_rng(seed)
    members = np.round(rng.gamma(2, 1, (models, m)), 1)
    population = np.round(rng.gamma(2, 1, (models, p)) + gap, 1)
    bound = mechanism_lower_bound(members, population, 1e-3)
    order = rng.permutation(models)
    scale = rng.uniform(1, 3, (models, 1))
    again = mechanism_lower_bound((scale * members)[order], (scale * population)[order], 1e-3)
    assert again == pytest.approx(bound, abs=1e-7)
    assert 0 <= bound <= math.log((1 - 1e-3) * (p + 1)) + 1e-9
    assert mechanism_lower_bound(members, population, 1e-3, confidence=0.999) <= bound + 1e-9


def test_equal_losses_certify_nothing_and_wrong_input_is_named() -> None:
    assert mechanism_lower_bound(np.ones((50, 30)), np.ones((50, 30)), 0.0) == 0.0
    for shape, delta, confidence, expected_message in (
        ((30,), 0.1, 0.95, r"member losses .*\(30,\)"),
        ((5, 30), 1.0, 0.95, "delta is"),
        ((5, 30), 0.1, 1.0, "confidence is"),
    ):
        assert_refused(expected_message, mechanism_lower_bound, np.ones(shape), np.ones(shape), delta, confidence)
