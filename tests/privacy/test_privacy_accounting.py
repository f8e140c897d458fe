import math

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent
from dp_accounting.pld import privacy_loss_distribution
from dp_accounting.rdp import RdpAccountant
from hypothesis import given, settings
from hypothesis import strategies as st
from opacus.accountants.analysis.rdp import compute_rdp
from scipy.integrate import quad

from fl_audit.errors import InputError
from fl_audit.privacy.accounting import Accountant, epsilon_of_mu, mu_of_epsilon
from fl_audit.privacy.gaussian import gaussian_mu, gdp_delta, gdp_epsilon, gdp_mu
from fl_audit.privacy.renyi import RDP_ORDERS, _rdp_mu
from tests.few_examples import examples


def log_delta_by_integral(eps: float, mu: float) -> float:
    """log delta from phi(a) * integral of e^{-a u - u^2/2} (1 - e^{-mu u}) du: no difference of tails at all."""
    a = eps / mu - mu / 2
    peak = max(0.0, -a)
    log_scale = a * a / 2 if a < 0 else 0.0

    def integrand(u: float) -> float:
        return math.exp(-a * u - u * u / 2 - log_scale) * -math.expm1(-mu * u)

    value = quad(integrand, 0, peak + 45, points=[peak, peak + 1 / (1 + abs(a))], limit=500, epsabs=0, epsrel=1e-12)[0]
    return -a * a / 2 - 0.5 * math.log(2 * math.pi) + log_scale + math.log(value)


@pytest.mark.few_cases(8)
@pytest.mark.parametrize("mu", [1e-4, 1e-2, 0.3, 1.0, 5.0, 30.0, 1e3])
@pytest.mark.parametrize("tail", [-3.0, 0.0, 0.5, 3.0, 12.0, 36.0])
def test_gdp_delta_agrees_with_an_integral_without_cancellation(mu: float, tail: float) -> None:
    eps = mu * (tail + mu / 2)
    if eps < 0:
        eps = 0.0
    assert math.log(gdp_delta(eps, mu)) == pytest.approx(log_delta_by_integral(eps, mu), abs=1e-9)


@pytest.mark.few_cases(1)
@pytest.mark.parametrize(("mu", "delta"), [(0.1, 1e-5), (1.0, 1e-5), (1.0, 1e-2), (4.0, 1e-8)])
def test_gdp_agrees_with_the_privacy_loss_distribution(mu: float, delta: float) -> None:
    pld = privacy_loss_distribution.from_gaussian_mechanism(1 / mu, value_discretization_interval=1e-4)
    assert gdp_epsilon(delta, mu) == pytest.approx(pld.get_epsilon_for_delta(delta), abs=3e-4)


def test_gdp_is_below_renyi_accounting_and_classic_above() -> None:
    for noise_multiplier in (2.0, 10.0, 50.0):
        accountant = RdpAccountant(orders=RDP_ORDERS.tolist())
        accountant.compose(GaussianDpEvent(noise_multiplier), 30)
        improved = accountant.get_epsilon(0.001)
        assert epsilon_of_mu(Accountant.GDP, gaussian_mu(noise_multiplier, 30), 0.001) < improved
        assert improved <= epsilon_of_mu(Accountant.RDP_CLASSIC, math.sqrt(30) / noise_multiplier, 0.001)


@given(st.floats(1e-4, 1e3), st.floats(-300, -0.01))
@settings(max_examples=examples(200), deadline=None, derandomize=True)
def test_gdp_epsilon_delta_and_mu_invert_each_other(mu: float, exponent: float) -> None:
    delta = 10.0**exponent
    eps = gdp_epsilon(delta, mu)
    if eps == 0:
        assert gdp_delta(0.0, mu) <= delta * (1 + 1e-9)
        return
    assert math.log(gdp_delta(eps, mu)) == pytest.approx(math.log(delta), abs=1e-8)
    assert gdp_mu(eps, delta) == pytest.approx(mu, rel=1e-9)


def test_gdp_edges() -> None:
    assert gdp_delta(1.0, 0.0) == 0.0
    assert gdp_epsilon(1e-5, 0.0) == 0.0
    assert gdp_epsilon(1e-5, math.inf) == math.inf
    assert gdp_epsilon(0.39, 1.0) == 0.0
    assert gdp_delta(0.0, gdp_mu(0.0, 0.2)) == pytest.approx(0.2, rel=1e-12)
    assert gdp_mu(1e-12, 1e-6) == pytest.approx(gdp_mu(0.0, 1e-6), rel=1e-3)


def test_classic_reproduces_the_noise_of_the_smallest_beliefs() -> None:
    for belief, delta, noise_multiplier in ((0.52, 0.01, 404.84), (0.53, 0.001, 329.03)):
        found = math.sqrt(30) / _rdp_mu(Accountant.RDP_CLASSIC, math.log(belief / (1 - belief)), delta)
        assert found == pytest.approx(noise_multiplier, abs=0.005)


def test_classic_orders_and_renyi_divergences_are_the_published_ones() -> None:
    orders = [1 + x / 10.0 for x in range(1, 100)] + list(range(12, 64))
    assert RDP_ORDERS.tolist() == orders
    divergences = compute_rdp(q=1.0, noise_multiplier=9.95, steps=30, orders=orders)
    expected = min(np.array(divergences) + math.log(1000) / (np.array(orders) - 1))
    assert epsilon_of_mu(Accountant.RDP_CLASSIC, math.sqrt(30) / 9.95, 0.001) == pytest.approx(expected, rel=1e-12)


@pytest.mark.long
@given(st.floats(1e-3, 50), st.floats(-12, -0.1), st.sampled_from(list(Accountant)))
@settings(max_examples=examples(100), deadline=None, derandomize=True)
def test_mu_of_epsilon_inverts_every_accountant(mu: float, exponent: float, accountant: Accountant) -> None:
    delta = 10.0**exponent
    eps = epsilon_of_mu(accountant, mu, delta)
    if eps > 0:
        assert mu_of_epsilon(accountant, eps, delta) == pytest.approx(mu, rel=1e-6)


def test_rounds_compose_as_one_release() -> None:
    assert epsilon_of_mu(Accountant.GDP, gaussian_mu(4.0, 16), 0.01) == gdp_epsilon(0.01, 1.0)


@pytest.mark.parametrize(
    ("noise_multiplier", "rounds", "delta", "said"),
    [
        (0.0, 1, 0.1, "multiplier is 0.0"),
        (math.nan, 1, 0.1, "multiplier is nan"),
        (1.0, 0, 0.1, "rounds is 0"),
        (1.0, 1, 0.0, "delta is 0.0"),
        (1.0, 1, 1.0, "delta is 1.0"),
    ],
)
def test_wrong_numbers_are_named(noise_multiplier: float, rounds: int, delta: float, said: str) -> None:
    for accountant in Accountant:
        with pytest.raises(InputError, match=said):
            epsilon_of_mu(accountant, gaussian_mu(noise_multiplier, rounds), delta)
