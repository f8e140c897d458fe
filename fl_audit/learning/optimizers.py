"""Server optimizers on stacked models: how the next model follows from a release, and the release from the models."""

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
    """A public optimizer with its constants.

    Raises
    ------
    InputError
        If a constant is out of its range.
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
        """Number of successive models, newest included, that determine the newest gradient; `InputError` for Adam."""
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
    """State that an optimizer carries from round to round: the number of steps, and moments shaped like the models."""

    steps: int = 0
    moments: tuple[Tensor, ...] = ()


def step(
    optimizer: ServerOptimizer, models: Tensor, gradients: Tensor, state: OptimizerState, denominator: float = 1.0
) -> tuple[Tensor, OptimizerState]:
    """Move stacked models one step; every weight moves on its own, so that no trial affects another.

    Parameters
    ----------
    optimizer
        Update rule of the server.
    models
        Models, float32 (trials, parameters).
    gradients
        Gradients, or their sums, float32 (trials, parameters).
    state
        State of the optimizer after the previous round; a new one is returned; `OptimizerState()` in the first round.
    denominator
        Divisor of the gradients before the step, positive; the number of records where they are sums.
    """
    steps, moments = state.steps + 1, state.moments
    moved, *later = (torch.empty_like(models) for _ in range(1 + _MOMENTS[optimizer.kind]))
    for rows in cached_rows(*models.shape):
        earlier = tuple(moment[rows] for moment in moments)
        found = _moved(optimizer, models[rows], gradients[rows] / denominator, earlier, steps)
        for whole, part in zip((moved, *later), found, strict=True):
            whole[rows] = part
    return moved, OptimizerState(steps, tuple(later))


def _moved(
    optimizer: ServerOptimizer, models: Tensor, gradients: Tensor, moments: tuple[Tensor, ...], steps: int
) -> tuple[Tensor, ...]:
    """Return the new models and moments; there are no moments before the first step."""
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
        SGD or momentum; `InputError` if it cannot be inverted.
    models
        Tensors (trials, parameters), oldest first: the newest `optimizer.models_to_invert` models, or all there are in
        the first rounds; at least two.
    """
    exact = [model.double() for model in models[-optimizer.models_to_invert :]]
    velocity = (exact[-2] - exact[-1]) / optimizer.learning_rate
    if optimizer.kind is OptimizerKind.MOMENTUM and len(exact) == 3:
        velocity = velocity - optimizer.momentum * (exact[-3] - exact[-2]) / optimizer.learning_rate
    return velocity


def inversion_error(optimizer: ServerOptimizer, models: Tensor, denominator: float) -> Tensor:
    """Return the size of the rounding error of a release that was recovered from float32 models, float64 (trials,).

    In the unit of the summed gradient: the root mean square over coordinates of ulp(theta) n / eta, where ulp(theta) is
    the spacing of float32 numbers at a weight.

    Parameters
    ----------
    optimizer
        Update rule of the server, SGD or momentum.
    models
        Models, float32 (trials, parameters).
    denominator
        The fixed n by which the server divides the sum.
    """
    ulp = (torch.nextafter(models.abs(), torch.full_like(models, torch.inf)) - models.abs()).double()
    return ulp.square().mean(dim=1).sqrt() * denominator / optimizer.learning_rate
