"""What is released in training, as values: the kinds of noisy release that a promise is made of.

Every event describes the pair of output laws that tell two neighbouring training sets apart best, so an event needs the
sensitivity under the neighbouring relation that the promise refers to, and nothing else about the data.
"""

import math
from dataclasses import dataclass

from fl_audit.errors import require


def _require_positive(name: str, value: float) -> None:
    require(value > 0 and math.isfinite(value), f"{name} is {value}: accepted are positive finite numbers")


def require_count(count: int) -> None:
    """Raise `InputError` unless the count is a whole number of at least 1."""
    accepted = math.isfinite(count) and count >= 1 and int(count) == count
    require(accepted, f"count is {count}: accepted are whole numbers from 1")


def require_sampling_rate(sampling_rate: float) -> None:
    """Raise `InputError` unless the sampling rate lies above 0 and at most at 1."""
    require(0 < sampling_rate <= 1, f"sampling rate is {sampling_rate}: accepted are numbers above 0 and up to 1")


@dataclass(frozen=True)
class GaussianRelease:
    """A vector of L2 sensitivity `sensitivity`, released `count` times with noise N(0, sigma^2 I).

    Raises
    ------
    InputError
        If a number is not positive and finite, or the count is no whole number from 1.
    """

    sensitivity: float
    sigma: float
    count: int = 1

    def __post_init__(self) -> None:
        _require_positive("sensitivity", self.sensitivity)
        _require_positive("sigma", self.sigma)
        require_count(self.count)

    @property
    def noise_multiplier(self) -> float:
        """z = sigma / sensitivity."""
        return self.sigma / self.sensitivity

    def __str__(self) -> str:
        return f"{self.count} x Gaussian release (sensitivity {self.sensitivity:g}, sigma {self.sigma:g})"


@dataclass(frozen=True)
class SampledGaussianRelease:
    """A Gaussian release in which the differing record takes part with a secret probability, `count` times.

    Poisson sampling: every record is in each release on its own with probability `sampling_rate`. `noise_multiplier` is
    sigma over the sensitivity under the relation of the promise: sigma / C when a record comes or goes, sigma / (2C)
    when one is replaced. An insider who sees who takes part gains from no sampling: use `GaussianRelease` for it.

    Raises
    ------
    InputError
        If a number is out of its range.
    """

    noise_multiplier: float
    sampling_rate: float
    count: int = 1

    def __post_init__(self) -> None:
        _require_positive("noise multiplier", self.noise_multiplier)
        require_sampling_rate(self.sampling_rate)
        require_count(self.count)

    def __str__(self) -> str:
        return (
            f"{self.count} x Poisson-sampled Gaussian release (noise multiplier {self.noise_multiplier:g}, "
            f"sampling rate {self.sampling_rate:g})"
        )


@dataclass(frozen=True)
class LaplaceRelease:
    """A number of sensitivity `sensitivity`, released `count` times with Laplace noise of scale `scale`.

    Raises
    ------
    InputError
        If a number is not positive and finite, or the count is no whole number from 1.
    """

    sensitivity: float
    scale: float
    count: int = 1

    def __post_init__(self) -> None:
        _require_positive("sensitivity", self.sensitivity)
        _require_positive("scale", self.scale)
        require_count(self.count)

    @property
    def epsilon(self) -> float:
        """Pure epsilon of one release, sensitivity / scale."""
        return self.sensitivity / self.scale

    def __str__(self) -> str:
        return f"{self.count} x Laplace release (sensitivity {self.sensitivity:g}, scale {self.scale:g})"


@dataclass(frozen=True)
class RandomizedResponse:
    """A bit that is told truly with probability e^epsilon / (1 + e^epsilon), `count` times; neighbours differ in it.

    Raises
    ------
    InputError
        If epsilon is not positive and finite, or the count is no whole number from 1.
    """

    epsilon: float
    count: int = 1

    def __post_init__(self) -> None:
        _require_positive("epsilon", self.epsilon)
        require_count(self.count)

    def __str__(self) -> str:
        return f"{self.count} x randomized response (epsilon {self.epsilon:g})"


ReleaseEvent = GaussianRelease | SampledGaussianRelease | LaplaceRelease | RandomizedResponse
"""A kind of release."""


def gaussian_mu_squared(event: ReleaseEvent) -> float | None:
    """Return mu^2 = count (Delta / sigma)^2 if the event is Gaussian noise without sampling, otherwise None."""
    match event:
        case GaussianRelease(sensitivity, sigma, count):
            return count * (sensitivity / sigma) ** 2
        case SampledGaussianRelease(noise_multiplier, 1.0, count):
            return count / noise_multiplier**2
        case _:
            return None
