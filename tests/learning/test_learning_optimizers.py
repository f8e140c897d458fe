"""Server optimizers against torch.optim, and the way back from models to gradients."""

import math
from collections.abc import Callable

import pytest
import torch
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAdagrad, FedAdam, FedYogi, Strategy
from torch import Tensor, nn

from fl_audit.learning.optimizers import (
    ExponentialDecay,
    OptimizerState,
    ServerOptimizer,
    ServerOptimizerKind,
    inversion_error,
    recover_gradient,
    step,
)
from fl_audit.strategies.flower_grids import make_messages_for
from tests.builders.refusals import assert_refused

ROUNDS = 10
TRIALS = 3
PARAMETERS = 40
Reference = Callable[[list[nn.Parameter]], torch.optim.Optimizer]


def _gradients() -> list[Tensor]:
    source = torch.Generator().manual_seed(4)
    scale = torch.tensor([[1e-3], [1.0], [30.0]])
    return [scale * torch.randn(TRIALS, PARAMETERS, generator=source) for _ in range(ROUNDS)]


def _path(optimizer: ServerOptimizer, gradients: list[Tensor]) -> list[Tensor]:
    """Return the models of all rounds, the initial ones first."""
    models = [torch.randn(TRIALS, PARAMETERS, generator=torch.Generator().manual_seed(5))]
    state = OptimizerState()
    for gradient in gradients:
        moved, state = step(optimizer, models[-1], gradient, state)
        models.append(moved)
    assert state.steps == len(gradients)
    return models


@pytest.mark.parametrize(
    ("optimizer", "reference"),
    [
        (ServerOptimizer(ServerOptimizerKind.SGD, 0.3), lambda weights: torch.optim.SGD(weights, lr=0.3)),
        (
            ServerOptimizer(ServerOptimizerKind.MOMENTUM, 0.1, momentum=0.8),
            lambda weights: torch.optim.SGD(weights, lr=0.1, momentum=0.8),
        ),
        (
            ServerOptimizer(ServerOptimizerKind.MOMENTUM, 0.1, momentum=0.0),
            lambda weights: torch.optim.SGD(weights, lr=0.1),
        ),
        (ServerOptimizer(ServerOptimizerKind.ADAM, 0.005), lambda weights: torch.optim.Adam(weights, lr=0.005)),
        (
            ServerOptimizer(ServerOptimizerKind.ADAM, 0.05, beta1=0.7, beta2=0.95, epsilon=1e-3),
            lambda weights: torch.optim.Adam(weights, lr=0.05, betas=(0.7, 0.95), eps=1e-3),
        ),
    ],
)
def test_ten_steps_are_torchs(optimizer: ServerOptimizer, reference: Reference) -> None:
    gradients = _gradients()
    models = _path(optimizer, gradients)
    for trial in range(TRIALS):  # each trial alone, so that none leans on another
        weights = nn.Parameter(models[0][trial].clone())
        theirs = reference([weights])
        for gradient, expected in zip(gradients, models[1:], strict=True):
            weights.grad = gradient[trial].clone()
            theirs.step()
            torch.testing.assert_close(expected[trial], weights.detach(), rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("kind", list(ServerOptimizerKind))
def test_a_step_changes_no_input(kind: ServerOptimizerKind) -> None:
    optimizer = ServerOptimizer(kind, 0.1)
    models = torch.ones(2, 3)
    gradients = torch.full((2, 3), 0.5)
    first, state = step(optimizer, models, gradients, OptimizerState())
    moments = [moment.clone() for moment in state.moments]
    second, _ = step(optimizer, first, gradients, state)
    again, _ = step(optimizer, first, gradients, state)
    assert torch.equal(second, again)
    assert torch.equal(models, torch.ones(2, 3))
    assert torch.equal(gradients, torch.full((2, 3), 0.5))
    assert all(torch.equal(now, then) for now, then in zip(state.moments, moments, strict=True))


@pytest.mark.parametrize("kind", list(ServerOptimizerKind))
def test_a_step_of_many_large_models_is_that_of_each_alone(kind: ServerOptimizerKind) -> None:
    optimizer = ServerOptimizer(kind, 0.1)
    source = torch.Generator().manual_seed(6)
    models, first, second = torch.randn(3, 5, 70_000, generator=source)
    moved, state = step(optimizer, models, first, OptimizerState(), denominator=7.0)
    moved, state = step(optimizer, moved, second, state, denominator=7.0)
    for trial in range(5):
        rows = slice(trial, trial + 1)
        alone, single_state = step(optimizer, models[rows], first[rows] / 7.0, OptimizerState())
        alone, single_state = step(optimizer, alone, second[rows] / 7.0, single_state)
        assert torch.equal(moved[rows], alone)
        for whole, moment in zip(state.moments, single_state.moments, strict=True):
            assert torch.equal(whole[rows], moment)


def test_adam_stands_still_without_gradients() -> None:
    models = torch.ones(2, 3)
    moved, _ = step(ServerOptimizer(ServerOptimizerKind.ADAM, 0.1), models, torch.zeros(2, 3), OptimizerState())
    assert torch.equal(moved, models)


@pytest.mark.parametrize("eta", [1e-3, 0.1, 2.0])
@pytest.mark.parametrize("kind", [ServerOptimizerKind.SGD, ServerOptimizerKind.MOMENTUM])
def test_the_gradient_is_recovered_within_the_stated_error(kind: ServerOptimizerKind, eta: float) -> None:
    optimizer = ServerOptimizer(kind, eta, momentum=0.9)
    denominator = 50
    gradients = _gradients()
    models = _path(optimizer, gradients)
    for index, gradient in enumerate(gradients):
        model_path = models[: index + 2]
        recovered = recover_gradient(optimizer, model_path[-optimizer.models_to_invert :], index + 1)
        assert recovered.dtype == torch.float64
        assert torch.equal(recovered, recover_gradient(optimizer, model_path, index + 1))
        error = (recovered - gradient.double()).square().mean(dim=1).sqrt() * denominator
        scale = inversion_error(
            optimizer, torch.maximum(model_path[-1].abs(), model_path[-2].abs()), denominator, index + 1
        )
        # Two roundings of half an ulp, of the product and of the sum, and twice as many under momentum.
        assert bool((error <= 2 * scale).all())
        if kind is ServerOptimizerKind.SGD and index == 0:
            assert bool((error >= 0.05 * scale).all())  # the scale is no idle bound


@pytest.mark.parametrize("decay", [None, ExponentialDecay(0.5)])
def test_momentum_is_inverted_exactly_where_nothing_is_rounded(decay: ExponentialDecay | None) -> None:
    optimizer = ServerOptimizer(ServerOptimizerKind.MOMENTUM, 0.5, momentum=0.5, decay=decay)
    gradients = [torch.tensor([[1.0, -2.0]]), torch.tensor([[3.0, 0.5]]), torch.tensor([[-1.0, 4.0]])]
    models = [torch.zeros(1, 2)]
    state = OptimizerState()
    for number, gradient in enumerate(gradients, start=1):
        moved, state = step(optimizer, models[-1], gradient, state)
        models.append(moved)
        assert torch.equal(recover_gradient(optimizer, models, number), gradient.double())


def test_the_error_is_an_ulp_of_the_weights_in_the_unit_of_the_sum() -> None:
    models = torch.tensor([[1.0, 1.5, -1.0], [2.0, -3.0, 2.5], [0.0, 0.0, 0.0]])
    ulp = 2.0**-23
    errors = inversion_error(ServerOptimizer(ServerOptimizerKind.SGD, 0.25), models, 100, 1)
    torch.testing.assert_close(errors[:2], torch.tensor([ulp, 2 * ulp], dtype=torch.float64) * 400, rtol=1e-12, atol=0)
    assert 0 <= float(errors[2]) < 1e-40


def test_only_adam_cannot_be_inverted() -> None:
    adam = ServerOptimizer(ServerOptimizerKind.ADAM, 0.1)
    assert_refused(r"'adam': .*'sgd' and 'momentum'", recover_gradient, adam, [torch.zeros(1, 2), torch.ones(1, 2)], 1)
    for kind, models in ((ServerOptimizerKind.SGD, 2), (ServerOptimizerKind.MOMENTUM, 3)):
        assert ServerOptimizer(kind, 0.1).models_to_invert == models


@pytest.mark.parametrize(
    ("name", "value"),
    [(name, value) for name in ("learning_rate", "epsilon") for value in (0.0, -0.1, math.nan, math.inf)]
    + [(name, value) for name in ("momentum", "beta1", "beta2") for value in (-0.1, 1.0, 1.5, math.nan)],
)
def test_refuses_constants_out_of_range(name: str, value: float) -> None:
    named = f"{name.replace('_', '.')} is {value}: accepted"
    assert_refused(named, ServerOptimizer, **{"kind": ServerOptimizerKind.ADAM, "learning_rate": 0.1, name: value})


def _flowers_path(strategy: Strategy, gradients: list[Tensor]) -> list[Tensor]:
    """Return the models of the first trial as a strategy of Flower makes them of updates, the initial ones first."""
    models = [torch.randn(TRIALS, PARAMETERS, generator=torch.Generator().manual_seed(5))[0]]
    for number, gradient in enumerate(gradients, start=1):
        before = ArrayRecord({"w": Array(models[-1].numpy())})
        strategy.current_arrays = {"w": models[-1].numpy()}  # type: ignore[attr-defined]
        trained = ArrayRecord({"w": Array((models[-1] - gradient[0]).numpy())})
        content = RecordDict({"arrays": trained, "metrics": MetricRecord({"num-examples": 1})})
        request = Message(RecordDict({"arrays": before}), 2, "train")
        arrays, _ = strategy.aggregate_train(number, [Message(content, reply_to=request)])
        assert arrays is not None
        models.append(torch.tensor(arrays["w"].numpy()))
    return models


@pytest.mark.parametrize(
    ("kind", "strategy"),
    [(ServerOptimizerKind.YOGI, FedYogi(eta=0.05)), (ServerOptimizerKind.ADAGRAD, FedAdagrad(eta=0.05))],
)
def test_yogi_and_adagrad_are_flowers(kind: ServerOptimizerKind, strategy: Strategy) -> None:
    make_messages_for(1, 1)
    gradients = [0.1 * gradient.roll(1, dims=0) for gradient in _gradients()]
    model_path = _path(ServerOptimizer.of_kind(kind, 0.05, 0.9), gradients)
    for ours, flowers in zip(model_path, _flowers_path(strategy, gradients), strict=True):
        torch.testing.assert_close(ours[0], flowers.float(), rtol=1e-5, atol=1e-5)


def test_adam_is_flowers_but_for_a_bias_correction_that_flower_takes_one_round_late() -> None:
    make_messages_for(1, 1)
    gradients = [gradient.roll(1, dims=0) for gradient in _gradients()]
    beta1, beta2 = 0.9, 0.99
    ours = _path(ServerOptimizer(ServerOptimizerKind.ADAM, 0.05, beta1=beta1, beta2=beta2, epsilon=1e-12), gradients)
    flowers = _flowers_path(FedAdam(eta=0.05, beta_1=beta1, beta_2=beta2, tau=1e-12), gradients)
    for number in range(1, ROUNDS + 1):
        # Kingma and Ba correct the moments of step t by 1 - beta^t; Flower's FedAdam has 1 - beta^(t + 1) in round t.
        corrections = [math.sqrt(1 - beta2**power) / (1 - beta1**power) for power in (number, number + 1)]
        step_of_flower = (flowers[number] - flowers[number - 1]).double() * corrections[0] / corrections[1]
        torch.testing.assert_close((ours[number] - ours[number - 1])[0].double(), step_of_flower, rtol=1e-4, atol=1e-6)
