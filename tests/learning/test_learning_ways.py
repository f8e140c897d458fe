"""Modules that run on stacked layers and others through torch.func; the sums are right either way."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fl_audit.learning.stacked_model import StackedModel
from tests.builders.models import Model
from tests.learning.gradient_truth import clip_and_sum, example_gradients

Make = Callable[[], nn.Module]


class OwnLinear(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) ** 2


def _in_place() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 2), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(16, 6), nn.ELU(inplace=True), nn.Linear(6, 3)
    )


def _named() -> nn.Module:
    inner = nn.Sequential(OrderedDict(deep=nn.Linear(5, 4), act=nn.ReLU()))
    return nn.Sequential(OrderedDict(first=nn.Linear(4, 5), inner=inner, head=nn.Linear(4, 3)))


def _flattening(m: Any, x: Tensor) -> Tensor:
    hidden = F.relu(m.conv(x.view(x.shape[0], 1, 5, 5)))
    return m.head(hidden.view(hidden.size(0), -1))  # type: ignore[no-any-return]


def _residual(m: Any, x: Tensor) -> Tensor:
    """The sum is over hidden values, which all have the axis of trials."""
    hidden = torch.tanh(m.first(x))
    return m.head(hidden + F.relu(m.second(hidden)))  # type: ignore[no-any-return]


def _tied() -> nn.Module:
    model = Model(lambda m, x: m.up(torch.tanh(m.down(x))), down=nn.Linear(3, 3), up=nn.Linear(3, 3))
    model.up.weight = model.down.weight  # type: ignore[union-attr]
    return model


def _one_layer(way: Callable[[Any, Tensor], Tensor], inputs: int = 4) -> Make:
    return lambda: Model(way, layer=nn.Linear(inputs, 3))


def _layer_and_head(way: Callable[[Any, Tensor], Tensor], inputs: int = 4) -> Make:
    return lambda: Model(way, layer=nn.Linear(inputs, 4), head=nn.Linear(4, 3))


FAST = {
    "grouped convolution": (
        lambda: nn.Sequential(nn.Conv2d(2, 4, 2, groups=2), nn.Flatten(), nn.Linear(16, 3)),
        (2, 3, 3),
    ),
    "view and flatten": (lambda: Model(_flattening, conv=nn.Conv2d(1, 3, 3), head=nn.Linear(27, 3)), (25,)),
    "residual": (lambda: Model(_residual, first=nn.Linear(4, 6), second=nn.Linear(6, 6), head=nn.Linear(6, 3)), (4,)),
    "two heads": (
        lambda: Model(lambda m, x: m.left(x) * torch.sigmoid(m.right(x)), left=nn.Linear(4, 3), right=nn.Linear(4, 3)),
        (4,),
    ),
    "in-place modules": (_in_place, (1, 3, 3)),
    "nested and named": (_named, (4,)),
    "a bare layer": (lambda: nn.Linear(4, 3), (4,)),
    "dropout of nothing": (lambda: nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.0)), (4,)),
}
GENERIC = {
    # The sum is over the input, which has no axis of trials.
    "residual on the input": (_layer_and_head(lambda m, x: m.head(x + F.relu(m.layer(x)))), (4,)),
    "a layer used twice": (_layer_and_head(lambda m, x: m.head(torch.tanh(m.layer(torch.tanh(m.layer(x)))))), (4,)),
    # The first use counts for large inputs only, and so not in the probe.
    "a layer seldom used twice": (
        _layer_and_head(lambda m, x: m.head(F.relu(m.layer(4 * x) - 6) + torch.tanh(m.layer(x)))),
        (4,),
    ),
    "tied weights": (_tied, (3,)),
    "a parameter outside layers": (
        lambda: Model(
            lambda m, x: m.layer(x) * m.scale, layer=nn.Linear(4, 3), scale=nn.Parameter(torch.tensor([0.5, 1.0, 2.0]))
        ),
        (4,),
    ),
    "embedding": (
        lambda: Model(
            lambda m, x: m.head(m.words((x.abs() * 3).long().clamp(max=6)).mean(1)),
            words=nn.Embedding(7, 4),
            head=nn.Linear(4, 3),
        ),
        (5,),
    ),
    "lstm": (
        lambda: Model(
            lambda m, x: m.head(m.cell(x)[0][:, -1]), cell=nn.LSTM(3, 4, batch_first=True), head=nn.Linear(4, 3)
        ),
        (5, 3),
    ),
    # A dense layer on (n, T, in), reduced to logits by a further layer or not.
    "sequences": (_layer_and_head(lambda m, x: m.head(torch.tanh(m.layer(x)).mean(1)), 3), (5, 3)),
    "sequences alone": (_one_layer(lambda m, x: m.layer(x).mean(1), 3), (5, 3)),
    "sequences of two": (_one_layer(lambda m, x: m.layer(x).mean(1), 3), (2, 3)),
    # T is 2, the number of trials in the probe: the merged axes look like trials and examples.
    "sequences merged": (_one_layer(lambda m, x: m.layer(x.reshape(-1, 3)).reshape(-1, 2, 3).sum(1), 3), (2, 3)),
    "a layer asked for its width": (_one_layer(lambda m, x: m.layer(x.view(-1, m.layer.in_features))), (4,)),
    "a layer asked for its weight": (_one_layer(lambda m, x: F.linear(x, m.layer.weight.abs(), m.layer.bias)), (4,)),
    "in-place function": (
        lambda: Model(
            lambda m, x: m.head(F.relu_(m.second(F.relu(m.first(x))))),
            first=nn.Linear(4, 8),
            second=nn.Linear(8, 8),
            head=nn.Linear(8, 3),
        ),
        (4,),
    ),
    "a layer that is not used": (
        lambda: Model(lambda m, x: m.layer(x), layer=nn.Linear(4, 3), other=nn.Linear(4, 3)),
        (4,),
    ),
    "a dense layer with its own forward": (lambda: nn.Sequential(OwnLinear(4, 5), nn.Linear(5, 3)), (4,)),
    "reflecting convolution": (
        lambda: nn.Sequential(nn.Conv2d(1, 2, 3, padding=1, padding_mode="reflect"), nn.Flatten(), nn.Linear(18, 3)),
        (1, 3, 3),
    ),
    "padding by name": (
        lambda: nn.Sequential(nn.Conv2d(1, 2, 3, padding="same"), nn.Flatten(), nn.Linear(18, 3)),
        (1, 3, 3),
    ),
    "one-dimensional convolution": (lambda: nn.Sequential(nn.Conv1d(2, 3, 2), nn.Flatten(), nn.Linear(12, 3)), (2, 5)),
    "instance normalisation": (
        lambda: nn.Sequential(nn.Conv2d(1, 2, 2), nn.InstanceNorm2d(2, affine=True), nn.Flatten(), nn.Linear(18, 3)),
        (1, 4, 4),
    ),
    "weight normalisation": (
        lambda: nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(4, 5)), nn.ReLU(), nn.Linear(5, 3)),
        (4,),
    ),
}


@pytest.mark.few_cases(10)
@pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")
@pytest.mark.parametrize(("name", "fast"), [(name, True) for name in FAST] + [(name, False) for name in GENERIC])
def test_either_way_is_right(name: str, fast: bool) -> None:
    torch.manual_seed(5)
    make, shape = (FAST | GENERIC)[name]
    module = make()
    model = StackedModel(module, shape)
    assert model.fast == fast
    trials, examples = 3, 4
    models = model.layout.flatten(dict(module.named_parameters())) + 0.3 * torch.randn(trials, model.layout.size)
    features = torch.randn(examples, *shape)
    labels = torch.arange(examples) % 3
    gradients = example_gradients(module, models, features, labels)
    norms = gradients.norm(dim=2)
    for clipping_norm in (float(norms.median()), 2 * float(norms.max())):
        truth = clip_and_sum(gradients, clipping_norm)
        sums = model.clipped_sum(models, features, labels, clipping_norm).double()
        assert float((sums - truth).abs().max()) <= 2e-5 * max(1.0, float(truth.abs().max()))
    alone = torch.stack([_logits(module, weights, features) for weights in models])
    torch.testing.assert_close(model.logits(models, features), alone, rtol=1e-4, atol=1e-5)


def _logits(module: nn.Module, weights: Tensor, features: Tensor) -> Tensor:
    nn.utils.vector_to_parameters(weights, module.parameters())
    with torch.no_grad():
        logits: Tensor = module(features)
        return logits


@pytest.mark.parametrize("name", ["a layer used twice", "in-place function", "embedding"])
def test_the_generic_way_holds_a_gradient_per_example(name: str) -> None:
    make, shape = GENERIC[name]
    model = StackedModel(make(), shape)
    assert model.activations == model.layout.size


def test_the_template_is_not_touched() -> None:
    module = nn.Sequential(nn.Linear(4, 3), nn.ReLU(inplace=True), nn.Linear(3, 2)).train()
    before = [value.clone() for value in module.parameters()]
    model = StackedModel(module, (4,))
    model.clipped_sum(torch.randn(2, model.layout.size), torch.randn(3, 4), torch.zeros(3, dtype=torch.int64), 1.0)
    assert all(torch.equal(now, then) for now, then in zip(module.parameters(), before, strict=True))
    assert all(value.requires_grad and value.grad is None for value in module.parameters())
    assert module.training
    assert module[1].inplace
