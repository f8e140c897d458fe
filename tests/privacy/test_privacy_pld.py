"""Privacy loss distributions: never under the truth, above it by the stated error at most, equal to dp-accounting's."""

import itertools
import math

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, LaplaceDpEvent, PoissonSampledDpEvent
from dp_accounting.pld import PLDAccountant, privacy_loss_distribution
from dp_accounting.privacy_accountant import NeighboringRelation
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, norm

from fl_audit.adjacency import Adjacency
from fl_audit.errors import InputError
from fl_audit.privacy.accounting import Accountant, PrivacyProfile, account
from fl_audit.privacy.claim import Claim
from fl_audit.privacy.events import (
    GaussianRelease,
    LaplaceRelease,
    RandomizedResponse,
    ReleaseEvent,
    SampledGaussianRelease,
    gaussian_rounds,
)
from fl_audit.privacy.gaussian import gdp_delta, gdp_epsilon
from fl_audit.privacy.guarantee import derive_guarantee
from fl_audit.privacy.loss_distributions import _GaussianLoss
from fl_audit.privacy.pld import MISPLACED_MASS, loss_curves
from tests.few_examples import examples
from tests.privacy.passing import survival

ADD_REMOVE = Adjacency.ADD_REMOVE_RECORD
DELTAS = (1e-8, 1e-5, 1e-3, 0.1)
ROUNDING = 1e-12


def outcome(eps: float, q: float, z: float) -> float:
    """The outcome x, in units of the sensitivity, of which the loss is eps: 1 - q + q e^((2x-1)/(2z^2)) = e^eps."""
    inner = math.expm1(eps) + q
    return -math.inf if inner <= 0 else z * z * math.log(inner / q) + 0.5


def sampled_delta(eps: float, q: float, z: float) -> float:
    """delta of one Poisson-sampled Gaussian release, the worse direction, in closed form."""
    x = outcome(eps, q, z)
    remove = (1 - q) * norm.sf(x / z) + q * norm.sf((x - 1) / z) - math.exp(eps) * norm.sf(x / z)
    x = outcome(-eps, q, z)
    add = norm.cdf(x / z) - math.exp(eps) * ((1 - q) * norm.cdf(x / z) + q * norm.cdf((x - 1) / z))
    return float(max(remove, add))


def response_delta(eps: float, step_epsilon: float, count: int) -> float:
    """delta of repeated randomized response: the true answers are binomial."""
    truth = 1 / (1 + math.exp(-step_epsilon))
    true = np.arange(count + 1)
    loss = step_epsilon * (2 * true - count)
    return float(np.sum(binom.pmf(true, count, truth) * np.maximum(0.0, -np.expm1(eps - loss))))


@pytest.mark.parametrize("mu", [1e-3, 0.05, 1.0, 6.0, 200.0])
def test_gaussian_noise_against_the_closed_form(mu: float) -> None:
    curves = loss_curves((GaussianRelease(mu, 1.0),), ADD_REMOVE)
    for delta in DELTAS:
        exact = gdp_epsilon(delta, mu)
        computed_epsilon = curves.epsilon(delta)
        assert exact - ROUNDING <= computed_epsilon <= exact + curves.error
        assert computed_epsilon == pytest.approx(exact, rel=1e-4)
    assert curves.delta(0.0) == pytest.approx(gdp_delta(0.0, mu), rel=1e-6)


@pytest.mark.parametrize("rounds", [30, 5000])
def test_composition_against_the_closed_form_as_sampling_vanishes(rounds: int) -> None:
    z = 1.3 * math.sqrt(rounds)
    mu = 1 / 1.3
    curves = loss_curves((SampledGaussianRelease(z, 1 - 1e-13, rounds),), ADD_REMOVE)
    for delta in (1e-8, 1e-5, 1e-3, 0.1):
        exact = gdp_epsilon(delta, mu)
        computed_epsilon = curves.epsilon(delta)
        assert exact - 1e-9 <= computed_epsilon <= gdp_epsilon(delta - MISPLACED_MASS, mu) + curves.error
        assert computed_epsilon == pytest.approx(exact, rel=1e-4)
    for belief in (1.0, 2.0, 3.0):
        exact = norm.sf(belief, mu * mu / 2, mu)
        assert (
            exact
            <= survival(curves, belief)
            <= norm.sf(belief - 2 * curves.slack(MISPLACED_MASS) - 1e-9, mu * mu / 2, mu) + 1e-10
        )


@pytest.mark.few_cases(2)
@pytest.mark.parametrize(("q", "z"), [(0.01, 0.3), (0.5, 1.0), (0.1, 20.0), (1e-4, 0.7), (0.9, 0.1), (0.3, 1e3)])
def test_one_sampled_release_against_the_closed_form(q: float, z: float) -> None:
    curves = loss_curves((SampledGaussianRelease(z, q),), ADD_REMOVE)
    ceiling = curves.epsilon(1e-9)
    for eps in np.linspace(0, ceiling, 9):
        exact = sampled_delta(float(eps), q, z)
        computed_delta = curves.delta(float(eps))
        assert exact - 1e-14 <= computed_delta
        assert computed_delta <= sampled_delta(max(0.0, float(eps) - curves.error), q, z) + 1e-13
    thresholds = np.linspace(-math.log1p(-q) * -0.9, ceiling, 7)
    for threshold in thresholds:
        x = outcome(float(threshold), q, z)
        low = outcome(-float(threshold), q, z)
        remove = (1 - q) * norm.sf(x / z) + q * norm.sf((x - 1) / z)
        assert survival(curves, float(threshold)) >= max(remove, norm.cdf(low / z)) - 1e-14


@pytest.mark.parametrize(("step_epsilon", "count"), [(0.5, 1), (0.5, 5), (1e-4, 200), (3.0, 40)])
def test_randomized_response_against_the_binomial(step_epsilon: float, count: int) -> None:
    curves = loss_curves((RandomizedResponse(step_epsilon, count),), ADD_REMOVE)
    for eps in np.linspace(0, step_epsilon * count, 7):
        assert curves.delta(float(eps)) == pytest.approx(
            response_delta(float(eps), step_epsilon, count), rel=1e-6, abs=1e-11
        )
        assert curves.delta(float(eps)) >= response_delta(float(eps), step_epsilon, count) - 1e-14
    assert curves.epsilon(2e-11) <= step_epsilon * count * (1 + 1e-9)


@pytest.mark.parametrize("sensitivity", [0.01, 1.0, 12.0])
def test_laplace_noise_against_the_closed_form(sensitivity: float) -> None:
    curves = loss_curves((LaplaceRelease(sensitivity, 1.0),), ADD_REMOVE)
    for eps in np.linspace(0, sensitivity * 1.2, 9):
        exact = max(0.0, -math.expm1((float(eps) - sensitivity) / 2))
        assert (
            exact - 1e-14
            <= curves.delta(float(eps))
            <= max(0.0, -math.expm1((eps - sensitivity) / 2)) + 1e-5 * sensitivity
        )


COMPOSITIONS: list[tuple[ReleaseEvent, ...]] = [
    (SampledGaussianRelease(1.0, 0.01, 1000),),
    (SampledGaussianRelease(0.6, 0.3, 3), GaussianRelease(1.0, 5.0, 4)),
    (LaplaceRelease(1.0, 4.0, 10), GaussianRelease(2.0, 3.0)),
]


@pytest.mark.long
@pytest.mark.parametrize("events", COMPOSITIONS)
def test_equal_to_dp_accounting_within_the_stated_errors(events: tuple[ReleaseEvent, ...]) -> None:
    theirs = PLDAccountant(value_discretization_interval=1e-4)
    width = 1e-4
    for event in events:
        match event:
            case GaussianRelease():
                theirs.compose(GaussianDpEvent(event.noise_multiplier), event.count)
            case SampledGaussianRelease(z, q, count):
                theirs.compose(PoissonSampledDpEvent(q, GaussianDpEvent(z)), count)
            case LaplaceRelease():
                theirs.compose(LaplaceDpEvent(event.scale / event.sensitivity), event.count)
    curves = loss_curves(events, ADD_REMOVE)
    count = sum(event.count for event in events)
    for delta in (1e-6, 1e-5, 1e-3, 0.1):
        expected = theirs.get_epsilon(delta)
        assert abs(curves.epsilon(delta) - expected) <= curves.error + width * math.sqrt(14 * count)
        assert curves.epsilon(delta) == pytest.approx(expected, rel=1e-4)
    assert curves.delta(0.5) == pytest.approx(theirs.get_delta(0.5), rel=1e-4)


def test_replaced_records_are_those_of_dp_accounting() -> None:
    theirs = privacy_loss_distribution.from_gaussian_mechanism(
        2.0, sampling_prob=0.1, neighboring_relation=NeighboringRelation.REPLACE_ONE
    ).self_compose(30)
    curves = loss_curves((SampledGaussianRelease(1.0, 0.1, 30),), Adjacency.REPLACE_RECORD)
    for delta in (1e-6, 1e-3):
        assert curves.epsilon(delta) == pytest.approx(theirs.get_epsilon_for_delta(delta), rel=1e-4)
    nearly = loss_curves((SampledGaussianRelease(4.0, 1 - 1e-13, 16),), Adjacency.REPLACE_RECORD)
    assert nearly.epsilon(1e-5) == pytest.approx(gdp_epsilon(1e-5, 1.0), rel=1e-4)


@pytest.mark.long
@pytest.mark.parametrize(("q", "z", "count"), [(0.05, 0.8, 20), (0.5, 3.0, 8)])
def test_never_under_the_optimistic_distribution(q: float, z: float, count: int) -> None:
    optimistic = privacy_loss_distribution.from_gaussian_mechanism(
        z, sampling_prob=q, pessimistic_estimate=False, use_connect_dots=False, value_discretization_interval=1e-4
    ).self_compose(count)
    for delta in (1e-6, 1e-3):
        computed_epsilon = loss_curves((SampledGaussianRelease(z, q, count),), ADD_REMOVE).epsilon(delta)
        assert optimistic.get_epsilon_for_delta(delta) <= computed_epsilon


def test_distribution_of_the_log_odds_against_simulation() -> None:
    q = 0.2
    z = 1.0
    rounds = 12
    runs = 300_000
    rng = np.random.default_rng(5)
    curves = loss_curves((SampledGaussianRelease(z, q, rounds),), ADD_REMOVE)
    totals = []
    for present in (True, False):
        total = np.zeros(runs)
        for _ in range(rounds):
            participation = (rng.random(runs) < q) if present else np.zeros(runs)
            x = participation + z * rng.standard_normal(runs)
            loss = np.log1p(q * np.expm1((2 * x - 1) / (2 * z * z)))
            total += loss if present else -loss
        totals.append(total)
    for threshold in (0.5, 1.5, 2.5):
        frequency = max(float(np.mean(total > threshold)) for total in totals)
        at_most = max(float(np.mean(total > threshold - 2 * curves.slack(MISPLACED_MASS))) for total in totals)
        error = 5 * math.sqrt(frequency / runs)
        assert frequency - error <= survival(curves, threshold) <= at_most + error


@given(st.floats(0.3, 8), st.floats(1e-3, 0.95), st.integers(1, 300), st.floats(-7, -1))
@settings(max_examples=examples(15), derandomize=True)
def test_never_above_renyi_accounting_and_monotone(z: float, q: float, rounds: int, exponent: float) -> None:
    delta = 10.0**exponent

    def found(noise: float, rate: float, count: int) -> float:
        return account(PrivacyProfile((SampledGaussianRelease(noise, rate, count),), ADD_REMOVE), Accountant.PLD, delta)

    here = found(z, q, rounds)
    assert (
        here
        <= account(PrivacyProfile((SampledGaussianRelease(z, q, rounds),), ADD_REMOVE), Accountant.RDP, delta) + 1e-9
    )
    assert here <= gdp_epsilon(delta, math.sqrt(rounds) / z) * (1 + 1e-4) + 1e-9
    assert found(z * 1.1, q, rounds) <= here + 1e-9
    assert found(z, q * 0.9, rounds) <= here + 1e-9
    assert found(z, q, rounds + max(1, rounds // 10)) >= here - 1e-9


@pytest.mark.long
def test_extremes_are_finite_and_monotone_or_refused() -> None:
    answers: dict[tuple[Accountant, float, float, int, float], float] = {}
    grid = ((1.0, 1e-4), (0.05, 1e4), (1, 10**6), (1e-300, 1e-5, 0.1))
    for q, z, rounds, delta in itertools.product(*grid):
        for accountant in Accountant:
            try:
                guarantee = derive_guarantee(Claim(ADD_REMOVE, gaussian_rounds(z, rounds, q), delta, 0.5, accountant))
            except InputError as refusal:
                assert (accountant is Accountant.GDP and q < 1) or (accountant is Accountant.PLD and delta < 1e-10)
                assert str(accountant) in str(refusal)  # noqa: PT017
                continue
            assert math.isfinite(guarantee.epsilon)
            assert guarantee.epsilon >= 0
            assert 0.5 <= guarantee.belief_bound <= 1
            assert 0 <= guarantee.advantage_bound_exact <= 1
            answers[accountant, q, z, rounds, delta] = guarantee.epsilon
    for (accountant, q, z, rounds, delta), epsilon in answers.items():
        for setting in (
            (accountant, q, 1e4, rounds, delta),
            (accountant, q, z, 1, delta),
            (accountant, 1e-4, z, rounds, delta),
            (accountant, q, z, rounds, 0.1),
        ):
            if setting in answers:
                assert answers[setting] <= epsilon * (1 + 1e-9) + 1e-12


# --- Distributions of the privacy loss of one release keep all mass, and never place it at a smaller loss


@pytest.mark.parametrize("interval", [0.001, 0.01, 0.5])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("replaced", [False, True])
@pytest.mark.parametrize(("mu", "rate"), [(0.05, 0.001), (0.05, 0.3), (1.0, 0.4), (4.0, 0.01)])
def test_masses_sum_to_one_and_the_mean_loss_is_not_too_small(
    mu: float, rate: float, replaced: bool, reverse: bool, interval: float
) -> None:
    loss = _GaussianLoss(mu, rate, replaced)
    distribution = loss.masses(interval, reverse)
    assert distribution.probabilities.sum() + distribution.infinity == pytest.approx(1.0, abs=1e-14)
    # The exact mean, by quadrature over the outcomes of the release.
    x = np.linspace(-12.0 - mu, 12.0 + mu, 200_001)
    up, down = (mu / 2, -mu / 2) if replaced else (mu, 0.0)
    p = (1 - rate) * norm.pdf(x) + rate * norm.pdf(x, up)
    q = (1 - rate) * norm.pdf(x) + rate * norm.pdf(x, down)
    first, second = (q, p) if reverse else (p, q)
    mean = float(np.sum(first * np.log(first / second)) * (x[1] - x[0]))
    grid = (distribution.first + np.arange(distribution.probabilities.size)) * interval
    assert float(grid @ distribution.probabilities) >= mean - 1e-9
    assert math.isfinite(mean)
