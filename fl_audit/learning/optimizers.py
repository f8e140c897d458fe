"""Server optimizers on stacked models, and their inverse: the release from successive models."""

from dataclasses import dataclass
from typing import assert_never

import torch
from torch import Tensor

from fl_audit.errors import InputError, require_number
from fl_audit.learning.names import OptimizerKind as OptimizerKind
from fl_audit.learning.stacked_layers import cached_rows

_MOMENTS = {OptimizerKind.SGD: 0, OptimizerKind.MOMENTUM: 1, OptimizerKind.ADAM: 2}
"""Number of moment tensors that each rule carries from round to round."""


@dataclass(frozen=True)
class ServerOptimizer:
    """A public server optimizer with its constants.

    Raises
    ------
    InputError
        If a constant is out of range.
    """

    kind: OptimizerKind  # SGD, heavy-ball momentum, or Adam (Kingma & Ba 2015, with bias correction)
    learning_rate: float  # step size eta, positive
    momentum: float = 0.9  # share of the last step that momentum keeps, in [0, 1)
    beta1: float = 0.9  # share of the mean gradient so far that Adam keeps, in [0, 1)
    beta2: float = 0.999  # share of the mean square so far that Adam keeps, in [0, 1)
    epsilon: float = 1e-8  # of Adam, positive

    def __post_init__(self) -> None:
        require_number("learning rate is", self.learning_rate, "positive finite numbers")
        require_number("epsilon is", self.epsilon, "positive finite numbers")
        for name in ("momentum", "beta1", "beta2"):
            require_number(f"{name} is", getattr(self, name), "numbers from 0 to below 1")

    @property
    def models_to_invert(self) -> int:
        """Number of latest models that determine the latest gradient; raises `InputError` for Adam."""
        match self.kind:
            case OptimizerKind.SGD:
                return 2
            case OptimizerKind.MOMENTUM:
                return 3
            case OptimizerKind.ADAM:  # its first step keeps little of the gradient but its signs
                raise InputError("view is 'model' with optimizer 'adam': accepted are 'sgd' and 'momentum'")
            case _:
                assert_never(self.kind)


@dataclass(frozen=True)
class OptimizerState:
    """State of an optimizer between rounds: the number of steps, and moments (trials, parameters)."""

    steps: int = 0
    moments: tuple[Tensor, ...] = ()


def step(
    optimizer: ServerOptimizer, models: Tensor, gradients: Tensor, state: OptimizerState, denominator: float = 1.0
) -> tuple[Tensor, OptimizerState]:
    """Return the models and the optimizer's state after one step; trials do not affect each other.

    Parameters
    ----------
    optimizer
        Update rule of the server.
    models
        Models, float32 (trials, parameters).
    gradients
        Gradients, or sums of gradients, float32 (trials, parameters).
    state
        State of the optimizer after the previous round; `OptimizerState()` in the first round. It is not changed.
    denominator
        Positive number by which the gradients are divided before the step, e.g. the number of records if they are sums.
    """
    steps, moments = state.steps + 1, state.moments
    slices = list(cached_rows(*models.shape))
    if len(slices) == 1:
        moved, *later = _moved(optimizer, models, gradients / denominator, moments, steps)
        return moved, OptimizerState(steps, tuple(later))
    moved, *later = (torch.empty_like(models) for _ in range(1 + _MOMENTS[optimizer.kind]))
    for rows in slices:
        earlier = tuple(moment[rows] for moment in moments)
        found = _moved(optimizer, models[rows], gradients[rows] / denominator, earlier, steps)
        for whole, part in zip((moved, *later), found, strict=True):
            whole[rows] = part
    return moved, OptimizerState(steps, tuple(later))


def _moved(
    optimizer: ServerOptimizer, models: Tensor, gradients: Tensor, moments: tuple[Tensor, ...], steps: int
) -> tuple[Tensor, ...]:
    """Return the new models and the new moments; `moments` is empty before the first step."""
    match optimizer.kind:
        case OptimizerKind.SGD:
            return (models - optimizer.learning_rate * gradients,)
        case OptimizerKind.MOMENTUM:
            velocity = optimizer.momentum * moments[0] + gradients if moments else gradients
            return models - optimizer.learning_rate * velocity, velocity
        case OptimizerKind.ADAM:
            first, second = moments or (torch.zeros_like(models), torch.zeros_like(models))
            first = optimizer.beta1 * first + (1 - optimizer.beta1) * gradients
            second = optimizer.beta2 * second + (1 - optimizer.beta2) * gradients.square()
            unbiased_first = first / (1 - optimizer.beta1**steps)
            unbiased_second = second / (1 - optimizer.beta2**steps)
            moved = models - optimizer.learning_rate * unbiased_first / (unbiased_second.sqrt() + optimizer.epsilon)
            return moved, first, second
        case _:
            assert_never(optimizer.kind)


def recover_gradient(optimizer: ServerOptimizer, models: list[Tensor]) -> Tensor:
    """Recover the last gradient from successive models, float64 (trials, parameters), exact up to rounding to float32.

    Parameters
    ----------
    optimizer
        SGD or momentum; raises `InputError` for Adam, which cannot be inverted.
    models
        Tensors (trials, parameters), oldest first: the latest `optimizer.models_to_invert` models, or in the first
        rounds all models so far; at least two.
    """
    exact = [model.double() for model in models[-optimizer.models_to_invert :]]
    velocity = (exact[-2] - exact[-1]) / optimizer.learning_rate
    if optimizer.kind is OptimizerKind.MOMENTUM and len(exact) == 3:
        velocity = velocity - optimizer.momentum * (exact[-3] - exact[-2]) / optimizer.learning_rate
    return velocity


def inversion_error(optimizer: ServerOptimizer, models: Tensor, denominator: float) -> Tensor:
    """Return the RMS rounding error of a release that was recovered from float32 models, float64 (trials,).

    It is the root mean square over coordinates of ulp(theta) n / eta, in units of the summed gradient, where ulp(theta)
    is the spacing of float32 numbers at a weight.

    Parameters
    ----------
    optimizer
        Update rule of the server, SGD or momentum.
    models
        Models, float32 (trials, parameters).
    denominator
        Fixed number n by which the server divides the sum.
    """
    ulp = (torch.nextafter(models.abs(), torch.full_like(models, torch.inf)) - models.abs()).double()
    return ulp.square().mean(dim=1).sqrt() * denominator / optimizer.learning_rate
