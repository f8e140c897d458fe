import ast
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from dp_accounting import GaussianDpEvent, dp_event
from dp_accounting.pld import PLDAccountant, privacy_loss_distribution
from dp_accounting.privacy_accountant import NeighboringRelation
from dp_accounting.rdp import RdpAccountant
from hypothesis import given, settings
from hypothesis import strategies as st
from opacus import PrivacyEngine
from opacus.accountants import PRVAccountant, RDPAccountant
from opacus.accountants.analysis.rdp import compute_rdp
from scipy.integrate import quad
from torch.utils.data import DataLoader, TensorDataset

import fl_audit.privacy.independent_epsilon as module
from fl_audit.adjacency import Adjacency
from fl_audit.privacy.accounting import Accountant, PrivacyProfile, client_epsilons, epsilon_of_mu, mu_of_epsilon
from fl_audit.privacy.accounting_enums import NoiseDistribution
from fl_audit.privacy.events import SampledGaussianRelease, batches_per_epoch, gaussian_rounds, local_events
from fl_audit.privacy.gaussian import gaussian_mu, gdp_delta, gdp_epsilon, gdp_mu
from fl_audit.privacy.independent_epsilon import PlayedReleases, independent_epsilon
from fl_audit.privacy.renyi import RDP_ORDERS, _rdp_mu
from tests.builders.refusals import assert_refused
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
@settings(max_examples=examples(200), derandomize=True)
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
        computed_multiplier = math.sqrt(30) / _rdp_mu(Accountant.RDP_CLASSIC, math.log(belief / (1 - belief)), delta)
        assert computed_multiplier == pytest.approx(noise_multiplier, abs=0.005)


def test_classic_orders_and_renyi_divergences_are_the_published_ones() -> None:
    orders = [1 + x / 10.0 for x in range(1, 100)] + list(range(12, 64))
    assert RDP_ORDERS.tolist() == orders
    divergences = compute_rdp(q=1.0, noise_multiplier=9.95, steps=30, orders=orders)
    expected = min(np.array(divergences) + math.log(1000) / (np.array(orders) - 1))
    assert epsilon_of_mu(Accountant.RDP_CLASSIC, math.sqrt(30) / 9.95, 0.001) == pytest.approx(expected, rel=1e-12)


@pytest.mark.long
@given(st.floats(1e-3, 50), st.floats(-12, -0.1), st.sampled_from(list(Accountant)))
@settings(derandomize=True)
def test_mu_of_epsilon_inverts_every_accountant(mu: float, exponent: float, accountant: Accountant) -> None:
    delta = 10.0**exponent
    eps = epsilon_of_mu(accountant, mu, delta)
    if eps > 0:
        assert mu_of_epsilon(accountant, eps, delta) == pytest.approx(mu, rel=1e-6)


def test_rounds_compose_as_one_release() -> None:
    assert epsilon_of_mu(Accountant.GDP, gaussian_mu(4.0, 16), 0.01) == gdp_epsilon(0.01, 1.0)


# --- Tests of the accountant that shares no code with the guarantee, against dp-accounting and against the guarantee's


def _by_dp_accounting(release: PlayedReleases, delta: float) -> float:
    accountant = PLDAccountant(NeighboringRelation.ADD_OR_REMOVE_ONE)
    event = dp_event.GaussianDpEvent(release.multiplier)
    sampled = event if release.rate == 1 else dp_event.PoissonSampledDpEvent(release.rate, event)
    accountant.compose(dp_event.SelfComposedDpEvent(sampled, release.count))
    return float(accountant.get_epsilon(delta))


def _gaussian(multiplier: float, count: int, rate: float = 1.0) -> PlayedReleases:
    return PlayedReleases(multiplier, count, rate, distribution=NoiseDistribution.GAUSSIAN)


RELEASES = (
    _gaussian(4.0, 30),
    _gaussian(0.7, 3),
    _gaussian(1.0, 100, 0.01),
    _gaussian(0.6, 1000, 0.02),
    _gaussian(2.0, 1, 0.5),
    _gaussian(8.0, 30, 0.3),
    _gaussian(1.0, 20000, 0.001),
)


@pytest.mark.few_cases(4)
@pytest.mark.parametrize("release", RELEASES, ids=str)
@pytest.mark.parametrize("delta", [1e-2, 1e-5])
def test_it_agrees_with_dp_accounting(release: PlayedReleases, delta: float) -> None:
    estimate = independent_epsilon([release], delta)
    expected = _by_dp_accounting(release, delta)
    # dp-accounting rounds losses up to a grid of 1e-4, so that it is never too small.
    assert estimate.epsilon <= expected + estimate.error
    assert estimate.epsilon == pytest.approx(expected, rel=2e-3, abs=2e-3)


@pytest.mark.few_cases(4)
@pytest.mark.parametrize("adjacency", [Adjacency.ADD_REMOVE_RECORD, Adjacency.REPLACE_RECORD])
@pytest.mark.parametrize("is_seen", [False, True])
@pytest.mark.parametrize(("z", "rounds", "rate"), [(1.0, 50, 0.1), (3.0, 30, 0.5), (0.8, 500, 0.01), (0.5, 4, 0.9)])
def test_it_agrees_with_the_guarantee(adjacency: Adjacency, is_seen: bool, z: float, rounds: int, rate: float) -> None:
    claimed = PrivacyProfile(gaussian_rounds(z, rounds, rate, is_seen), adjacency)
    is_replaced = adjacency is Adjacency.REPLACE_RECORD
    release = PlayedReleases(z, rounds, rate, is_replaced, is_seen, distribution=NoiseDistribution.GAUSSIAN)
    for delta in (1e-3, 1e-6):
        estimate = independent_epsilon([release], delta)
        assert estimate.epsilon - estimate.error <= claimed.epsilon(delta)
        assert estimate.epsilon == pytest.approx(claimed.epsilon(delta), rel=1e-3, abs=1e-4)
        assert estimate.error < 1e-3 * max(1.0, estimate.epsilon)


def test_it_shares_no_code_with_the_guarantee() -> None:
    tree = ast.parse(Path(module.__file__).read_text())
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name for name in imported if name and name.startswith("fl_audit")} == {
        "fl_audit.array_types",
        "fl_audit.errors",
        "fl_audit.privacy.accounting_enums",
        "fl_audit.value_checks",
    }


# --- Client-side DP-SGD: epsilon per client against the accountants and the private loader of Opacus


SHARDS = [50, 120, 1000, 120]


def opacus_epsilon(
    accountant: Any, records: int, batch: int, steps: int, z: float, delta: float, **options: float
) -> float:
    accountant.history = [(z, 1 / math.ceil(records / batch), steps)]
    return float(accountant.get_epsilon(delta, **options))


@pytest.mark.long
@pytest.mark.parametrize("z", [0.8, 1.5])
def test_rdp_is_that_of_opacus_over_all_rounds(z: float) -> None:
    epsilons = client_epsilons(SHARDS, 20, 5, z, 1e-5, Accountant.RDP, epochs=2)
    for records, epsilon in zip(SHARDS, epsilons, strict=True):
        steps = 5 * 2 * math.ceil(records / 20)
        theirs = opacus_epsilon(RDPAccountant(), records, 20, steps, z, 1e-5)
        assert epsilon == pytest.approx(theirs, rel=1e-9)
    assert epsilons[1] == epsilons[3]


def test_pld_is_that_of_opacus_prv_accountant() -> None:
    """Opacus reports the upper end of an interval of width 2 x 0.005; so the two differ by that at most."""
    epsilons = client_epsilons(SHARDS[:2], 10, 5, 1.2, 1e-4, Accountant.PLD, steps=7)
    for records, epsilon in zip(SHARDS, epsilons, strict=False):
        theirs = opacus_epsilon(PRVAccountant(), records, 10, 35, 1.2, 1e-4, eps_error=0.005)
        assert epsilon <= theirs + 1e-4
        assert epsilon >= theirs - 2 * 0.005 - 1e-4


def test_tighter_than_rdp_and_better_for_larger_shards() -> None:
    pld, rdp = (
        client_epsilons([100, 300], 20, 3, 1.0, 1e-5, accountant, epochs=1)
        for accountant in (Accountant.PLD, Accountant.RDP)
    )
    assert all(tight < loose for tight, loose in zip(pld, rdp, strict=True))
    assert pld[0] > pld[1]


@pytest.mark.parametrize(("records", "batch"), [(50, 10), (51, 10), (7, 10)])
def test_rate_and_steps_are_those_of_a_private_loader(records: int, batch: int) -> None:
    model = torch.nn.Linear(2, 1)
    engine = PrivacyEngine(accountant="rdp")
    model, optimizer, loader = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        data_loader=DataLoader(TensorDataset(torch.zeros(records, 2)), batch_size=batch),
        noise_multiplier=1.3,
        max_grad_norm=1.0,
    )
    for _ in range(2):
        for (inputs,) in loader:
            optimizer.zero_grad()
            model(inputs).sum().backward()
            optimizer.step()
    ((noise, rate, steps),) = engine.accountant.history
    events = local_events(records, batch, 1, noise, epochs=2)
    assert steps == 2 * batches_per_epoch(records, batch)
    if rate < 1:
        assert events == (SampledGaussianRelease(1.3, rate, steps),)
    epsilons = client_epsilons([records], batch, 1, 1.3, 1e-5, Accountant.RDP, epochs=2)
    assert epsilons[0] == pytest.approx(engine.get_epsilon(1e-5), rel=1e-9)


def random_settings(count: int) -> list[tuple[int, int, int, float]]:
    """Return records, batch, rounds and noise multiplier of clients: shards of 5 to 500, 1 to 50 rounds, z .3 to 3."""
    rng = np.random.default_rng(22)
    return [
        (int(rng.integers(5, 501)), int(rng.integers(2, 65)), int(rng.integers(1, 51)), float(rng.uniform(0.3, 3.0)))
        for _ in range(count)
    ]


def theirs(records: int, batch: int, rounds: int, z: float, delta: float) -> float:
    """Return epsilon of one epoch a round by the accountant of dp-accounting."""
    batches = math.ceil(records / batch)
    event: Any = dp_event.GaussianDpEvent(z)
    event = dp_event.PoissonSampledDpEvent(1 / batches, event) if batches > 1 else event
    return float(PLDAccountant().compose(event, rounds * batches).get_epsilon(delta))


@pytest.mark.long
def test_every_client_is_accounted_as_by_dp_accounting() -> None:
    """FL_AUDIT_CLIENT_SETTINGS=200 takes minutes."""
    apart = [
        abs(client_epsilons([records], batch, rounds, z, 1e-5, Accountant.PLD, epochs=1)[0] - expected_epsilon)
        for records, batch, rounds, z in random_settings(int(os.environ.get("FL_AUDIT_CLIENT_SETTINGS", "3")))
        for expected_epsilon in [theirs(records, batch, rounds, z, 1e-5)]
    ]
    assert max(apart) < 1e-3, max(apart)


def test_a_shard_of_one_batch_is_not_sampled() -> None:
    epsilons = client_epsilons([8], 10, 4, 2.0, 1e-5, Accountant.GDP, steps=9)
    assert epsilons == (gdp_epsilon(1e-5, 6 / 2.0),)
    assert_refused(r"^gdp .*without sampling", client_epsilons, [80], 10, 4, 2.0, 1e-5, Accountant.GDP, steps=9)
