"""Public schedules by which a step size falls from round to round."""

import math
from dataclasses import dataclass
from typing import Literal, assert_never

from fl_audit.value_checks import require_number


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
