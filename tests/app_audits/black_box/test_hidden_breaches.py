"""Breaches that hide from one place, one start, others of one length, or one length over the rounds."""

from dataclasses import replace

import numpy as np
import pytest

from fl_audit.app_audits.black_box.black_box_trial import BlackBoxTrial
from fl_audit.app_audits.black_box.scenario import Scenario
from fl_audit.app_audits.black_box.scenarios import BY_NAME, kinds_of
from fl_audit.app_audits.black_box.system_audit import audit_system
from fl_audit.app_audits.black_box.trial_chunks import target_places
from fl_audit.app_audits.claim_audit.claim_audit_results import TrialBudget
from fl_audit.randomness import Purpose, generator
from fl_audit.verdict.verdict import Verdict
from tests.validation.faulty_mechanisms.catalogue import FAULTY_MECHANISMS
from tests.validation.faulty_mechanisms.honest_twins import CENTRAL, SHORT_RUN, HonestMechanism, system
from tests.validation.faulty_mechanisms.mechanism import Mechanism

pytestmark = pytest.mark.usefixtures("small_working_directory")
HIDDEN = {
    "clipped-model": "huge, non-zero model",
    "median-length-as-norm": "removed, lengths around a median, many",
    "clipping-factor-of-the-last-round": "small, then huge",
    "client-counted-twice": "removed",
}
"""Faulty mechanisms, and a scenario that shows each."""
_BUDGET = TrialBudget(pilot=200, stages=(1000,), shares=(1.0,), fewest_tests=2, most_tests=2, deep=1)


def _faulty(name: str) -> Mechanism:
    faulty = next(faulty_mechanism for faulty_mechanism in FAULTY_MECHANISMS if faulty_mechanism.name == name)
    # The factory of the system is a method of its mechanism.
    mechanism = faulty.system.strategy.__self__  # type: ignore[attr-defined]
    assert isinstance(mechanism, Mechanism)
    return mechanism


def _moved(mechanism: Mechanism, twin: HonestMechanism, scenario: Scenario, target: int) -> float:
    """Return by how much a client moves the sum of a round at most, over the norm, where no noise is added."""
    plain = system(mechanism.with_(multiplier=0.0, deviation=lambda *_: 0.0))
    with_it, without_it = (
        BlackBoxTrial(plain, twin.claim, scenario, bit, generator(1, Purpose.BLACK_BOX), True, target).play()
        for bit in (True, False)
    )
    clients = scenario.stage.clients or plain.clients
    return float(np.max(np.linalg.norm(with_it.steps - without_it.steps, axis=1))) * clients


@pytest.mark.parametrize(
    ("name", "at_least"),
    [
        ("clipped-model", 1.9),
        ("median-length-as-norm", 4.0),
        ("clipping-factor-of-the-last-round", 900.0),
        ("client-counted-twice", 1.9),
    ],
)
def test_a_hidden_breach_moves_the_sum_by_more_than_the_norm(name: str, at_least: float) -> None:
    twin = SHORT_RUN if name.endswith("last-round") else CENTRAL
    scenario = BY_NAME[HIDDEN[name]]
    assert _moved(_faulty(name), twin, scenario, target=2) > at_least
    honest = twin.system.strategy.__self__  # type: ignore[attr-defined]
    assert _moved(honest, twin, scenario, target=2) < 1.01


@pytest.mark.long
@pytest.mark.parametrize("name", HIDDEN)
def test_a_hidden_breach_is_found_and_its_twin_is_not_accused(name: str) -> None:
    faulty = next(faulty_mechanism for faulty_mechanism in FAULTY_MECHANISMS if faulty_mechanism.name == name)
    # With one scenario the place is drawn; all clients that may be the target are the third here.
    audit_result = audit_system(
        faulty.system, faulty.claim, budget=_BUDGET, include=[HIDDEN[name]], seed=_seed_of_third(name)
    )
    assert audit_result.verdict is Verdict.VIOLATED
    honest = audit_system(faulty.twin.system, faulty.claim, budget=_BUDGET, include=[HIDDEN[name]])
    assert honest.verdict is Verdict.CONSISTENT


def _seed_of_third(name: str) -> int:
    kind = BY_NAME[HIDDEN[name]]
    faulty = next(faulty_mechanism for faulty_mechanism in FAULTY_MECHANISMS if faulty_mechanism.name == name)
    return next(seed for seed in range(500) if target_places([kind], faulty.system, seed)[kind.name] == 2)


@pytest.mark.parametrize("clients", [2, 4, 7])
def test_every_client_is_the_target_of_an_ordinary_update(clients: int) -> None:
    honest = replace(CENTRAL.system, clients=clients)
    kinds = kinds_of(honest, CENTRAL.claim)
    target_positions = target_places(kinds, honest, seed=3)
    ordinary = {
        target_positions[kind.name] for kind in kinds if kind.name in target_positions and kind.present.length >= 1
    }
    assert ordinary >= set(range(clients))
    assert set(target_positions) == {kind.name for kind in kinds}


@pytest.mark.parametrize("position", range(4))
def test_a_trial_is_the_same_at_every_place_for_a_strategy_that_treats_all_alike(position: int) -> None:
    def steps(target: int) -> np.ndarray:
        plain = system(Mechanism(multiplier=0.0))
        scenario = BY_NAME["removed, others spread"]
        draws = generator(1, Purpose.BLACK_BOX)
        return BlackBoxTrial(plain, CENTRAL.claim, scenario, True, draws, True, target).play().steps

    np.testing.assert_allclose(steps(position), steps(0), atol=2**-11)
