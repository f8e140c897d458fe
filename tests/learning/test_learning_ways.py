"""Modules that run on stacked layers and others through torch.func; the sums are right either way."""

from collections import OrderedDict

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fl_audit.learning.stacked_model import StackedModel
from tests.learning.gradient_truth import clip_and_sum, example_gradients


class Flattening(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(1, 3, 3), nn.Linear(27, 3)

    def forward(self, x: Tensor) -> Tensor:
        hidden = F.relu(self.conv(x.view(x.shape[0], 1, 5, 5)))
        return self.head(hidden.view(hidden.size(0), -1))


class Residual(nn.Module):
    """The sum is over hidden values, which all have the axis of trials."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.head = nn.Linear(4, 6), nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.tanh(self.first(x))
        return self.head(hidden + F.relu(self.second(hidden)))


class ResidualOnInput(nn.Module):
    """The sum is over the input, which has no axis of trials."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x + F.relu(self.first(x)))


class TwoHeads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(4, 3), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.left(x) * torch.sigmoid(self.right(x))


class UsedTwice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.layer(torch.tanh(self.layer(x)))))


class SeldomUsedTwice(nn.Module):
    """The first use counts for large inputs only, and so not in the probe."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.relu(self.layer(4 * x) - 6) + torch.tanh(self.layer(x)))


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down, self.up = nn.Linear(3, 3), nn.Linear(3, 3)
        self.up.weight = self.down.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.up(torch.tanh(self.down(x)))


class OwnParameter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.scale = nn.Linear(4, 3), nn.Parameter(torch.tensor([0.5, 1.0, 2.0]))

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) * self.scale


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(7, 4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.words((x.abs() * 3).long().clamp(max=6)).mean(1))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell, self.head = nn.LSTM(3, 4, batch_first=True), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.cell(x)[0][:, -1])


class Sequences(nn.Module):
    """A dense layer on (n, T, in), reduced to logits by a further layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = nn.Linear(3, 4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.layer(x)).mean(1))


class SequencesAlone(nn.Module):
    """A dense layer on (n, T, in) and nothing else."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x).mean(1)


class SequencesMerged(nn.Module):
    """T is 2, the number of trials in the probe: the merged axes look like trials and examples."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x.reshape(-1, 3)).reshape(-1, 2, 3).sum(1)


class ReadsWidth(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x.view(-1, self.layer.in_features))


class ReadsWeight(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.layer.weight.abs(), self.layer.bias)


class InPlaceFunction(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.head = nn.Linear(4, 8), nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.relu_(self.second(F.relu(self.first(x)))))


class Unused(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.other = nn.Linear(4, 3), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)


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


FAST = {
    "grouped convolution": (
        lambda: nn.Sequential(nn.Conv2d(2, 4, 2, groups=2), nn.Flatten(), nn.Linear(16, 3)),
        (2, 3, 3),
    ),
    "view and flatten": (Flattening, (25,)),
    "residual": (Residual, (4,)),
    "two heads": (TwoHeads, (4,)),
    "in-place modules": (_in_place, (1, 3, 3)),
    "nested and named": (_named, (4,)),
    "a bare layer": (lambda: nn.Linear(4, 3), (4,)),
    "dropout of nothing": (lambda: nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.0)), (4,)),
}
GENERIC = {
    "residual on the input": (ResidualOnInput, (4,)),
    "a layer used twice": (UsedTwice, (4,)),
    "a layer seldom used twice": (SeldomUsedTwice, (4,)),
    "tied weights": (Tied, (3,)),
    "a parameter outside layers": (OwnParameter, (4,)),
    "embedding": (Words, (5,)),
    "lstm": (Recurrent, (5, 3)),
    "sequences": (Sequences, (5, 3)),
    "sequences alone": (SequencesAlone, (5, 3)),
    "sequences of two": (SequencesAlone, (2, 3)),
    "sequences merged": (SequencesMerged, (2, 3)),
    "a layer asked for its width": (ReadsWidth, (4,)),
    "a layer asked for its weight": (ReadsWeight, (4,)),
    "in-place function": (InPlaceFunction, (4,)),
    "a layer that is not used": (Unused, (4,)),
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
    features, labels = torch.randn(examples, *shape), torch.arange(examples) % 3
    gradients = example_gradients(module, models, features, labels)
    norms = gradients.norm(dim=2)
    for clipping_norm in (float(norms.median()), 2 * float(norms.max())):
        truth = clip_and_sum(gradients, clipping_norm)
        found = model.clipped_sum(models, features, labels, clipping_norm).double()
        assert float((found - truth).abs().max()) <= 2e-5 * max(1.0, float(truth.abs().max()))
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
