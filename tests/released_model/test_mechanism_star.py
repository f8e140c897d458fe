"""The lower confidence bound on the epsilon of a training mechanism."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit
from scipy.stats import binom

from fl_audit.errors import InputError
from fl_audit.released_model.mechanism_star import (
    mechanism_lower_bound,
    mechanism_star_gaussian,
    parametric_mechanism_star,
)
from tests.few_examples import examples


def test_nothing_is_certified_where_nothing_leaks_and_the_estimate_errs() -> None:
    """200 runs: false certificates at most binomial(200, .05) but for 1e-4; the estimate is far from 0 all the time."""
    rng, false, estimates = np.random.default_rng(71), 0, []
    for run in range(200):
        members, population = rng.beta(2, 2, (10, 100)), rng.beta(2, 2, (10, 100))
        false += mechanism_lower_bound(members, population, 1e-3) > 0
        if run < 10:
            found = parametric_mechanism_star(members, population, 1e-3)
            assert (found.lower_bound, found.confidence) == (mechanism_lower_bound(members, population, 1e-3), 0.95)
            estimates.append(found.mechanism)
    assert false <= binom.ppf(1 - 1e-4, 200, 0.05)
    assert np.mean(estimates) > 0.08


@pytest.mark.long
@pytest.mark.parametrize("together", [False, True])
def test_it_holds_on_the_edge_of_what_is_allowed(together: bool) -> None:
    """Losses by randomised response at epsilon 1, record by record or one answer for all members of a model."""
    rng, false, honest = np.random.default_rng(72), 0, float(expit(1.0))
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
    found = []
    for models in (4, 20, 100):
        shift = np.arange(models)[:, None] % 2
        members = np.exp(rng.normal(-shift, 1, (models, 500)))
        found.append(mechanism_lower_bound(members, np.exp(rng.normal(0, 1, (models, 500))), 1e-5))
    assert found == sorted(found)
    assert 1 < found[-1] < truth


@settings(max_examples=examples(60), deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 999), models=st.integers(1, 12), m=st.integers(1, 20), p=st.integers(1, 20), gap=st.floats(0, 4)
)
def test_ranks_alone_count_and_models_have_no_order(seed: int, models: int, m: int, p: int, gap: float) -> None:
    rng = np.random.default_rng(seed)
    members, population = np.round(rng.gamma(2, 1, (models, m)), 1), np.round(rng.gamma(2, 1, (models, p)) + gap, 1)
    found = mechanism_lower_bound(members, population, 1e-3)
    order, scale = rng.permutation(models), rng.uniform(1, 3, (models, 1))
    again = mechanism_lower_bound((scale * members)[order], (scale * population)[order], 1e-3)
    assert again == pytest.approx(found, abs=1e-7)
    assert 0 <= found <= math.log((1 - 1e-3) * (p + 1)) + 1e-9
    assert mechanism_lower_bound(members, population, 1e-3, confidence=0.999) <= found + 1e-9


def test_equal_losses_certify_nothing_and_wrong_input_is_named() -> None:
    assert mechanism_lower_bound(np.ones((50, 30)), np.ones((50, 30)), 0.0) == 0.0
    for shape, delta, confidence, said in (
        ((30,), 0.1, 0.95, r"member losses .*\(30,\)"),
        ((5, 30), 1.0, 0.95, "delta is"),
        ((5, 30), 0.1, 1.0, "confidence is"),
    ):
        with pytest.raises(InputError, match=said):
            mechanism_lower_bound(np.ones(shape), np.ones(shape), delta, confidence)
