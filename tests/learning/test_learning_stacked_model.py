"""Clipped gradient sums of stacked models against float64 backward passes, Opacus, and one another."""

import copy
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from opacus.grad_sample import GradSampleModule
from torch import Tensor, nn

from fl_audit.learning import fast_path_checks, layers, pass_budgets
from fl_audit.learning.models import ModelSpec, build_model
from fl_audit.learning.stacked_layers import ParameterLayout, clipping_weights
from fl_audit.learning.stacked_model import StackedModel
from tests.learning.gradient_truth import assert_close, clip_and_sum, example_gradients

Shape = tuple[int, ...]


def _built_in(name: str, shape: Shape, classes: int) -> Callable[[], tuple[nn.Module, Shape]]:
    return lambda: (build_model(ModelSpec(name, shape, classes)), shape)


def _net(shape: Shape, *layers: Callable[[], nn.Module]) -> Callable[[], tuple[nn.Module, Shape]]:
    return lambda: (nn.Sequential(*[layer() for layer in layers]), shape)


NETS = {
    "logistic": _built_in("logistic", (7,), 3),
    "adult-mlp": _built_in("adult-mlp", (20,), 2),
    "dense-128": _built_in("dense-128", (15,), 5),
    "mnist-cnn": _built_in("mnist-cnn", (1, 14, 12), 4),
    "no-bias": _net((6,), lambda: nn.Linear(6, 5, bias=False), nn.Tanh, lambda: nn.Linear(5, 3, bias=False)),
    "layer-norm": _net((6,), lambda: nn.Linear(6, 8), lambda: nn.LayerNorm(8), nn.ReLU, lambda: nn.Linear(8, 3)),
    "layer-norm-first": _net((4, 5), lambda: nn.LayerNorm((4, 5)), nn.Flatten, lambda: nn.Linear(20, 3)),
    "layer-norm-last-axis": _net((4, 5), lambda: nn.LayerNorm(5, bias=False), nn.Flatten, lambda: nn.Linear(20, 3)),
    "group-norm": _net(
        (2, 6, 5),
        lambda: nn.Conv2d(2, 6, 3, bias=False),
        lambda: nn.GroupNorm(3, 6),
        nn.GELU,
        nn.Flatten,
        lambda: nn.Linear(72, 3),
    ),
    "group-norm-of-vectors": _net(
        (6,), lambda: nn.Linear(6, 8), lambda: nn.GroupNorm(2, 8), nn.ReLU, lambda: nn.Linear(8, 3)
    ),
    "plain-norm": _net(
        (6,),
        lambda: nn.LayerNorm(6, elementwise_affine=False),
        lambda: nn.Linear(6, 8),
        nn.ReLU,
        lambda: nn.Linear(8, 3),
    ),
    "conv-geometry": _net(
        (2, 11, 9),
        lambda: nn.Conv2d(2, 4, (3, 2), stride=(2, 1), padding=(1, 2), dilation=(1, 2)),
        nn.ReLU,
        lambda: nn.Conv2d(4, 3, 3, stride=2, padding=1, dilation=2),
        lambda: nn.AvgPool2d(2),
        nn.Flatten,
        lambda: nn.Linear(6, 3),
    ),
    # Many input channels: torch's own convolution, and its gradients with one group of channels for each example.
    "conv-channels": _net(
        (9, 8, 7),
        lambda: nn.Conv2d(9, 8, (3, 2), padding=(0, 1), dilation=(2, 1)),
        lambda: nn.MaxPool2d(2),
        nn.Tanh,
        lambda: nn.Conv2d(8, 10, 2, bias=False),
        nn.Flatten,
        lambda: nn.Linear(30, 3),
    ),
    "conv-strides": _net(
        (8, 9, 9),
        lambda: nn.Conv2d(8, 9, 3, stride=2, padding=1),
        nn.Tanh,
        lambda: nn.Conv2d(9, 4, 3, stride=(1, 2)),
        nn.Flatten,
        lambda: nn.Linear(24, 3),
    ),
    # Channels in groups, and each channel by itself, also where it reads the records.
    "conv-groups": _net(
        (6, 9, 8),
        lambda: nn.Conv2d(6, 12, 3, stride=(2, 1), groups=3),
        nn.Tanh,
        lambda: nn.Conv2d(12, 12, (3, 2), padding=(2, 1), dilation=(2, 1), groups=12, bias=False),
        nn.Tanh,
        lambda: nn.Conv2d(12, 24, 3, stride=2, groups=12),
        nn.Flatten,
        lambda: nn.Linear(72, 3),
    ),
    "conv-by-channel-first": _net(
        (5, 6, 6), lambda: nn.Conv2d(5, 5, 3, padding=1, groups=5), nn.Flatten, lambda: nn.Linear(180, 3)
    ),
    # Few places and many channels: the norms come from products of signals and of patches, not from gradients.
    "conv-few-places": _net(
        (6, 4, 4),
        lambda: nn.Conv2d(6, 12, 3),
        nn.Tanh,
        lambda: nn.Conv2d(12, 10, 2, bias=False),
        nn.Flatten,
        lambda: nn.Linear(10, 3),
    ),
}
OPACUS_KNOWS = [name for name in NETS if name != "layer-norm-last-axis"]  # not LayerNorm without a bias


def _setting(name: str, trials: int = 3, examples: int = 5) -> tuple[StackedModel, Tensor, Tensor, Tensor]:
    torch.manual_seed(11)
    module, shape = NETS[name]()
    model = StackedModel(module, shape)
    flat = torch.cat([value.detach().reshape(-1) for value in module.parameters()])
    models = flat + 0.2 * torch.randn(trials, len(flat))
    features = torch.randn(examples, *shape)
    classes = model.template(features).shape[1]
    return model, models, features, torch.arange(examples) % classes


def _clipping_norms(gradients: Tensor) -> list[float]:
    """Return norms that clip no example, some of them, and all."""
    norms = gradients.norm(dim=2)
    middle = float(norms.median())
    assert float(norms.min()) < middle < float(norms.max())
    return [2 * float(norms.max()), middle, 0.5 * float(norms.min())]


@pytest.mark.few_cases(7)
@pytest.mark.parametrize("method", ["fast", "generic"])
@pytest.mark.parametrize("name", NETS)
def test_clipped_sums_are_those_of_float64_backward_passes(name: str, method: str) -> None:
    model, models, features, labels = _setting(name)
    assert model.fast
    model.fast = method == "fast"
    gradients = example_gradients(model.template, models, features, labels)
    for norm in _clipping_norms(gradients):
        assert_close(model.clipped_sum(models, features, labels, norm), clip_and_sum(gradients, norm))


@pytest.mark.few_cases(4)
@pytest.mark.filterwarnings("ignore:Full backward hook:UserWarning")
@pytest.mark.parametrize("name", OPACUS_KNOWS)
def test_clipped_sums_are_those_of_opacus(name: str) -> None:
    model, models, features, labels = _setting(name)
    rows = []
    for weights in models:
        module = copy.deepcopy(model.template).train().requires_grad_(True)
        nn.utils.vector_to_parameters(weights, module.parameters())
        sampled = GradSampleModule(module.double(), loss_reduction="sum")
        F.cross_entropy(sampled(features.double()), labels, reduction="sum").backward()
        rows.append(torch.cat([value.grad_sample.flatten(1) for value in sampled.parameters()], dim=1))
    gradients = torch.stack(rows)
    for norm in _clipping_norms(gradients):
        assert_close(model.clipped_sum(models, features, labels, norm), clip_and_sum(gradients, norm))


@pytest.mark.parametrize("method", ["fast", "generic"])
@pytest.mark.parametrize("name", ["adult-mlp", "mnist-cnn", "layer-norm-first"])
@pytest.mark.parametrize(("trials", "examples"), [(1, 5), (1, 1), (3, 1), (5, 5)])
def test_any_number_of_trials_and_examples(name: str, method: str, trials: int, examples: int) -> None:
    model, models, features, labels = _setting(name, trials, examples)
    model.fast = method == "fast"
    gradients = example_gradients(model.template, models, features, labels)
    norm = float(gradients.norm(dim=2).median())
    assert_close(model.clipped_sum(models, features, labels, norm), clip_and_sum(gradients, norm))


@pytest.mark.parametrize("name", ["logistic", "mnist-cnn"])
def test_no_examples_sum_to_zero(name: str) -> None:
    model, models, features, labels = _setting(name)
    assert torch.equal(model.clipped_sum(models, features[:0], labels[:0], 1.0), torch.zeros_like(models))


@pytest.mark.parametrize("method", ["fast", "generic"])
@pytest.mark.parametrize("name", NETS)
def test_a_clipped_gradient_keeps_to_the_clipping_norm(name: str, method: str) -> None:
    model, models, features, labels = _setting(name, examples=1)
    model.fast = method == "fast"
    norms = model.clipped_sum(models, features, labels, 1e-3).double().norm(dim=1)
    torch.testing.assert_close(norms, torch.full_like(norms, 1e-3), rtol=1e-5, atol=0)


@pytest.mark.parametrize("method", ["fast", "generic"])
def test_a_gradient_of_zero_stays_zero(method: str) -> None:
    module = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3, bias=False))
    model = StackedModel(module, (4,))
    model.fast = method == "fast"
    torch.manual_seed(0)
    models = torch.randn(3, model.layout.size)
    features = torch.randn(5, 4)
    labels = torch.zeros(5, dtype=torch.int64)
    model.layout.views(models)["0.bias"][1] = -1e3  # in trial 1 every unit is dead for every example
    total = model.clipped_sum(models, features, labels, 1.0)
    assert torch.equal(total[1], torch.zeros(model.layout.size))
    assert bool(total.isfinite().all())
    assert bool((total[[0, 2]].norm(dim=1) > 0.1).all())


@pytest.mark.parametrize("slack", [0.0, 0.5])
def test_a_norm_is_clipped_after_the_slack_is_added(slack: float) -> None:
    norms = torch.tensor([0.0, 1.0, 1.5, 4.0])
    expected = torch.clamp(2.0 / (norms + slack), max=1.0)
    torch.testing.assert_close(clipping_weights(norms**2, 2.0, None, slack), expected)


def test_a_certain_prediction_has_no_gradient() -> None:
    model = StackedModel(nn.Linear(2, 2, bias=False), (2,))
    certain = torch.tensor([[1e3, 0.0, -1e3, 0.0]])  # the label's logit is 2000 above the other
    total = model.clipped_sum(certain, torch.tensor([[1.0, 0.0]]), torch.tensor([0]), 1.0)
    assert torch.equal(total, torch.zeros(1, 4))


@pytest.mark.parametrize("name", ["adult-mlp", "mnist-cnn", "conv-channels"])
def test_examples_beyond_the_budget_wait_for_the_next_pass(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, models, features, labels = _setting(name, examples=7)
    logits = model.logits(models, features)
    gradients = example_gradients(model.template, models, features, labels)
    monkeypatch.setattr(pass_budgets, "PASS_BUDGET", 4 * model.activations - 1)
    assert model.examples_per_pass == 3
    passes = _noted_passes(monkeypatch)
    norm = float(gradients.norm(dim=2).median())
    assert_close(model.clipped_sum(models, features, labels, norm), clip_and_sum(gradients, norm))
    torch.testing.assert_close(model.logits(models, features), logits)
    assert passes == 2 * [3, 3, 3]  # of the sum and of the logits: examples 0 to 2, 3 to 5 and 6, in all three trials


def test_features_that_changed_in_place_are_read_again() -> None:
    model, models, features, labels = _setting("mnist-cnn")
    model.clipped_sum(models, features, labels, 1.0)
    features += 0.5
    gradients = example_gradients(model.template, models, features, labels)
    assert_close(model.clipped_sum(models, features, labels, 1.0), clip_and_sum(gradients, 1.0))


def _budget_for(monkeypatch: pytest.MonkeyPatch, model: StackedModel, examples: int, trials: int) -> None:
    """Let so many trials and no more fit into one pass."""
    monkeypatch.setattr(pass_budgets, "CACHE_BUDGET", (trials + 1) * examples * model.activations - 1)
    assert model.trials_per_pass(examples) == trials


@pytest.mark.parametrize("method", ["fast", "generic"])
@pytest.mark.parametrize("name", ["adult-mlp", "mnist-cnn"])
def test_passes_are_those_of_the_trials_alone(name: str, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, models, features, labels = _setting(name, trials=7)
    model.fast = method == "fast"
    whole = model.clipped_sum(models, features, labels, 1.0), model.logits(models, features)
    _budget_for(monkeypatch, model, len(labels), 3)
    for passes, at_once in zip(
        (model.clipped_sum(models, features, labels, 1.0), model.logits(models, features)), whole, strict=True
    ):
        torch.testing.assert_close(passes, at_once, rtol=1e-4, atol=1e-6)
    total = model.clipped_sum(models, features, labels, 1.0)
    for rows in (slice(0, 3), slice(3, 6), slice(6, 7)):
        assert torch.equal(total[rows], model.clipped_sum(models[rows], features, labels, 1.0))


def test_work_stays_in_the_cache() -> None:
    model, *_ = _setting("dense-128")
    assert model.activations == 128 + 5
    assert model.trials_per_pass(1000) == 2**21 // (1000 * 133)
    assert model.trials_per_pass(10**9) == 1
    model, *_ = _setting("mnist-cnn")
    assert model.activations == 2 * 16 * 12 * 10 + 2 * 16 * 4 * 3 + 4


@pytest.mark.parametrize("per_pass", [3, 100])
@pytest.mark.parametrize("method", ["fast", "generic"])
@pytest.mark.parametrize("name", ["logistic", "adult-mlp", "dense-128", "mnist-cnn"])
def test_the_first_trials_of_a_batch_have_its_very_bits(
    name: str, method: str, per_pass: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, models, features, labels = _setting(name, trials=8, examples=6)
    model.fast = method == "fast"
    _budget_for(monkeypatch, model, len(labels), per_pass)
    batch = model.clipped_sum(models, features, labels, 1.0)
    passes = _noted_passes(monkeypatch)
    for trial_count in (1, 2, 4, 8):
        passes.clear()
        assert torch.equal(
            model.clipped_sum(models[:trial_count], features, labels, 1.0, batch_trials=8), batch[:trial_count]
        )
        assert passes == ([8] if per_pass == 100 else [3, 3, 2][: -(-trial_count // 3)])


def _noted_passes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Note how many trials each pass works on, as it lays out their weights: bits may agree by luck in other shapes."""
    noted: list[int] = []
    views = ParameterLayout.views

    def noting(layout: ParameterLayout, models: Tensor) -> dict[str, Tensor]:
        noted.append(len(models))
        return views(layout, models)

    monkeypatch.setattr(ParameterLayout, "views", noting)
    return noted


@pytest.mark.parametrize("method", ["fast", "generic"])
@pytest.mark.parametrize("name", NETS)
def test_logits_and_losses_are_those_of_each_model_alone(name: str, method: str) -> None:
    model, models, features, labels = _setting(name)
    model.fast = method == "fast"
    logits = model.logits(models, features)
    losses = model.losses(models, features, labels)
    module = copy.deepcopy(model.template).double()
    for trial, weights in enumerate(models):
        nn.utils.vector_to_parameters(weights.double(), module.parameters())
        expected = module(features.double())
        torch.testing.assert_close(logits[trial].double(), expected, rtol=1e-4, atol=1e-5)
        picked = -F.log_softmax(expected, dim=1)[torch.arange(len(labels)), labels]
        torch.testing.assert_close(losses[trial].double(), picked, rtol=1e-4, atol=1e-5)


def test_trials_do_not_see_one_another() -> None:
    model, models, features, labels = _setting("mnist-cnn")
    total = model.clipped_sum(models, features, labels, 1.0)
    models[1] = torch.nan
    spoilt = model.clipped_sum(models, features, labels, 1.0)
    assert torch.equal(spoilt[[0, 2]], total[[0, 2]])
    assert bool(spoilt[1].isnan().any())


class _OwnNet(nn.Sequential):
    """A network of a user, which is tried on records."""


@pytest.mark.parametrize(("scale", "fast"), [(1.0, True), (1.001, False)])
def test_a_unit_at_the_kink_of_a_relu_hides_no_stacked_layers(
    scale: float, fast: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = _OwnNet(nn.Linear(4, 256), nn.ReLU(), nn.Linear(256, 3))
    source = torch.Generator().manual_seed(1)
    records = torch.rand(3, 4, generator=source)
    flat = 0.5 * torch.randn(2051, generator=source)
    nn.utils.vector_to_parameters(flat, net.parameters())
    # One unit lies just below 0 for a record, in the first of the models with which layers are tried.
    draws = torch.randn(2, 2051, generator=fast_path_checks.seeded())
    row = (flat + 0.1 * draws[0]).double()
    reached = float(records[0].double() @ row[:4] + row[1024])
    nn.utils.vector_to_parameters(flat - (reached + 3e-7) * F.one_hot(torch.tensor(1024), 2051), net.parameters())
    applied = layers.dense_outputs

    def rounded(inputs: Tensor, weights: Tensor, biases: Tensor | None) -> Tensor:
        outputs = applied(inputs, weights, biases) * scale
        return outputs + 1e-6 if outputs.dtype == torch.float32 else outputs

    monkeypatch.setattr(layers, "dense_outputs", rounded)
    assert StackedModel(net, (4,), records).fast is fast
