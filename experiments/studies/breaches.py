"""Federations that break their promise, each as a small value: another way to draw the noise or to make the sum."""

import numpy as np

from experiments.studies.synthetic_noise import Federation, Floats, Setting, Sums, clipped_total, gaussian_noise
from fl_audit.evidence.belief.family import TestName


def _too_small(rng: np.random.Generator, setting: Setting, sigma: Floats) -> Floats:
    return 0.98 * gaussian_noise(rng, setting, sigma)


def _missing_on_smallest_tensor(rng: np.random.Generator, setting: Setting, sigma: Floats) -> Floats:
    noise = gaussian_noise(rng, setting, sigma)
    sizes = [size for _, size in setting.tensors]
    smallest = int(np.argmin(sizes))
    start = sum(sizes[:smallest])
    noise[..., start : start + sizes[smallest]] = 0.0
    return noise


def _for_add_remove(rng: np.random.Generator, setting: Setting, sigma: Floats) -> Floats:
    return gaussian_noise(rng, setting, sigma / 2)


def _same_in_two_rounds(rng: np.random.Generator, setting: Setting, sigma: Floats) -> Floats:
    noise = gaussian_noise(rng, setting, sigma)
    noise[:, -1] = noise[:, 0] * (sigma[:, -1] / sigma[:, 0])[:, None]
    return noise


def _same_in_two_worlds(rng: np.random.Generator, setting: Setting, sigma: Floats) -> Floats:
    noise = gaussian_noise(rng, setting, sigma)
    noise[-1] = noise[0] * (sigma[-1] / sigma[0])[:, None]
    return noise


def _drawn_once(rng: np.random.Generator, setting: Setting, sigma: Floats) -> Floats:
    return np.asarray(rng.standard_normal((len(sigma), 1, setting.parameters)) * sigma[..., None])


def _half_precision(rng: np.random.Generator, setting: Setting, sigma: Floats) -> Floats:
    return gaussian_noise(rng, setting, sigma).astype(np.float16).astype(np.float64)


def _half_precision_draws(rng: np.random.Generator, setting: Setting, sigma: Floats) -> Floats:
    draws = rng.standard_normal((*sigma.shape, setting.parameters)).astype(np.float16).astype(np.float64)
    return np.asarray(sigma[..., None] * draws)


def _one_client_unclipped(sums: Sums) -> Floats:
    return clipped_total(sums) - sums.shared[:, 0] + sums.unclipped[:, 0]


BREACHES: tuple[tuple[Federation, tuple[TestName, ...]], ...] = (
    (Federation("noise 2 % too small", _too_small, clipped_total), (TestName.NOISE_TOTAL, TestName.NOISE_TENSOR)),
    (Federation("noise missing on the smallest tensor", _missing_on_smallest_tensor, clipped_total),
     (TestName.NOISE_TENSOR,)),
    (Federation("noise for add-remove under a replace claim", _for_add_remove, clipped_total),
     (TestName.NOISE_TOTAL, TestName.NOISE_ALONG_RECORD)),
    (Federation("the same noise in two rounds", _same_in_two_rounds, clipped_total), (TestName.REPEATED_NOISE,)),
    (Federation("the same noise in two worlds", _same_in_two_worlds, clipped_total), (TestName.REPEATED_NOISE,)),
    (Federation("noise drawn once and scaled", _drawn_once, clipped_total),
     (TestName.SHARED_OVER_ROUNDS, TestName.REPEATED_NOISE, TestName.SERIAL_CORRELATION)),
    (Federation("float16 noise", _half_precision, clipped_total), (TestName.LOW_BITS,)),
    (Federation("float16 draws, then scaled", _half_precision_draws, clipped_total), (TestName.LOW_BITS,)),
    (Federation("clipping left out for one client", gaussian_noise, _one_client_unclipped),
     (TestName.DRIFT_ALONG_GRADIENTS,)),
    (Federation("sum divided by the wrong number", gaussian_noise, clipped_total, scale=0.8),
     (TestName.DRIFT_ALONG_GRADIENTS,)),
)  # fmt: skip
"""Every breach, and the tests that are to find it."""
