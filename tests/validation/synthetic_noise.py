"""Synthetic federations in numpy: clients, clipped sums, noise, and an insider's measurements, without a model.

The measurements are computed from raw vectors, in `tests.validation.synthetic_measurements`, by the definitions of the
noise measurement and independently of its code, so that tests and limits of the verdict can be checked against a truth
that is known. Honest draws are made once for a run, and shared by all breaches of its setting.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import expit

from fl_audit.array_types import Flags, Floats
from fl_audit.verdict.run_measurements import NoiseMeasurements
from tests.validation.breach_kinds import Breach, NoiseRound
from tests.validation.signal_breaches import TargetRound
from tests.validation.synthetic_measurements import Contributions, Tensors, UncheckedMeasurements, measured_from

_CLIENTS, _RECORDS = 5, 10  # of a setting: clients, and records of each
NORM = 3.0  # its clipping norm C
_HONEST = Breach("none", ())
_ODD_RECORDS, _ODD_FEATURES = 100, 200


@dataclass(frozen=True)
class NoiseSetting:
    """A synthetic federation."""

    tensors: Tensors = (("weight", 640), ("bias", 10))
    trials: int = 20  # number of trials
    rounds: int = 30  # number of rounds
    replace: bool = True  # whether x is replaced by x' (sensitivity 2C) or left out (C)
    local: bool = False  # whether the noise follows the sensitivity of each round
    multiplier: float = 8.0  # noise multiplier of the claim

    @property
    def parameters(self) -> int:
        """Number of parameters of the model."""
        return sum(size for _, size in self.tensors)


@dataclass(frozen=True)
class Gradients:
    """Gradients of a federation before the noise, with a direction in common and a median length of 2 C."""

    raw: Floats  # of every record of everybody but the target, (rounds, clients, records, parameters)
    lengths: Floats  # their lengths, (rounds, clients, records, 1)
    present: Floats  # clipped gradient of x, (trials, rounds, parameters)
    absent: Floats  # the same of the record that D' has in its place; 0 where it has none

    @cached_property
    def clipped(self) -> Floats:
        """The sums of the clipped gradients of every client, (rounds, clients, parameters)."""
        return np.asarray((self.raw * np.minimum(1.0, NORM / self.lengths)).sum(axis=2))

    @cached_property
    def shared(self) -> Floats:
        """The sum of all records that D and D' share, (rounds, parameters)."""
        return np.asarray(self.clipped.sum(axis=1))

    def made(self, breach: Breach) -> Floats:
        """Return the sum of all records that D and D' share as a breach makes it, (rounds, parameters)."""
        if breach.clip == 1 and not breach.unclipped:
            return self.shared
        factors = np.minimum(1.0, breach.clip / (self.lengths / NORM))
        record_sums = self.clipped if breach.clip == 1 else (self.raw * factors).sum(axis=2)
        released = record_sums.sum(axis=1)
        if breach.unclipped:
            released = released - self.clipped[:, 0] + self.raw.sum(axis=2)[:, 0]
        return np.asarray(released)


def draw_gradients(rng: np.random.Generator, setting: NoiseSetting) -> Gradients:
    """Draw the gradients of a federation."""
    size = setting.parameters
    common = rng.standard_normal((setting.rounds, 1, 1, size)) / np.sqrt(size)
    shape = (setting.rounds, _CLIENTS, _RECORDS)
    lengths = 2 * NORM * rng.lognormal(0.0, 0.7, (*shape, 1))
    single = common + rng.standard_normal((*shape, size)) / np.sqrt(size)
    raw = single * lengths / np.linalg.norm(single, axis=-1, keepdims=True)
    present = _of_length(rng, setting)
    absent = _of_length(rng, setting) if setting.replace else np.zeros_like(present)
    return Gradients(raw, lengths, present, absent)


def _of_length(rng: np.random.Generator, setting: NoiseSetting) -> Floats:
    vectors = rng.standard_normal((setting.trials, setting.rounds, setting.parameters))
    lengths = NORM * rng.uniform(0.1, 1.0, (setting.trials, setting.rounds, 1))
    vectors *= lengths / np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors


@dataclass(frozen=True, eq=False)
class DrawnRun(Contributions):
    """All honest draws of a run: breaches of one setting share them, and differ in what they make of them."""

    setting: NoiseSetting  # setting of the federation, whose multiplier plays no part here
    gradients: Gradients | None  # gradients behind the sums; None where the sums are given
    normals: Floats  # the draws of the noise, (trials, rounds, parameters)
    key: int  # key of the draws that a breach makes beside the noise

    @cached_property
    def scale(self) -> Floats:
        """The claimed noise over the multiplier, (trials, rounds)."""
        claimed = NORM * (2 if self.setting.replace else 1)
        return self.sensitivity if self.setting.local else np.full_like(self.sensitivity, claimed)

    @cached_property
    def longer(self) -> Flags:
        """Return whether the target's contribution is longer than half of the clipping norm, (trials, rounds, 1)."""
        return np.asarray(np.linalg.norm(self.chosen, axis=-1, keepdims=True) > NORM / 2)


def draw_run(rng: np.random.Generator, setting: NoiseSetting) -> DrawnRun:
    """Make all honest draws of a run."""
    gradients = draw_gradients(rng, setting)
    members = rng.random(setting.trials) < 0.5
    normals = rng.standard_normal((setting.trials, setting.rounds, setting.parameters))
    return DrawnRun(
        gradients.shared,
        gradients.present,
        gradients.absent,
        members,
        setting,
        gradients,
        normals,
        int(rng.integers(2**31)),
    )


def play(rng: np.random.Generator, setting: NoiseSetting, breach: Breach = _HONEST) -> NoiseMeasurements:
    """Play the federation in all trials and return the measurements of an insider who believes the claim.

    By default nothing is broken.
    """
    return play_drawn(draw_run(rng, setting), setting.multiplier, breach).checked()


def play_drawn(run: DrawnRun, multiplier: float, breach: Breach = _HONEST) -> UncheckedMeasurements:
    """Play a run of which all honest draws are made; what is measured is computed when a test asks for it.

    `multiplier` is that of the claim; by default nothing is broken.
    """
    shared_sum = run.gradients.made(breach) if run.gradients is not None else run.shared
    sigma = multiplier * run.scale
    return measured_from(run, _release(run, shared_sum, sigma, breach), sigma, multiplier, run.setting.tensors)


def released(
    rng: np.random.Generator,
    setting: NoiseSetting,
    breach: Breach,
    sums: tuple[Floats, Floats, Floats, Floats],
    members: Flags,
    key: int | None = None,
) -> Floats:
    """Return the noised sums of all trials with given contributions, (trials, rounds, parameters).

    `sums` has the sums of all records that D and D' share, as claimed and as the breach makes them, (rounds,
    parameters), and the clipped gradients of x and of what D' has in its place, (trials, rounds, parameters). `members`
    says whether the trials hold D, (trials,). `key` is that of the draws that a breach makes beside the noise; None for
    a fresh one.
    """
    clipped, altered_sum, present, absent = sums
    normals = rng.standard_normal(present.shape)
    draw_key = int(rng.integers(2**31)) if key is None else key
    run = DrawnRun(clipped, present, absent, members, setting, None, normals, draw_key)
    return _release(run, altered_sum, setting.multiplier * run.scale, breach)


def _release(run: DrawnRun, altered_sum: Floats, sigma: Floats, breach: Breach) -> Floats:
    """Return the noised sums of a run, (trials, rounds, parameters), given the sum that the breach makes of others."""
    noise = _noise(run, sigma, breach)
    if breach.spares_sum:
        unit = run.shared / np.linalg.norm(run.shared, axis=-1, keepdims=True)
        noise -= np.sum(noise * unit, axis=-1, keepdims=True) * unit
    noise += run.known if altered_sum is run.shared and breach.scale == 1 else (altered_sum + run.chosen) * breach.scale
    return noise


def _noise(run: DrawnRun, sigma: Floats, breach: Breach) -> Floats:
    """Return the noise of all rounds, and what a breach adds to it, (trials, rounds, parameters)."""
    sizes = tuple(size for _, size in run.setting.tensors)
    noise_array = np.empty_like(run.normals)
    kept_noise: dict[int, Floats] = {}
    for at in range(run.setting.rounds):
        noise_round = NoiseRound(
            lambda number: run.normals[:, number - 1],
            at + 1,
            run.setting.rounds,
            run.members,
            sigma[:, at],
            sizes,
            run.key,
            kept_noise,
        )
        noise_array[:, at] = breach.drawn(noise_round)
        if breach.target is not None:
            noise_array[:, at] = breach.target(_target_round(run, at), noise_array[:, at])
    return noise_array


def _target_round(run: DrawnRun, at: int) -> TargetRound:
    """Return the target's contribution to a round, given the round's place."""

    def clipped_at(factor: float) -> Floats:
        # Those that are longer than half of the norm count as clipped ones, and are as long as one likes without.
        return np.where(run.longer[:, at], factor, 1.0) * run.chosen[:, at]

    return TargetRound(run.present[:, at], run.absent[:, at], clipped_at, run.members, NORM, at + 1, run.key)


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
    """Play an honest run under replace-record and global scaling, and return the insider's measurements."""
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
        rounds.append((release, shared, pair[:, 0], pair[:, 1]))
        weights = weights - 2.0 / _ODD_RECORDS * release
    release, shared, present, absent = (np.stack(arrays, axis=1) for arrays in zip(*rounds, strict=True))
    claimed = np.full(release.shape[:2], sigma)
    contributions = Contributions(shared, present, absent, members)
    tensors = (("weight", _ODD_FEATURES),)
    return measured_from(contributions, release, claimed, setting.noise_multiplier, tensors).checked()


def _clipped_slopes(weights: Floats, features: Floats, labels: Floats) -> Floats:
    """Return the factor on each record that gives its gradient clipped at 1, (trials, records)."""
    slopes = expit(weights @ features.T) - labels
    lengths = np.abs(slopes) * np.linalg.norm(features, axis=1)
    return np.asarray(slopes * np.minimum(1.0, 1.0 / np.maximum(lengths, 1e-300)))
