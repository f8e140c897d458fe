"""Norms of single records' gradients and their products with vectors, against float64 gradients by backward passes."""

import pytest
import torch
from torch import Tensor

from fl_audit.learning import pass_budgets
from fl_audit.learning.gradient_norms_and_products import gradient_norms_and_products
from fl_audit.learning.microbatching import Microbatch
from fl_audit.learning.stacked_model import StackedModel
from tests.builders.refusals import assert_refused
from tests.learning.gradient_truth import example_gradients
from tests.learning.test_learning_stacked_model import NETS, _budget_for, _setting
from tests.learning.test_learning_ways import FAST, GENERIC

CLOSE = 5e-6
"""Largest error of a norm relative to the norm, and of a product relative to both norms. (2.1e-6 was seen, at a record
whose class is so probable that its gradient is the difference of nearly equal numbers.)"""


def _assert_right(model: StackedModel, models: Tensor, features: Tensor, labels: Tensor, vectors: Tensor) -> None:
    gradients = example_gradients(model.template, models, features, labels)
    norms = gradients.norm(dim=2)
    lengths = vectors.double().norm(dim=1, keepdim=True)
    products = torch.einsum("wnp,wp->wn", gradients, vectors.double())
    result = gradient_norms_and_products(model, models, features, labels, vectors)
    for computed_norms in (result.norms, gradient_norms_and_products(model, models, features, labels).norms):
        assert computed_norms.dtype == torch.float32
        assert float(((computed_norms - norms).abs() / norms).max()) < CLOSE
    assert result.products.dtype == torch.float32
    assert float(((result.products - products).abs() / (norms * lengths)).max()) < CLOSE


def _vectors(models: Tensor) -> Tensor:
    """Return vectors of which those of different trials differ in length too."""
    scales = torch.arange(1.0, len(models) + 1).unsqueeze(1)
    return scales * torch.randn(models.shape, generator=torch.Generator().manual_seed(3))


@pytest.mark.few_cases(10)
@pytest.mark.parametrize("gradient_method", ["fast", "generic"])
@pytest.mark.parametrize("name", NETS)
def test_they_are_those_of_float64_backward_passes(name: str, gradient_method: str) -> None:
    model, models, features, labels = _setting(name)
    assert model.fast
    model.fast = gradient_method == "fast"
    _assert_right(model, models, features, labels, _vectors(models))


@pytest.mark.few_cases(12)
@pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")
@pytest.mark.parametrize("name", FAST | GENERIC)
def test_they_are_right_for_every_module_that_is_accepted(name: str) -> None:
    torch.manual_seed(5)
    make, shape = (FAST | GENERIC)[name]
    module = make()
    model = StackedModel(module, shape)
    assert model.fast == (name in FAST)
    models = model.layout.flatten(dict(module.named_parameters())) + 0.3 * torch.randn(3, model.layout.size)
    _assert_right(model, models, torch.randn(4, *shape), torch.arange(4) % 3, _vectors(models))


@pytest.mark.few_cases(4)
@pytest.mark.parametrize("gradient_method", ["fast", "generic"])
@pytest.mark.parametrize("name", ["adult-mlp", "mnist-cnn"])
@pytest.mark.parametrize("budget", ["trials", "examples", "gradients"])
def test_passes_of_any_size_find_the_same(
    name: str, gradient_method: str, budget: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, models, features, labels = _setting(name, trials=7)
    model.fast = gradient_method == "fast"
    vectors = _vectors(models)
    match budget:
        case "trials":
            _budget_for(monkeypatch, model, len(labels), 3)
        case "examples":
            monkeypatch.setattr(pass_budgets, "PASS_BUDGET", 3 * model.activations - 1)
            assert model.examples_per_pass == 2
        case "gradients":
            monkeypatch.setattr(pass_budgets, "GRADIENT_BUDGET", 3 * models.numel() - 1)
    sizes = _noted_sizes(monkeypatch, model)
    _assert_right(model, models, features, labels, vectors)
    once = {"trials": [(3, 5), (3, 5), (1, 5)], "examples": [(7, 2), (7, 2), (7, 1)], "gradients": [(7, 5)]}[budget]
    if budget == "gradients" and gradient_method == "generic":
        once = [(7, 2), (7, 2), (7, 1)]
    assert sizes == 2 * once


def _noted_sizes(monkeypatch: pytest.MonkeyPatch, model: StackedModel) -> list[tuple[int, int]]:
    """Note how many trials and records are computed at once."""
    noted: list[tuple[int, int]] = []
    name = "backward" if model.fast else "example_gradients"
    compute = getattr(model, name)

    def noting(models: Tensor, microbatch: Microbatch) -> object:
        noted.append((len(models), microbatch.examples))
        return compute(models, microbatch)

    monkeypatch.setattr(model, name, noting)
    return noted


def test_no_record_needs_no_pass() -> None:
    model, models, features, labels = _setting("adult-mlp")
    result = gradient_norms_and_products(model, models, features[:0], labels[:0], models)
    assert result.norms.shape == result.products.shape == (3, 0)


def test_a_clipped_sum_follows_from_them() -> None:
    """||sum of g min(1, C / ||g||)||^2 is the sum of its products with the clipped gradients."""
    model, models, features, labels = _setting("mnist-cnn")
    clipping_norm = float(gradient_norms_and_products(model, models, features, labels).norms.median())
    total = model.clipped_sum(models, features, labels, clipping_norm)
    norms, products = gradient_norms_and_products(model, models, features, labels, total)
    squared = (products * (clipping_norm / norms).clamp(max=1)).sum(1)
    torch.testing.assert_close(squared, total.square().sum(1), rtol=1e-5, atol=0)


def test_a_computation_before_or_after_changes_nothing() -> None:
    """The vectors stand in the place of parameters only while products are computed."""
    model, models, features, labels = _setting("mnist-cnn")
    vectors = _vectors(models)
    total = model.clipped_sum(models, features, labels, 1.0)
    result = gradient_norms_and_products(model, models, features, labels, vectors)
    assert torch.equal(model.clipped_sum(models, features, labels, 1.0), total)
    before = features.clone()
    features += 0.5
    assert not torch.equal(
        gradient_norms_and_products(model, models, features, labels, vectors).products, result.products
    )
    features.copy_(before)
    assert torch.equal(gradient_norms_and_products(model, models, features, labels, vectors).products, result.products)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"models": torch.zeros(3, 5)}, r"models .*\(3, 5\): .*\(trials, 182\)"),
        ({"vectors": torch.zeros(1, 182)}, r"vectors .*\(1, 182\): .*\(3, 182\)"),
        ({"labels": torch.zeros(4, dtype=torch.int64)}, r"5 features .*4 labels"),
    ],
)
def test_what_does_not_fit_is_refused(change: dict[str, Tensor], message: str) -> None:
    model, models, features, labels = _setting("adult-mlp")
    arguments = {"models": models, "features": features, "labels": labels, "vectors": models} | change
    assert_refused(message, gradient_norms_and_products, model, **arguments)
