"""Models of users, built as a run builds them."""

from collections.abc import Callable

import pytest
from torch import Tensor, nn

from fl_audit.learning import stacked_model
from fl_audit.learning.model_checks import ModelCheckRecords
from fl_audit.learning.models import ModelSpec
from fl_audit.learning.named_inputs import NamedInput
from fl_audit.learning.stacked_model import StackedModel


def built_model(
    factory: Callable[..., nn.Module], records: Tensor, classes: int, inputs: tuple[NamedInput, ...] = ()
) -> StackedModel:
    """Build a model with the records as those of the data."""
    spec = ModelSpec("theirs:build", tuple(records.shape[1:]), classes, inputs)
    names = tuple(f"record {number}" for number in range(len(records)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fl_audit.learning.models.import_factory", lambda name: factory)
        return stacked_model._built(spec, ModelCheckRecords(records, names))
