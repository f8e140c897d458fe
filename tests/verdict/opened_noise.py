"""Measurements of given noise, opened with the truth, and noise that tells D from D' in many ways."""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fl_audit.array_types import Floats
from fl_audit.learning.stacked_layers import ParameterLayout
from fl_audit.mechanisms.noises.registry import STANDARD_GAUSSIAN
from fl_audit.verdict.noise_measurement import sampled_places
from fl_audit.verdict.noise_statistics import STRIDES, NoiseStatistics
from fl_audit.verdict.run_measurements import NoiseMeasurements

LAYOUT = ParameterLayout(("first", "second", "third", "bias"), ((12, 25), (8, 25), (14, 10), (10,)))
PLACES = sampled_places(LAYOUT)
SAMPLED = [number for number, _ in PLACES]
SIGMA = 8.0

Breach = Callable[[Floats, np.random.Generator], Floats]


def measured_of(noise: Floats, members: NDArray[np.bool_], grain: float = 1e-7) -> NoiseMeasurements:
    """Return what is measured of noise over its claimed deviation, (trials, rounds, parameters of `LAYOUT`).

    What may honestly differ between D and D' differs as much as it can: under D the record is one sampled coordinate,
    the gradients are the bias, and D and D' agree in three of ten rounds; under D' both are random directions, and D
    and D' agree in one of ten rounds.
    """
    trials, rounds, parameters = noise.shape
    fixed = np.random.default_rng(11)
    under = np.linalg.qr(fixed.standard_normal((parameters, 2)))[0]
    over = np.zeros((parameters, 2))
    over[SAMPLED[5], 0], over[LAYOUT.slices()["bias"], 1] = 1.0, 1 / math.sqrt(10)
    column = members[:, None]
    projections = np.where(column[:, :, None], noise @ over, noise @ under)
    mu = 0.1 * (fixed.random((trials, rounds)) >= np.where(column, 0.3, 0.1))
    increments = np.where(column, 0.5, -0.5) * mu**2 + mu * projections[:, :, 0]
    release = SIGMA * noise + 3 * np.abs(fixed.standard_normal(parameters))
    phases = np.stack([_agreement(SIGMA * noise), _agreement(noise), _agreement(release)], axis=-1)
    shape = (trials, rounds)
    tensors = len(LAYOUT.names)
    strides = np.stack([np.square(noise[..., at::STRIDES]).sum(axis=-1) for at in range(STRIDES)], axis=-1)
    residuals = NoiseStatistics(
        tensors=LAYOUT.names,
        places=PLACES,
        parameters=parameters,
        total=np.zeros(shape),
        total_freedom=np.zeros(shape, dtype=np.int64),
        squares=np.zeros((*shape, tensors)),
        freedom=np.zeros((*shape, tensors), dtype=np.int64),
        projections=np.full((*shape, 0), np.nan),
        gradient=np.where(mu > 0, SIGMA * projections[:, :, 1], np.nan),
        grain=np.full(shape, grain),
        signal=np.full((*shape, 1, 3), np.nan),
        low_bits=phases[:, :, None],
        low_bits_count=np.full((*shape, 1, 3), parameters, dtype=np.int64),
        strides=strides[:, :, None],
        sample=noise[:, :, None, SAMPLED],
    )
    return NoiseMeasurements(
        members, increments, SIGMA * mu, np.full(shape, SIGMA), 8.0, residuals, noise_kind=STANDARD_GAUSSIAN
    )


def _agreement(values: Floats) -> Floats:
    _, exponents = np.frexp(values)
    return np.cos(2 * np.pi * np.ldexp(values, 11 - exponents)).sum(axis=-1)


def play(breach: str, rng: np.random.Generator, trials: int = 100, rounds: int = 30) -> NoiseMeasurements:
    """Play trials of which half have D, with noise that has a breach under one of the two; honest noise for "" ."""
    members = rng.permutation(trials) % 2 == 0
    noise = rng.standard_normal((trials, rounds, LAYOUT.size))
    changes = BREACHES | HELD_BACK | UNSEEN
    if breach in changes:
        under_d, change = changes[breach]
        rows = np.flatnonzero(members == under_d)
        noise[rows] = change(noise[rows], rng)
    elif breach == SIGNS:
        block = noise[:, ::2, LAYOUT.slices()["second"]]
        signs = np.where(members, 1.0, -1.0)[:, None, None]
        noise[:, ::2, LAYOUT.slices()["second"]] = block * np.sign(block.mean(axis=-1, keepdims=True)) * signs
    else:
        assert breach == ""
    return measured_of(noise, members)


def _repeated(noise: Floats, rng: np.random.Generator) -> Floats:
    changed_noise = noise.copy()
    changed_noise[:, 7::7] = noise[:, 6:-1:7][:, : changed_noise[:, 7::7].shape[1]]
    return changed_noise


def _neighbours(noise: Floats, rng: np.random.Generator) -> Floats:
    changed_noise = noise.copy()
    for at in range(1, noise.shape[2]):
        changed_noise[:, :, at] = 0.1 * changed_noise[:, :, at - 1] + math.sqrt(0.99) * noise[:, :, at]
    return changed_noise


def _rounds(noise: Floats, rng: np.random.Generator) -> Floats:
    changed_noise = noise.copy()
    for at in range(1, noise.shape[1]):
        changed_noise[:, at] = 0.05 * changed_noise[:, at - 1] + math.sqrt(1 - 0.05**2) * noise[:, at]
    return changed_noise


def _one_round(noise: Floats, rng: np.random.Generator) -> Floats:
    loud = rng.integers(noise.shape[1], size=len(noise))
    return noise * (1 + 0.2 * (np.arange(noise.shape[1]) == loud[:, None]))[:, :, None]


def _reversed(noise: Floats, rng: np.random.Generator) -> Floats:
    half = noise.shape[2] // 2
    return np.concatenate([noise[:, :, :-half], noise[:, :, :half][:, :, ::-1]], axis=2)


def _tensor(noise: Floats, rng: np.random.Generator) -> Floats:
    changed_noise = noise.copy()
    changed_noise[:, :, LAYOUT.slices()["third"]] *= 1.05
    return changed_noise


def _centred_sample(noise: Floats, rng: np.random.Generator) -> Floats:
    changed_noise = noise.copy()
    for tensor in LAYOUT.names:
        tensor_indices = [number for number, owner in PLACES if owner == tensor]
        changed_noise[:, :, tensor_indices] -= changed_noise[:, :, tensor_indices].mean(axis=2, keepdims=True)
    return changed_noise


def _centred(noise: Floats, rng: np.random.Generator) -> Floats:
    changed_noise = noise.copy()
    for columns in LAYOUT.slices().values():
        changed_noise[:, :, columns] -= changed_noise[:, :, columns].mean(axis=2, keepdims=True)
    return changed_noise


def _clustered(noise: Floats, rng: np.random.Generator) -> Floats:
    changed_noise = noise.copy()
    for at in range(1, noise.shape[1]):
        changed_noise[:, at] = noise[:, at] * np.sqrt(0.7 + 0.3 * np.square(changed_noise[:, at - 1]))
    return changed_noise


def _shared_signs(noise: Floats, rng: np.random.Generator) -> Floats:
    changed_noise = noise.copy()
    half = len(SAMPLED) // 2
    changed_noise[:, :, SAMPLED[half:]] = np.abs(noise[:, :, SAMPLED[half:]]) * np.sign(noise[:, :, SAMPLED[:half]])
    return changed_noise


def _triples(noise: Floats, rng: np.random.Generator) -> Floats:
    changed_noise = noise.copy()
    first, second, third = (noise[:, :, at::3][:, :, : noise.shape[2] // 3] for at in range(3))
    changed_noise[:, :, 2::3] = np.abs(third) * np.sign(first * second)
    return changed_noise


SIGNS = "the mean of a tensor has the sign of the bit in odd rounds"

BREACHES: dict[str, tuple[bool, Breach]] = {
    "10 % larger under D'": (False, lambda z, rng: 1.1 * z),
    "1 % larger under D'": (False, lambda z, rng: 1.01 * z),
    "5 % larger in one tensor under D'": (False, _tensor),
    "20 % larger in one round under D'": (False, _one_round),
    "Laplace under D'": (False, lambda z, rng: rng.laplace(scale=math.sqrt(0.5), size=z.shape)),
    "uniform under D'": (False, lambda z, rng: math.sqrt(3) * rng.uniform(-1, 1, size=z.shape)),
    "Student t5 under D": (True, lambda z, rng: math.sqrt(0.6) * rng.standard_t(5, size=z.shape)),
    "skewed under D": (True, lambda z, rng: (rng.gamma(100, size=z.shape) - 100) / 10),
    "every 7th round repeats the one before under D'": (False, _repeated),
    "half a reversed copy under D'": (False, _reversed),
    "grid of .01 under D": (True, lambda z, rng: np.round(z, 2)),
    "half precision under D'": (False, lambda z, rng: z.astype(np.float16).astype(np.float64)),
    "neighbours correlated .1 under D": (True, _neighbours),
    "rounds correlated .05 under D": (True, _rounds),
    "mean of +.1 or -.1 under D": (True, lambda z, rng: z + 0.1 * rng.choice([-1.0, 1.0], size=(len(z), 1, 1))),
}
"""Features found in every run: whether it stands under D, and what it makes of the noise."""

HELD_BACK: dict[str, tuple[bool, Breach]] = {
    "centred over the sampled coordinates of each tensor under D'": (False, _centred_sample),
    "centred over each tensor under D'": (False, _centred),
    "size follows the last round's under D": (True, _clustered),
    "far coordinates share their signs under D'": (False, _shared_signs),
}
"""Breaches that were thought of before the features, and not looked at until these were done."""

UNSEEN: dict[str, tuple[bool, Breach]] = {
    "every third sign is the product of the two before under D'": (False, _triples)
}
"""Breaches that no feature looks at: dependence of three coordinates of which any two are independent."""
