"""Measurements that an insider makes of a synthetic release, computed from raw vectors by their definitions.

Every measurement is computed when a test asks for it: a campaign of breaches that each concern one or two tests spends
nothing on the others.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import cache, cached_property
from typing import Any

import numpy as np

from fl_audit.array_types import Flags, Floats, Integers
from fl_audit.learning.stacked_layers import ParameterLayout
from fl_audit.mechanisms.noises.registry import STANDARD_GAUSSIAN
from fl_audit.verdict.noise_measurement import sampled_places
from fl_audit.verdict.noise_statistics import LOW_BITS_KINDS, STRIDES, NoiseStatistics
from fl_audit.verdict.run_measurements import NoiseMeasurements

Tensors = tuple[tuple[str, int], ...]
"""Names and sizes of the parameter tensors."""
_DIRECTIONS = 16
_HALF_PRECISION_BITS = 11
_EVERY = "...p,...p->..."  # the inner product over the parameters


@dataclass(frozen=True, eq=False)
class Contributions:
    """The contributions of the parties to the rounds of a run, and all that follows from them without any noise."""

    shared: Floats  # what D and D' share, (rounds, parameters), or with the trials before
    present: Floats  # the target's part under D, (trials, rounds, parameters)
    absent: Floats  # what takes its place under D'
    members: Flags  # whether the trials hold D, (trials,)

    @cached_property
    def chosen(self) -> Floats:
        """The part that is really added, (trials, rounds, parameters)."""
        return np.where(self.members[:, None, None], self.present, self.absent)

    @cached_property
    def known(self) -> Floats:
        """The sum without noise, (trials, rounds, parameters)."""
        return np.asarray(self.shared + self.chosen)

    @cached_property
    def middle(self) -> Floats:
        """The sum without noise that lies between D and D', (trials, rounds, parameters)."""
        return np.asarray(self.shared + (self.present + self.absent) / 2)

    @cached_property
    def difference(self) -> Floats:
        """The difference of D and D', (trials, rounds, parameters)."""
        return np.asarray(self.present - self.absent)

    @cached_property
    def sensitivity(self) -> Floats:
        """Its length, (trials, rounds)."""
        return np.asarray(np.linalg.norm(self.difference, axis=-1))

    @cached_property
    def unit(self) -> Floats:
        """Its direction, 0 where there is none, (trials, rounds, parameters)."""
        length = self.sensitivity[..., None]
        return np.divide(self.difference, length, out=np.zeros_like(self.difference), where=length > 0)

    @cached_property
    def gradient(self) -> Floats:
        """The part of the shared sum that is orthogonal to the difference, (trials, rounds, parameters)."""
        return np.asarray(self.shared - np.sum(self.shared * self.unit, axis=-1, keepdims=True) * self.unit)


class LazyNoiseStatistics(NoiseStatistics):
    """Residuals of which every field is computed when it is read for the first time."""

    def __init__(self, computations: Mapping[str, Callable[[], Any]]) -> None:
        object.__setattr__(self, "parts", computations)

    def __getattr__(self, name: str) -> Any:
        """Return a field that was not read before."""
        computations = self.__dict__["parts"]
        if name not in computations:
            raise AttributeError(name)
        object.__setattr__(self, name, computations[name]())
        return self.__dict__[name]

    def whole(self) -> NoiseStatistics:
        """Return residuals with all fields computed."""
        return NoiseStatistics(**{field.name: getattr(self, field.name) for field in fields(NoiseStatistics)})


class UncheckedMeasurements(NoiseMeasurements):
    """Measurements whose shapes and numbers nobody checks: a check would read, and so compute, all of them."""

    def __post_init__(self) -> None:
        """Check nothing."""

    def checked(self) -> NoiseMeasurements:
        """Return the same measurements, all computed and checked."""
        assert isinstance(self.residuals, LazyNoiseStatistics)
        return NoiseMeasurements(
            self.members,
            self.increments,
            self.sensitivity,
            self.sigma,
            self.noise_multiplier,
            self.residuals.whole(),
            noise_kind=STANDARD_GAUSSIAN,
        )


def measured_from(
    contributions: Contributions, release: Floats, sigma: Floats, multiplier: float, tensors: Tensors
) -> UncheckedMeasurements:
    """Return the measurements of an insider who believes the claim.

    `release` are the noised sums, (trials, rounds, parameters), `sigma` is the claimed noise, (trials, rounds), and
    `multiplier` that of the claim. `tensors` has names and sizes of the parameter tensors.
    """
    measured = _Measured(contributions, release, sigma, tensors)
    increments = np.einsum(_EVERY, measured.error, contributions.difference) / sigma**2
    return UncheckedMeasurements(
        contributions.members,
        increments,
        contributions.sensitivity,
        sigma,
        multiplier,
        LazyNoiseStatistics(measured.parts()),
        noise_kind=STANDARD_GAUSSIAN,
    )


@dataclass(frozen=True, eq=False)
class _Measured:
    """The residuals of a release, each by its definition."""

    given: Contributions
    release: Floats  # (trials, rounds, parameters)
    sigma: Floats  # (trials, rounds)
    tensors: Tensors

    def parts(self) -> dict[str, Callable[[], Any]]:
        """Return how each field of the residuals is computed."""
        names = tuple(name for name, _ in self.tensors)
        parameters = self.release.shape[-1]
        difference = self.given.sensitivity > 0
        return {
            "tensors": lambda: names,
            "places": lambda: _places(self.tensors),
            "parameters": lambda: parameters,
            "total": lambda: np.einsum(_EVERY, self.residual, self.residual),
            "total_freedom": lambda: np.where(difference, parameters - 1, parameters).astype(np.int64),
            "squares": lambda: self.per_tensor[0],
            "freedom": lambda: self.per_tensor[1],
            "projections": self.projections,
            "gradient": self.along_gradients,
            "signal": self.signal,
            "grain": lambda: np.zeros_like(self.sigma),
            "low_bits": self.low_bits,
            "low_bits_count": lambda: np.full((*self.sigma.shape, 1, len(LOW_BITS_KINDS)), parameters, dtype=np.int64),
            "strides": self.strides,
            "sample": self.sample,
        }

    @cached_property
    def error(self) -> Floats:
        """The release less the sum between D and D'."""
        return np.asarray(self.release - self.given.middle)

    @cached_property
    def residual(self) -> Floats:
        """The error without its part along the difference."""
        along = np.einsum(_EVERY, self.error, self.given.unit)
        return np.asarray(self.error - along[..., None] * self.given.unit)

    @cached_property
    def standard(self) -> Floats:
        """The noise over the claimed noise."""
        return np.asarray((self.release - self.given.known) / self.sigma[..., None])

    @cached_property
    def per_tensor(self) -> tuple[Floats, Integers]:
        """The squares without the part along the difference in each tensor, and their degrees of freedom."""
        squares = []
        freedom = []
        start = 0
        for _, size in self.tensors:
            tensor_residual = self.residual[..., start : start + size]
            along = self.given.unit[..., start : start + size]
            length = np.linalg.norm(along, axis=-1)
            inner = np.einsum(_EVERY, tensor_residual, along)
            off = np.divide(inner, length, out=np.zeros_like(inner), where=length > 0)
            squares.append(np.einsum(_EVERY, tensor_residual, tensor_residual) - off**2)
            freedom.append(np.where(length > 0, size - 1, size))
            start += size
        return np.stack(squares, axis=-1), np.stack(freedom, axis=-1).astype(np.int64)

    def projections(self) -> Floats:
        """Return the residual along fixed orthonormal directions, whitened: it has covariance I - aa', a = V'u."""
        directions = _directions(self.release.shape[-1])
        projected_residual = self.residual @ directions
        along = self.given.unit @ directions
        square = np.sum(along**2, axis=-1, keepdims=True)
        gain = np.divide(1 / np.sqrt(1 - square) - 1, square, out=np.zeros_like(square), where=square > 0)
        return np.asarray(
            projected_residual + gain * np.sum(projected_residual * along, axis=-1, keepdims=True) * along
        )

    def along_gradients(self) -> Floats:
        """Return the error along the part of the shared sum that is orthogonal to the difference."""
        length = np.linalg.norm(self.given.gradient, axis=-1)
        inner = np.einsum(_EVERY, self.error, self.given.gradient)
        return np.divide(inner, length, out=np.full_like(inner, np.nan), where=length > 0)

    def signal(self) -> Floats:
        """Return the noise along the difference and along the contribution, and the length of that over sigma."""
        chosen = self.given.chosen
        length = np.linalg.norm(chosen, axis=-1)
        along_contribution = np.einsum(_EVERY, self.standard, chosen)
        along = np.einsum(_EVERY, self.standard, self.given.unit)
        difference = np.where(self.given.sensitivity > 0, along, np.nan)
        towards = np.divide(along_contribution, length, out=np.full_like(along_contribution, np.nan), where=length > 0)
        return np.stack([difference, towards, length / self.sigma], axis=-1)[:, :, None]

    def low_bits(self) -> Floats:
        """Return the sums of cos(2 pi phase) of the bits below half precision, of every kind of value."""
        values = self.standard * self.sigma[..., None], self.standard, self.release
        assert len(values) == len(LOW_BITS_KINDS)
        return np.stack([_low_bits(value_array) for value_array in values], axis=-1)[:, :, None]

    def strides(self) -> Floats:
        """Return the sums of squares of every class of coordinates."""
        squares = np.square(self.standard)
        return np.stack([squares[..., first::STRIDES].sum(axis=-1) for first in range(STRIDES)], axis=-1)[:, :, None]

    def sample(self) -> Floats:
        """Return the noise over the claimed noise at the sampled coordinates."""
        chosen = [number for number, _ in _places(self.tensors)]
        noise = self.release[..., chosen] - self.given.known[..., chosen]
        return np.asarray(noise / self.sigma[..., None])[:, :, None]


@cache
def _places(tensors: Tensors) -> tuple[tuple[int, str], ...]:
    return sampled_places(ParameterLayout(tuple(name for name, _ in tensors), tuple((size,) for _, size in tensors)))


@cache
def _directions(size: int) -> Floats:
    count = min(_DIRECTIONS, size // 2)
    return np.asarray(np.linalg.qr(np.random.default_rng(20).standard_normal((size, count)))[0])


def _low_bits(values: Floats) -> Floats:
    """Return the sum of cos(2 pi phase), phase the value in units of the last of 11 significant bits."""
    phases = np.frexp(values)[0] * 2.0**_HALF_PRECISION_BITS
    phases -= np.rint(phases)  # whole turns, which cosines of large angles are slow to take away
    return np.asarray(np.cos(2 * np.pi * phases).sum(axis=-1))
