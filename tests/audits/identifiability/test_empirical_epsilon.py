import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom, norm

from fl_audit.adjacency import Adjacency
from fl_audit.audits.identifiability.bernau_empirical_epsilons import (
    EmpiricalEpsilonEstimate,
    advantage_interval,
    belief_interval,
    epsilon_from_measured_advantage,
    sensitivity_interval,
)
from fl_audit.privacy.accounting import Accountant, account, epsilon_of_mu
from fl_audit.privacy.claim import Claim
from fl_audit.privacy.events import GaussianRelease, LaplaceRelease, gaussian_rounds
from fl_audit.privacy.gaussian import gaussian_mu, gdp_epsilon
from fl_audit.privacy.identifiability_bounds import rho_alpha
from fl_audit.privacy.renyi import RDP_ORDERS
from fl_audit.statistics.advantage import clopper_pearson


def epsilon_of(signal: NDArray[np.float64], delta: float, accountant: Accountant) -> float:
    claim = Claim(Adjacency.REPLACE_RECORD, gaussian_rounds(1.0, 30), delta, 0.5, accountant)
    return sensitivity_interval(signal, claim).epsilon


@pytest.mark.parametrize("accountant", list(Accountant))
def test_sensitivities_under_local_noise_give_the_guarantee_back(accountant: Accountant) -> None:
    signal = np.full((5, 30), 1 / 9.95)
    assert epsilon_of(signal, 0.001, accountant) == pytest.approx(
        epsilon_of_mu(accountant, gaussian_mu(9.95, 30), 0.001)
    )


def test_unequal_rounds_compose_order_by_order() -> None:
    signal = np.random.default_rng(1).uniform(0, 0.3, (40, 12))
    by_trial = [
        min(sum(order * mu**2 / 2 for mu in row) + math.log(100) / (order - 1) for order in RDP_ORDERS)
        for row in signal
    ]
    computed_epsilon = epsilon_of(signal, 0.01, Accountant.RDP_CLASSIC)
    assert computed_epsilon == pytest.approx(max(by_trial), rel=1e-12)
    exact = epsilon_of(signal, 0.01, Accountant.GDP)
    assert exact == pytest.approx(max(gdp_epsilon(0.01, math.hypot(*row)) for row in signal), rel=1e-9)


def test_rounds_without_signal_cost_nothing() -> None:
    assert epsilon_of(np.zeros((3, 4)), 0.01, Accountant.GDP) == 0.0


def test_largest_belief_does_not_saturate() -> None:
    assert belief_interval(np.array([-3.0, 2.5, 1.0]), 0.9).epsilon == 2.5
    assert belief_interval(np.array([800.0]), 0.9).epsilon == 800.0
    assert belief_interval(np.array([-3.0, -0.1]), 0.9).epsilon == 0.0


def test_advantage_inverts_theorem_3() -> None:
    assert epsilon_from_measured_advantage(rho_alpha(1.7, 0.01), 0.01) == pytest.approx(1.7)
    expected = 2 * math.sqrt(2 * math.log(125)) * 0.305481  # with the standard normal quantile of 0.62
    assert epsilon_from_measured_advantage(0.24, 0.01) == pytest.approx(expected, rel=1e-5)
    assert epsilon_from_measured_advantage(0.0, 0.01) == 0.0
    assert epsilon_from_measured_advantage(-0.3, 0.01) == 0.0
    assert epsilon_from_measured_advantage(1.0, 0.01) == math.inf


@pytest.mark.parametrize(
    ("accountant", "sees_participation"), [(Accountant.PLD, False), (Accountant.PLD, True), (Accountant.RDP, False)]
)
def test_sensitivities_of_sampled_releases_are_accounted_as_sampled(
    accountant: Accountant, sees_participation: bool
) -> None:
    claim = Claim(Adjacency.ADD_REMOVE_RECORD, gaussian_rounds(2.0, 30, 0.2, sees_participation), 0.01, 0.5, accountant)
    full = np.full((2, 30), 0.5)
    full[1] /= 2
    full[0, 20:] = 0 if sees_participation else 0.5
    interval = sensitivity_interval(full, claim)
    assert interval.epsilon == pytest.approx(account(claim.profile, accountant, 0.01))
    assert interval.low == pytest.approx(account(claim.with_noise(2.0).profile, accountant, 0.01))
    assert sensitivity_interval(np.zeros((2, 30)), claim).high == 0.0


def test_sensitivities_of_mixed_releases_are_accounted_as_all_of_the_claim() -> None:
    events = (LaplaceRelease(1.0, 4.0, 2), GaussianRelease(1.0, 4.0, 2))
    claim = Claim(Adjacency.ADD_REMOVE_RECORD, events, 0.01, 0.5, Accountant.PLD)
    interval = sensitivity_interval(np.full((2, 2), 0.25), claim)
    assert interval.epsilon == pytest.approx(account(claim.profile, Accountant.PLD, 0.01))


def test_sensitivity_interval_is_the_range_over_trials() -> None:
    signal = np.random.default_rng(2).uniform(0, 0.3, (40, 12))
    by_trial = [epsilon_of(row[None], 0.01, Accountant.GDP) for row in signal]
    rounds = gaussian_rounds(1.0, 12)
    claims = {kind: Claim(Adjacency.REPLACE_RECORD, rounds, 0.01, 0.5, kind) for kind in Accountant}
    interval = sensitivity_interval(signal, claims[Accountant.GDP])
    assert (interval.low, interval.high) == pytest.approx((min(by_trial), max(by_trial)))
    assert (interval.epsilon, interval.confidence) == (interval.high, 1.0)
    assert "not an estimate" in interval.note
    same = sensitivity_interval(np.full((5, 30), 0.1), claims[Accountant.RDP_CLASSIC])
    assert same.low == same.epsilon == same.high


@pytest.mark.parametrize(("trials", "mu"), [(1, 1.0), (50, 0.55), (1000, 2.0)])
def test_largest_belief_falls_into_its_interval(trials: int, mu: float) -> None:
    """4000 runs under the distribution: those below and above the interval are binomial(4000, 0.05) each."""
    rng = np.random.default_rng(3)
    largest = rng.normal(mu**2 / 2, mu, (4000, trials)).max(axis=1)
    interval = belief_interval(rng.normal(mu**2 / 2, mu, trials), 0.9, mu)
    lowest_count, highest_count = (binom.ppf(tail, 4000, 0.05) for tail in (1e-5, 1 - 1e-5))
    assert lowest_count <= np.sum(largest > interval.high) <= highest_count
    if interval.low > 0:
        assert lowest_count <= np.sum(largest < interval.low) <= highest_count


def test_belief_interval_grows_with_the_trials_and_says_so() -> None:
    intervals = [belief_interval(np.zeros(n), 0.95, 1.0) for n in (1, 30, 1000, 10**6)]
    assert [interval.low for interval in intervals] == sorted({interval.low for interval in intervals})
    assert [interval.high for interval in intervals] == sorted({interval.high for interval in intervals})
    for interval in (*intervals, belief_interval(np.zeros(3), 0.95)):
        assert "number of trials" in interval.note


@pytest.mark.parametrize("trials", [5, 200])
def test_without_a_distribution_the_median_of_the_largest_is_bounded_from_below(trials: int) -> None:
    """2000 runs: lower ends above the true median are at most binomial(2000, 0.1)."""
    rng = np.random.default_rng(4)
    median = norm.ppf(0.5 ** (1 / trials))
    intervals = [belief_interval(rng.normal(size=trials), 0.9) for _ in range(2000)]
    assert sum(interval.low > median for interval in intervals) <= binom.ppf(1 - 1e-4, 2000, 0.1)
    assert all(interval.high == math.inf and interval.low <= interval.epsilon for interval in intervals)
    assert np.mean([interval.low for interval in intervals]) > (0.15 if trials == 5 else 1.7)


def test_advantage_interval_puts_clopper_pearson_through_eq_6() -> None:
    low, high = clopper_pearson(613, 1000, 0.95)
    interval = advantage_interval(613, 1000, 0.01, 0.95)
    assert rho_alpha(interval.low, 0.01) == pytest.approx(2 * low - 1)
    assert rho_alpha(interval.high, 0.01) == pytest.approx(2 * high - 1)
    assert interval.epsilon == pytest.approx(epsilon_from_measured_advantage(0.226, 0.01))
    assert "Eq. (6)" in interval.note
    assert advantage_interval(10, 10, 0.01, 0.95).high == math.inf
    assert advantage_interval(0, 10, 0.01, 0.95) == EmpiricalEpsilonEstimate(0.0, 0.0, 0.0, 0.95, interval.note)
