"""Synthetic federations in numpy: clients, clipped sums, noise, and an insider's measurements, without a model.

The residual sums are computed here from raw vectors, by the definitions of the noise measurement and independently of
its code, so that tests and limits of the verdict can be checked against a truth that is known.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import expit

from fl_audit.arrays import Flags, Floats, Integers
from fl_audit.learning.stacked_layers import ParameterLayout
from fl_audit.verdict.noise_measurement import sampled_places
from fl_audit.verdict.residuals import LOW_BITS_KINDS, STRIDES, Residuals
from fl_audit.verdict.run_measurements import NoiseMeasurements
from tests.validation.breach_kinds import Breach, NoiseRound
from tests.validation.signal_breaches import TargetRound

_DIRECTIONS = 16
_HALF_PRECISION_BITS = 11
_Tensors = tuple[tuple[str, int], ...]  # names and sizes of the parameter tensors
_CLIENTS, _RECORDS = 5, 10  # of a setting: clients, and records of each
NORM = 3.0  # its clipping norm C
_HONEST = Breach("none", ())
_ODD_RECORDS, _ODD_FEATURES = 100, 200


@dataclass(frozen=True)
class NoiseSetting:
    """A synthetic federation."""

    tensors: _Tensors = (("weight", 640), ("bias", 10))
    trials: int = 20  # number of trials
    rounds: int = 30  # number of rounds
    replace: bool = True  # whether x is replaced by x' (sensitivity 2C) or left out (C)
    local: bool = False  # whether the noise follows the sensitivity of each round
    multiplier: float = 8.0  # noise multiplier of the claim

    @property
    def parameters(self) -> int:
        """Number of parameters of the model."""
        return sum(size for _, size in self.tensors)


def draw_sums(rng: np.random.Generator, setting: NoiseSetting, breach: Breach) -> tuple[Floats, Floats, Floats, Floats]:
    """Draw gradients with a direction in common and a median length of 2 C, clip them and add them up.

    Parameters
    ----------
    rng
        Generator of the gradients.
    setting
        Setting of the federation.
    breach
        The breach.

    Returns
    -------
    tuple[Floats, Floats, Floats, Floats]
        The sums of all records that D and D' share, as claimed and as the breach makes them, (rounds, parameters), and
        the clipped gradients of x and of what D' has in its place, (trials, rounds, parameters).
    """
    size = setting.parameters
    common = rng.standard_normal((setting.rounds, 1, 1, size)) / np.sqrt(size)
    shape = (setting.rounds, _CLIENTS, _RECORDS)
    lengths = 2 * NORM * rng.lognormal(0.0, 0.7, (*shape, 1))
    single = common + rng.standard_normal((*shape, size)) / np.sqrt(size)
    raw = single * lengths / np.linalg.norm(single, axis=-1, keepdims=True)
    clipped = (raw * np.minimum(1.0, NORM / lengths)).sum(axis=2)
    present = _of_length(rng, setting)
    absent = _of_length(rng, setting) if setting.replace else np.zeros_like(present)
    made = clipped if breach.clip == 1 else (raw * np.minimum(1.0, breach.clip / (lengths / NORM))).sum(axis=2)
    released = made.sum(axis=1)
    if breach.unclipped:
        released = released - clipped[:, 0] + raw.sum(axis=2)[:, 0]
    return clipped.sum(axis=1), released, present, absent


def _of_length(rng: np.random.Generator, setting: NoiseSetting) -> Floats:
    vectors = rng.standard_normal((setting.trials, setting.rounds, setting.parameters))
    lengths = NORM * rng.uniform(0.1, 1.0, (setting.trials, setting.rounds, 1))
    return np.asarray(vectors * lengths / np.linalg.norm(vectors, axis=-1, keepdims=True))


def play(rng: np.random.Generator, setting: NoiseSetting, breach: Breach = _HONEST) -> NoiseMeasurements:
    """Play the federation in all trials and return the measurements of an insider who believes the claim.

    Parameters
    ----------
    rng
        Generator of sums and secret bits.
    setting
        Setting of the federation.
    breach
        The breach; by default nothing is broken.
    """
    sums = draw_sums(rng, setting, breach)
    members = rng.random(setting.trials) < 0.5
    made = released(rng, setting, breach, sums, members)
    (clipped, _, present, absent), release, sigma = sums, made.release, made.sigma
    difference = present - absent
    sensitivity = np.linalg.norm(difference, axis=-1)
    shared = np.broadcast_to(clipped, release.shape)
    middle = shared + (present + absent) / 2
    increments = np.einsum("wip,wip->wi", release - middle, difference) / sigma**2
    residuals = _residuals(setting.tensors, release, shared, present, absent, sigma, made.chosen)
    return NoiseMeasurements(members, increments, sensitivity, sigma, setting.multiplier, residuals)


class Released(NamedTuple):
    """Releases of the trials of a synthetic federation."""

    release: Floats  # the noised sums, (trials, rounds, parameters)
    sigma: Floats  # the claimed noise, (trials, rounds)
    chosen: Floats  # what was added of the present and absent contributions, (trials, rounds, parameters)


def released(
    rng: np.random.Generator,
    setting: NoiseSetting,
    breach: Breach,
    sums: tuple[Floats, Floats, Floats, Floats],
    members: Flags,
    key: int | None = None,
) -> Released:
    """Play the rounds of all trials with given contributions.

    Parameters
    ----------
    rng
        Generator of the noise.
    setting
        Setting of the federation.
    breach
        The breach.
    sums
        The sums of all records that D and D' share, as claimed and as the breach makes them, (rounds, parameters), and
        the clipped gradients of x and of what D' has in its place, (trials, rounds, parameters).
    members
        Whether the trials hold D, (trials,).
    key
        Key of the draws that a breach makes beside the noise; None for a fresh one.
    """
    clipped, made, present, absent = sums
    sensitivity = np.linalg.norm(present - absent, axis=-1)
    claimed = NORM * (2 if setting.replace else 1)
    sigma = setting.multiplier * (sensitivity if setting.local else np.full_like(sensitivity, claimed))
    chosen = np.where(members[:, None, None], present, absent)
    noise = _noise(rng, setting, sigma, members, breach, (present, absent), key)
    if breach.spares_sum:
        unit = clipped / np.linalg.norm(clipped, axis=-1, keepdims=True)
        noise = noise - np.sum(noise * unit, axis=-1, keepdims=True) * unit
    return Released(np.asarray((made + chosen) * breach.scale) + noise, sigma, chosen)


def _noise(
    rng: np.random.Generator,
    setting: NoiseSetting,
    sigma: Floats,
    members: Flags,
    breach: Breach,
    sides: tuple[Floats, Floats],
    given: int | None,
) -> Floats:
    normals = rng.standard_normal((*sigma.shape, setting.parameters))
    key = int(rng.integers(2**31)) if given is None else given
    sizes = tuple(size for _, size in setting.tensors)

    def drawn(number: int) -> Floats:
        own, (present, absent) = sigma[:, number - 1], (side[:, number - 1] for side in sides)
        at = NoiseRound(lambda at: normals[:, at - 1], number, setting.rounds, members, own, sizes, key)
        chosen = np.where(members[:, None], present, absent)
        # Those that are longer than half of the norm count as clipped ones, and are as long as one likes without.
        longer = np.linalg.norm(chosen, axis=1, keepdims=True) > NORM / 2

        def clipped_at(factor: float) -> Floats:
            return np.where(longer, factor, 1.0) * chosen

        target = TargetRound(present, absent, clipped_at, members, NORM, number, key)
        return breach.altered(target, breach.drawn(at))

    return np.stack([drawn(number) for number in range(1, setting.rounds + 1)], axis=1)


@dataclass(frozen=True)
class OddFeature:
    """Honest federations whose sensitivities depend on the secret: a logistic model that learns one odd feature.

    Of 200 features the last is 0 for everybody but x, where it is 10, and x', where it is -10. C is 1, and the learning
    rate 2 on the sum divided by the 100 records. Under global scaling the sensitivity of a round depends on the weight
    of that feature, and so on earlier releases: the final log-odds are far from normal, and a test that assumes
    normality calls honest runs violated. Innovations and residuals keep their distribution.
    """

    trials: int = 100  # number of trials
    rounds: int = 30  # number of rounds
    mu: float = 5.0  # sqrt(rounds) / z of the claim

    @property
    def noise_multiplier(self) -> float:
        """The noise multiplier z of the claim."""
        return float(np.sqrt(self.rounds) / self.mu)


def play_odd_feature(rng: np.random.Generator, setting: OddFeature) -> NoiseMeasurements:
    """Play an honest run under replace-record and global scaling, and return the insider's measurements.

    Parameters
    ----------
    rng
        Generator of records, bits and noise.
    setting
        Setting of the federation.
    """
    records = rng.standard_normal((_ODD_RECORDS - 1, _ODD_FEATURES))
    records[:, -1] = 0.0
    labels = (records @ rng.standard_normal(_ODD_FEATURES) > 0).astype(np.float64)
    odd = np.zeros((2, _ODD_FEATURES))
    odd[:, -1] = 10.0, -10.0
    members = rng.random(setting.trials) < 0.5
    weights = np.zeros((setting.trials, _ODD_FEATURES))
    sigma = setting.noise_multiplier * 2
    rounds = []
    for _ in range(setting.rounds):
        shared = _clipped_slopes(weights, records, labels) @ records
        pair = _clipped_slopes(weights, odd, np.ones(2))[..., None] * odd
        chosen = np.where(members[:, None], pair[:, 0], pair[:, 1])
        release = shared + chosen + sigma * rng.standard_normal(weights.shape)
        rounds.append((release, shared, pair[:, 0], pair[:, 1], chosen))
        weights = weights - 2.0 / _ODD_RECORDS * release
    release, shared, present, absent, chosen = (np.stack(part, axis=1) for part in zip(*rounds, strict=True))
    difference, error = present - absent, release - shared - (present + absent) / 2
    increments, claimed = np.sum(error * difference, axis=-1) / sigma**2, np.full(release.shape[:2], sigma)
    residuals = _residuals((("weight", _ODD_FEATURES),), release, shared, present, absent, claimed, chosen)
    sensitivity = np.linalg.norm(difference, axis=-1)
    return NoiseMeasurements(members, increments, sensitivity, claimed, setting.noise_multiplier, residuals)


def _clipped_slopes(weights: Floats, features: Floats, labels: Floats) -> Floats:
    """Return the factor on each record that gives its gradient clipped at 1, (trials, records)."""
    slopes = expit(weights @ features.T) - labels
    lengths = np.abs(slopes) * np.linalg.norm(features, axis=1)
    return np.asarray(slopes * np.minimum(1.0, 1.0 / np.maximum(lengths, 1e-300)))


def _residuals(
    tensors: _Tensors, release: Floats, shared: Floats, present: Floats, absent: Floats, sigma: Floats, chosen: Floats
) -> Residuals:
    """Return the residual sums of releases by their definitions.

    `release` is what was released, `shared` what it holds under both hypotheses, `present` and `absent` what it holds
    besides under D and under D', and `chosen` which of these two was really added, all (trials, rounds, parameters);
    `sigma` is the claimed noise, (trials, rounds).
    """
    difference = present - absent
    error = release - shared - (present + absent) / 2
    length = np.linalg.norm(difference, axis=-1, keepdims=True)
    unit = np.divide(difference, length, out=np.zeros_like(difference), where=length > 0)
    residual = error - np.sum(error * unit, axis=-1, keepdims=True) * unit
    squares, freedom = _per_tensor(tensors, residual, unit)
    standard = (release - shared - chosen) / sigma[..., None]
    values = standard * sigma[..., None], standard, release
    assert len(values) == len(LOW_BITS_KINDS)
    # (trials, rounds, 1, kinds)
    low_bits = np.stack([_low_bits(one) for one in values], axis=-1)[:, :, None]
    places = sampled_places(ParameterLayout(tuple(name for name, _ in tensors), tuple((size,) for _, size in tensors)))
    classes = [np.sum(standard[..., first::STRIDES] ** 2, axis=-1) for first in range(STRIDES)]
    return Residuals(
        tensors=tuple(name for name, _ in tensors),
        places=places,
        parameters=release.shape[-1],
        total=np.sum(residual**2, axis=-1),
        total_freedom=np.where(length[..., 0] > 0, release.shape[-1] - 1, release.shape[-1]).astype(np.int64),
        squares=squares,
        freedom=freedom,
        projections=_projections(residual, unit),
        gradient=_along_gradients(error, unit, shared),
        signal=_signal(standard, chosen, unit, sigma)[:, :, None],
        grain=np.zeros_like(sigma),
        low_bits=low_bits,
        low_bits_count=np.full(low_bits.shape, release.shape[-1], dtype=np.int64),
        strides=np.stack(classes, axis=-1)[:, :, None],
        sample=standard[..., [number for number, _ in places]][:, :, None],
    )


def _per_tensor(tensors: _Tensors, residual: Floats, unit: Floats) -> tuple[Floats, Integers]:
    """Return the squares without the part along the record's direction in each tensor, and their degrees of freedom."""
    squares, freedom, start = [], [], 0
    for _, size in tensors:
        part, along = residual[..., start : start + size], unit[..., start : start + size]
        length = np.linalg.norm(along, axis=-1)
        inner = np.sum(part * along, axis=-1)
        off = np.divide(inner, length, out=np.zeros_like(inner), where=length > 0)
        squares.append(np.sum(part**2, axis=-1) - off**2)
        freedom.append(np.where(length > 0, size - 1, size))
        start += size
    return np.stack(squares, axis=-1), np.stack(freedom, axis=-1).astype(np.int64)


def _projections(residual: Floats, unit: Floats) -> Floats:
    """Return the residual along fixed orthonormal directions, whitened: its covariance there is I - aa', a = V'u."""
    size = residual.shape[-1]
    count = min(_DIRECTIONS, size // 2)
    directions = np.linalg.qr(np.random.default_rng(20).standard_normal((size, count)))[0]
    seen, along = residual @ directions, unit @ directions
    square = np.sum(along**2, axis=-1, keepdims=True)
    gain = np.divide(1 / np.sqrt(1 - square) - 1, square, out=np.zeros_like(square), where=square > 0)
    return np.asarray(seen + gain * np.sum(seen * along, axis=-1, keepdims=True) * along)


def _signal(standard: Floats, chosen: Floats, unit: Floats, sigma: Floats) -> Floats:
    """Return the noise along the difference and along the contribution, and the length of that over sigma."""
    length = np.linalg.norm(chosen, axis=-1)
    own = np.sum(standard * chosen, axis=-1)
    along = np.where(np.any(unit != 0, axis=-1), np.sum(standard * unit, axis=-1), np.nan)
    towards = np.divide(own, length, out=np.full_like(own, np.nan), where=length > 0)
    return np.stack([along, towards, length / sigma], axis=-1)


def _along_gradients(error: Floats, unit: Floats, shared: Floats) -> Floats:
    direction = shared - np.sum(shared * unit, axis=-1, keepdims=True) * unit
    length = np.linalg.norm(direction, axis=-1)
    inner = np.sum(error * direction, axis=-1)
    return np.divide(inner, length, out=np.full_like(inner, np.nan), where=length > 0)


def _low_bits(values: Floats) -> Floats:
    """Return the sum of cos(2 pi phase), phase the value in units of the last of 11 significant bits."""
    _, exponents = np.frexp(values)
    return np.cos(2 * np.pi * np.ldexp(values, _HALF_PRECISION_BITS - exponents)).sum(axis=-1)
