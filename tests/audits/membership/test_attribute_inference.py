"""Attribute inference where the best guess is known, with and without the distribution of losses."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtr
from scipy.stats import gaussian_kde

from fl_audit.audits.membership.attribute_inference import (
    attribute_guesses,
    attribute_guesses_with_shadows,
    sampled_distribution,
)
from fl_audit.federation.target_membership import TargetMembership
from tests.builders.refusals import assert_refused


def normal_error_distribution(spread: float) -> Callable[[np.ndarray], np.ndarray]:
    """Log-density of errors that are normal around 0, of losses (y - f(x))^2 / 2 (Yeom et al. 2018, section 4.1)."""
    return lambda losses: -losses / spread**2


def regression(seed: int, trials: int, targets: int, overfit: float, weight: float):
    """Losses (y - f)^2 / 2 of a linear model with error spread 1 (members: less), and a attribute of 2 values."""
    draw = np.random.default_rng(seed)
    is_in = draw.random((trials, targets)) < 0.5
    truth = draw.integers(0, 2, targets)
    error = draw.normal(size=(trials, targets)) * np.where(is_in, overfit, 1.0)
    wrong = np.arange(2)[None, None, :] - truth[None, :, None]
    return (error[..., None] - weight * wrong) ** 2 / 2, truth, TargetMembership(is_in)


def test_the_shares_guessed_right_are_those_of_the_closed_form() -> None:
    """With equal priors the nearer value wins: right with Phi(weight / (2 spread)); 60000 trials err by 0.002."""
    losses, truth, membership = regression(1, 300, 200, overfit=0.4, weight=1.0)
    for distribution in (None, normal_error_distribution(0.4)):
        guesses = attribute_guesses(losses, truth, [0.5, 0.5], distribution)
        assert guesses.right[membership.is_in].mean() == pytest.approx(ndtr(0.5 / 0.4), abs=0.01)
        assert guesses.right[~membership.is_in].mean() == pytest.approx(ndtr(0.5), abs=0.01)
        assert guesses.advantage(membership).mean() == pytest.approx(ndtr(1.25) - ndtr(0.5), abs=0.015)


def test_the_distribution_lets_the_attacker_weigh_a_prior_and_the_least_loss_does_not() -> None:
    losses, truth, _ = regression(2, 200, 300, overfit=1.0, weight=0.3)
    common = np.where(np.random.default_rng(0).random(300) < 0.9, 0, 1)
    moved = np.where((common == truth)[None, :, None], losses, losses[..., ::-1])
    informed = attribute_guesses(moved, common, [0.9, 0.1], normal_error_distribution(1.0)).right.mean()
    assert informed > attribute_guesses(moved, common, [0.9, 0.1]).right.mean() + 0.2


def test_a_sampled_distribution_does_about_as_well_as_the_true_one() -> None:
    draw = np.random.default_rng(3)
    members = draw.exponential(0.2, (20, 200))
    losses = np.stack([members, draw.exponential(2.0, (20, 200))], axis=-1)
    truth = np.zeros(200, dtype=np.int64)
    learnt = attribute_guesses(losses, truth, [0.5, 0.5], sampled_distribution(draw.exponential(0.2, 300))).right.mean()
    exact = attribute_guesses(losses, truth, [0.5, 0.5], lambda loss: -loss / 0.2).right.mean()
    assert learnt == pytest.approx(exact, abs=0.03)


def test_the_distribution_is_that_of_members_of_other_trials() -> None:
    losses, truth, membership = regression(4, 40, 200, overfit=0.4, weight=1.0)
    guesses = attribute_guesses_with_shadows(losses, truth, [0.5, 0.5], membership)
    exact = attribute_guesses(losses, truth, [0.5, 0.5], normal_error_distribution(0.4)).right
    # Of 4,000 members the shares differ by 0.01 or less, the distribution being learned from as many losses.
    assert guesses.right[membership.is_in].mean() == pytest.approx(exact[membership.is_in].mean(), abs=0.02)
    changed = losses.copy()
    coins = membership.is_in.copy()
    changed[::2], coins[::2] = losses[::2] ** 2, ~coins[::2]
    moved = attribute_guesses_with_shadows(changed, truth, [0.9, 0.1], TargetMembership(coins))
    unmoved = attribute_guesses_with_shadows(changed, truth, [0.9, 0.1], membership)
    # The coins of even trials reach those of odd number alone.
    assert (moved.values[::2] == unmoved.values[::2]).all()
    assert (moved.values[1::2] != unmoved.values[1::2]).any()


def test_quantiles_and_a_table_stand_for_all_kernels() -> None:
    draw = np.random.default_rng(5)
    sample = draw.exponential(0.2, 5000)
    distribution = sampled_distribution(sample)
    offset = sample.mean() / 1000
    kernels = gaussian_kde(np.log(sample + offset), bw_method="silverman")
    points = np.quantile(sample, np.linspace(0.005, 0.995, 4000))
    exact = kernels.logpdf(np.log(points + offset)) - np.log(points + offset)
    assert np.abs(distribution(points) - exact).max() < 0.05


@given(seed=st.integers(0, 10**6))
def test_the_order_of_values_is_of_no_account(seed: int) -> None:
    draw = np.random.default_rng(seed)
    losses = draw.random((4, 5, 3))
    truth = draw.integers(0, 3, 5)
    prior = draw.dirichlet(np.ones(3))
    order = draw.permutation(3)
    position = np.argsort(order)
    for distribution in (None, normal_error_distribution(0.5)):
        guesses = attribute_guesses(losses, truth, prior, distribution)
        moved = attribute_guesses(losses[..., order], position[truth], prior[order], distribution)
        assert (order[moved.values] == guesses.values).all()


def test_ties_impossible_values_and_wrong_input() -> None:
    assert attribute_guesses(np.ones((1, 1, 2)), [1], [0.3, 0.7]).values.tolist() == [[1]]
    assert attribute_guesses([[[0.0, 5.0]]], [1], [0.0, 1.0]).values.tolist() == [[1]]
    assert_refused(r"prior .*no distribution", attribute_guesses, np.ones((1, 1, 2)), [1], [0.3, 0.3])
    assert_refused(r"true values .*0 to 1", attribute_guesses, np.ones((1, 1, 2)), [2], [0.5, 0.5])
    assert_refused(r"member losses .*equal", sampled_distribution, [1.0, 1.0])
