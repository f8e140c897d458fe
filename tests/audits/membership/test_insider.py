"""The membership audit's insider on mechanisms whose distribution is known: normal distributions, likelihood ratios,
mixtures.

Chance: every Kolmogorov-Smirnov test raises a false alarm with a probability of 1e-4, every test by standard errors
(4 of them) with one of 6e-5, at fixed seeds; some 60 numbers are tested.
"""

from typing import NamedTuple

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.special import ndtr
from scipy.stats import kstest
from torch import nn

from fl_audit.adjacency import Adjacency
from fl_audit.array_types import Flags
from fl_audit.audits.membership.insider_increments import increments, noise_along_targets, signal_to_noise
from fl_audit.learning.gradient_norms_and_products import gradient_norms_and_products
from fl_audit.learning.stacked_model import StackedModel
from fl_audit.mechanisms.likelihood_ratio import Hypotheses
from fl_audit.mechanisms.noises.gaussian_likelihood import gaussian_llr
from fl_audit.privacy.accounting_enums import VectorNorm
from fl_audit.privacy.events import gaussian_rounds
from fl_audit.privacy.log_odds_distribution import TrueHypothesis, log_odds_distribution
from tests.builders.log_odds import uniforms

Array = NDArray[np.float64]

CLIPPING_NORM = 1.5
ALARM = 1e-4


class Played(NamedTuple):
    """One round of a Gaussian mechanism on gradients that never change; all but `clipped` as the insider takes them."""

    clipped: Array
    products: Array
    norms: Array
    sigma: Array
    is_in: Flags
    takes_part: Flags
    noise: Array


def played(draw: np.random.Generator, trials: int, gradients: Array, sigma: Array, rate: float, coins: Flags) -> Played:
    norms = np.linalg.norm(gradients, axis=1)
    clipped = gradients * np.minimum(1, CLIPPING_NORM / norms)[:, None]
    noise = sigma[:, None] * draw.standard_normal((trials, gradients.shape[1]))
    takes_part = draw.random((trials, len(gradients))) < rate
    return Played(clipped, noise @ gradients.T, np.tile(norms, (trials, 1)), sigma, coins, takes_part, noise)


def _gradients() -> Array:
    """Return five gradients, of lengths 0.3 to 3: two are clipped."""
    draw = np.random.default_rng(8)
    raw = draw.standard_normal((5, 12))
    return raw / np.linalg.norm(raw, axis=1, keepdims=True) * np.linspace(0.3, 3.0, 5)[:, None]


def _coins(draw: np.random.Generator, trials: int, targets: int = 5) -> Flags:
    return draw.random((trials, targets)) < 0.5


@pytest.mark.parametrize(("rate", "sees_participation"), [(1.0, False), (0.3, False), (0.3, True), (0.02, False)])
def test_the_log_odds_of_each_target_are_those_of_the_insider_of_a_single_target(
    rate: float, sees_participation: bool
) -> None:
    """Each target by itself: the sum of all others is formed, and the release weighed with the target and without."""
    draw = np.random.default_rng(1)
    trials = 40
    played_round = played(draw, trials, _gradients(), draw.uniform(0.5, 2, trials), rate, _coins(draw, trials))
    in_sum = played_round.is_in & played_round.takes_part
    release = torch.from_numpy(in_sum @ played_round.clipped + played_round.noise)
    sigma = torch.from_numpy(played_round.sigma)
    log_odds = _increments(played_round, rate, sees_participation)
    for target, gradient in enumerate(played_round.clipped):
        other_sum = torch.from_numpy(
            np.delete(in_sum, target, axis=1) @ np.delete(played_round.clipped, target, axis=0)
        )
        participation = played_round.takes_part[:, target] if sees_participation else np.ones(trials, dtype=np.bool_)
        present = torch.from_numpy(participation[:, None] * gradient)
        hypotheses = Hypotheses(other_sum, present, torch.zeros_like(present), 1.0 if sees_participation else rate)
        (comparison,) = hypotheses.compare_with(release)
        distance = torch.from_numpy(hypotheses.sensitivity_in(VectorNorm.L2))
        weighed = gaussian_llr(comparison, sigma, distance, hypotheses)
        assert log_odds[:, target] == pytest.approx(weighed.log_odds.numpy(), rel=1e-9, abs=1e-11)


def _increments(played_round: Played, rate: float = 1.0, sees_participation: bool = False) -> Array:
    return increments(
        played_round.products,
        played_round.norms,
        CLIPPING_NORM,
        played_round.sigma,
        played_round.is_in,
        played_round.takes_part,
        rate,
        sees_participation,
    )


def test_innovations_of_every_target_are_standard_normal_and_the_ratio_is_one() -> None:
    draw = np.random.default_rng(2)
    trials = 4000
    rounds = 3
    coins = _coins(draw, trials)
    sigma = draw.uniform(1.5, 3, trials)
    total = np.zeros(coins.shape)
    innovations = []
    for _ in range(rounds):
        played_round = played(draw, trials, _gradients(), sigma, 1.0, coins)
        log_odds = _increments(played_round)
        mu = signal_to_noise(played_round.norms, CLIPPING_NORM, sigma)
        innovations.append((log_odds - np.where(coins, 1, -1) * mu**2 / 2) / mu)
        total += log_odds
    assert mu.max() == CLIPPING_NORM / sigma.min()
    for target in range(5):
        assert kstest(np.stack(innovations)[:, :, target].ravel(), "norm").pvalue > ALARM
        for side, sign in ((coins[:, target], -1), (~coins[:, target], 1)):
            assert_mean(np.exp(sign * total[side, target]), 1.0)


def assert_mean(values: Array, expected: float) -> None:
    assert abs(values.mean() - expected) < 4 * values.std(ddof=1) / np.sqrt(values.size)


def test_the_area_under_the_curve_is_the_exact_one() -> None:
    """AUC = Phi(mu / sqrt 2), mu^2 summed over rounds; standard errors by placements (DeLong et al. 1988)."""
    draw = np.random.default_rng(3)
    trials = 6000
    rounds = 4
    coins = _coins(draw, trials)
    sigma = np.full(trials, 3.0)
    total = np.zeros(coins.shape)
    for _ in range(rounds):
        total += _increments(played(draw, trials, _gradients(), sigma, 1.0, coins))
    for target, length in enumerate(np.minimum(np.linspace(0.3, 3.0, 5), CLIPPING_NORM)):
        members = np.sort(total[coins[:, target], target])
        non_members = np.sort(total[~coins[:, target], target])
        above = np.searchsorted(non_members, members) / non_members.size
        below = 1 - np.searchsorted(members, non_members) / members.size
        error = np.sqrt(above.var(ddof=1) / members.size + below.var(ddof=1) / non_members.size)
        exact = ndtr(np.sqrt(rounds) * length / 3.0 / np.sqrt(2))
        assert abs(above.mean() - exact) < 4 * error
        assert error < 0.01


@pytest.mark.parametrize("sees_participation", [False, True])
def test_under_sampling_log_odds_have_the_distribution_of_the_privacy_loss(sees_participation: bool) -> None:
    draw = np.random.default_rng(4)
    trials = 3000
    rounds = 8
    rate = 0.3
    coins = _coins(draw, trials)
    sigma = np.full(trials, 1.2 * CLIPPING_NORM)
    total = np.zeros(coins.shape)
    for _ in range(rounds):
        total += _increments(played(draw, trials, _gradients(), sigma, rate, coins), rate, sees_participation)
    events = gaussian_rounds(1.2, rounds, rate, sees_participation)
    for target in (3, 4):  # those of the length of the clipping norm, to which the events refer
        for truth, side in ((TrueHypothesis.PRESENT, coins[:, target]), (TrueHypothesis.ABSENT, ~coins[:, target])):
            distribution = log_odds_distribution(events, Adjacency.ADD_REMOVE_RECORD, truth)
            assert kstest(uniforms(distribution, total[side, target], draw), "uniform").pvalue > ALARM


@pytest.mark.long
@pytest.mark.parametrize("rate", [1.0, 0.5])
def test_a_training_that_follows_its_own_releases_keeps_the_distributions(rate: float) -> None:
    """DP-SGD on a small network: gradients of a round depend on the noise of all rounds before."""
    torch.manual_seed(9)
    module = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3))
    model = StackedModel(module, (3,))
    draw = np.random.default_rng(5)
    trials = 2000
    targets = 6
    rounds = 5
    norm = 0.8
    sigma = 1.6
    features = torch.randn(targets, 3)
    labels = torch.arange(targets) % 3
    models = model.layout.flatten(dict(module.named_parameters())).repeat(trials, 1)
    coins = draw.random((trials, targets)) < 0.5
    total = np.zeros(coins.shape)
    innovations = []
    along = []
    for _ in range(rounds):
        participation = draw.random(coins.shape) < rate
        noise = (sigma * draw.standard_normal(models.shape)).astype(np.float32)
        norms, products = gradient_norms_and_products(model, models, features, labels, torch.from_numpy(noise))
        log_odds = increments(
            products, norms, norm, np.full(trials, sigma), coins, participation, rate, sees_participation=False
        )
        mu = signal_to_noise(norms, norm, np.full(trials, sigma))
        along.append(noise_along_targets(products, norms, np.full(trials, sigma)))
        innovations.append((log_odds - np.where(coins, 1, -1) * mu**2 / 2) / mu)
        total += log_odds
        release = model.clipped_sum(models, features, labels, norm, taking_part=torch.from_numpy(coins & participation))
        models = models - 0.5 * (release + torch.from_numpy(noise))
    assert np.ptp(mu, axis=0).min() > 0.1  # trials went different ways
    for target in range(targets):
        assert kstest(np.stack(along)[:, :, target].ravel(), "norm").pvalue > ALARM
        if rate == 1:
            assert np.stack(along) == pytest.approx(np.stack(innovations), abs=1e-5)
            assert kstest(np.stack(innovations)[:, :, target].ravel(), "norm").pvalue > ALARM
        for side, sign in ((coins[:, target], -1), (~coins[:, target], 1)):
            assert_mean(np.exp(sign * total[side, target]), 1.0)


def test_increments_of_a_hand_written_round() -> None:
    """Clipped from length 4 to 2: <x, g> = -1 / 2 + b 4, and l = (<x, g> - 2) / 9."""
    arguments = {"products": [[-1.0, -1.0]], "norms": [[4.0, 4.0]], "clipping_norm": 2.0, "sigma": [3.0]}
    coins = np.array([[True, False]])
    assert increments(**arguments, is_in=coins)[0] == pytest.approx([1.5 / 9, -2.5 / 9], rel=1e-15)
    out = np.array([[False, True]])
    assert increments(**arguments, is_in=coins, takes_part=out)[0] == pytest.approx([0, -2.5 / 9], rel=1e-15)
    mixed = np.log(0.75 + 0.25 * np.exp(-2.5 / 9))
    assert increments(**arguments, is_in=coins, takes_part=out, sampling_rate=0.25)[0] == pytest.approx([mixed] * 2)
    assert signal_to_noise([[4.0, 1.0]], 2.0, [3.0]).tolist() == [[2 / 3, 1 / 3]]
    assert noise_along_targets([[-1.0, 0.0]], [[4.0, 0.0]], [3.0])[0] == pytest.approx([-1 / 12, np.nan], nan_ok=True)


def test_a_gradient_of_zero_tells_nothing_and_a_certain_absence_no_more_than_the_rate() -> None:
    coins = np.array([[True, False]])
    participation = np.ones((1, 2), dtype=np.bool_)
    for norm in (None, 1.0):
        for rate in (1.0, 0.1):
            log_odds = increments([[0.0, 0.0]], [[0.0, 0.0]], norm, [1.0], coins, participation, rate)
            assert np.abs(log_odds).max() < 1e-15
    far = increments([[-1e6, -1e6]], [[1.0, 1.0]], None, [1e-3], coins, participation, 0.1)
    assert far == pytest.approx(np.log(0.9), rel=1e-15)
