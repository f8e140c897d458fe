"""A model's frozen backbone is passed once for each record, and changes no result."""

import pytest
import torch
from torch import Tensor, nn

from fl_audit.learning.frozen_backbones import frozen_backbone, passed_through
from fl_audit.learning.models import ModelSpec
from fl_audit.learning.stacked_model import StackedModel

SHAPE = (4, 5)
CLASSES = 3


class Headed(nn.Module):
    """A dense head on a frozen backbone; `skips` adds the record itself, so that the head reads it too."""

    def __init__(self, skips: bool = False, trained: bool = False) -> None:
        super().__init__()
        self.backbone = nn.Sequential(nn.Flatten(), nn.Linear(20, 7), nn.Tanh()).requires_grad_(trained)
        self.head = nn.Linear(7, CLASSES)
        self._skips = skips

    def forward(self, x: Tensor) -> Tensor:
        skip_term = x.flatten(1)[:, :CLASSES] if self._skips else 0.0
        return self.head(self.backbone(x)) + skip_term  # type: ignore[no-any-return]


def test_a_head_on_a_backbone_gives_the_logits_and_gradients_of_the_whole() -> None:
    spec = ModelSpec(f"{__name__}:Headed", SHAPE, CLASSES)
    model = StackedModel.of(spec)
    assert model.backbone is not None
    assert (model.record_shape, model.feature_shape) == (SHAPE, (7,))
    records = torch.randn(40, *SHAPE)
    labels = torch.arange(40) % CLASSES
    weights = torch.randn(1, model.layout.size)
    parameters = model.layout.of_one(weights[0])
    whole = Headed()
    whole.backbone = model.backbone.module
    whole.head.load_state_dict({"weight": parameters["head.weight"], "bias": parameters["head.bias"]})
    outputs = model.backbone.outputs(records)
    torch.testing.assert_close(model.logits(weights, outputs)[0], whole(records))
    summed = model.layout.of_one(model.clipped_sum(weights, outputs, labels, None)[0])
    loss = nn.functional.cross_entropy(whole(records), labels, reduction="sum")
    gradients = torch.autograd.grad(loss, [whole.head.weight, whole.head.bias])
    torch.testing.assert_close(summed["head.weight"], gradients[0], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(summed["head.bias"], gradients[1], rtol=1e-4, atol=1e-5)
    # A process without data builds the same model from the measured properties.
    again = StackedModel.of(spec, profile=model.properties)
    assert again.backbone is not None
    assert again.feature_shape == (7,)
    torch.testing.assert_close(again.backbone.outputs(records), outputs, rtol=0, atol=0)


@pytest.mark.parametrize("model", [Headed(skips=True), Headed(trained=True), nn.Linear(5, 3)])
def test_a_model_that_reads_records_otherwise_stays_whole(model: nn.Module) -> None:
    before = getattr(model, "backbone", None)
    assert frozen_backbone(model, torch.randn(6, *SHAPE)) is None
    assert getattr(model, "backbone", None) is before


def test_records_pass_a_backbone_in_groups_of_one_size() -> None:
    sizes = list[int]()

    class Counted(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            sizes.append(len(x))
            return x.flatten(1)

    assert passed_through(Counted(), torch.zeros(40, *SHAPE)).shape == (40, 20)
    assert sizes == [16, 16, 8]
