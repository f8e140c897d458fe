"""Participation that is seen: every accountant against the sum over how often the unit took part."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, norm

from fl_audit.adjacency import Adjacency
from fl_audit.privacy.accounting import Accountant, PrivacyProfile, account
from fl_audit.privacy.calibration import noise_multiplier_for
from fl_audit.privacy.claim import Claim
from fl_audit.privacy.events import (
    GaussianRelease,
    ReleaseEvent,
    SampledGaussianRelease,
    _with_scaled_noise,
    exact_gaussian_mu,
    full_participation_mu,
    gaussian_rounds,
)
from fl_audit.privacy.gaussian import gdp_delta
from fl_audit.privacy.guarantee import derive_guarantee
from fl_audit.privacy.identifiability_bounds import SignalToNoiseAdaptivity
from fl_audit.privacy.pld import MISPLACED_MASS, loss_curves
from fl_audit.privacy.renyi import RDP_ORDERS, renyi_divergences
from fl_audit.privacy.targets import AdvantageTarget, BeliefTarget, EpsilonTarget
from tests.few_examples import examples
from tests.privacy.passing import survival

SETTINGS = [(1.0, 0.3, 1), (2.0, 0.1, 8), (0.5, 0.7, 3), (4.0, 0.02, 30), (30.0, 0.5, 12)]


def visible_sampling(z: float, q: float, count: int) -> tuple[ReleaseEvent, ...]:
    return (SampledGaussianRelease(z, q, count, seen=True),)


def enumerated_delta(eps: float, z: float, q: float, count: int, extra: float = 0.0) -> float:
    """delta of seen participation: the mean of Gaussian deltas over how often the unit took part."""
    times = np.arange(count + 1)
    deltas = [gdp_delta(eps, math.hypot(math.sqrt(participations) / z, extra)) for participations in times]
    return float(np.dot(binom.pmf(times, count, q), deltas))


def enumerated_survival(loss: float, z: float, q: float, count: int) -> float:
    """P(L > loss) under D."""
    mu = np.sqrt(np.arange(1, count + 1)) / z
    weights = binom.pmf(np.arange(count + 1), count, q)
    return float(weights[0] * (loss < 0) + np.dot(weights[1:], norm.sf(loss, mu**2 / 2, mu)))


@pytest.mark.few_cases(3)
@pytest.mark.parametrize("adjacency", [Adjacency.ADD_REMOVE_RECORD, Adjacency.REPLACE_CLIENT])
@pytest.mark.parametrize(("z", "q", "count"), SETTINGS)
def test_delta_is_the_mean_over_participations(z: float, q: float, count: int, adjacency: Adjacency) -> None:
    curves = loss_curves(visible_sampling(z, q, count), adjacency)
    assert len(curves.curves) == 1
    for eps in np.linspace(0, curves.epsilon(1e-9), 9):
        exact = enumerated_delta(float(eps), z, q, count)
        computed_delta = curves.delta(float(eps))
        assert exact - 1e-13 <= computed_delta
        at_most = enumerated_delta(max(0.0, float(eps) - curves.error), z, q, count)
        assert computed_delta <= at_most * (1 + 1e-6) + 2 * MISPLACED_MASS
        assert computed_delta == pytest.approx(exact, rel=1e-3, abs=1e-10)
    for loss in np.linspace(0.01, 1, 4) * curves.epsilon(1e-6):
        slack = 2 * curves.slack(MISPLACED_MASS)
        at_most = enumerated_survival(float(loss) - slack, z, q, count)
        assert enumerated_survival(float(loss), z, q, count) <= survival(curves, float(loss)) <= at_most + 1e-10


def test_composed_with_other_releases() -> None:
    events = (*visible_sampling(1.5, 0.4, 5), GaussianRelease(1.0, 2.0))
    curves = loss_curves(events, Adjacency.REPLACE_RECORD)
    for eps in (0.0, 0.5, 2.0, 4.0):
        assert curves.delta(eps) == pytest.approx(enumerated_delta(eps, 1.5, 0.4, 5, extra=0.5), rel=1e-4)
    mixed = (*visible_sampling(1.5, 0.4, 5), SampledGaussianRelease(1.5, 0.4, 5))
    mixed_curves = loss_curves(mixed, Adjacency.ADD_REMOVE_CLIENT)
    alone = loss_curves(mixed[:1], Adjacency.ADD_REMOVE_CLIENT)
    assert len(mixed_curves.curves) == 2
    assert mixed_curves.epsilon(1e-5) > alone.epsilon(1e-5)


@pytest.mark.parametrize(("z", "q", "count"), SETTINGS)
def test_renyi_divergences_are_those_of_the_mixture(z: float, q: float, count: int) -> None:
    times = np.arange(count + 1)
    for adjacency in (Adjacency.ADD_REMOVE_RECORD, Adjacency.REPLACE_RECORD):
        divergences = renyi_divergences(visible_sampling(z, q, count), "rdp", adjacency)
        log_weights = binom.logpmf(times, count, q)
        for order, divergence in zip(RDP_ORDERS, divergences, strict=True):
            moment = np.logaddexp.reduce(log_weights + (order - 1) * order * times / (2 * z * z))
            assert divergence == pytest.approx(moment / (order - 1), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("accountant", [Accountant.PLD, Accountant.RDP, Accountant.RDP_CLASSIC])
@given(st.floats(0.5, 10), st.floats(0.01, 0.9), st.integers(1, 100))
@settings(max_examples=examples(8), derandomize=True)
def test_between_secret_and_certain_participation(accountant: Accountant, z: float, q: float, count: int) -> None:
    secret, visible_epsilon, certain = (
        account(PrivacyProfile(events, Adjacency.ADD_REMOVE_RECORD), accountant, 1e-5)
        for events in (gaussian_rounds(z, count, q), gaussian_rounds(z, count, q, seen=True), gaussian_rounds(z, count))
    )
    assert secret <= visible_epsilon * (1 + 1e-4) + 1e-9
    assert visible_epsilon <= certain * (1 + 1e-4) + 1e-9


def test_what_an_event_says_of_itself() -> None:
    event = visible_sampling(2.0, 0.25, 16)[0]
    assert full_participation_mu(event) == 2.0
    assert exact_gaussian_mu(event) is None
    assert _with_scaled_noise((event,), 3.0) == (SampledGaussianRelease(6.0, 0.25, 16, seen=True),)
    assert exact_gaussian_mu(SampledGaussianRelease(2.0, 1.0, 16, seen=True)) == 2.0


@pytest.mark.parametrize("target", [EpsilonTarget(1.0), BeliefTarget(0.8), AdvantageTarget(0.2)])
@pytest.mark.parametrize("sensitivities", list(SignalToNoiseAdaptivity))
def test_calibrated_noise_keeps_the_target_and_wastes_none(
    target: EpsilonTarget | BeliefTarget | AdvantageTarget, sensitivities: SignalToNoiseAdaptivity
) -> None:
    adjacency = Adjacency.REPLACE_CLIENT
    z = 1.0
    claim = Claim(adjacency, visible_sampling(z, 0.3, 10), 1e-3, 0.5, Accountant.PLD, sensitivities)
    z = noise_multiplier_for(target, claim)
    guarantee, wasted = (derive_guarantee(claim.with_noise(noise)) for noise in (z, 0.995 * z))
    match target:
        case EpsilonTarget(epsilon):
            assert guarantee.epsilon <= epsilon < wasted.epsilon
            assert enumerated_delta(epsilon, z, 0.3, 10) == pytest.approx(1e-3, rel=1e-3)
        case BeliefTarget(belief):
            assert guarantee.belief_bound <= belief < wasted.belief_bound
        case AdvantageTarget(advantage):
            assert guarantee.advantage_bound_exact <= advantage < wasted.advantage_bound_exact
            assert enumerated_delta(0.0, z, 0.3, 10) == pytest.approx(advantage, rel=1e-4)


def test_a_unit_that_rarely_takes_part_needs_hardly_any_noise() -> None:
    """If taking part at all is less likely than delta, every noise keeps epsilon, at any weak noise as well."""
    for z in (0.05, 1.0):
        curves = loss_curves(visible_sampling(z, 1e-6, 3), Adjacency.ADD_REMOVE_CLIENT)
        assert curves.epsilon(1e-5) == 0.0
        assert curves.delta(0.0) == pytest.approx(enumerated_delta(0.0, z, 1e-6, 3), rel=1e-3)
