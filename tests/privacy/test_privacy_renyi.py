"""Renyi accounting with sampling: Table 3 of Bernau et al. 2019, opacus, and a quadrature by another rule."""

import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opacus.accountants import RDPAccountant
from opacus.accountants.analysis.rdp import compute_rdp, get_privacy_spent
from scipy.integrate import quad

from fl_audit.adjacency import Adjacency
from fl_audit.privacy.accounting import Accountant, PrivacyProfile, account, epsilon_of_mu
from fl_audit.privacy.events import GaussianRelease, SampledGaussianRelease
from fl_audit.privacy.gaussian import gaussian_mu
from fl_audit.privacy.renyi import RDP_ORDERS, renyi_divergences
from tests.few_examples import examples

NOISE = (0.5, 2.0, 4.0, 6.0, 16.0)

# Bernau et al. 2019, Table 3, CDP epsilon at z = 0.5, 2, 4, 6, 16, printed with one digit. Columns that training to the
# last epoch gives; entries in `STOPPED` are those that early stopping lowered, with what full training would give.
TABLE_3 = {
    ("LFW", 20): (84.3, 4.8, 2.1, 1.3, 0.5),
    ("LFW", 50): (70.4, 3.9, 1.7, 0.8, 0.4),
    ("LFW", 100): (62.4, 3.4, 1.5, 1.0, 0.3),
    ("Purchases", 10): (88.1, 4.6, 2.0, 1.3, 0.4),
    ("Purchases", 20): (88.1, 4.1, 1.8, 1.2, 0.4),
    ("Purchases", 50): (88.1, 4.1, 1.8, 1.2, 0.4),
    ("Purchases", 100): (88.1, 4.1, 1.8, 1.2, 0.3),
}
STOPPED = {
    ("LFW", 50, 6.0): 1.123,
    **{("Purchases", classes, 2.0): 4.556 for classes in (20, 50, 100)},
    **{("Purchases", classes, 4.0): 2.046 for classes in (20, 50, 100)},
    **{("Purchases", classes, 6.0): 1.327 for classes in (20, 50, 100)},
    ("Purchases", 100, 16.0): 0.483,
}
# Records, batch, epochs. The rest of an epoch that fills no batch is dropped, from the records as well: LFW's 368, 544
# and 720 are multiples of 16, and of the 8000 Purchases 7936 = 62 x 128 remain.
SETTINGS = {
    ("LFW", 20): (368, 16, 110),
    ("LFW", 50): (544, 16, 110),
    ("LFW", 100): (720, 16, 110),
    **{("Purchases", classes): (8000, 128, 200) for classes in (10, 20, 50, 100)},
}


@pytest.mark.parametrize("column", list(TABLE_3))
def test_table_3_of_bernau_2019(column: tuple[str, int]) -> None:
    records, batch, epochs = SETTINGS[column]
    batches = records // batch
    delta = 1 / (batches * batch)
    for noise_multiplier, printed in zip(NOISE, TABLE_3[column], strict=True):
        release = SampledGaussianRelease(noise_multiplier, 1 / batches, epochs * batches)
        computed_epsilon = account(
            PrivacyProfile((release,), Adjacency.ADD_REMOVE_RECORD), Accountant.RDP_CLASSIC, delta
        )
        full = STOPPED.get((*column, noise_multiplier))
        if full is None:
            assert computed_epsilon == pytest.approx(printed, abs=0.1)
        else:
            assert computed_epsilon == pytest.approx(full, abs=0.0006)
            assert printed < computed_epsilon - 0.1


@pytest.mark.parametrize(("sampling_rate", "noise_multiplier"), [(0.01, 1.0), (0.2, 0.5), (0.05, 4.0), (0.9, 2.0)])
def test_divergences_are_those_of_opacus(sampling_rate: float, noise_multiplier: float) -> None:
    divergences = renyi_divergences(
        (SampledGaussianRelease(noise_multiplier, sampling_rate, 7),), "rdp", Adjacency.ADD_REMOVE_RECORD
    )
    theirs = compute_rdp(q=sampling_rate, noise_multiplier=noise_multiplier, steps=7, orders=RDP_ORDERS.tolist())
    np.testing.assert_allclose(divergences, theirs, rtol=1e-9, atol=7 * 1e-12 / 0.1)  # opacus stops its series at 1e-13


@pytest.mark.few_cases(6)
@pytest.mark.parametrize(("q", "z"), [(0.01, 0.5), (0.5, 50.0), (0.001, 1e4), (0.3, 1.0)])
@pytest.mark.filterwarnings("ignore::scipy.integrate.IntegrationWarning")
@pytest.mark.parametrize("index", [0, 9, 45, 98])
def test_divergences_are_their_integral(q: float, z: float, index: int) -> None:
    order = float(RDP_ORDERS[index])

    def integrand(u: float) -> float:
        exponent = order * math.log1p(q * math.expm1(u / z - 0.5 / z**2))
        if exponent > 1:
            return (math.exp(exponent - u * u / 2) - math.exp(-u * u / 2)) / math.sqrt(2 * math.pi)
        return math.exp(-u * u / 2) / math.sqrt(2 * math.pi) * math.expm1(exponent)

    centre = order / z
    points = [0.0, centre, centre - 6, centre + 6]
    moment = quad(integrand, -14, centre + 14, points=points, limit=800, epsabs=0, epsrel=1e-11)[0]
    divergence = renyi_divergences((SampledGaussianRelease(z, q),), "rdp", Adjacency.ADD_REMOVE_RECORD)[index]
    assert divergence == pytest.approx(math.log1p(moment) / (order - 1), rel=1e-6)


@pytest.mark.parametrize(
    ("q", "z", "steps", "delta"), [(0.01, 1.0, 1000, 1e-5), (0.1, 2.0, 30, 1e-3), (1.0, 3.0, 9, 1e-6)]
)
def test_rdp_is_opacus(q: float, z: float, steps: int, delta: float) -> None:
    theirs = RDPAccountant()
    theirs.history = [(z, q, steps)]
    assert RDP_ORDERS.tolist() == theirs.DEFAULT_ALPHAS
    profile = PrivacyProfile((SampledGaussianRelease(z, q, steps),), Adjacency.ADD_REMOVE_RECORD)
    assert account(profile, Accountant.RDP, delta) == pytest.approx(theirs.get_epsilon(delta), rel=1e-9)


@given(st.floats(0.3, 50), st.integers(1, 10**6), st.floats(-12, -1))
@settings(max_examples=examples(50), derandomize=True)
def test_rdp_without_sampling_is_opacus(z: float, rounds: int, exponent: float) -> None:
    divergences = np.asarray(compute_rdp(q=1.0, noise_multiplier=z, steps=rounds, orders=RDP_ORDERS.tolist()))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs, _ = get_privacy_spent(orders=RDP_ORDERS.tolist(), rdp=divergences, delta=10.0**exponent)
    computed_epsilon = epsilon_of_mu(Accountant.RDP, gaussian_mu(z, rounds), 10.0**exponent)
    assert computed_epsilon == pytest.approx(max(theirs, 0.0), rel=1e-9, abs=1e-12)


def test_releases_add_up_order_by_order() -> None:
    sampled = SampledGaussianRelease(1.5, 0.02, 40)
    plain = GaussianRelease(2.0, 30.0, 5)
    together = renyi_divergences((sampled, plain), "rdp", Adjacency.ADD_REMOVE_RECORD)
    apart = renyi_divergences((sampled,), "rdp", Adjacency.ADD_REMOVE_RECORD) + RDP_ORDERS * 5 / 15**2 / 2
    np.testing.assert_allclose(together, apart, rtol=1e-14)


@pytest.mark.parametrize("q", [1e-6, 0.004, 0.5])
def test_the_bound_for_weak_noise_meets_the_integral(q: float) -> None:
    """Just above the switch the integral is used and just below it Minkowski's bound, which is never smaller."""
    above, below = (
        renyi_divergences((SampledGaussianRelease(z, q),), "rdp", Adjacency.ADD_REMOVE_RECORD)
        for z in (0.03, 0.03 * (1 - 1e-9))
    )
    assert np.all(below >= above)
    assert below == pytest.approx(above, rel=1e-7)


def test_weak_noise_is_accounted_at_once_and_monotone() -> None:
    profiles = [
        PrivacyProfile((SampledGaussianRelease(z, 0.01, 5),), Adjacency.ADD_REMOVE_RECORD)
        for z in (1e-9, 1e-3, 0.029, 0.031, 0.1)
    ]
    for accountant in (Accountant.RDP, Accountant.RDP_CLASSIC):
        epsilons = [account(profile, accountant, 1e-3) for profile in profiles]
        assert epsilons == sorted(epsilons, reverse=True)
        assert np.all(np.isfinite(epsilons))
