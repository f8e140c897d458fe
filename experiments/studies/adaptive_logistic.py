"""Honest federations whose sensitivities follow the secret: a logistic model that learns one odd feature, in numpy.

Of 200 features the last is 0 for everybody but x, where it is 10, and x', where it is -10. Under global scaling the
sensitivity of a round follows the weight of that feature, and so what was seen before: the final log-odds are far from
normal, and whoever takes them for normal calls honest runs violated. Innovations and residuals keep their law.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from experiments.studies.synthetic_noise import DIRECTIONS
from fl_audit.adversaries.residuals import LOW_BITS_KINDS, STRIDES, Residuals
from fl_audit.arrays import Floats, Integers
from fl_audit.evidence.belief.measured import Measured


@dataclass(frozen=True)
class OddFeature:
    """The setting."""

    # `worlds`, `rounds`: how many.
    worlds: int = 100
    rounds: int = 30
    mu: float = 5.0  # sqrt(rounds) / z of the claim
    # `records`, `features`: sizes of the training set.
    records: int = 100
    features: int = 200
    # `clipping_norm`, `learning_rate`: C, and the learning rate on the sum divided by the number of records.
    clipping_norm: float = 1.0
    learning_rate: float = 2.0

    @property
    def noise_multiplier(self) -> float:
        """z of the claim."""
        return float(np.sqrt(self.rounds) / self.mu)


def play_odd_feature(rng: np.random.Generator, setting: OddFeature) -> Measured:
    """Play an honest run under replace-record and global scaling, and return what the insider measures.

    Parameters
    ----------
    rng
        Source of records, bits and noise.
    setting
        What is played.
    """
    records = rng.standard_normal((setting.records - 1, setting.features))
    records[:, -1] = 0.0
    labels = (records @ rng.standard_normal(setting.features) > 0).astype(np.float64)
    odd = np.zeros((2, setting.features))
    odd[:, -1] = 10.0, -10.0
    members = rng.random(setting.worlds) < 0.5
    weights = np.zeros((setting.worlds, setting.features))
    sigma = setting.noise_multiplier * 2 * setting.clipping_norm
    rows = []
    for _ in range(setting.rounds):
        shared = _clipped_slopes(weights, records, labels, setting.clipping_norm) @ records
        pair = _clipped_slopes(weights, odd, np.ones(2), setting.clipping_norm)[..., None] * odd
        noise = sigma * rng.standard_normal(weights.shape)
        release = shared + np.where(members[:, None], pair[:, 0], pair[:, 1]) + noise
        rows.append((*_measure(release, shared, pair, sigma), noise / sigma))
        weights = weights - setting.learning_rate / setting.records * release
    increments, sensitivity, *found = (np.stack(part, axis=1) for part in zip(*rows, strict=True))
    residuals = _residuals(*found)
    return Measured(
        members, increments, sensitivity, np.full_like(increments, sigma), setting.noise_multiplier, residuals
    )


def _clipped_slopes(weights: Floats, features: Floats, labels: Floats, norm: float) -> Floats:
    """Return by what each record is multiplied to give its clipped gradient, (worlds, records)."""
    slopes = expit(weights @ features.T) - labels
    lengths = np.abs(slopes) * np.linalg.norm(features, axis=1)
    return np.asarray(slopes * np.minimum(1.0, norm / np.maximum(lengths, 1e-300)))


def _measure(release: Floats, shared: Floats, pair: Floats, sigma: float) -> tuple[Floats, ...]:
    difference = pair[:, 0] - pair[:, 1]
    error = release - shared - pair.mean(axis=1)
    length = np.linalg.norm(difference, axis=-1)
    unit = difference / np.maximum(length, 1e-300)[:, None]
    residual = error - np.sum(error * unit, axis=-1, keepdims=True) * unit
    # Here u is always the odd feature's axis, so the first axes are public directions that need no whitening.
    direction = shared / np.linalg.norm(shared, axis=-1, keepdims=True)
    along = np.sum(error * direction, axis=-1)
    increments = np.sum(error * difference, axis=-1) / sigma**2
    return increments, length, np.sum(residual**2, axis=-1), residual[:, :DIRECTIONS], along


def _residuals(total: Floats, projections: Floats, gradient: Floats, noise: Floats) -> Residuals:
    features = noise.shape[-1]
    freedom: Integers = np.full(total.shape, features - 1, dtype=np.int64)
    unknown = (*total.shape, 1, len(LOW_BITS_KINDS))
    classes = [np.sum(noise[..., first::STRIDES] ** 2, axis=-1) for first in range(STRIDES)]
    return Residuals(
        tensors=("weight",),
        places=tuple((number, "weight") for number in range(features)),
        parameters=features,
        total=total,
        total_freedom=freedom,
        squares=total[..., None],
        freedom=freedom[..., None],
        projections=projections,
        gradient=gradient,
        grain=np.zeros_like(total),
        low_bits=np.full(unknown, np.nan),
        low_bits_count=np.zeros(unknown, dtype=np.int64),
        strides=np.stack(classes, axis=-1)[:, :, None],
        sample=noise[:, :, None],
    )
