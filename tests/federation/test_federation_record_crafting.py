"""Crafted records, held against gradients of single examples that torch computes by itself."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fl_audit.federation.crafted_records import CraftingProblem, FeatureBounds, craft_opposite, craft_record
from fl_audit.federation.record_tensors import Examples
from fl_audit.learning.stacked_model import StackedModel
from tests.builders.refusals import assert_refused

FEATURES = 12
CLASSES = 3
NORM = 1.5


def _network(classes: int = CLASSES) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(FEATURES, 6), nn.Tanh(), nn.Linear(6, classes))


def _gradient(network: nn.Module, record: Examples) -> Tensor:
    loss = nn.functional.cross_entropy(network(record.features), record.labels)
    return torch.cat([gradient.flatten() for gradient in torch.autograd.grad(loss, list(network.parameters()))])


def _scene(network: nn.Module, binary: bool = False) -> CraftingProblem:
    model = StackedModel(network, (FEATURES,))
    models = model.layout.flatten(dict(network.named_parameters())).unsqueeze(0)
    binary_mask = torch.zeros(FEATURES, dtype=torch.bool)
    binary_mask[::2] = binary
    return CraftingProblem(
        model, models, NORM, FeatureBounds(torch.full((FEATURES,), -0.5), torch.full((FEATURES,), 2.0), binary_mask)
    )


def _starts(count: int, classes: int = CLASSES) -> Examples:
    source = torch.Generator().manual_seed(1)
    return Examples(torch.rand(count, FEATURES, generator=source), torch.arange(count) % classes)


def _single_records(examples: Examples) -> list[Examples]:
    return [examples.take(np.array([number])) for number in range(examples.count)]


def _others(network: nn.Module, classes: int = CLASSES) -> Tensor:
    """Return the sum of clipped gradients of some records, one by one."""
    gradients = (_gradient(network, record) for record in _single_records(_starts(20, classes)))
    return torch.stack([gradient * min(1.0, NORM / float(gradient.norm())) for gradient in gradients]).sum(0)


@pytest.mark.long
@pytest.mark.parametrize("binary", [False, True])
def test_a_crafted_record_is_clipped_and_at_right_angles_to_all_others(binary: bool) -> None:
    network = _network()
    gradient_sum = _others(network)
    scene = _scene(network, binary)
    crafted_record = craft_record(scene, gradient_sum.unsqueeze(0), _starts(6))
    gradient = _gradient(network, crafted_record)
    cosine = float(nn.functional.cosine_similarity(gradient, gradient_sum, dim=0))
    assert float(gradient.norm()) >= NORM
    # With half of the features at one of their ends there are 64 corners to a face, not a continuum.
    assert abs(cosine) < (0.05 if binary else 0.005)
    assert float(crafted_record.features.min()) >= -0.5
    assert float(crafted_record.features.max()) <= 2.0
    at_an_end = (crafted_record.features == -0.5) | (crafted_record.features == 2.0)
    assert not binary or bool(at_an_end[..., ::2].all())
    ordinary = [_gradient(network, record) for record in _single_records(_starts(20))]
    usual = [abs(float(nn.functional.cosine_similarity(gradient, gradient_sum, dim=0))) for gradient in ordinary]
    assert min(usual) > abs(cosine)


def test_where_no_gradient_can_be_clipped_the_longest_is_returned() -> None:
    network = _network()
    scene = _scene(network)
    far = CraftingProblem(scene.model, scene.models, 1e3, scene.bounds)
    crafted_record = craft_record(far, _others(network).unsqueeze(0), _starts(6))
    starting_records = _starts(6)
    lengths = [float(_gradient(network, record).norm()) for record in _single_records(starting_records)]
    assert float(_gradient(network, crafted_record).norm()) > 1.5 * max(lengths)


@pytest.mark.long
def test_of_two_classes_the_opposite_moves_the_sum_by_nearly_twice_the_clipping_norm() -> None:
    network = _network(classes=2)
    scene = _scene(network)
    record = craft_record(scene, _others(network, 2).unsqueeze(0), _starts(6, 2))
    opposite = craft_opposite(scene, record, _starts(6, 2))
    first_gradient, second_gradient = (_gradient(network, example) for example in (record, opposite))
    clipped = [gradient * min(1.0, NORM / float(gradient.norm())) for gradient in (first_gradient, second_gradient)]
    assert 1.9 * NORM < float((clipped[0] - clipped[1]).norm()) <= 2 * NORM * (1 + 1e-6)


class _Detached(nn.Module):
    """A network whose gradient in its parameters is the same whatever the features are."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(CLASSES))

    def forward(self, features: Tensor) -> Tensor:
        return self.bias + 0 * features[:, :1].detach()


def test_a_model_without_a_gradient_in_its_features_is_refused() -> None:
    scene = _scene(_network())
    model = StackedModel(_Detached(), (FEATURES,))
    blind = CraftingProblem(model, torch.zeros(1, CLASSES), NORM, scene.bounds)
    assert_refused("not differentiable", lambda: craft_record(blind, torch.ones(1, CLASSES), _starts(2)))
