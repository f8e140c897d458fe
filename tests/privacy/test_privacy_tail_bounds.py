"""Deltas that rounding hides: `pld` bounds epsilon and beliefs from above, and never refuses."""

import math
from itertools import pairwise

import pytest
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.special import logsumexp
from scipy.stats import norm

from fl_audit.adjacency import Adjacency
from fl_audit.api.guarantees import account, calibrate
from fl_audit.privacy.events import GaussianRelease, LaplaceRelease, RandomizedResponse, SampledGaussianRelease
from fl_audit.privacy.pld import _epsilon_bound, _log_odds_bound, loss_curves
from fl_audit.privacy.renyi import RDP_ORDERS, renyi_divergences

ADD_REMOVE = Adjacency.ADD_REMOVE_RECORD
REPLACE = Adjacency.REPLACE_RECORD
MIXED = (SampledGaussianRelease(1.0, 0.1, 30), LaplaceRelease(1.0, 5.0, 3), RandomizedResponse(0.1, 2))


def one_release(z: float, q: float, delta: float) -> float:
    """Return epsilon of one sampled release where the unit comes or goes, by its closed form."""

    def gap(epsilon: float) -> float:
        at = z * z * math.log((math.expm1(epsilon) + q) / q) + 0.5  # the point at which the loss is epsilon
        terms = [math.log1p(-q) + norm.logsf(at / z), math.log(q) + norm.logsf((at - 1) / z)]
        below = epsilon + norm.logsf(at / z)
        log_mass = float(logsumexp(terms))
        return log_mass + math.log(-math.expm1(min(below - log_mass, -1e-300))) - math.log(delta)

    return float(brentq(gap, 1e-6, 60))


@pytest.mark.few_cases(4)
@pytest.mark.parametrize("delta", [1e-8, 1e-12, 1e-16, 1e-30])
@pytest.mark.parametrize(("z", "q"), [(1.0, 0.01), (0.7, 0.2), (2.0, 0.1)])
def test_the_bound_is_above_the_closed_form_of_one_release(z: float, q: float, delta: float) -> None:
    bound = _epsilon_bound((SampledGaussianRelease(z, q),), ADD_REMOVE, delta)
    exact = one_release(z, q, delta)
    assert exact <= bound <= 2.2 * exact


@pytest.mark.parametrize("adjacency", [ADD_REMOVE, REPLACE])
@pytest.mark.parametrize(("z", "q", "rounds"), [(1.0, 0.01, 100), (3.0, 0.3, 20), (0.6, 0.05, 400)])
def test_the_bounds_are_above_the_curves_where_these_resolve(
    z: float, q: float, rounds: int, adjacency: Adjacency
) -> None:
    events = (SampledGaussianRelease(z, q, rounds),)
    curves = loss_curves(events, adjacency)
    for delta in (1e-3, 1e-6, 1e-9):
        assert curves.epsilon(delta) - curves.error <= _epsilon_bound(events, adjacency, delta)
        assert curves.quantile(delta) - curves.slack(1e-12) <= _log_odds_bound(events, adjacency, delta)
    assert _epsilon_bound(events, adjacency, 1e-9) < 1.6 * curves.epsilon(1e-9)


def test_every_delta_is_answered_and_smaller_ones_cost_more() -> None:
    for events in (MIXED, MIXED[1:], MIXED[:1], (GaussianRelease(1.0, 2.0, 3),)):
        for adjacency in (ADD_REMOVE, REPLACE):
            curves = loss_curves(events, adjacency)
            deltas = (1e-10, 1e-12, 1e-20, 1e-300)
            answers = [curves.epsilon(delta) for delta in deltas]
            assert all(epsilon <= next_epsilon + curves.error for epsilon, next_epsilon in pairwise(answers))
            assert math.isfinite(answers[-1])
            assert answers[-1] <= curves.composed_quantile(deltas[-1]) < math.inf


@pytest.mark.long
@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_a_sampled_guarantee_at_a_tiny_delta_is_kept(adjacency: Adjacency) -> None:
    for target in ({"epsilon": 2.0}, {"belief": 0.9}, {"advantage": 0.1}):
        guarantee = calibrate(100, 1e-12, adjacency=adjacency, sampling_rate=0.01, accountant="pld", **target)
        (name, value), noise = next(iter(target.items())), guarantee.noise_multiplier
        bounds = {
            "epsilon": guarantee.epsilon,
            "belief": guarantee.belief_bound,
            "advantage": guarantee.advantage_bound_exact,
        }
        assert bounds[name] <= value
        assert noise is not None
        assert noise < calibrate(100, 1e-12, adjacency=adjacency, **target).noise_multiplier
        assert "bounded from above" in guarantee.remark
    assert account(1.0, 30, 1e-5, adjacency=adjacency, sampling_rate=0.1).remark == ""


@pytest.mark.parametrize(("z", "q"), [(1.0, 0.1), (0.4, 0.3), (0.005, 0.5)])
def test_divergences_of_replaced_units_are_those_of_a_quadrature(z: float, q: float) -> None:
    divergences = renyi_divergences((SampledGaussianRelease(z, q),), None, REPLACE)
    s = 1 / (2 * z)

    def mixture(u: float, side: int) -> float:
        return float(logsumexp([math.log1p(-q), math.log(q) + side * s * u - s * s / 2]))

    for index in (3, 60, 120):
        order = RDP_ORDERS[index]

        def exponent(u: float, order: float = order) -> float:
            return order * mixture(u, 1) + (1 - order) * mixture(u, -1) - u * u / 2

        largest = max(exponent(u) for u in (0.0, order * s))
        moment, _ = quad(
            lambda u, top=largest: math.exp(exponent(u) - top) / math.sqrt(2 * math.pi),
            -14,
            order * s + 14,
            points=[0, order * s],
            limit=2000,
            epsabs=0,
            epsrel=1e-11,
        )
        expected = (math.log(moment) + largest) / (order - 1)
        if z > 0.015:
            assert divergences[index] == pytest.approx(expected, rel=1e-9)
        else:
            assert expected * (1 - 1e-9) <= divergences[index] <= expected * 1.01
