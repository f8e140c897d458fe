"""Class weights, label smoothing and falling step sizes, against torch's own."""

import copy
from functools import partial
from itertools import product

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import grad, vmap

from fl_audit.learning import dense_chain_training
from fl_audit.learning.gradient_norms_and_products import gradient_norms_and_products
from fl_audit.learning.local_training import LocalSchedule, local_batches, local_updates, member_updates
from fl_audit.learning.losses import TrainingLoss, label_targets, loss_of
from fl_audit.learning.optimizers import (
    CosineDecay,
    ExponentialDecay,
    OptimizerState,
    RateDecay,
    ServerOptimizer,
    ServerOptimizerKind,
    share_of_rate,
    step,
)
from fl_audit.learning.private_training import LocalDPSGDSettings, private_updates
from fl_audit.learning.stacked_model import StackedModel
from fl_audit.privacy.accounting_enums import VectorNorm
from tests.learning.gradient_truth import record_gradients
from tests.learning.test_learning_ways import FAST, GENERIC


def _torch_gradients(model: StackedModel, start: Tensor, features: Tensor, labels: Tensor) -> Tensor:
    """Return each record's gradient of torch's own loss in one trial, float64 (records, parameters)."""
    weights = torch.tensor(model.loss.class_weights).double() if model.loss.class_weights else None
    loss = partial(F.cross_entropy, weight=weights, reduction="sum", label_smoothing=model.loss.label_smoothing)
    return record_gradients(copy.deepcopy(model.template).requires_grad_(True), features, labels, start, loss=loss)


LOSSES = [TrainingLoss((0.5, 4.0, 1.5)), TrainingLoss(label_smoothing=0.2), TrainingLoss((0.5, 4.0, 1.5), 0.2)]
RECORDS = 11


def _setting(name: str, loss: TrainingLoss) -> tuple[StackedModel, Tensor, Tensor, Tensor]:
    """Return a model that is trained with a loss, parameters of three trials, and records of three classes."""
    torch.manual_seed(5)
    chain = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))
    make, shape = (FAST | GENERIC | {"chain": (lambda: chain, (4,))})[name]
    module = make()
    assert module(torch.randn(2, *shape)).shape[1] == 3
    model = StackedModel(module, shape)
    models = model.layout.flatten(dict(module.named_parameters())) + 0.2 * torch.randn(3, model.layout.size)
    return model.trained_with(loss), models, torch.randn(RECORDS, *shape), torch.arange(RECORDS) % 3


@pytest.mark.few_cases(6)
@pytest.mark.parametrize(("name", "loss"), product(["chain", "residual"], LOSSES))
@pytest.mark.parametrize("norm", VectorNorm)
def test_clipped_sums_are_those_of_torchs_gradients(name: str, loss: TrainingLoss, norm: VectorNorm) -> None:
    model, models, features, labels = _setting(name, loss)
    sums = model.clipping_in(norm).clipped_sum(models, features, labels, 0.7)
    mean = model.mean_gradients(models, features, labels)
    vectors = torch.randn(3, model.layout.size, generator=torch.Generator().manual_seed(1))
    norms, products = gradient_norms_and_products(model, models, features, labels, vectors)
    for row, start in enumerate(models):
        truth = _torch_gradients(model, start, features, labels)
        lengths = torch.linalg.vector_norm(truth, ord=norm.order, dim=1, keepdim=True)
        clipped = (truth * (0.7 / lengths).clamp(max=1)).sum(0)
        torch.testing.assert_close(sums[row].double(), clipped, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(mean[row].double(), truth.mean(0), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(norms[row].double(), truth.norm(dim=1), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(products[row].double(), truth @ vectors[row].double(), rtol=1e-3, atol=1e-4)
    plain = F.cross_entropy(model.logits(models, features)[0], labels, reduction="none")
    torch.testing.assert_close(model.losses(models, features, labels)[0], plain)


@pytest.mark.few_cases(6)
@pytest.mark.parametrize(("name", "loss"), product(["chain", "residual"], LOSSES))
@pytest.mark.parametrize("stretch", [4, 100])
def test_local_training_is_sgd_on_torchs_loss(
    name: str, loss: TrainingLoss, stretch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, models, features, labels = _setting(name, loss)
    monkeypatch.setattr(dense_chain_training, "_STRETCH", stretch)
    schedule = LocalSchedule(0.1, batch=4, epochs=3)
    batches = local_batches(RECORDS, schedule, np.random.default_rng(2))
    updates = local_updates(model, models, features, labels, schedule, batches)
    for row, start in enumerate(models.double()):
        current = start
        for batch in batches:
            current = current - 0.1 * _torch_gradients(model, current, features[batch], labels[batch]).mean(0)
        truth = start - current
        assert float((updates[row] - truth).abs().max()) <= 2e-5 * float(truth.abs().max())
    tiled_batches = [np.tile(batch, (3, 1)) for batch in batches]
    by_trial = member_updates(model, models, features, labels, schedule, tiled_batches)
    torch.testing.assert_close(by_trial, updates, rtol=1e-3, atol=1e-5)
    if name == "chain":
        trial_records = (features.expand(3, *features.shape), labels.expand(3, -1))
        torch.testing.assert_close(
            local_updates(model, models, *trial_records, schedule, batches), updates, rtol=1e-4, atol=1e-6
        )


@pytest.mark.parametrize("loss", LOSSES)
def test_clipped_steps_of_opacus_are_those_of_torchs_gradients(loss: TrainingLoss) -> None:
    model, models, features, labels = _setting("chain", loss)
    settings = LocalDPSGDSettings(LocalSchedule(0.3, batch=100, steps=1), 0.7, 0.0)
    training_result = private_updates(
        model, models, features, labels, settings, [np.random.default_rng(row) for row in range(3)]
    )
    for row, start in enumerate(models):
        truth = _torch_gradients(model, start, features, labels)
        clipped = (truth * (0.7 / truth.norm(dim=1, keepdim=True)).clamp(max=1)).sum(0)
        torch.testing.assert_close(training_result.updates[row].double(), 0.3 * clipped / RECORDS, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("loss", LOSSES)
def test_sums_and_means_are_those_of_the_records_losses(loss: TrainingLoss) -> None:
    outputs = torch.randn(7, 3, dtype=torch.float64)
    labels = torch.arange(7) % 3
    record_losses = loss_of(outputs, labels, "none", loss)
    torch.testing.assert_close(loss_of(outputs, labels, "sum", loss), record_losses.sum())
    torch.testing.assert_close(loss_of(outputs, labels, "mean", loss), record_losses.mean())


def test_weights_that_a_transform_of_torch_asks_for_first_can_be_used_after_it() -> None:
    loss = TrainingLoss((0.25, 3.0, 1.0), 0.1)
    outputs = torch.randn(4, 3)
    labels = torch.tensor([0, 1, 2, 1])
    gradients = vmap(grad(lambda output, label: loss_of(output[None], label[None], "sum", loss)))(outputs, labels)
    inputs = outputs.clone().requires_grad_()
    truth = torch.autograd.grad(loss_of(inputs, labels, "sum", loss), inputs)[0]
    torch.testing.assert_close(gradients, truth)
    assert label_targets(labels, 3, torch.float32, loss).numpy().shape == (4, 3)


@pytest.mark.parametrize("decay", [ExponentialDecay(0.8), CosineDecay(9)])
def test_step_sizes_are_those_of_torchs_schedulers(decay: RateDecay) -> None:
    weights = nn.Parameter(torch.tensor([1.0, -2.0, 0.5]))
    optimizer = torch.optim.SGD([weights], lr=0.3, momentum=0.9)
    scheduler: torch.optim.lr_scheduler.LRScheduler = (
        torch.optim.lr_scheduler.ExponentialLR(optimizer, decay.factor)
        if isinstance(decay, ExponentialDecay)
        else torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, decay.rounds)
    )
    server_optimizer = ServerOptimizer(ServerOptimizerKind.MOMENTUM, 0.3, 0.9, decay=decay)
    schedule = LocalSchedule(0.3, batch=4, epochs=1, decay=decay)
    models = weights.detach().clone()[None]
    state = OptimizerState()
    for number in range(1, 10):
        rate = scheduler.get_last_lr()[0]
        assert share_of_rate(decay, number) * 0.3 == pytest.approx(rate, rel=1e-12)
        assert (
            server_optimizer.rate_at(number)
            == schedule.at_round(number).learning_rate
            == pytest.approx(rate, rel=1e-12)
        )
        weights.grad = torch.randn(3)
        models, state = step(server_optimizer, models, weights.grad[None], state)
        optimizer.step()
        scheduler.step()
        torch.testing.assert_close(models[0], weights.detach())
