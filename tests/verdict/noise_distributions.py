"""Measurements drawn from the distributions that the contract of the noise measurement states, without vectors: fast,
and exact.
"""

import numpy as np
from numpy.typing import NDArray

from fl_audit.mechanisms.noises.registry import STANDARD_GAUSSIAN
from fl_audit.verdict.noise_statistics import LOW_BITS_KINDS, NoiseStatistics, stride_sizes
from fl_audit.verdict.run_measurements import NoiseMeasurements

TENSORS = ("weight", "bias")
SIZES = (640, 10)
DIRECTIONS = 16
PLACES = tuple((number, "weight") for number in range(30)) + tuple((640 + number, "bias") for number in range(10))


def draw_measured(
    rng: np.random.Generator,
    trials: int = 20,
    rounds: int = 30,
    noise: float = 1.0,
    noise_multiplier: float = 8.0,
    along: float | None = None,
    silent: float = 0.1,
    measured_residuals: bool = True,
) -> NoiseMeasurements:
    """Draw an honest run, or one whose noise is `noise` times the claimed one (`along`: along the record)."""
    shape = (trials, rounds)
    members = rng.random(trials) < 0.5
    sensitivity = rng.uniform(0.2, 1.0, shape) * (rng.random(shape) > silent)
    sigma = np.full(shape, noise_multiplier)
    mu = sensitivity / sigma
    noise_factor = noise if along is None else along
    increments = np.where(members, 0.5, -0.5)[:, None] * mu**2 + noise_factor * mu * rng.standard_normal(shape)
    residuals = _residuals(rng, sigma, noise) if measured_residuals else None
    return NoiseMeasurements(
        members, increments, sensitivity, sigma, noise_multiplier, residuals, noise_kind=STANDARD_GAUSSIAN
    )


def _residuals(rng: np.random.Generator, sigma: NDArray[np.float64], noise: float) -> NoiseStatistics:
    real = sigma * noise
    shape = sigma.shape
    freedom = np.broadcast_to(np.array(SIZES) - 1, (*shape, len(SIZES))).astype(np.int64)
    squares = real[..., None] ** 2 * rng.chisquare(freedom)
    phases = rng.uniform(0, 2 * np.pi, (*shape, 1, len(LOW_BITS_KINDS), 60))
    sizes = stride_sizes(sum(SIZES))
    return NoiseStatistics(
        tensors=TENSORS,
        places=PLACES,
        parameters=sum(SIZES),
        total=squares.sum(axis=-1) + real**2 * rng.chisquare(1, shape),
        total_freedom=freedom.sum(axis=-1) + 1,
        squares=squares,
        freedom=freedom,
        projections=real[..., None] * rng.standard_normal((*shape, DIRECTIONS)),
        gradient=real * rng.standard_normal(shape),
        grain=np.zeros(shape),
        signal=np.full((*shape, 1, 3), np.nan),
        low_bits=np.cos(phases).sum(axis=-1),
        low_bits_count=np.full((*shape, 1, len(LOW_BITS_KINDS)), 60, dtype=np.int64),
        strides=(noise**2 * rng.chisquare(sizes, (*shape, len(sizes))))[:, :, None],
        sample=noise * rng.standard_normal((*shape, 1, len(PLACES))),
    )
