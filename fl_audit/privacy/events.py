"""Release events: the noisy outputs of a training, from which an accountant computes a guarantee.

Every event describes the two output distributions, under neighbouring training sets, that are easiest to tell apart (a
dominating pair). So an event depends on the data only through the sensitivity under the guarantee's adjacency.

Every event says what claims, calibration and reports need of it: the distribution of its noise, the epsilon of its pure
DP, if it has one, and the scale of its noise over the sensitivity. Only accountants match on the kind of an event.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, assert_never

from fl_audit.errors import require
from fl_audit.privacy.accounting_enums import NoiseDistribution
from fl_audit.privacy.gaussian import gaussian_mu, require_noise_multiplier, require_positive, require_whole
from fl_audit.value_checks import require_number


def require_sampling_rate(sampling_rate: float) -> None:
    """Check that the sampling rate is from 1e-20 to 1; raise `InputError` otherwise."""
    require_number("sampling rate is", sampling_rate, "numbers from 1e-20 and up to 1")


@dataclass(frozen=True)
class GaussianRelease:
    """Gaussian mechanism: `count` releases of a vector with L2 sensitivity `sensitivity` and noise N(0, sigma^2 I).

    Raises `InputError` if a number is not positive and finite, or the count is not an integer from 1.
    """

    sensitivity: float
    sigma: float
    count: int = 1
    sampling_rate: ClassVar[float] = 1.0
    distribution: ClassVar = NoiseDistribution.GAUSSIAN
    pure_epsilon: ClassVar[None] = None

    def __post_init__(self) -> None:
        require_positive(sensitivity=self.sensitivity, sigma=self.sigma)
        require_noise_multiplier(self.noise_multiplier)
        require_whole(count=self.count)

    @property
    def noise_multiplier(self) -> float:
        """Noise multiplier z = sigma / sensitivity."""
        return self.sigma / self.sensitivity

    @property
    def noise_over_sensitivity(self) -> float:
        """The noise multiplier z."""
        return self.noise_multiplier

    def __str__(self) -> str:
        return f"{self.count} x Gaussian release (sensitivity {self.sensitivity:g}, sigma {self.sigma:g})"


@dataclass(frozen=True)
class SampledGaussianRelease:
    """Poisson-sampled Gaussian mechanism: `count` releases, in each of which a random sample of the units participates.

    Every unit participates in each release independently with probability `sampling_rate`. `noise_multiplier` is the
    standard deviation of the noise over the sensitivity under the adjacency of the guarantee. With the clipping norm C
    it is sigma / C for add-remove, and sigma / (2C) for replace.

    `seen` is True if the adversary sees in which releases the differing unit participates. Then releases without the
    unit have no information on it, and releases with the unit are Gaussian releases without sampling. Raises
    `InputError` if a number is out of range.
    """

    noise_multiplier: float
    sampling_rate: float
    count: int = 1
    seen: bool = False
    distribution: ClassVar = NoiseDistribution.GAUSSIAN
    pure_epsilon: ClassVar[None] = None

    def __post_init__(self) -> None:
        require_noise_multiplier(self.noise_multiplier)
        require_sampling_rate(self.sampling_rate)
        require_whole(count=self.count)

    @property
    def noise_over_sensitivity(self) -> float:
        """The noise multiplier z."""
        return self.noise_multiplier

    def __str__(self) -> str:
        participation = ", participation seen" if self.seen else ""
        return f"{self.count} x Poisson-sampled Gaussian release (sampling rate {self.sampling_rate:g}{participation})"


@dataclass(frozen=True)
class LaplaceRelease:
    """Laplace mechanism: `count` releases of a number or a vector with Laplace noise of scale `scale`.

    `sensitivity` is the largest change between neighbouring data sets, in every release; of a vector it is the L1 norm
    of the change, which is the easiest to detect if it is all in one coordinate. Raises `InputError` if the sensitivity
    or the scale is not positive and finite, or if the count is not an integer from 1.
    """

    sensitivity: float
    scale: float
    count: int = 1
    noise_multiplier: ClassVar[None] = None
    sampling_rate: ClassVar[float] = 1.0
    distribution: ClassVar = NoiseDistribution.LAPLACE

    def __post_init__(self) -> None:
        require_positive(sensitivity=self.sensitivity, scale=self.scale)
        require_whole(count=self.count)

    @property
    def pure_epsilon(self) -> float:
        """Epsilon of the pure DP of one release, sensitivity / scale."""
        return self.sensitivity / self.scale

    @property
    def noise_over_sensitivity(self) -> float:
        """Scale of the noise over the sensitivity, 1 / epsilon."""
        return 1 / self.pure_epsilon

    def __str__(self) -> str:
        noise = f"sensitivity {self.sensitivity:g}, scale {self.scale:g}"
        return f"{self.count} x {self.distribution} release ({noise})"


@dataclass(frozen=True)
class RandomizedResponse:
    """Randomised response: `count` reports of a bit, each true with probability e^epsilon / (1 + e^epsilon).

    Neighbours differ in the bit. Raises `InputError` if epsilon is not positive and finite, or the count is not an
    integer from 1.
    """

    epsilon: float
    count: int = 1
    noise_multiplier: ClassVar[None] = None
    sampling_rate: ClassVar[float] = 1.0
    distribution: ClassVar = NoiseDistribution.NONE
    noise_over_sensitivity: ClassVar[None] = None

    def __post_init__(self) -> None:
        require_positive(epsilon=self.epsilon)
        require_whole(count=self.count)

    @property
    def pure_epsilon(self) -> float:
        """Epsilon of the pure DP of one report."""
        return self.epsilon

    def __str__(self) -> str:
        return f"{self.count} x randomized response (epsilon {self.epsilon:g})"


ReleaseEvent = GaussianRelease | SampledGaussianRelease | LaplaceRelease | RandomizedResponse
"""A release event of any kind.

`noise_multiplier` is z for Gaussian noise and None for other kinds. `sampling_rate` is the probability with which the
differing unit participates in one release; it is 1 without sampling. `distribution` is that of the noise.
`pure_epsilon` is the epsilon for which one release is (epsilon, 0)-DP, and None without such an epsilon.
`noise_over_sensitivity` is the scale of the noise over the sensitivity, and None without noise."""


def gaussian_rounds(
    noise_multiplier: float, rounds: int, sampling_rate: float = 1.0, seen: bool = False
) -> tuple[ReleaseEvent, ...]:
    """Return the release event of `rounds` equal rounds with Gaussian noise, as a tuple of one event.

    Raises `InputError` if a number is out of range.

    Parameters
    ----------
    noise_multiplier
        Noise multiplier z: the standard deviation of the noise divided by the sensitivity of the sum, positive.
    rounds
        Number of rounds k, at least 1.
    sampling_rate
        Probability with which a unit participates in a round, from 1e-20 to 1; 1 means no sampling.
    seen
        Whether the adversary sees in which rounds the differing unit participates.

    Examples
    --------
    >>> gaussian_rounds(4.0, 30)
    (GaussianRelease(sensitivity=1.0, sigma=4.0, count=30),)
    """
    gaussian_mu(noise_multiplier, rounds)
    require_sampling_rate(sampling_rate)
    if sampling_rate == 1:
        return (GaussianRelease(1.0, noise_multiplier, rounds),)
    return (SampledGaussianRelease(noise_multiplier, sampling_rate, rounds, seen),)


def batches_per_epoch(records: int, batch: int) -> int:
    """Return the number of steps per epoch: records / batch rounded up, which is the length of torch's `DataLoader`.

    With Poisson sampling, the sampling rate of Opacus's `PrivacyEngine` is one over this number. The rate is batch /
    records if the batch size divides the number of records, and otherwise a little less.

    Parameters
    ----------
    records
        Number of records in the shard.
    batch
        Batch size of the data loader, from 1.
    """
    require_whole(records=records, batch=batch)
    return -(-records // batch)


def local_events(
    records: int,
    batch: int,
    rounds: int,
    noise_multiplier: float,
    *,
    epochs: int | None = None,
    steps: int | None = None,
) -> tuple[ReleaseEvent, ...]:
    """Return the release events of one client that trains with Opacus's DP-SGD, over the whole training.

    Every step is one Poisson-sampled Gaussian release. The client clips gradients and adds noise itself. So its
    guarantee depends only on its own shard, and also holds against the server and other clients. Raises `InputError` if
    a number is out of range, or if both or neither of `epochs` and `steps` are given.

    Parameters
    ----------
    records
        Number of records in the client's shard, from 1.
    batch
        Batch size of the client's loader, from 1.
    rounds
        Number of rounds in which the client trains, from 1.
    noise_multiplier
        Opacus's noise multiplier: standard deviation of the noise on the sum, divided by the clipping norm; positive.
    epochs
        Number of epochs per round, from 1, unless `steps` is given.
    steps
        Number of steps per round, from 1, unless `epochs` is given.
    """
    batches = batches_per_epoch(records, batch)
    durations = {name: count for name, count in (("epochs", epochs), ("steps", steps)) if count is not None}
    require(len(durations) == 1, f"epochs is {epochs} and steps is {steps}: accepted is exactly one of them")
    require_whole(rounds=rounds, **durations)
    steps_per_round = (steps or 0) if epochs is None else epochs * batches
    return gaussian_rounds(noise_multiplier, rounds * steps_per_round, 1 / batches)


def _with_scaled_noise(events: Sequence[ReleaseEvent], factor: float) -> tuple[ReleaseEvent, ...]:
    """Return the events with their Gaussian noise multiplied by a positive factor, or else their other noise.

    Other noise beside Gaussian noise stays as it is, and so does randomised response.
    """
    has_gaussian = any(event.noise_multiplier is not None for event in events)
    return tuple(_scaled(event, factor, has_gaussian) for event in events)


def _scaled(event: ReleaseEvent, factor: float, has_gaussian: bool) -> ReleaseEvent:
    match event:
        case GaussianRelease():
            return replace(event, sigma=event.sigma * factor)
        case SampledGaussianRelease():
            return replace(event, noise_multiplier=event.noise_multiplier * factor)
        case LaplaceRelease():
            return event if has_gaussian else replace(event, scale=event.scale * factor)
        case RandomizedResponse():
            return event
        case _:
            assert_never(event)


def with_half_sensitivity(event: ReleaseEvent) -> ReleaseEvent:
    """Return the event with half its sensitivity and the same noise; randomised response is returned unchanged.

    Leaving a contribution out changes a sum half as much as replacing it. So the function converts events from replace
    to add-remove adjacency.
    """
    match event:
        case GaussianRelease() | LaplaceRelease():
            return replace(event, sensitivity=event.sensitivity / 2)
        case SampledGaussianRelease():
            return replace(event, noise_multiplier=2 * event.noise_multiplier)
        case RandomizedResponse():
            return event
        case _:
            assert_never(event)


def full_participation_mu(event: ReleaseEvent) -> float | None:
    """Return mu = sqrt(count) / z of an event, as if the unit participated in every release.

    None if the event has no Gaussian noise. With sampling, it is the exact mu of a unit that is known to have
    participated in every release, and an upper bound against any adversary that sees participation.
    """
    return None if event.noise_multiplier is None else math.sqrt(event.count) / event.noise_multiplier


def exact_gaussian_mu(event: ReleaseEvent) -> float | None:
    """Return mu = sqrt(count) / z of a Gaussian event without sampling, with noise multiplier z; otherwise None."""
    return full_participation_mu(event) if event.sampling_rate == 1 else None
