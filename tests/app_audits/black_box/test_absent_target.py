"""An absent target contributes exactly zero, wherever the strategy bears it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, Message
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg

from fl_audit.app_audits.black_box import system_audit
from fl_audit.app_audits.black_box.black_box_trial import BlackBoxTrial
from fl_audit.app_audits.black_box.scenario import OF_FEW_TENSORS, ModelKind, Scenario
from fl_audit.app_audits.black_box.scenarios import BY_NAME, kinds_of
from fl_audit.app_audits.black_box.system_audit import audit_system
from fl_audit.app_audits.black_box.trial_chunks import TrialChunk, TrialExecutor
from fl_audit.app_audits.black_box.trial_messages import TargetAction
from fl_audit.app_audits.black_box.trial_models import template
from fl_audit.app_audits.claim_audit.claim_audit_results import TrialBudget
from fl_audit.randomness import Purpose, generator
from fl_audit.verdict.verdict import Verdict
from tests.app_audits.black_box.toy_app import CLIENTS, kept_in, toy_audit, toy_run
from tests.validation.faulty_mechanisms import parts
from tests.validation.faulty_mechanisms.honest_twins import CENTRAL, NORMALISED, ONE_ROUND, HonestMechanism, system

pytestmark = pytest.mark.usefixtures("small_working_directory")
_BUDGET = TrialBudget(pilot=400, stages=(3000,), shares=(1.0,), fewest_tests=2, most_tests=2, deep=1)


def _without_noise(clip: Any) -> HonestMechanism:
    return HonestMechanism("without noise", CENTRAL.claim, system(ONE_ROUND.with_(multiplier=0.0, clip=clip)))


_ORDINARY = [
    kind
    for kind in kinds_of(CENTRAL.system, CENTRAL.claim)
    # The releases of large models are stored in a sketch, whose length is another one.
    if not kind.is_malformed and kind.present.direction not in OF_FEW_TENSORS and kind.model is not ModelKind.LARGE
]


def _moved(mechanism: HonestMechanism, scenario: Scenario, bears_zero: bool) -> float:
    """Return by how much a client moves the sum of all updates, over the norm, where no noise is added."""
    with_it, without_it = (
        BlackBoxTrial(
            mechanism.system, mechanism.claim, scenario, bit, generator(1, Purpose.BLACK_BOX), bears_zero=bears_zero
        ).play()
        for bit in (True, False)
    )
    clients = scenario.stage.clients or mechanism.system.clients
    return float(np.linalg.norm(with_it.steps - without_it.steps)) * clients


@pytest.mark.parametrize("scenario", _ORDINARY, ids=lambda scenario: scenario.name)
@pytest.mark.parametrize("clip", [parts.normalised, parts.whole_update])
def test_an_honest_sum_moves_by_no_more_than_the_norm(clip: Any, scenario: Scenario) -> None:
    """Values are rounded to the grid of the release, each by half a step at most, under D and under D'."""
    clients = scenario.stage.clients or CENTRAL.system.clients
    size = template(scenario.model).size
    assert _moved(_without_noise(clip), scenario, bears_zero=True) <= 1 + parts.GRID * clients * size**0.5


def test_a_negligible_update_is_no_absence_for_normalised_updates() -> None:
    """Scaled to the norm, it points away at a right angle: together the square root of 2."""
    for name in ("removed", "alone", "half precision", "tiny"):
        assert _moved(_without_noise(parts.normalised), BY_NAME[name], bears_zero=False) == pytest.approx(
            2**0.5, abs=0.02
        )


@pytest.mark.long
@pytest.mark.parametrize("scenario", ["alone", "half precision"])
def test_normalised_updates_are_not_accused(scenario: str) -> None:
    result = audit_system(NORMALISED.system, NORMALISED.claim, budget=_BUDGET, include=[scenario])
    assert result.verdict is Verdict.CONSISTENT


class _Players:
    """Pool that plays the probe in this process."""

    def __init__(self, honest: HonestMechanism) -> None:
        self._executor = TrialExecutor(honest.system, honest.claim, 0)

    def done(self, tasks: list[TrialChunk], until: float) -> dict[int, Any]:
        with self._executor:
            return {index: self._executor.play(task, until) for index, task in enumerate(tasks)}


@pytest.mark.parametrize(
    ("clip", "bears_zero"), [(parts.normalised, True), (parts.whole_update, True), (parts.dividing_by_length, False)]
)
def test_a_probe_shows_whether_zero_is_borne(clip: Any, bears_zero: bool) -> None:
    """Division by the length ends the run at zero."""
    mechanism = HonestMechanism("probed", CENTRAL.claim, system(ONE_ROUND.with_(clip=clip)))
    assert system_audit._bears_zero(mechanism.system, _Players(mechanism), 1e9, ()) is bears_zero  # type: ignore[arg-type]


class _Normalised(FedAvg):
    """A mean of updates that are scaled to norm 1, with noise of standard deviation 1 over the clients."""

    def __init__(self, minimum_norm: float) -> None:
        super().__init__(fraction_evaluate=0.0)
        self._least, self._random = minimum_norm, np.random.default_rng()

    def configure_train(self, server_round: int, arrays: ArrayRecord, config: Any, grid: Grid) -> Any:
        self._sent = arrays.to_numpy_ndarrays()[0]
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(self, server_round: int, replies: Any) -> Any:
        with np.errstate(invalid="ignore"):
            updates = [self._scaled(reply) for reply in replies]
        noise = self._random.normal(0, 1, self._sent.shape)
        model = self._sent + (np.sum(updates, axis=0) + noise) / CLIENTS
        return ArrayRecord([model.astype(np.float32)]), None

    def _scaled(self, reply: Message) -> Any:
        update = reply.content.array_records["arrays"].to_numpy_ndarrays()[0] - self._sent
        return update / np.maximum(np.linalg.norm(update), self._least)


@pytest.mark.parametrize(
    ("minimum_norm", "error", "action"),
    [(1e-12, "", TargetAction.NOTHING), (0.0, "not finite", TargetAction.ALMOST_NOTHING)],
)
def test_an_app_is_asked_once_whether_it_bears_zero(
    minimum_norm: float, error: str, action: TargetAction, tmp_path: Path
) -> None:
    audit = toy_audit(tmp_path, trials=41)
    toy_run(lambda: _Normalised(minimum_norm), audit)
    probe_message = json.loads((kept_in(tmp_path) / "probe.json").read_text())["said"]
    assert (probe_message == "") is (error == "")
    assert error in probe_message
    assert audit.action(False, TargetAction.OWN, bears_zero=not probe_message) is action
