"""The table of advice on models: every text can be written, and every check that always refuses always has one."""

from string import Formatter

import pytest
import torch
from torch import Tensor, nn

from fl_audit.learning.model_advice import ADVICE, advise, refusal
from fl_audit.learning.model_faults import ModelCheck, ModelFault, fault_values
from fl_audit.learning.models import ModelSpec
from fl_audit.learning.stacked_model import StackedModel
from tests.builders.refusals import assert_refused

LAYERS = (nn.Embedding(4, 2), nn.Conv2d(1, 2, 3), nn.Linear(2, 3), nn.GRU(2, 3))
ALWAYS = (ModelCheck.COPY, ModelCheck.NO_GRADIENT, ModelCheck.OPACUS, ModelCheck.RANDOM, ModelCheck.MOVED_WEIGHTS)


@pytest.mark.parametrize("check", ModelCheck)
def test_texts_name_only_values_of_a_fault(check: ModelCheck) -> None:
    faults = [ModelFault(layer, inputs=torch.zeros(2, 1, dtype=torch.int64)) for layer in LAYERS]
    fault_fields = set().union(*(fault_values(fault) for fault in faults))
    for advice in ADVICE[check]:
        fields = {field for text in advice[1:] for _, field, _, _ in Formatter().parse(text) if field}
        assert {field.split(".")[0] for field in fields} <= fault_fields


@pytest.mark.parametrize("check", ALWAYS)
def test_a_check_that_refuses_says_what_to_do(check: ModelCheck) -> None:
    symptom, _, remedy = str(refusal(check, ModelFault(nn.Linear(2, 3)))).partition(": ")
    assert symptom
    assert remedy


def test_the_first_row_that_applies_counts() -> None:
    negative = torch.tensor([[-1, 9]])
    large = torch.tensor([[0, 9]])
    layer = nn.Embedding(4, 2)
    assert str(advise(ModelCheck.FORWARD, ModelFault(layer, inputs=negative, largest=9.0))).endswith(
        "-1: accepted are numbers from 0"
    )
    assert "Embedding(10, 2)" in str(advise(ModelCheck.FORWARD, ModelFault(layer, inputs=large, largest=9.0)))
    assert advise(ModelCheck.LAYER, ModelFault(layer)) is None


def test_one_number_for_two_classes_becomes_two(monkeypatch: pytest.MonkeyPatch) -> None:
    class Doubled(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            logit = super().forward(x)
            return torch.cat([torch.zeros_like(logit), logit], dim=1)

    spec = ModelSpec("theirs:build", (4,), 2)
    monkeypatch.setattr("fl_audit.learning.models.import_factory", lambda name: lambda: nn.Linear(4, 1))
    monkeypatch.setattr("fl_audit.learning.stacked_model.import_factory", lambda name: lambda: nn.Linear(4, 1))
    assert_refused(r"1 output .*2 classes: .*becomes two", StackedModel.of, spec)
    monkeypatch.setattr("fl_audit.learning.models.import_factory", lambda name: lambda: Doubled(4, 1))
    monkeypatch.setattr("fl_audit.learning.stacked_model.import_factory", lambda name: lambda: Doubled(4, 1))
    assert StackedModel.of(spec).layout.size == 5
