"""Who takes part in a round."""

from dataclasses import dataclass
from typing import Literal

from fl_audit.errors import require


@dataclass(frozen=True)
class Everybody:
    """Every unit takes part in every round."""

    kind: Literal["everybody"] = "everybody"


@dataclass(frozen=True)
class PoissonSampling:
    """Each unit takes part in each round on its own with probability q.

    Parameters
    ----------
    rate
        q, above 0 and below 1; at 1 it would be `Everybody`.

    Raises
    ------
    InputError
        If the rate is out of its range.
    """

    rate: float
    kind: Literal["poisson"] = "poisson"

    def __post_init__(self) -> None:
        require(0 < self.rate < 1, f"sampling rate is {self.rate}: accepted are numbers above 0 and below 1")


Participation = Everybody | PoissonSampling
"""The ways to take part."""


def participation_of(rate: float) -> Participation:
    """Return the participation at a sampling rate, above 0 and up to 1, where everybody takes part."""
    return Everybody() if rate == 1 else PoissonSampling(rate)


def rate_of(participation: Participation) -> float:
    """Return the probability with which a unit takes part in a round."""
    match participation:
        case Everybody():
            return 1.0
        case PoissonSampling(rate):
            return rate
