"""Server optimizers for the models of all trials, and their inverse, which recovers the summed gradient from models."""

import math
from dataclasses import dataclass
from typing import Literal, assert_never

import torch
from torch import Tensor

from fl_audit.errors import InputError
from fl_audit.learning.stacked_layers import cached_rows
from fl_audit.learning.training_enums import ServerOptimizerKind as ServerOptimizerKind
from fl_audit.value_checks import require_number

_MOMENTS = {
    ServerOptimizerKind.SGD: 0,
    ServerOptimizerKind.MOMENTUM: 1,
    ServerOptimizerKind.ADAM: 2,
    ServerOptimizerKind.YOGI: 2,
    ServerOptimizerKind.ADAGRAD: 1,
}
"""Number of moment tensors that an optimizer keeps from round to round, keyed by optimizer."""


@dataclass(frozen=True)
class ExponentialDecay:
    """A step size that is multiplied by a factor after every round, as of `torch.optim.lr_scheduler.ExponentialLR`."""

    factor: float  # above 0, up to 1
    kind: Literal["exponential"] = "exponential"

    def __post_init__(self) -> None:
        require_number("learning-rate decay is", self.factor, "numbers above 0 up to 1")


@dataclass(frozen=True)
class CosineDecay:
    """A step size that falls by half a period of a cosine, as of `torch.optim.lr_scheduler.CosineAnnealingLR`.

    The round after the last would have step size 0. Source: Loshchilov and Hutter 2017, "SGDR: stochastic gradient
    descent with warm restarts", equation 5, without restarts.
    """

    rounds: int  # number of rounds of the training, at least 1
    kind: Literal["cosine"] = "cosine"

    def __post_init__(self) -> None:
        require_number("rounds are", self.rounds, "whole numbers from 1")


RateDecay = ExponentialDecay | CosineDecay
"""A schedule of any kind."""


def share_of_rate(decay: RateDecay | None, number: int) -> float:
    """Return the share of the first round's step size that is left in a round; 1 without a schedule.

    Parameters
    ----------
    decay
        Schedule of the step size; None if it is constant.
    number
        Number of the round, from 1.
    """
    match decay:
        case None:
            return 1.0
        case ExponentialDecay(factor):
            return float(factor ** (number - 1))
        case CosineDecay(rounds):
            return (1 + math.cos(math.pi * (number - 1) / rounds)) / 2
        case _:
            assert_never(decay)


@dataclass(frozen=True)
class ServerOptimizer:
    """A server optimizer with its constants, all of which are public.

    Yogi and Adagrad are those of Reddi et al. 2021, "Adaptive federated optimization", algorithm 2, whose tau is
    `epsilon`; they start from moments of zero, and Adagrad has no momentum.

    Raises
    ------
    InputError
        If a constant is out of range.
    """

    kind: ServerOptimizerKind  # SGD, heavy-ball momentum, Adam (Kingma & Ba 2015, bias-corrected), Yogi or Adagrad
    learning_rate: float  # step size eta of the first round, positive
    momentum: float = 0.9  # factor of the previous velocity in heavy-ball momentum, in [0, 1)
    beta1: float = 0.9  # decay factor of the running mean of gradients of Adam and Yogi, in [0, 1)
    beta2: float = 0.999  # decay factor of the second moment of Adam and Yogi, in [0, 1)
    epsilon: float = 1e-8  # number that Adam, Yogi and Adagrad add to the denominator of their step, positive
    decay: RateDecay | None = None  # schedule by which the step size falls from round to round; None if it is constant

    def __post_init__(self) -> None:
        require_number("learning rate is", self.learning_rate, "positive finite numbers")
        require_number("epsilon is", self.epsilon, "positive finite numbers")
        for name in ("momentum", "beta1", "beta2"):
            require_number(f"{name} is", getattr(self, name), "numbers from 0 to below 1")

    @classmethod
    def of_kind(
        cls, kind: ServerOptimizerKind, learning_rate: float, momentum: float, decay: RateDecay | None = None
    ) -> "ServerOptimizer":
        """Return the optimizer of a kind with its usual constants.

        For Yogi and Adagrad they are beta2 = 0.99 and tau = 0.001, as in Reddi et al. 2021.

        Parameters
        ----------
        kind
            Kind of the optimizer.
        learning_rate
            Step size, positive.
        momentum
            Factor of the previous velocity, in [0, 1), for momentum alone.
        decay
            Schedule of the step size over the rounds; None if it is constant.
        """
        if kind in (ServerOptimizerKind.YOGI, ServerOptimizerKind.ADAGRAD):
            return cls(kind, learning_rate, momentum, beta2=0.99, epsilon=1e-3, decay=decay)
        return cls(kind, learning_rate, momentum, decay=decay)

    def rate_at(self, number: int) -> float:
        """Return the step size of a round.

        Parameters
        ----------
        number
            Number of the round, from 1.
        """
        return self.learning_rate * share_of_rate(self.decay, number)

    @property
    def models_to_invert(self) -> int:
        """Number of latest models that suffice to recover the gradient of the latest step: 2 for SGD, 3 for momentum.

        Raises
        ------
        InputError
            If the optimizer is Adam, Yogi or Adagrad, whose steps cannot be inverted.
        """
        match self.kind:
            case ServerOptimizerKind.SGD:
                return 2
            case ServerOptimizerKind.MOMENTUM:
                return 3
            # The first steps of these keep little of the gradient but its signs.
            case ServerOptimizerKind.ADAM | ServerOptimizerKind.YOGI | ServerOptimizerKind.ADAGRAD:
                raise InputError(f"view is 'model' with optimizer '{self.kind}': accepted are 'sgd' and 'momentum'")
            case _:
                assert_never(self.kind)


@dataclass(frozen=True)
class OptimizerState:
    """State of a server optimizer between rounds: the number of steps, and the moments of gradients."""

    steps: int = 0  # number of steps so far
    # Velocity of momentum, Adam's and Yogi's two moments, or Adagrad's sum of squares, each (trials, parameters). Empty
    # before the first step and for SGD.
    moments: tuple[Tensor, ...] = ()


def step(
    optimizer: ServerOptimizer, models: Tensor, gradients: Tensor, state: OptimizerState, denominator: float = 1.0
) -> tuple[Tensor, OptimizerState]:
    """Return the models of all trials, float32 (trials, parameters), and the optimizer's state after one server step.

    Parameters
    ----------
    optimizer
        Optimizer of the server.
    models
        Models before the step, float32 (trials, parameters).
    gradients
        Gradient, or sum of gradients, for each trial, float32 (trials, parameters).
    state
        State after the previous round; `OptimizerState()` in the first round. It is not changed.
    denominator
        Positive number by which the gradients are divided before the step, for example the number of records of a sum.
    """
    steps = state.steps + 1
    moments = state.moments
    slices = list(cached_rows(*models.shape))
    if len(slices) == 1:
        moved, *later = _moved(optimizer, models, gradients / denominator, moments, steps)
        return moved, OptimizerState(steps, tuple(later))
    moved, *later = (torch.empty_like(models) for _ in range(1 + _MOMENTS[optimizer.kind]))
    for rows in slices:
        earlier = tuple(moment[rows] for moment in moments)
        moved_rows = _moved(optimizer, models[rows], gradients[rows] / denominator, earlier, steps)
        for whole, rows_of_tensor in zip((moved, *later), moved_rows, strict=True):
            whole[rows] = rows_of_tensor
    return moved, OptimizerState(steps, tuple(later))


def _moved(
    optimizer: ServerOptimizer, models: Tensor, gradients: Tensor, moments: tuple[Tensor, ...], steps: int
) -> tuple[Tensor, ...]:
    """Return the models after one optimizer step, followed by the new moments; all have shape (trials, parameters).

    `steps` is the number of this step, from 1, by which the step size and the bias correction of Adam follow.
    """
    rate = optimizer.rate_at(steps)
    match optimizer.kind:
        case ServerOptimizerKind.SGD:
            return (models - rate * gradients,)
        case ServerOptimizerKind.MOMENTUM:
            velocity = optimizer.momentum * moments[0] + gradients if moments else gradients
            return models - rate * velocity, velocity
        case ServerOptimizerKind.ADAM:
            first, second = moments or (torch.zeros_like(models), torch.zeros_like(models))
            first = optimizer.beta1 * first + (1 - optimizer.beta1) * gradients
            second = optimizer.beta2 * second + (1 - optimizer.beta2) * gradients.square()
            unbiased_first = first / (1 - optimizer.beta1**steps)
            unbiased_second = second / (1 - optimizer.beta2**steps)
            moved = models - rate * unbiased_first / (unbiased_second.sqrt() + optimizer.epsilon)
            return moved, first, second
        case ServerOptimizerKind.YOGI:
            first, second = moments or (torch.zeros_like(models), torch.zeros_like(models))
            squares = gradients.square()
            first = optimizer.beta1 * first + (1 - optimizer.beta1) * gradients
            second = second - (1 - optimizer.beta2) * squares * (second - squares).sign()
            return models - rate * first / (second.sqrt() + optimizer.epsilon), first, second
        case ServerOptimizerKind.ADAGRAD:
            total = (moments[0] if moments else torch.zeros_like(models)) + gradients.square()
            return models - rate * gradients / (total.sqrt() + optimizer.epsilon), total
        case _:
            assert_never(optimizer.kind)


def recover_gradient(optimizer: ServerOptimizer, models: list[Tensor], number: int) -> Tensor:
    """Return the latest gradient, float64 (trials, parameters), computed from successive models.

    The result is exact up to the rounding of the models to float32.

    Parameters
    ----------
    optimizer
        Optimizer of the server, SGD or momentum; raises `InputError` for the others, which cannot be inverted.
    models
        Models (trials, parameters), oldest first: the latest `optimizer.models_to_invert`, or all if there are fewer,
        but at least two.
    number
        Number of the round that led to the last of the models, from 1.
    """
    exact = [model.double() for model in models[-optimizer.models_to_invert :]]
    velocity = (exact[-2] - exact[-1]) / optimizer.rate_at(number)
    if optimizer.kind is ServerOptimizerKind.MOMENTUM and len(exact) == 3:
        velocity = velocity - optimizer.momentum * (exact[-3] - exact[-2]) / optimizer.rate_at(number - 1)
    return velocity


def inversion_error(optimizer: ServerOptimizer, models: Tensor, denominator: float, number: int) -> Tensor:
    """Return the RMS rounding error of a release that is recovered from float32 models, float64 (trials,).

    It is the root mean square of ulp(theta) n / eta over all coordinates. Here ulp(theta) is the spacing of float32
    numbers at the weight theta, and eta is the learning rate. The error has the unit of the summed gradient.

    Parameters
    ----------
    optimizer
        Optimizer of the server, SGD or momentum.
    models
        Models with the weights theta, float32 (trials, parameters).
    denominator
        Fixed number n by which the server divides the summed gradient.
    number
        Number of the round, from 1.
    """
    ulp = (torch.nextafter(models.abs(), torch.full_like(models, torch.inf)) - models.abs()).double()
    return ulp.square().mean(dim=1).sqrt() * denominator / optimizer.rate_at(number)
