"""What an insider measures of given noise, opened with the truth: for tests of what the noise says of the secret."""

import numpy as np
from numpy.typing import NDArray

from fl_audit.adversaries.noise_sample import sampled_places
from fl_audit.adversaries.residuals import STRIDES, Residuals
from fl_audit.evidence.belief.measured import Measured
from fl_audit.learning.layout import ParameterLayout

Floats = NDArray[np.float64]

LAYOUT = ParameterLayout(("first", "second", "third", "bias"), ((12, 25), (8, 25), (14, 10), (10,)))
SIGMA = 8.0


def sides(worlds: int) -> NDArray[np.bool_]:
    """Return bits of as many worlds with D as with D', in turn."""
    return np.arange(worlds) % 2 == 0


def measured_of(noise: Floats, members: NDArray[np.bool_], silent: float = 0.1, grain: float = 1e-7) -> Measured:
    """Return what is measured of noise over its claimed deviation, (worlds, rounds, parameters of `LAYOUT`).

    The record and the gradients lie along two fixed directions; in a share of the rounds D and D' do not differ.
    """
    worlds, rounds, parameters = noise.shape
    assert parameters == LAYOUT.size
    fixed = np.random.default_rng(11)
    directions = np.linalg.qr(fixed.standard_normal((parameters, 2)))[0]
    seen = noise @ directions
    mu = np.full((worlds, rounds), 0.1) * (fixed.random((worlds, rounds)) >= silent)
    increments = np.where(members, 0.5, -0.5)[:, None] * mu**2 + mu * seen[:, :, 0]
    places = sampled_places(LAYOUT)
    release = SIGMA * noise + 3 * np.abs(fixed.standard_normal(parameters))
    phases = np.stack([_agreement(SIGMA * noise), _agreement(noise), _agreement(release)], axis=-1)
    shape, tensors = (worlds, rounds), len(LAYOUT.names)
    residuals = Residuals(
        tensors=LAYOUT.names,
        places=places,
        parameters=parameters,
        total=np.zeros(shape),
        total_freedom=np.zeros(shape, dtype=np.int64),
        squares=np.zeros((*shape, tensors)),
        freedom=np.zeros((*shape, tensors), dtype=np.int64),
        projections=np.full((*shape, 0), np.nan),
        gradient=SIGMA * seen[:, :, 1],
        grain=np.full(shape, grain),
        low_bits=phases[:, :, None],
        low_bits_count=np.full((*shape, 1, 3), parameters, dtype=np.int64),
        strides=np.stack([np.square(noise[..., at::STRIDES]).sum(axis=-1) for at in range(STRIDES)], axis=-1)[:, :, None],
        sample=noise[:, :, None, [number for number, _ in places]],
    )
    return Measured(members, increments, SIGMA * mu, np.full(shape, SIGMA), 8.0, residuals)


def _agreement(values: Floats) -> Floats:
    _, exponents = np.frexp(values)
    return np.cos(2 * np.pi * np.ldexp(values, 11 - exponents)).sum(axis=-1)
