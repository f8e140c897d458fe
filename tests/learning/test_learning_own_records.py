"""Trials with records of their own, in bytes: sums and local training are those of each trial alone, in float64."""

import numpy as np
import pytest
import torch
from torch import Tensor

from fl_audit.learning import dense_chain_training, microbatching, pass_budgets
from fl_audit.learning.local_training import LocalSchedule, local_updates
from fl_audit.learning.microbatching import ClippedSumInputs
from fl_audit.learning.stacked_model import StackedModel
from tests.learning import test_learning_local_training as training
from tests.learning.gradient_truth import assert_close, clip_and_sum, example_gradients
from tests.learning.test_learning_stacked_model import NETS

TRIALS, RECORDS = 4, 6
SAMPLES = torch.tensor([[0, 0, 0, 0, 0, 0], [0, 0, 0, 1, 0, 0], [1, 0, 0, 1, 1, 0], [1, 1, 1, 1, 1, 1]]).bool()
BUDGETS = ["CACHE_BUDGET", "PASS_BUDGET", "GRADIENT_BUDGET"]
UNLIKE_CHAINS = ["mnist-cnn", "group-norm", "residual", "a layer used twice"]


def _setting(name: str, trials: int = TRIALS, records: int = RECORDS) -> tuple[StackedModel, Tensor, Tensor, Tensor]:
    """Return a model and, of every trial, its own weights, its own records of bits and the labels that all share."""
    model, models, _, labels = training._setting(name, trials, records)
    source = torch.Generator().manual_seed(3)
    bits = torch.randint(2, (trials, records, *model.feature_shape), generator=source, dtype=torch.uint8)
    return model, models, bits, labels.expand(trials, -1)


def _sums(model: StackedModel, models: Tensor, bits: Tensor, labels: Tensor, norm: float, samples: Tensor) -> Tensor:
    """Return clipped sums trial by trial, from gradients of single records."""
    rows = []
    for trial in range(len(models)):
        sample = samples[trial]
        trial_model = models[trial : trial + 1]
        gradients = example_gradients(model.template, trial_model, bits[trial, sample].float(), labels[trial, sample])
        rows.append(clip_and_sum(gradients, norm))
    return torch.cat(rows)


@pytest.mark.few_cases(8)
@pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")
@pytest.mark.parametrize("method", ["fast", "generic"])
@pytest.mark.parametrize("name", NETS)
def test_clipped_sums_are_those_of_each_trial_alone(name: str, method: str) -> None:
    model, models, bits, labels = _setting(name)
    model.fast = method == "fast"
    everybody = torch.ones(TRIALS, RECORDS, dtype=torch.bool)
    for norm in (1.0, float("inf")):
        sums = model.clipped_sum(models, bits, labels, None if norm == float("inf") else norm)
        assert_close(sums, _sums(model, models, bits, labels, norm, everybody))


@pytest.mark.few_cases(4)
@pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")
@pytest.mark.parametrize("gathered_below", [0.0, 1.0], ids=["weighted", "gathered"])
@pytest.mark.parametrize("method", ["fast", "generic"])
@pytest.mark.parametrize("name", ["logistic", "dense-128", "mnist-cnn", "group-norm"])
def test_sums_over_samples_of_own_records_are_those_of_each_trial_alone(
    name: str, method: str, gathered_below: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(microbatching, "GATHERED_BELOW", gathered_below)
    model, models, bits, labels = _setting(name)
    model.fast = method == "fast"
    sums = model.clipped_sum(models, bits, labels, 1.0, taking_part=SAMPLES)
    assert_close(sums, _sums(model, models, bits, labels, 1.0, SAMPLES))
    assert torch.equal(sums[0], torch.zeros_like(sums[0]))


@pytest.mark.few_cases(4)
@pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")
@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("method", ["fast", "generic"])
@pytest.mark.parametrize("gathered_below", [0.0, 1.0])
def test_own_records_may_be_worked_through_in_any_portions(
    gathered_below: float, method: str, budget: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(microbatching, "GATHERED_BELOW", gathered_below)
    model, models, bits, labels = _setting("mnist-cnn")
    model.fast = method == "fast"
    whole = [model.clipped_sum(models, bits, labels, 1.0, taking_part=sample) for sample in (None, SAMPLES)]
    mean = model.mean_gradients(models, bits, labels)
    monkeypatch.setattr(pass_budgets, budget, 1)
    for sample, expected in zip((None, SAMPLES), whole, strict=True):
        torch.testing.assert_close(model.clipped_sum(models, bits, labels, 1.0, taking_part=sample), expected)
    torch.testing.assert_close(model.mean_gradients(models, bits, labels), mean)


@pytest.mark.few_cases(5)
@pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")
@pytest.mark.parametrize("trials", [1, 3])
@pytest.mark.parametrize("name", ["logistic", "dense-128", "no-bias", "sigmoids", *UNLIKE_CHAINS])
def test_updates_on_own_records_are_those_of_a_torch_loop(name: str, trials: int) -> None:
    model, models, bits, labels = _setting(name, trials, 11)
    schedule = LocalSchedule(0.1, batch=4, epochs=2)
    batches = training._batches(11, schedule)
    updates = local_updates(model, models, bits, labels, schedule, batches)
    for trial in range(trials):
        alone = models[trial : trial + 1], bits[trial].float(), labels[trial]
        assert_close(updates[trial : trial + 1], training._torch_loop(model, *alone, 0.1, batches))


@pytest.mark.few_cases(4)
@pytest.mark.parametrize("together", [1, 2, 5])
@pytest.mark.parametrize("stretch", [1, 4, 7, 100])
def test_stretches_of_own_records_give_the_same(stretch: int, together: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model, models, bits, labels = _setting("dense-128", 5, 11)
    monkeypatch.setattr(dense_chain_training, "_STRETCH", stretch)
    monkeypatch.setattr(model, "trials_per_pass", lambda examples: together)
    schedule = LocalSchedule(0.1, batch=4, epochs=3)
    batches = training._batches(11, schedule)
    updates = local_updates(model, models, bits, labels, schedule, batches)
    for trial in range(5):
        alone = models[trial : trial + 1], bits[trial].float(), labels[trial]
        assert_close(updates[trial : trial + 1], training._torch_loop(model, *alone, 0.1, batches))


def test_one_trial_is_held_in_float_at_a_time() -> None:
    """The records of a pass are converted, and nothing else: records in bytes stay in bytes."""
    bits = torch.randint(2, (5, 7, 3), dtype=torch.uint8)
    work = ClippedSumInputs.of(bits, torch.zeros(7, dtype=torch.int64).expand(5, -1), None)
    assert work.features.data_ptr() == bits.data_ptr()
    microbatch = work.microbatch(slice(1, 3), slice(2, 6))
    assert microbatch.features.dtype == torch.float32
    assert microbatch.features.shape == (2, 4, 3)
    assert torch.equal(microbatch.features, bits[1:3, 2:6].float())


def test_no_own_records_sum_to_zero() -> None:
    model, models, bits, labels = _setting("logistic")
    assert not model.clipped_sum(models, bits[:, :0], labels[:, :0], 1.0).any()
    schedule = LocalSchedule(0.1, batch=4, steps=3)
    assert not local_updates(model, models, bits[:, :0], labels[:, :0], schedule, ()).any()
    assert np.array_equal(labels[0], labels[1])
