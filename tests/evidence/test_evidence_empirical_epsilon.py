import math

import numpy as np
import pytest

from fl_audit.errors import InputError
from fl_audit.evidence.empirical_epsilon import (
    epsilon_from_largest_belief,
    epsilon_from_measured_advantage,
    epsilon_from_sensitivities,
)
from fl_audit.privacy.accounting import RDP_CLASSIC_ORDERS, Accountant, epsilon, gdp_epsilon
from fl_audit.privacy.scores import rho_alpha


@pytest.mark.parametrize("accountant", list(Accountant))
def test_sensitivities_under_local_noise_give_the_promise_back(accountant: Accountant) -> None:
    signal = np.full((5, 30), 1 / 9.95)
    assert epsilon_from_sensitivities(signal, 0.001, accountant) == pytest.approx(epsilon(accountant, 9.95, 30, 0.001))


def test_unequal_rounds_compose_order_by_order() -> None:
    signal = np.random.default_rng(1).uniform(0, 0.3, (40, 12))
    by_world = [
        min(sum(order * mu**2 / 2 for mu in row) + math.log(100) / (order - 1) for order in RDP_CLASSIC_ORDERS)
        for row in signal
    ]
    found = epsilon_from_sensitivities(signal, 0.01, Accountant.RDP_CLASSIC)
    assert found == pytest.approx(max(by_world), rel=1e-12)
    exact = epsilon_from_sensitivities(signal, 0.01, Accountant.GDP)
    assert exact == pytest.approx(max(gdp_epsilon(0.01, math.hypot(*row)) for row in signal), rel=1e-9)


def test_rounds_without_signal_cost_nothing() -> None:
    assert epsilon_from_sensitivities(np.zeros((3, 4)), 0.01, Accountant.GDP) == 0.0


def test_largest_belief_does_not_saturate_and_takes_the_prior_out() -> None:
    assert epsilon_from_largest_belief(np.array([-3.0, 2.5, 1.0])) == 2.5
    assert epsilon_from_largest_belief(np.array([800.0])) == 800.0
    assert epsilon_from_largest_belief(np.array([-3.0, -0.1])) == 0.0
    belief, prior = 0.95, 0.2
    posterior = math.log(belief / (1 - belief))
    expected = math.log(belief / (1 - belief) / (prior / (1 - prior)))
    assert epsilon_from_largest_belief(np.array([posterior]), prior) == pytest.approx(expected)


def test_advantage_inverts_theorem_3() -> None:
    assert epsilon_from_measured_advantage(rho_alpha(1.7, 0.01), 0.01) == pytest.approx(1.7)
    expected = 2 * math.sqrt(2 * math.log(125)) * 0.305481  # with the standard normal quantile of 0.62
    assert epsilon_from_measured_advantage(0.24, 0.01) == pytest.approx(expected, rel=1e-5)
    assert epsilon_from_measured_advantage(0.0, 0.01) == 0.0
    assert epsilon_from_measured_advantage(-0.3, 0.01) == 0.0
    assert epsilon_from_measured_advantage(1.0, 0.01) == math.inf


def test_wrong_input_is_named() -> None:
    with pytest.raises(InputError, match=r"signal is -1\.0"):
        epsilon_from_sensitivities(np.array([[0.1, -1.0]]), 0.01, Accountant.GDP)
    with pytest.raises(InputError, match="signal is nan"):
        epsilon_from_sensitivities(np.array([[0.1, math.nan]]), 0.01, Accountant.GDP)
    with pytest.raises(InputError, match="signal has shape"):
        epsilon_from_sensitivities(np.zeros(3), 0.01, Accountant.GDP)
    with pytest.raises(InputError, match="log-odds contain NaN"):
        epsilon_from_largest_belief(np.array([math.nan]))
    with pytest.raises(InputError, match="number of worlds is 0"):
        epsilon_from_largest_belief(np.array([]))
    with pytest.raises(InputError, match=r"advantage is 1\.5"):
        epsilon_from_measured_advantage(1.5, 0.01)
    with pytest.raises(InputError, match="delta is 0"):
        epsilon_from_measured_advantage(-0.1, 0.0)
