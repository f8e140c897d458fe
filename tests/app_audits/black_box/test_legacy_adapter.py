"""Strategies of Flower's old interface play the same trials as their likes of the new one."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from flwr.common import ndarrays_to_parameters, parameters_to_ndarrays
from flwr.server import strategy as old
from flwr.serverapp import strategy as new

from fl_audit.app_audits.black_box import AuditedSystem
from fl_audit.app_audits.black_box.black_box_trial import BlackBoxTrial
from fl_audit.app_audits.black_box.legacy_adapter import adapted_strategy, initial_model
from fl_audit.app_audits.black_box.scenarios import BY_NAME
from fl_audit.app_audits.black_box.system_audit import audit_system
from fl_audit.app_audits.claim_audit.claim import StatedClaim
from fl_audit.app_audits.claim_audit.claim_audit_results import TrialBudget
from fl_audit.verdict.verdict import Verdict

pytestmark = pytest.mark.usefixtures("small_working_directory")
_CLAIM = StatedClaim("add-remove-client", noise_multiplier=1.0)
_SMALL = TrialBudget(pilot=60, stages=(200,), shares=(1.0,), fewest_tests=1, most_tests=1, deep=1)


def _fixed(interface: Any) -> Callable[[int], Any]:
    """Flower's wrapper with clipping on the server, of either interface."""

    def made(clients: int) -> Any:
        inner = interface.FedAvg(fraction_evaluate=0.0)
        return interface.DifferentialPrivacyServerSideFixedClipping(inner, 1.0, 1.0, clients)

    return made


@pytest.mark.parametrize("kind", ["removed", "huge in every tensor", "more examples than true", "removed, large model"])
def test_trials_are_those_of_the_new_interface(kind: str) -> None:
    """With the same seed, for Flower has the same wrapper in both: an independent reading of both interfaces."""
    claim = StatedClaim("add-remove-client", noise_multiplier=1.0, rounds=2)
    steps = []
    for interface in (old, new):
        np.random.seed(1)  # noqa: NPY002  # where Flower's wrappers draw their noise
        transcript = BlackBoxTrial(
            AuditedSystem(_fixed(interface)), claim, BY_NAME[kind], True, np.random.default_rng(0)
        ).play()
        assert transcript.refusal is None
        steps.append(transcript.steps)
    # Their models are float32, whose sums differ by a few units in the last place.
    np.testing.assert_allclose(steps[0], steps[1], rtol=1e-6, atol=1e-6)
    assert np.abs(steps[0]).max() > 0.1


class NoisyOldMean(old.FedAvg):
    """As many write it: a mean of updates that nobody clips, and too little noise."""

    def __init__(self) -> None:
        super().__init__(fraction_evaluate=0.0)

    def aggregate_fit(self, server_round: int, results: Any, failures: Any) -> Any:
        parameters, metrics = super().aggregate_fit(server_round, results, failures)
        noisy = [value + np.random.normal(0, 0.1, value.shape) for value in _values(parameters)]  # noqa: NPY002
        return ndarrays_to_parameters([value.astype(np.float32) for value in noisy]), metrics


def _values(parameters: Any) -> list[np.ndarray]:
    return parameters_to_ndarrays(parameters)


@pytest.mark.parametrize(("strategy", "expected"), [(_fixed(old), "consistent"), (NoisyOldMean, "violated")])
def test_an_old_strategy_is_held_to_its_claim(strategy: Callable[..., Any], expected: str) -> None:
    result = audit_system(AuditedSystem(strategy), _CLAIM, budget=_SMALL, include=["removed"])
    assert result.verdict is Verdict(expected)


@pytest.mark.long
def test_a_reply_that_is_missing_or_an_error_has_failed() -> None:
    result = audit_system(
        AuditedSystem(lambda: old.FedAvg(accept_failures=False)), _CLAIM, budget=_SMALL, include=["missing reply"]
    )
    # With failures it releases nothing, which tells who did not answer.
    assert result.verdict is Verdict.VIOLATED


def test_an_old_strategy_brings_its_model() -> None:
    values = [np.ones((2, 3), np.float32), np.zeros(3, np.float32)]
    strategy = old.FedAdam(initial_parameters=ndarrays_to_parameters(values))
    model = initial_model(adapted_strategy(strategy))
    assert model is not None
    assert [value.tolist() for value in model.values()] == [value.tolist() for value in values]
    assert initial_model(new.FedAvg()) is None
