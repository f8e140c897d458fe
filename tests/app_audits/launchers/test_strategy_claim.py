"""The claim and the clients of `fl-audit strategy`: as its options state them, or as the strategy names them."""

import sys
from dataclasses import replace

import pytest
from flwr.clientapp.mod import LocalDpMod
from flwr.serverapp.strategy import DifferentialPrivacyServerSideAdaptiveClipping, FedAvg, Strategy

from fl_audit.app_audits.black_box.audited_system import AuditedSystem
from fl_audit.app_audits.black_box.trial_messages import Observer
from fl_audit.app_audits.claim_audit.claim import StatedClaim
from fl_audit.app_audits.launchers.isolated_strategy_audit import system_and_claim
from fl_audit.app_audits.trial_options import StrategyOptions
from tests.builders.refusals import assert_refused
from tests.builders.strategies import central_noise

local_noise = LocalDpMod(1.0, 2.0, 4.0, 1e-5)


def private() -> Strategy:
    """Return Flower's wrapper: noise 2 at norm 0.5 for seven clients."""
    return central_noise(2.0, 0.5, 7)


def adaptive() -> Strategy:
    return DifferentialPrivacyServerSideAdaptiveClipping(
        FedAvg(fraction_evaluate=0.0), 1.0, 5, clipped_count_stddev=2.0
    )


def with_local_noise() -> AuditedSystem:
    return AuditedSystem(plain, (local_noise,), observer=Observer.SERVER)


def of_any_size(clients: int) -> Strategy:
    return central_noise(clients=clients)


def plain() -> Strategy:
    return FedAvg(fraction_evaluate=0.0)


def whole_system() -> AuditedSystem:
    return AuditedSystem(private, clients=3, norm=2.0)


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "claims_of_mine", sys.modules[__name__])


def _options(name: str, adjacency: str = "add-remove-client") -> StrategyOptions:
    return StrategyOptions(f"claims_of_mine:{name}", adjacency)


@pytest.mark.parametrize(("adjacency", "over_sensitivity"), [("add-remove-client", 2.0), ("replace-client", 1.0)])
def test_the_strategys_own_noise_is_its_claim(adjacency: str, over_sensitivity: float) -> None:
    """Flower quotes it over the clipping norm, which is half of the sensitivity where a client is replaced."""
    system, claim, source = system_and_claim(replace(_options("private", adjacency), rounds=3))
    assert claim == StatedClaim(adjacency, noise_multiplier=over_sensitivity, rounds=3)
    assert (system.clients, system.norm) == (7, 0.5)
    assert "noise_multiplier = 2" in source


def test_bits_of_an_adaptive_norm_count() -> None:
    """Flower divides multiplier 1 among updates and bits (Andrew et al. 2021, Theorem 1): together they are 1 again."""
    _, claim, _ = system_and_claim(_options("adaptive"))
    assert claim.noise_multiplier == pytest.approx(1.0)


def test_a_stated_claim_and_stated_numbers_stand() -> None:
    wishes = replace(_options("private"), epsilon=3.0, clients=5, clipping_norm=1.5)
    system, claim, source = system_and_claim(wishes)
    assert claim == StatedClaim("add-remove-client", epsilon=3.0)
    assert (system.clients, system.norm, source) == (5, 1.5, "")


def test_a_factory_that_names_its_clients_keeps_them() -> None:
    assert system_and_claim(_options("of_any_size"))[0].clients == 4
    system, claim, _ = system_and_claim(_options("whole_system"))
    assert (system.clients, system.norm) == (3, 2.0)
    assert claim.noise_multiplier == 2.0


def test_local_noise_of_a_system_is_the_claim() -> None:
    system, claim, _ = system_and_claim(_options("with_local_noise"))
    assert (claim.epsilon, claim.delta, system.observer) == (4.0, 1e-5, Observer.SERVER)


@pytest.mark.parametrize(
    ("wishes", "wrong"),
    [
        (_options("plain"), "no noise is named .*--claim-epsilon"),
        (_options("private", "add-remove-record"), "is about clients .*--claim-epsilon"),
        (replace(_options("private"), rounds=0), "rounds are 0"),
    ],
)
def test_a_strategy_without_a_claim_is_refused_in_one_line(wishes: StrategyOptions, wrong: str) -> None:
    assert_refused(wrong, system_and_claim, wishes)
