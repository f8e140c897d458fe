"""The system under audit: what it accepts as a model and as a strategy, and which options its factory leaves."""

from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord
from flwr.serverapp.strategy import FedAvg

from fl_audit.app_audits.black_box.audited_system import AuditedSystem
from fl_audit.app_audits.black_box.trial_models import template_of
from fl_audit.app_audits.launchers.isolated_strategy_audit import system_and_claim
from fl_audit.app_audits.trial_options import StrategyOptions
from tests.builders.refusals import assert_refused

WEIGHT = np.arange(6, dtype=np.float32).reshape(2, 3)


def system_with_model() -> AuditedSystem:
    return AuditedSystem(FedAvg, model=ArrayRecord({"weight": Array(WEIGHT)}))


@pytest.mark.parametrize(
    "model",
    [
        {"weight": WEIGHT},
        {"weight": WEIGHT.tolist()},
        {"weight": torch.tensor(WEIGHT, requires_grad=True)},
        {"weight": Array(WEIGHT)},
        ArrayRecord({"weight": Array(WEIGHT)}),
    ],
)
def test_a_model_is_accepted_in_every_usual_form(model: Any) -> None:
    arrays = AuditedSystem(FedAvg, model=model).model
    assert arrays is not None
    np.testing.assert_array_equal(arrays["weight"], WEIGHT)
    assert template_of(arrays).size == WEIGHT.size


@pytest.mark.parametrize("shape", [(), (1,), (4,)])
@pytest.mark.parametrize("name", ["weight", "running_mean"])
def test_a_model_of_few_numbers_has_a_direction_in_which_updates_change_it(name: str, shape: tuple[int, ...]) -> None:
    model = template_of({name: np.zeros(shape), "steps": np.zeros((), np.int64)})
    assert np.linalg.norm(model.first) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("options", "name"),
    [({"clients": 8}, "clients"), ({"clipping_norm": 2.0}, "clipping-norm"), ({"observer": "server"}, "observer")],
)
def test_options_that_a_system_sets_itself_are_refused_beside_it(options: dict[str, Any], name: str) -> None:
    factory = f"{__name__}:system_with_model"
    strategy_options = StrategyOptions(factory, "add-remove-client", epsilon=1.0, **options)
    assert_refused(f"{name} set beside {factory}", system_and_claim, strategy_options)
    assert system_and_claim(StrategyOptions(factory, "add-remove-client", epsilon=1.0))[0].model is not None
