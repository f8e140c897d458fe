"""Client-side DP-SGD: epsilon per client against the accountants and the private loader of Opacus."""

import math
import os
from typing import Any

import numpy as np
import pytest
import torch
from dp_accounting import dp_event
from dp_accounting.pld.pld_privacy_accountant import PLDAccountant
from opacus import PrivacyEngine
from opacus.accountants import PRVAccountant, RDPAccountant
from torch.utils.data import DataLoader, TensorDataset

from fl_audit.errors import InputError
from fl_audit.privacy.accounting import Accountant, client_epsilons
from fl_audit.privacy.events import SampledGaussianRelease, batches_per_epoch, local_events
from fl_audit.privacy.gaussian import gdp_epsilon

SHARDS = [50, 120, 1000, 120]


def opacus_epsilon(
    accountant: Any, records: int, batch: int, steps: int, z: float, delta: float, **how: float
) -> float:
    accountant.history = [(z, 1 / math.ceil(records / batch), steps)]
    return float(accountant.get_epsilon(delta, **how))


@pytest.mark.long
@pytest.mark.parametrize("z", [0.8, 1.5])
def test_rdp_is_that_of_opacus_over_all_rounds(z: float) -> None:
    found = client_epsilons(SHARDS, 20, 5, z, 1e-5, Accountant.RDP, epochs=2)
    for records, epsilon in zip(SHARDS, found, strict=True):
        steps = 5 * 2 * math.ceil(records / 20)
        theirs = opacus_epsilon(RDPAccountant(), records, 20, steps, z, 1e-5)
        assert epsilon == pytest.approx(theirs, rel=1e-9)
    assert found[1] == found[3]


def test_pld_is_that_of_opacus_prv_accountant() -> None:
    """Opacus reports the upper end of an interval of width 2 x 0.005; so the two differ by that at most."""
    found = client_epsilons(SHARDS[:2], 10, 5, 1.2, 1e-4, Accountant.PLD, steps=7)
    for records, epsilon in zip(SHARDS, found, strict=False):
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
    found = client_epsilons([records], batch, 1, 1.3, 1e-5, Accountant.RDP, epochs=2)
    assert found[0] == pytest.approx(engine.get_epsilon(1e-5), rel=1e-9)


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
        abs(client_epsilons([records], batch, rounds, z, 1e-5, Accountant.PLD, epochs=1)[0] - other)
        for records, batch, rounds, z in random_settings(int(os.environ.get("FL_AUDIT_CLIENT_SETTINGS", "3")))
        for other in [theirs(records, batch, rounds, z, 1e-5)]
    ]
    assert max(apart) < 1e-3, max(apart)


def test_a_shard_of_one_batch_is_not_sampled() -> None:
    found = client_epsilons([8], 10, 4, 2.0, 1e-5, Accountant.GDP, steps=9)
    assert found == (gdp_epsilon(1e-5, 6 / 2.0),)
    with pytest.raises(InputError, match=r"^gdp .*without sampling"):
        client_epsilons([80], 10, 4, 2.0, 1e-5, Accountant.GDP, steps=9)


def test_refusals() -> None:
    for how in ({}, {"epochs": 1, "steps": 1}):
        with pytest.raises(InputError, match=r"^epochs is .*exactly one"):
            local_events(10, 5, 1, 1.0, **how)
    for name, arguments in (("records", (0, 5, 1)), ("batch", (10, 0, 1)), ("rounds", (10, 5, 0))):
        with pytest.raises(InputError, match=f"^{name} is 0: .* 1 to 1e15$"):
            local_events(*arguments, 1.0, steps=1)
    for name in ("epochs", "steps"):
        with pytest.raises(InputError, match=f"^{name} is 0"):
            local_events(10, 5, 1, 1.0, **{name: 0})
