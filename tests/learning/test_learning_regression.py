"""A model with one output learns a quantity, by the gradients of the squared error; metrics are scikit-learn's."""

from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn import metrics as reference
from torch import nn

from fl_audit.learning.losses import loss_of
from fl_audit.learning.metric_names import Metric, metrics_of_task
from fl_audit.learning.metrics import TestOutputs, metric_function, require_metrics
from fl_audit.learning.models import ModelSpec
from fl_audit.learning.stacked_model import StackedModel
from tests.builders.models import Model
from tests.builders.refusals import assert_refused
from tests.learning.gradient_truth import clip_and_sum, record_gradients

WAYS = {
    "dense chain": lambda: nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 1)),
    "one layer": lambda: nn.Linear(5, 1),
    "example by example": lambda: Model(
        lambda m, x: torch.tanh(m.first(x)) @ m.second, first=nn.Linear(5, 3), second=nn.Parameter(torch.rand(3, 1))
    ),
}


@pytest.mark.parametrize("module_name", WAYS)
def test_clipped_sums_are_those_of_squared_errors(module_name: str) -> None:
    torch.manual_seed(len(module_name))
    module = WAYS[module_name]()
    features = torch.randn(7, 5)
    labels = torch.randn(7)
    model = StackedModel(module, (5,))
    row = torch.cat([parameter.detach().flatten() for parameter in module.parameters()])
    models = torch.stack([row, row])
    truth = record_gradients(
        module, features, labels.double(), loss=lambda output, label: (output[0, 0] - label[0]) ** 2
    )
    (expected,) = clip_and_sum(truth.unsqueeze(0), 0.5)
    for total in model.clipped_sum(models, features, labels, 0.5).double():
        torch.testing.assert_close(total, expected, rtol=1e-4, atol=1e-5)
    mean = model.mean_gradients(models, features, labels)[1].double()
    torch.testing.assert_close(mean, truth.mean(0), rtol=1e-4, atol=1e-5)
    losses = (module(features)[:, 0] - labels).square().detach()
    torch.testing.assert_close(model.losses(models, features, labels)[0], losses)
    assert model.chain is None, "the written-out backward pass of chains is that of the cross-entropy"


def test_the_loss_of_classes_is_the_cross_entropy_to_the_last_bit() -> None:
    outputs = torch.randn(9, 3)
    labels = torch.randint(0, 3, (9,))
    for reduction in ("none", "sum", "mean"):
        expected = nn.functional.cross_entropy(outputs, labels, reduction=reduction)
        assert torch.equal(loss_of(outputs, labels, reduction), expected)


def test_rmse_and_r2_are_those_of_scikit_learn_in_units_of_the_data() -> None:
    draw = np.random.default_rng(0)
    truth = draw.normal(120, 15, 200)
    predicted = truth + draw.normal(3, 8, (3, 200))
    low, high = 80.0, 180.0
    scaled = TestOutputs(
        torch.from_numpy((predicted - low) / (high - low)).float().unsqueeze(2),
        torch.from_numpy((truth - low) / (high - low)).float(),
        (low, high),
    )
    rmse = [reference.root_mean_squared_error(truth, of_one) for of_one in predicted]
    np.testing.assert_allclose(metric_function(Metric.RMSE)(scaled), rmse, rtol=1e-5)
    np.testing.assert_allclose(
        metric_function(Metric.R2)(scaled), [reference.r2_score(truth, of_one) for of_one in predicted], rtol=1e-5
    )
    np.testing.assert_allclose(metric_function(Metric.LOSS)(scaled), np.array(rmse) ** 2 / 100**2, rtol=1e-5)
    assert np.isnan(metric_function(Metric.ACCURACY)(scaled)).all()
    equal = TestOutputs(torch.zeros(1, 4, 1), torch.ones(4))
    assert np.isnan(metric_function(Metric.R2)(equal)).all()


def test_own_metrics_of_quantities_are_in_units_of_the_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    metric_code = "def worst(outputs, labels):\n    return abs(outputs[:, 0] - labels).max()\n"
    (tmp_path / "own_errors.py").write_text(metric_code)
    monkeypatch.syspath_prepend(tmp_path)
    outputs = TestOutputs(torch.tensor([[[0.0], [0.5]]]), torch.tensor([0.0, 1.0]), (10.0, 30.0))
    np.testing.assert_allclose(metric_function("own_errors:worst")(outputs), [10.0])


def test_metrics_of_classes_are_refused_for_quantities_and_the_other_way_round() -> None:
    assert metrics_of_task(1, 0.0, is_audit=False) == (Metric.RMSE, Metric.R2, Metric.LOSS)
    named = "accuracy is not defined for labels that are quantities: accepted are loss"
    assert_refused(named, require_metrics, ("accuracy",), 1)
    assert_refused("rmse is not defined for 2 classes", require_metrics, ("rmse",), 2)


def test_built_in_models_have_one_output_for_a_quantity() -> None:
    model = StackedModel.of(ModelSpec("adult-mlp", (5,), 1))
    assert model.logits(torch.zeros(2, model.layout.size), torch.rand(3, 5)).shape == (2, 3, 1)
