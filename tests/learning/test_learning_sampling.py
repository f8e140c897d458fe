"""Sums over samples: examples that count nothing, gathered examples, and a plain loop give the same."""

import pytest
import torch
from torch import Tensor

from fl_audit.learning import microbatching, pass_budgets
from fl_audit.learning.microbatching import ClippedSumInputs
from tests.learning.gradient_truth import assert_close, clip_and_sum, example_gradients
from tests.learning.test_learning_stacked_model import NETS, _setting

# Trial by trial: nothing, a single example, some, all.
SAMPLES = torch.tensor([[0, 0, 0, 0, 0, 0], [0, 0, 0, 1, 0, 0], [1, 0, 0, 1, 1, 0], [1, 1, 1, 1, 1, 1]]).bool()


def _loop(gradients: Tensor, taking_part: Tensor, clipping_norm: float | None) -> Tensor:
    norm = float("inf") if clipping_norm is None else clipping_norm
    pairs = zip(gradients, taking_part, strict=True)
    return torch.cat([clip_and_sum(rows[mask].unsqueeze(0), norm) for rows, mask in pairs])


@pytest.mark.few_cases(15)
@pytest.mark.parametrize("gathered_below", [0.0, 1.0], ids=["weighted", "gathered"])
@pytest.mark.parametrize("method", ["fast", "generic"])
@pytest.mark.parametrize("name", NETS)
def test_sums_over_samples_are_those_of_a_plain_loop(
    name: str, method: str, gathered_below: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(microbatching, "GATHERED_BELOW", gathered_below)
    model, models, features, labels = _setting(name, trials=4, examples=6)
    model.fast = method == "fast"
    gradients = example_gradients(model.template, models, features, labels)
    for norm in (float(gradients.norm(dim=2).median()), None):
        sums = model.clipped_sum(models, features, labels, norm, taking_part=SAMPLES)
        assert_close(sums, _loop(gradients, SAMPLES, norm))
        assert torch.equal(sums[0], torch.zeros_like(sums[0]))


@pytest.mark.parametrize("budget", ["CACHE_BUDGET", "PASS_BUDGET", "GRADIENT_BUDGET"])
@pytest.mark.parametrize("method", ["fast", "generic"])
@pytest.mark.parametrize("gathered_below", [0.0, 1.0])
def test_samples_may_be_worked_through_in_any_portions(
    gathered_below: float, method: str, budget: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(microbatching, "GATHERED_BELOW", gathered_below)
    model, models, features, labels = _setting("mnist-cnn", trials=4, examples=6)
    model.fast = method == "fast"
    whole = model.clipped_sum(models, features, labels, 1.0, taking_part=SAMPLES)
    monkeypatch.setattr(pass_budgets, budget, 1)
    torch.testing.assert_close(model.clipped_sum(models, features, labels, 1.0, taking_part=SAMPLES), whole)


def test_a_sample_of_everything_is_the_whole_sum() -> None:
    model, models, features, labels = _setting("adult-mlp", trials=3, examples=5)
    everything = torch.ones(3, 5, dtype=torch.bool)
    sums = model.clipped_sum(models, features, labels, 0.5, taking_part=everything)
    assert torch.equal(sums, model.clipped_sum(models, features, labels, 0.5))
    nobody = model.clipped_sum(models, features, labels, 0.5, taking_part=~everything)
    assert torch.equal(nobody, torch.zeros_like(sums))
    none_held = model.clipped_sum(models, features[:0], labels[:0], 0.5, taking_part=everything[:, :0])
    assert torch.equal(none_held, torch.zeros_like(sums))


def test_small_samples_are_gathered_and_large_ones_weighted() -> None:
    features = torch.randn(10, 2)
    labels = torch.arange(10)
    small_samples = torch.zeros(3, 10, dtype=torch.bool)
    large_samples = torch.zeros(3, 10, dtype=torch.bool)
    small_samples[0, [7, 2]] = small_samples[1, 9] = large_samples[2, :5] = True
    gathered = ClippedSumInputs.of(features, labels, small_samples)
    assert gathered.width == 2
    microbatch = gathered.microbatch(slice(0, 2), slice(0, 2))
    assert microbatch.labels.tolist() == [[2, 7], [9, 0]]
    assert torch.equal(microbatch.features[1, 0], features[9])
    assert microbatch.sample_weights is not None
    assert microbatch.sample_weights.tolist() == [[1.0, 1.0], [1.0, 0.0]]
    assert ClippedSumInputs.of(features, labels, large_samples).width == 10
    assert ClippedSumInputs.of(features, labels, None).sample_weights is None
