"""Models of users, built as a run builds them."""

from collections.abc import Callable
from typing import Any

import pytest
from torch import Tensor, nn

from fl_audit.learning import stacked_model
from fl_audit.learning.model_checks import ModelCheckRecords
from fl_audit.learning.models import ModelSpec
from fl_audit.learning.named_inputs import NamedInput
from fl_audit.learning.stacked_model import StackedModel


class Model(nn.Module):
    """Parts, and a function of them and of the records that is the forward pass."""

    def __init__(self, computation: Callable[..., Any], **parts: nn.Module | nn.Parameter) -> None:
        super().__init__()
        self.way = computation
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x: Tensor) -> Any:
        return self.way(self, x)


def built_model(
    factory: Callable[..., nn.Module], records: Tensor, classes: int, inputs: tuple[NamedInput, ...] = ()
) -> StackedModel:
    """Build a model with the records as those of the data."""
    spec = ModelSpec("theirs:build", tuple(records.shape[1:]), classes, inputs)
    names = tuple(f"record {number}" for number in range(len(records)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fl_audit.learning.models.import_factory", lambda name: factory)
        return stacked_model._built(spec, ModelCheckRecords(records, names))
