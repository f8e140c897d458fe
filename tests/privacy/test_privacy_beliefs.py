"""The largest belief of the insider: closed forms, the minimum over epsilon, and the worst adaptive strategies.

The worst strategy against a threshold spends its budget mu^2 of squared signal-to-noise ratios while the log-odds are
under it and stops once they pass. With infinitely many rounds the log-odds are a Brownian motion with drift 1/2 that is
stopped at the threshold; with few rounds a backward induction finds the best allotment.
"""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.special import ndtr
from scipy.stats import norm

from fl_audit.adjacency import Adjacency
from fl_audit.privacy.events import GaussianRelease, RandomizedResponse, ReleaseEvent, SampledGaussianRelease
from fl_audit.privacy.gaussian import gdp_delta
from fl_audit.privacy.identifiability_bounds import (
    SignalToNoiseAdaptivity,
    gaussian_belief_bound,
    gaussian_log_odds_bound,
    mu_from_belief,
)
from fl_audit.privacy.pld import loss_curves
from tests.builders.refusals import assert_refused
from tests.privacy.passing import gaussian_passing_probability, passing_probability, survival

FIXED = SignalToNoiseAdaptivity.FIXED
ADAPTIVE = SignalToNoiseAdaptivity.ADAPTIVE
Array = NDArray[np.float64]


def least_over_epsilons(mu: float, threshold: float) -> float:
    """The smallest delta(eps) / (1 - e^(eps - t)) over a fine grid of eps from 0 to t."""
    epsilons = np.linspace(0, threshold, 4001)[:-1]
    deltas = np.array([gdp_delta(float(epsilon), mu) for epsilon in epsilons])
    return float(np.min(deltas / -np.expm1(epsilons - threshold)))


def stopped_at(mu: float, threshold: float) -> float:
    """P(max over s <= mu^2 of W_s + s/2 > t): the reflection principle with drift."""
    return float(ndtr(mu / 2 - threshold / mu) + math.exp(threshold) * ndtr(-mu / 2 - threshold / mu))


@pytest.mark.parametrize(("mu", "delta"), [(0.2, 1e-3), (0.6, 1e-3), (1.0, 1e-5), (3.0, 0.01), (0.5, 0.2)])
def test_the_bound_is_the_least_over_all_epsilons(mu: float, delta: float) -> None:
    threshold = gaussian_log_odds_bound(mu, delta, ADAPTIVE)
    assert least_over_epsilons(mu, threshold) == pytest.approx(delta, rel=1e-5)
    assert gaussian_passing_probability(mu, threshold, ADAPTIVE) == pytest.approx(delta, rel=1e-9)


@given(st.floats(1e-3, 30), st.floats(-9, -0.05))
@settings(derandomize=True)
def test_the_worst_strategy_lies_between_the_fixed_distribution_and_the_bound(mu: float, exponent: float) -> None:
    delta = 10.0**exponent
    fixed, adaptive = (gaussian_log_odds_bound(mu, delta, kind) for kind in (FIXED, ADAPTIVE))
    assert fixed < adaptive
    if fixed > 0:
        assert norm.sf(fixed, mu * mu / 2, mu) == pytest.approx(delta, rel=1e-6)
        assert stopped_at(mu, fixed) > delta
    assert stopped_at(mu, adaptive) < delta
    for kind in SignalToNoiseAdaptivity:
        threshold = gaussian_log_odds_bound(mu, delta, kind)
        assert gaussian_passing_probability(mu, threshold, kind) == pytest.approx(delta, rel=1e-6)


@given(st.floats(0.02, 0.95), st.floats(0.01, 0.99), st.floats(1e-9, 0.9), st.sampled_from(SignalToNoiseAdaptivity))
@settings(derandomize=True)
def test_mu_from_belief_is_the_largest_that_keeps_it(
    prior: float, share: float, delta: float, kind: SignalToNoiseAdaptivity
) -> None:
    belief = prior + (1 - prior) * share
    mu = mu_from_belief(belief, delta, kind, prior)
    assert gaussian_belief_bound(mu, delta, kind, prior) == pytest.approx(belief, abs=1e-9)
    assert gaussian_belief_bound(mu * 1.001, delta, kind, prior) > belief


def test_extremes() -> None:
    for delta in (1e-300, 1e-3, 0.999):
        assert gaussian_log_odds_bound(0.0, delta, ADAPTIVE) == pytest.approx(0, abs=1e-10)
        assert math.isfinite(gaussian_log_odds_bound(1e50, delta, ADAPTIVE))
    assert gaussian_passing_probability(1.0, -0.1, ADAPTIVE) == 1
    assert gaussian_passing_probability(1.0, 1e-12, ADAPTIVE) == pytest.approx(1)
    assert gaussian_passing_probability(0.0, 0.1, ADAPTIVE) == 0
    assert_refused(r"belief is 0\.5", mu_from_belief, 0.5, 0.1, ADAPTIVE)
    assert_refused("mu is -1", gaussian_log_odds_bound, -1.0, 0.1, ADAPTIVE)


def best_allotment(mu: float, threshold: float, rounds: int) -> float:
    """The largest P(L > t | D) over all ways of choosing each round's ratio, at most mu / sqrt(rounds), from L so far.

    Backward induction on a grid of log-odds: in a round with ratio m the log-odds move by N(m^2/2, m^2). The ratios
    that are tried are shares of the largest one; 0 is among them, so that the value of a passed threshold is 1. The
    expectations are integrals of an interpolated value function by Gauss-Hermite quadrature.
    """
    nodes, weights = np.polynomial.hermite_e.hermegauss(41)
    weights = weights / weights.sum()
    grid = np.linspace(threshold - 8 * mu, threshold + 1.0, 1201)
    largest = mu / math.sqrt(rounds)
    value: Array = ndtr((grid - threshold) / largest + largest / 2)  # the last round, with all that is left
    value = np.where(grid > threshold, 1.0, value)
    for _ in range(rounds - 1):
        tried = [np.where(grid > threshold, 1.0, value)]
        for share in (0.5, 0.8, 1.0):
            ratio = share * largest
            moved = grid[:, None] + ratio * ratio / 2 + ratio * nodes
            tried.append(np.interp(moved, grid, value) @ weights)
        value = np.max(tried, axis=0)
    return float(np.interp(0.0, grid, value))


def test_backward_induction_passes_the_fixed_distribution_and_not_the_bound() -> None:
    delta, rounds = 0.001, 30
    mu = mu_from_belief(0.9, delta, FIXED)
    fixed = math.log(9)
    best = best_allotment(mu, fixed, rounds)
    assert delta * 1.15 < best < stopped_at(mu, fixed)
    adaptive = gaussian_log_odds_bound(mu, delta, ADAPTIVE)
    assert best_allotment(mu, adaptive, rounds) < stopped_at(mu, adaptive) < delta
    # More and smaller rounds come closer to the limit.
    assert best < best_allotment(mu, fixed, 120) < stopped_at(mu, fixed)


def share_that_passes(events: SampledGaussianRelease, threshold: float, trials: int, present: bool, seed: int) -> float:
    """Share of trials whose log-odds are over the threshold when those that pass it take no further part.

    The log-odds are those of the training set that was really used; `present` says whether it has the unit.
    """
    random = np.random.default_rng(seed)
    q = events.sampling_rate
    z = events.noise_multiplier
    log_odds = np.zeros(trials)
    for _ in range(events.count):
        running = log_odds <= threshold
        participation = (random.random(trials) < q) & present
        answer = participation + z * random.standard_normal(trials)
        increment = np.log1p(q * np.expm1((2 * answer - 1) / (2 * z * z)))
        log_odds += np.where(running, increment if present else -increment, 0.0)
    return float(np.mean(log_odds > threshold))


@pytest.mark.long
@pytest.mark.parametrize(("q", "z", "delta"), [(1.0, 8.506, 0.02), (0.3, 2.0, 0.02)])
def test_stopping_when_the_insider_is_sure_passes_the_fixed_distribution(q: float, z: float, delta: float) -> None:
    """200,000 trials, five standard errors (8 % of delta): a false alarm in 3 of 10 million seeds."""
    release = SampledGaussianRelease(z, q, 30)
    curves = loss_curves((release,), Adjacency.ADD_REMOVE_RECORD)
    trials = 200_000
    error = 5 * math.sqrt(delta / 200_000)
    for threshold, adaptive in ((curves.quantile(delta), False), (curves.composed_quantile(delta), True)):
        passed = max(share_that_passes(release, threshold, trials, present, 3) for present in (True, False))
        assert passed < delta + error if adaptive else passed > delta + error


@pytest.mark.parametrize(
    "event", [SampledGaussianRelease(1.0, 0.05, 60), SampledGaussianRelease(0.7, 0.3, 5), GaussianRelease(1.0, 2.0, 3)]
)
@pytest.mark.parametrize("adjacency", [Adjacency.ADD_REMOVE_CLIENT, Adjacency.REPLACE_RECORD])
def test_the_bound_of_a_loss_distribution_is_the_least_over_epsilons(event: ReleaseEvent, adjacency: Adjacency) -> None:
    curves = loss_curves((event,), adjacency)
    for delta in (1e-6, 1e-3, 0.05):
        threshold = curves.composed_quantile(delta)
        epsilons = np.linspace(0, threshold, 2001)[:-1]
        bounds = [
            min(curve.delta(float(epsilon)) / -math.expm1(epsilon - threshold) for epsilon in epsilons)
            for curve in curves.curves
        ]
        assert max(bounds) == pytest.approx(delta, rel=1e-4)
        assert delta * (1 - 1e-6) <= max(bounds)
        assert passing_probability(curves, threshold) == pytest.approx(delta, rel=1e-6)
        assert curves.quantile(delta) <= threshold
        if isinstance(event, GaussianRelease):
            mu = math.sqrt(event.count) / event.noise_multiplier
            exact = gaussian_log_odds_bound(mu, delta, ADAPTIVE)
            assert exact - 1e-12 <= threshold <= exact + curves.error


def test_quantiles_are_not_lowered_by_the_grid() -> None:
    """Two answers whose losses lie on no common grid: the largest sum of losses is an atom, which the grid splits."""
    events = (RandomizedResponse(0.5), RandomizedResponse(0.37), RandomizedResponse(0.113))
    curves = loss_curves(events, Adjacency.REPLACE_RECORD)
    largest = math.fsum(event.epsilon for event in events)
    probability = math.prod(1 / (1 + math.exp(-event.epsilon)) for event in events)
    for share in (0.3, 0.6, 0.9, 0.99):
        assert curves.quantile(probability * share) >= largest - 1e-9
    assert survival(curves, largest - 1e-9) >= probability


def test_quantiles_of_sampled_beliefs_waste_little() -> None:
    """Against the closed form, as sampling vanishes: less than 3 % of delta is given away on the finest grid."""
    rounds, mu = 30, 0.8
    event = SampledGaussianRelease(math.sqrt(rounds) / mu, 1 - 1e-13, rounds)
    for delta in (1e-6, 1e-3):
        coarse, fine = (
            loss_curves((event,), Adjacency.REPLACE_RECORD, points).quantile(delta) for points in (200, 800)
        )
        spent = [float(norm.sf(threshold, mu * mu / 2, mu)) / delta for threshold in (coarse, fine)]
        assert 0.9 < spent[0] < spent[1] <= 1
        assert spent[1] > 0.97
