"""Strategies that release nothing in trials, and honest ones that skip some rounds."""

from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord
from flwr.serverapp.strategy import FedAvg

from fl_audit.app_audits.black_box import AuditedSystem
from fl_audit.app_audits.black_box.system_audit import audit_system
from fl_audit.app_audits.claim_audit.claim import StatedClaim
from fl_audit.app_audits.claim_audit.claim_audit_messages import opening_sentences
from fl_audit.app_audits.claim_audit.claim_audit_results import TrialBudget
from fl_audit.verdict.verdict import Verdict

_CLAIM = StatedClaim("add-remove-client", noise_multiplier=1.0, rounds=2)


class Waiting(FedAvg):
    """A mean without noise, as soon as there are 25 replies."""

    least = 25

    def aggregate_train(self, server_round: int, replies: Any) -> Any:
        replies = list(replies)
        return super().aggregate_train(server_round, replies) if len(replies) >= self.least else (None, None)


class Skipping(Waiting):
    """Skips three of ten rounds by lot, and has noise enough in the others."""

    least = 0

    def aggregate_train(self, server_round: int, replies: Any) -> Any:
        arrays, metrics = super().aggregate_train(server_round, replies)
        if np.random.random() < 0.3:  # noqa: NPY002  # seeded for every trial
            return None, None
        noisy = {name: _noisy(array.numpy()) for name, array in arrays.items()}
        return ArrayRecord({name: Array(value) for name, value in noisy.items()}), metrics


def _noisy(value: Any) -> Any:
    """Add noise of half again what is claimed, on a grid: low bits would tell more."""
    return np.rint((value + np.random.normal(0, 0.375, value.shape)) * 4096) / 4096  # noqa: NPY002


@pytest.mark.long
@pytest.mark.parametrize(("strategy", "said"), [(Waiting, Verdict.INCONCLUSIVE), (Skipping, Verdict.CONSISTENT)])
def test_who_releases_nothing_is_not_called_consistent(strategy: type[FedAvg], said: Verdict) -> None:
    system = AuditedSystem(lambda: strategy(fraction_evaluate=0.0), is_clipped=False)
    budget = TrialBudget(
        pilot=40, stages=(200,), shares=(1.0,), fewest_tests=1, most_tests=1, deep=1, scout=40, passing_scenarios=1
    )
    result = audit_system(system, _CLAIM, budget=budget, include=["removed"])
    assert result.verdict is said
    assert bool(result.silent) is ("released" in opening_sentences(result)) is (strategy is Waiting)
