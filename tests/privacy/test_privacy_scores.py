import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from fl_audit.privacy.accounting import Accountant
from fl_audit.privacy.gaussian import gdp_delta, gdp_mu
from fl_audit.privacy.identifiability_bounds import (
    SignalToNoiseAdaptivity,
    epsilon_from_advantage,
    epsilon_from_belief,
    gaussian_advantage,
    gaussian_belief_bound,
    mu_from_advantage,
    mu_from_belief,
    rho_alpha,
    rho_beta,
)
from fl_audit.privacy.renyi import _rdp_mu


@pytest.mark.parametrize(
    ("delta", "beliefs", "epsilons", "advantages"),
    [
        (0.01, (0.52, 0.75, 0.9, 0.99), ("0.08", "1.1", "2.2", "4.6"), ("0.01", "0.14", "0.28", "0.54")),
        (0.001, (0.53, 0.75, 0.9, 0.99), ("0.12", "1.1", "2.2", "4.6"), ("0.01", "0.12", "0.23", "0.46")),
    ],
)
def test_table_3_of_the_paper_in_printed_digits(
    delta: float, beliefs: tuple[float, ...], epsilons: tuple[str, ...], advantages: tuple[str, ...]
) -> None:
    for belief, eps, advantage in zip(beliefs, epsilons, advantages, strict=True):
        epsilon = epsilon_from_belief(belief)
        assert f"{epsilon:.{len(eps) - 2}f}" == eps
        assert f"{rho_alpha(epsilon, delta):.2f}" == advantage


@given(st.floats(0, 30), st.floats(1e-6, 1 - 1e-6))
@settings(derandomize=True)
def test_beliefs_invert(eps: float, prior: float) -> None:
    belief = rho_beta(eps, prior)
    assert belief == pytest.approx(prior * math.exp(eps) / (prior * math.exp(eps) + 1 - prior), rel=1e-9)
    if prior < belief < 1 - 1e-4:
        assert epsilon_from_belief(belief, prior) == pytest.approx(eps, abs=1e-9)


@given(st.floats(1e-6, 8), st.floats(1e-9, 0.5))
@settings(derandomize=True)
def test_advantages_invert(eps: float, delta: float) -> None:
    advantage = rho_alpha(eps, delta)
    assert advantage == pytest.approx(2 * norm.cdf(eps / (2 * math.sqrt(2 * math.log(1.25 / delta)))) - 1, abs=1e-12)
    assert epsilon_from_advantage(advantage, delta) == pytest.approx(eps, rel=1e-6)


@given(st.floats(1e-4, 8))
@settings(derandomize=True)
def test_gaussian_advantage_is_the_total_variation(mu: float) -> None:
    assert gaussian_advantage(mu) == pytest.approx(gdp_delta(0.0, mu), rel=1e-9)
    assert mu_from_advantage(gaussian_advantage(mu)) == pytest.approx(mu, rel=1e-7)


def test_simulated_insider_has_the_gaussian_advantage_and_passes_the_bound_with_probability_delta() -> None:
    rng = np.random.default_rng(11)
    mu = 1.3
    delta = 0.05
    prior = 0.3
    runs = 400_000
    log_odds = rng.normal(mu**2 / 2, mu, runs)
    assert 2 * np.mean(log_odds > 0) - 1 == pytest.approx(gaussian_advantage(mu), abs=5 / math.sqrt(runs))
    posterior = prior * np.exp(log_odds) / (prior * np.exp(log_odds) + 1 - prior)
    passed = np.mean(posterior > gaussian_belief_bound(mu, delta, SignalToNoiseAdaptivity.FIXED, prior))
    assert passed == pytest.approx(delta, abs=5 * math.sqrt(delta / runs))


@given(st.floats(0.02, 0.95), st.floats(0.01, 0.99), st.floats(1e-9, 0.9))
@settings(derandomize=True)
def test_mu_from_belief_is_the_largest_that_keeps_it(prior: float, share: float, delta: float) -> None:
    belief = prior + (1 - prior) * share
    mu = mu_from_belief(belief, delta, SignalToNoiseAdaptivity.FIXED, prior)
    threshold = math.log(belief / (1 - belief)) - math.log(prior / (1 - prior))

    def passed(candidate: float) -> float:
        return float(norm.sf(threshold, candidate**2 / 2, candidate))

    assert passed(mu) == pytest.approx(delta, rel=1e-7)
    assert passed(mu * 0.999) < delta < passed(mu * 1.001)
    assert gaussian_belief_bound(mu, delta, SignalToNoiseAdaptivity.FIXED, prior) == pytest.approx(belief, abs=1e-9)


def test_epsilon_delta_dp_alone_does_not_bound_the_belief() -> None:
    mu = gdp_mu(math.log(9), 0.001)
    assert norm.sf(math.log(9), mu**2 / 2, mu) == pytest.approx(0.0052, abs=0.00005)
    classic = _rdp_mu(Accountant.RDP_CLASSIC, math.log(9), 0.001)
    assert norm.sf(math.log(9), classic**2 / 2, classic) < 0.001


def test_where_theorem_3_does_not_hold() -> None:
    for eps in (0.21, 0.3, 0.44):
        assert gaussian_advantage(_rdp_mu(Accountant.RDP_CLASSIC, eps, 0.001)) > rho_alpha(eps, 0.001)
    for eps in (1.0, 2.2, 4.6):
        assert gaussian_advantage(_rdp_mu(Accountant.RDP_CLASSIC, eps, 0.001)) < rho_alpha(eps, 0.001)
        assert gaussian_advantage(gdp_mu(eps, 0.001)) > rho_alpha(eps, 0.001)
