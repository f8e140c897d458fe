"""The distribution of the log-odds: closed forms, sums over participations, quadrature, and the mechanism itself
simulated.

Kolmogorov-Smirnov tests here raise a false alarm with probability 1e-4 each, once and for all: seeds are fixed.
"""

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.integrate import quad
from scipy.special import logsumexp
from scipy.stats import binom, kstest, norm

from fl_audit.adjacency import Adjacency, Relation
from fl_audit.privacy.accounting import PrivacyProfile
from fl_audit.privacy.events import (
    GaussianRelease,
    RandomizedResponse,
    ReleaseEvent,
    SampledGaussianRelease,
    gaussian_rounds,
)
from fl_audit.privacy.gaussian import combined_multiplier
from fl_audit.privacy.log_odds_distribution import NormalLogOdds, TrueHypothesis, log_odds_distribution
from tests.builders.log_odds import uniforms

ALARM = 1e-4
ADD_REMOVE = Adjacency.ADD_REMOVE_RECORD
REPLACE = Adjacency.REPLACE_CLIENT


def simulated(
    z: float, q: float, rounds: int, sees_participation: bool, adjacency: Adjacency, truth: TrueHypothesis, runs: int
) -> NDArray[np.float64]:
    """Log-odds of the mechanism: noise N(0, 1), contributions of the unit of D and of D', coins of participation."""
    rng = np.random.default_rng(runs + rounds)
    of_d, of_d_prime = (1 / z, 0.0) if adjacency.relation is Relation.ADD_REMOVE else (0.5 / z, -0.5 / z)
    total = np.zeros(runs)
    for _ in range(rounds):
        coins = rng.random(runs) < q
        released = coins * (of_d if truth is TrueHypothesis.PRESENT else of_d_prime) + rng.standard_normal(runs)
        if sees_participation:
            total += coins * (norm.logpdf(released, of_d) - norm.logpdf(released, of_d_prime))
        else:
            weights = np.array([1 - q, q])[:, None]
            densities = [
                logsumexp(norm.logpdf(released, np.array([[0.0], [mean]])), axis=0, b=weights)
                for mean in (of_d, of_d_prime)
            ]
            total += densities[0] - densities[1]
    return total


@pytest.mark.few_cases(2)
@pytest.mark.parametrize("sees_participation", [False, True])
@pytest.mark.parametrize("adjacency", [ADD_REMOVE, REPLACE])
@pytest.mark.parametrize("truth", list(TrueHypothesis))
@pytest.mark.parametrize(("z", "q", "rounds"), [(1.0, 0.2, 6), (0.7, 0.6, 1), (5.0, 0.05, 30)])
def test_simulated_log_odds_follow_the_distribution(
    z: float, q: float, rounds: int, sees_participation: bool, adjacency: Adjacency, truth: TrueHypothesis
) -> None:
    log_odds = simulated(z, q, rounds, sees_participation, adjacency, truth, 10_000)
    distribution = log_odds_distribution(gaussian_rounds(z, rounds, q, sees_participation), adjacency, truth)
    numbers = uniforms(distribution, log_odds, np.random.default_rng(1))
    assert kstest(numbers, "uniform").pvalue > ALARM
    assert distribution.mean == pytest.approx(np.mean(log_odds), abs=4 * np.std(log_odds) / 100)
    for probability in (0.1, 0.5, 0.9):
        assert distribution.cdf(distribution.quantile(probability)) >= probability
        assert np.all(distribution.cdf(distribution.quantile(probability) - 1.5 * distribution.error) <= probability)


def test_the_wrong_distribution_is_noticed() -> None:
    """The two directions differ under secret sampling of a unit that comes or goes; so do seen and secret coins."""
    z = 1.0
    q = 0.2
    rounds = 6
    log_odds = simulated(z, q, rounds, False, ADD_REMOVE, TrueHypothesis.PRESENT, 10_000)
    wrong = [
        log_odds_distribution(gaussian_rounds(z, rounds, q), ADD_REMOVE, TrueHypothesis.ABSENT),
        log_odds_distribution(gaussian_rounds(z, rounds, q), REPLACE, TrueHypothesis.PRESENT),
        log_odds_distribution(gaussian_rounds(z, rounds, q, seen=True), ADD_REMOVE, TrueHypothesis.PRESENT),
        log_odds_distribution(gaussian_rounds(0.9 * z, rounds, q), ADD_REMOVE, TrueHypothesis.PRESENT),
    ]
    for distribution in wrong:
        assert kstest(uniforms(distribution, log_odds, np.random.default_rng(1)), "uniform").pvalue < 1e-6
    mirrored = -distribution_values(ADD_REMOVE, TrueHypothesis.ABSENT)
    assert np.max(np.abs(mirrored[::-1] - distribution_values(ADD_REMOVE, TrueHypothesis.PRESENT))) > 0.1
    np.testing.assert_allclose(
        -distribution_values(REPLACE, TrueHypothesis.ABSENT)[::-1],
        distribution_values(REPLACE, TrueHypothesis.PRESENT),
        atol=0.01,
    )


def distribution_values(adjacency: Adjacency, truth: TrueHypothesis) -> NDArray[np.float64]:
    return log_odds_distribution(gaussian_rounds(1.0, 6, 0.2), adjacency, truth).quantile(np.linspace(0.05, 0.95, 7))


@pytest.mark.parametrize("truth", list(TrueHypothesis))
def test_gaussian_rounds_are_normal(truth: TrueHypothesis) -> None:
    distribution = log_odds_distribution((GaussianRelease(3.0, 6.0, 3), GaussianRelease(1.0, 2.0)), REPLACE, truth)
    assert distribution == NormalLogOdds(1.0, truth)
    exact = norm(0.5 if truth is TrueHypothesis.PRESENT else -0.5, 1.0)
    points = np.linspace(-3, 3, 7)
    np.testing.assert_allclose(distribution.cdf(points), exact.cdf(points), rtol=1e-13)
    np.testing.assert_allclose(distribution.quantile(exact.cdf(points)), points, atol=1e-12)
    assert (distribution.mean, distribution.error) == (exact.mean(), 0.0)
    assert (
        kstest(uniforms(distribution, exact.rvs(10_000, random_state=4), np.random.default_rng()), "uniform").pvalue
        > ALARM
    )


@pytest.mark.parametrize("truth", list(TrueHypothesis))
@pytest.mark.parametrize(("z", "q"), [(1.0, 0.1), (0.5, 0.5), (10.0, 0.9)])
def test_one_secret_release_in_closed_form(z: float, q: float, truth: TrueHypothesis) -> None:
    """L increases with the release x, so P(L <= loss) is a normal probability of the x of that loss."""
    distribution = log_odds_distribution((SampledGaussianRelease(z, q),), ADD_REMOVE, truth)
    mu = 1 / z
    x = np.linspace(-3, 3 + mu, 13)
    loss = np.log1p(q * np.expm1(mu * x - mu * mu / 2))

    def exact(shift: float) -> NDArray[np.float64]:
        with np.errstate(divide="ignore", invalid="ignore"):
            moved = np.log(np.maximum(np.expm1(loss + shift) / q + 1, 0.0)) / mu + mu / 2
        sampled = q * norm.cdf(moved, mu) if truth is TrueHypothesis.PRESENT else q * norm.cdf(moved)
        return np.asarray((1 - q) * norm.cdf(moved) + sampled)

    assert np.all(exact(-distribution.error) - 1e-11 <= distribution.cdf(loss))
    assert np.all(distribution.cdf(loss) <= exact(distribution.error) + 1e-11)
    np.testing.assert_allclose(distribution.cdf(loss[4:]), exact(0.0)[4:], atol=4e-3)

    def weighed(u: float) -> float:
        sampled = norm.pdf(u, mu) if truth is TrueHypothesis.PRESENT else norm.pdf(u)
        return float(((1 - q) * norm.pdf(u) + q * sampled) * np.log1p(q * np.expm1(mu * u - mu * mu / 2)))

    mean = quad(weighed, -9, 9 + mu, epsabs=1e-13, limit=200)[0]
    assert distribution.mean == pytest.approx(mean, abs=distribution.error**2)


@pytest.mark.parametrize(("z", "q", "count"), [(1.0, 0.3, 5), (2.0, 0.05, 20)])
def test_seen_participation_is_a_mixture_of_normals(z: float, q: float, count: int) -> None:
    times = np.arange(1, count + 1)
    weights = binom.pmf(times, count, q)
    atom = (1 - q) ** count
    for sign, truth in ((1, TrueHypothesis.PRESENT), (-1, TrueHypothesis.ABSENT)):
        distribution = log_odds_distribution(gaussian_rounds(z, count, q, seen=True), REPLACE, truth)

        def exact(points: NDArray[np.float64], mean_sign: int = sign) -> NDArray[np.float64]:
            means = mean_sign * times / (2 * z * z)
            deviations = np.sqrt(times) / z
            return np.asarray(atom * (points >= 0) + norm.cdf(points[:, None], means, deviations) @ weights)

        points = np.array([-2.0, -0.5, -0.05, 0.05, 0.5, 2.0])
        assert np.all(exact(points - distribution.error) - 1e-11 <= distribution.cdf(points))
        assert np.all(distribution.cdf(points) <= exact(points + distribution.error) + 1e-11)
        jump = float(distribution.cdf(0.0) - distribution.cdf(-0.4 * distribution.error))
        assert jump == pytest.approx(atom, abs=0.02)
        exact_mean = sign * count * q / (2 * z * z)
        assert distribution.mean == pytest.approx(exact_mean, abs=distribution.error**2)


@pytest.mark.parametrize("truth", list(TrueHypothesis))
def test_randomized_response_keeps_its_atoms(truth: TrueHypothesis) -> None:
    epsilon, count = 0.5, 6
    events: tuple[ReleaseEvent, ...] = (RandomizedResponse(epsilon, count),)
    rng = np.random.default_rng(2)
    distribution = log_odds_distribution(events, ADD_REMOVE, truth)
    truth_probability = 1 / (1 + math.exp(-epsilon if truth is TrueHypothesis.PRESENT else epsilon))
    log_odds = epsilon * (2 * rng.binomial(count, truth_probability, 10_000) - count)
    assert kstest(uniforms(distribution, log_odds, rng), "uniform").pvalue > ALARM


# --- Sum and bit of adaptive clipping as one Gaussian release: closed forms and the product distribution itself


def test_both_releases_compose_to_the_combined_one() -> None:
    two = PrivacyProfile((GaussianRelease(1.0, 1.3), GaussianRelease(0.5, 2.0)), Adjacency.ADD_REMOVE_CLIENT)
    combined_profile = PrivacyProfile(
        (GaussianRelease(1.0, combined_multiplier(1.3, 4.0)),), Adjacency.ADD_REMOVE_CLIENT
    )
    assert two.epsilon(1e-5) == pytest.approx(combined_profile.epsilon(1e-5), rel=1e-12)


def test_the_papers_form() -> None:
    """Andrew et al. 2021, theorem 1: z_sum = (z^-2 - (2 sigma_b)^-2)^(-1/2)."""
    z, sigma_bit = 1.1, 5.0
    z_bit = sigma_bit / Adjacency.ADD_REMOVE_CLIENT.sensitivity_of_sum(0.5)
    z_sum = (z**-2 - (2 * sigma_bit) ** -2) ** -0.5
    assert z_bit == 10.0
    assert combined_multiplier(z_sum, z_bit) == pytest.approx(z, rel=1e-14)
    assert combined_multiplier(3.0) == 3.0


def test_under_sampling_both_are_one_release() -> None:
    """The log-odds of (sum, bit) under one coin have the distribution of those of one release; false alarm rate
    1e-4.
    """
    rng = np.random.default_rng(3)
    runs = 100_000
    q = 0.3
    z_sum = 1.2
    z_bit = 2.5
    coins = rng.random((2, runs)) < q
    ells = []
    for z in (z_sum, z_bit):
        releases = coins[0] / z + rng.standard_normal(runs)
        ells.append(releases / z - 0.5 / z**2)
    joint_log_odds = np.log1p(q * np.expm1(np.sum(ells, axis=0)))
    z = combined_multiplier(z_sum, z_bit)
    combined_log_odds = np.log1p(q * np.expm1((coins[1] / z + rng.standard_normal(runs)) / z - 0.5 / z**2))
    assert kstest(joint_log_odds, combined_log_odds).pvalue > 1e-4
