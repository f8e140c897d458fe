"""The view of a white-box attacker: gradients against float64 backward passes, example by example."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fl_audit.audits.membership.white_box_features import WhiteBoxFeatures, white_box_features
from fl_audit.learning.models import ModelSpec, build_model
from fl_audit.learning.stacked_model import StackedModel
from tests.builders.refusals import assert_refused
from tests.learning.gradient_truth import example_gradients

Shape = tuple[int, ...]


class _Temperature(nn.Module):
    """A dense layer whose outputs are scaled by a learned number and normalised afterwards."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 5)
        self.scale = nn.Parameter(torch.tensor(1.7))
        self.last = nn.Linear(5, 3)
        self.rectified = nn.ReLU(inplace=True)

    def forward(self, features: Tensor) -> Tensor:
        return self.scale * self.rectified(self.last(input=torch.tanh(self.first(features)))) + features[:, :3]


def _built_in(name: str, shape: Shape, classes: int) -> Callable[[], nn.Module]:
    return lambda: build_model(ModelSpec(name, shape, classes))


NETS: dict[str, tuple[Callable[[], nn.Module], Shape]] = {
    "logistic": (_built_in("logistic", (7,), 3), (7,)),
    "alone": (lambda: nn.Linear(7, 3), (7,)),
    "adult-mlp": (_built_in("adult-mlp", (20,), 2), (20,)),
    "dense-3x100": (_built_in("dense-3x100", (15,), 5), (15,)),
    "mnist-cnn": (_built_in("mnist-cnn", (1, 14, 12), 4), (1, 14, 12)),
    "no-bias": (lambda: nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3, bias=False)), (6,)),
    "norm-last": (lambda: nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3), nn.LayerNorm(3)), (6,)),
    "own-code": (_Temperature, (6,)),
}


def _drawn(shape: Shape, classes: int, parameters: int) -> tuple[Tensor, ...]:
    source = torch.Generator().manual_seed(5)
    models = 0.4 * torch.randn(3, parameters, generator=source)
    features = torch.rand(7, *shape, generator=source)
    return models, features, torch.arange(7) % classes


@pytest.mark.parametrize("name", NETS)
def test_gradient_output_and_loss_are_those_of_single_examples(name: str) -> None:
    template = NETS[name][0]()
    shape = NETS[name][1]
    model = StackedModel(template, shape)
    classes = model.template(torch.zeros(1, *shape)).shape[1]
    models, features, labels = _drawn(shape, classes, model.layout.size)
    observed_features = white_box_features(model, models, features, labels)

    exact = example_gradients(template, models, features, labels)
    columns = model.layout.slices()
    layer = [name for name, submodule in template.named_modules() if type(submodule) is nn.Linear][-1]
    prefix = f"{layer}." if layer else ""
    formed = np.einsum("wnro,wnri->wnroi", observed_features.signals, observed_features.inputs)[:, :, 0]
    weight = exact[..., columns[f"{prefix}weight"]].reshape(formed.shape)
    np.testing.assert_allclose(formed, weight, rtol=1e-4, atol=1e-5)
    if f"{prefix}bias" in columns:
        bias = exact[..., columns[f"{prefix}bias"]]
        np.testing.assert_allclose(observed_features.signals[:, :, 0], bias, rtol=1e-4, atol=1e-5)

    logits = model.logits(models, features).double()
    log_probabilities = F.log_softmax(logits, dim=2)
    np.testing.assert_allclose(observed_features.log_probabilities[:, :, 0], log_probabilities, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(
        observed_features.losses[..., 0], model.losses(models, features, labels), rtol=1e-4, atol=1e-6
    )
    assert all(
        getattr(observed_features, name).dtype == np.float32
        for name in ("signals", "inputs", "log_probabilities", "losses")
    )


def test_of_a_softmax_the_signal_is_confidence_less_label() -> None:
    model = StackedModel.of(ModelSpec("dense-128", (9,), 4))
    models, features, labels = _drawn((9,), 4, model.layout.size)
    observed_features = white_box_features(model, models, features, labels)
    expected = np.exp(observed_features.log_probabilities[:, :, 0]) - np.eye(4)[labels]
    np.testing.assert_allclose(observed_features.signals[:, :, 0], expected, atol=1e-6)


def test_records_that_a_model_is_sure_of_still_differ() -> None:
    """Margins of 20 and 25: in float32 both losses and both signals of the label would be 0."""
    model = StackedModel(nn.Linear(1, 2, bias=False), (1,))
    observed_features = white_box_features(
        model, torch.tensor([[1.0, 0.0]]), torch.tensor([[20.0], [25.0]]), torch.zeros(2).long()
    )
    np.testing.assert_allclose(observed_features.losses[0, :, 0], np.exp([-20.0, -25.0]), rtol=1e-4)
    np.testing.assert_allclose(observed_features.signals[0, :, 0, 0], -np.exp([-20.0, -25.0]), rtol=1e-4)


def test_portions_of_examples_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    model = StackedModel.of(ModelSpec("adult-mlp", (9,), 4))
    models, features, labels = _drawn((9,), 4, model.layout.size)
    whole = white_box_features(model, models, features, labels)
    monkeypatch.setattr(StackedModel, "examples_per_pass", 3)
    portion_features = white_box_features(model, models, features, labels)
    np.testing.assert_allclose(portion_features.signals, whole.signals, atol=1e-6)
    np.testing.assert_allclose(portion_features.inputs, whole.inputs, atol=1e-6)


def test_releases_are_put_together() -> None:
    model = StackedModel.of(ModelSpec("adult-mlp", (9,), 4))
    models, features, labels = _drawn((9,), 4, model.layout.size)
    first_features, second_features = (
        white_box_features(model, values, features, labels) for values in (models, models + 0.1)
    )
    joined_features = WhiteBoxFeatures.over_releases([first_features, second_features])
    assert (joined_features.trials, joined_features.targets, joined_features.releases) == (3, 7, 2)
    assert np.array_equal(joined_features.signals[:, :, 1], second_features.signals[:, :, 0])
    other_features = replace(second_features, labels=(second_features.labels + 1) % 2)
    assert_refused("of another layer", WhiteBoxFeatures.over_releases, [first_features, other_features])
    fewer_trials = second_features.of_trials(slice(0, 2))
    assert_refused("along axis 2", WhiteBoxFeatures.over_releases, [first_features, fewer_trials])
    assert_refused("no features", WhiteBoxFeatures.over_releases, [])


class _Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, features: Tensor) -> Tensor:
        return self.layer(torch.tanh(self.layer(features)))


class _Shared(nn.Module):
    """The weight of the last layer also scales the inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, features: Tensor) -> Tensor:
        return self.layer(features * self.layer.weight.sum())


class _Rows(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, features: Tensor) -> Tensor:
        return self.layer(features).mean(1)


def test_a_refused_or_used_model_keeps_no_hooks() -> None:
    model = StackedModel(_Twice(), (3,))
    models, features, labels = _drawn((3,), 2, model.layout.size)
    assert_refused(None, white_box_features, model, models, features, labels)
    assert not any(submodule._forward_hooks for submodule in model.template.modules())


def test_wrong_input_is_named() -> None:
    model = StackedModel.of(ModelSpec("adult-mlp", (9,), 4))
    models, features, labels = _drawn((9,), 4, model.layout.size)
    assert_refused("no targets", white_box_features, model, models, features[:0], labels[:0])
    named = "contain NaN or infinity"
    assert_refused(named, white_box_features, model, torch.full_like(models, torch.nan), features, labels)
    observed_features = white_box_features(model, models, features, labels)
    assert_refused(r"labels .*0 to 3", replace, observed_features, labels=observed_features.labels + 1)
    assert_refused("inputs have shape", replace, observed_features, inputs=observed_features.inputs[:1])
