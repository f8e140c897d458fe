"""Kinds of breaches: federations that break their guarantee, each as a small value.

A breach is another way to draw the noise, or to compute the sum. Synthetic and real federations use the same list.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri
from scipy.stats import qmc

from fl_audit.array_types import Flags, Floats
from fl_audit.verdict.declared_tests import TestName as T
from tests.validation.signal_breaches import (
    Altered,
    TargetRound,
    clipped,
    copied,
    counted_in_round,
    counted_times,
    pushed,
    pushed_along,
    unhidden,
)


@dataclass(frozen=True)
class NoiseRound:
    """The values from which a mechanism may draw the noise of one round."""

    normals: Callable[[int], Floats]  # the honest draws of a round from 1, float64 (trials, parameters)
    number: int  # number of the round
    rounds: int  # number of rounds of the run
    members: Flags  # whether the trials hold D, bool (trials,): no honest mechanism looks at it
    sigma: Floats  # the claimed noise of each trial, (trials,)
    sizes: tuple[int, ...]  # sizes of the parameter tensors
    key: int  # of the run, for draws beside the honest ones
    kept: dict[int, Floats] = field(default_factory=dict)  # noise of earlier rounds by number, kept for a breach

    @cached_property
    def own(self) -> Floats:
        """The honest draws of this round."""
        return self.normals(self.number)

    @property
    def uniforms(self) -> Floats:
        """The honest draws as numbers that are uniform between 0 and 1."""
        return np.clip(ndtr(self.own), 1e-16, 1 - 1e-16)

    def rng(self, purpose: int) -> np.random.Generator:
        """Return a generator of the round besides the honest draws."""
        return np.random.default_rng((self.key, self.number, purpose))


Noise = Callable[[NoiseRound], Floats]  # returns the noise of a round in units of the claimed one, (trials, parameters)


@dataclass(frozen=True)
class Breach:
    """A federation that breaks its guarantee."""

    name: str  # its description, in plain English
    tests: tuple[T, ...]  # the tests that are to find it, any of them
    noise: Noise = lambda at: at.own  # its noise; by default the claimed one
    scale: float = 1.0  # by what the sum is multiplied before the noise
    unclipped: bool = False  # whether one client, neither victim nor insider, does not clip
    clip: float = 1.0  # by what the clipping norm of all but the victim's record is too large, as a factor
    target: Altered | None = None  # its change of the noise of a round, given the target's contribution
    multiplier: float | None = None  # the claimed noise multiplier; left out, that of the other breaches
    spares_sum: bool = False  # whether the noise along the sum of all contributions is left out
    below: str = ""  # why it may pass, where it is smaller than a limit of detection; empty elsewhere
    trials: int = 20  # number of trials of a synthetic run
    parameters: int = 650  # number of parameters of the model of a synthetic run

    def drawn(self, at: NoiseRound) -> Floats:
        """Return its noise of a round, in the units of the sum, (trials, parameters)."""
        return np.asarray(self.noise(at) * at.sigma[:, None])

    def altered(self, at: TargetRound, noise: Floats) -> Floats:
        """Return the altered noise of a round, (trials, parameters), given the target's contribution."""
        return noise if self.target is None else self.target(at, noise)


def _by_secret(*, present: float = 1.0, absent: float = 1.0) -> Noise:
    """Multiply the noise under D, or that under D'."""
    return lambda at: at.own * np.where(at.members, present, absent)[:, None]


def _changed(at: NoiseRound, where: Any, values: Floats | float) -> Floats:
    """Return the honest draws with other values at some places."""
    draws = at.own.copy()
    draws[where] = values
    return draws


def _without_tensor(at: NoiseRound) -> Floats:
    smallest = int(np.argmin(at.sizes))
    start = sum(at.sizes[:smallest])
    return _changed(at, np.s_[:, start : start + at.sizes[smallest]], 0.0)


def _rounded(step: float, *, absolute: bool = True) -> Noise:
    """Put the noise on a grid: with its own step, or in units of the claimed noise."""

    def noise(at: NoiseRound) -> Floats:
        unit = step / at.sigma[:, None] if absolute else step
        return np.asarray(np.round(at.own / unit) * unit)

    return noise


def _again(shift: int, sign: float = 1.0) -> Noise:
    """Use the noise of the round before in every seventh round, rolled by some coordinates."""
    return lambda at: sign * np.roll(at.normals(at.number - 1), shift, axis=1) if at.number % 7 == 0 else at.own


def _laplace(at: NoiseRound) -> Floats:
    from_middle = at.uniforms - 0.5
    return np.asarray(-np.sign(from_middle) * np.log1p(-2 * np.abs(from_middle)) / math.sqrt(2))


def _truncated(*, restored: bool) -> Noise:
    inside = 2 * float(ndtr(3.0)) - 1
    density = math.exp(-4.5) / math.sqrt(2 * math.pi)
    spread = math.sqrt(1 - 6 * density / inside) if restored else 1.0
    return lambda at: np.asarray(ndtri(float(ndtr(-3.0)) + inside * at.uniforms) / spread)


def _mirrored(at: NoiseRound) -> Floats:
    half = at.own.shape[1] // 2
    return _changed(at, np.s_[:, -half:], at.own[:, :half][:, ::-1])


def _copied_bias(at: NoiseRound) -> Floats:
    width = min(at.sizes[-1], at.sizes[0])
    return _changed(at, np.s_[:, -width:], at.own[:, :width])


def _shuffled_copy(at: NoiseRound) -> Floats:
    """Copy a tenth of the coordinates to others, chosen anew in every round."""
    draws = at.own
    chosen = at.rng(1).permutation(draws.shape[1])
    count = draws.shape[1] // 10
    return _changed(at, np.s_[:, chosen[:count]], draws[:, chosen[count : 2 * count]])


def _seeded(bits: int) -> Noise:
    def noise(at: NoiseRound) -> Floats:
        seeds = at.rng(3).integers(2**bits, size=len(at.own))
        return np.stack([np.random.default_rng(seed).standard_normal(at.own.shape[1]) for seed in seeds])

    return noise


def _low_rank(at: NoiseRound) -> Floats:
    return np.asarray(at.own[:, :100] @ _mixing(at.key, at.own.shape[1]))


@lru_cache(maxsize=1)
def _mixing(key: int, size: int) -> Floats:
    mixing = np.random.default_rng(key).standard_normal((100, size))
    return np.asarray(mixing / np.linalg.norm(mixing, axis=0))


def _sobol(at: NoiseRound) -> Floats:
    trials = len(at.own)
    points = _sobol_points(at.key, at.own.shape[1], at.rounds * trials)
    return np.asarray(ndtri(np.clip(points[(at.number - 1) * trials : at.number * trials], 1e-12, 1 - 1e-12)))


@lru_cache(maxsize=1)
def _sobol_points(key: int, size: int, count: int) -> Floats:
    """Return the first points of a scrambled sequence, at least so many as are counted."""
    return np.asarray(qmc.Sobol(size, rng=np.random.default_rng(key)).random_base2(math.ceil(math.log2(count))))


def _kronecker(at: NoiseRound) -> Floats:
    size = at.own.shape[1]
    trials = len(at.own)
    steps = np.sqrt(np.arange(2, size + 2) + 0.5) % 1
    points = ((at.number - 1) * trials + np.arange(1, trials + 1))[:, None] * steps % 1
    return np.asarray(ndtri(np.clip(points, 1e-12, 1 - 1e-12)))


def _signed(at: NoiseRound) -> Floats:
    """Let the sign of the first coordinates' sum agree with the secret, which changes no marginal distribution."""
    first = at.own[:, :20]
    side = np.where(at.members, 1.0, -1.0)
    return _changed(at, np.s_[:, :20], first * (np.sign(first.sum(axis=1)) * side)[:, None])


def _of_one_length(at: NoiseRound) -> Floats:
    """Scale the noise of every trial to its expected length."""
    return np.asarray(at.own * math.sqrt(at.own.shape[1]) / np.linalg.norm(at.own, axis=1, keepdims=True))


def _standardised(at: NoiseRound) -> Floats:
    """Scale every tensor to mean 0 and variance 1."""
    noise = at.own.copy()
    start = 0
    for size in at.sizes:
        tensor_noise = noise[:, start : start + size]
        if size > 1:
            tensor_noise -= tensor_noise.mean(axis=1, keepdims=True)
            tensor_noise /= tensor_noise.std(axis=1, keepdims=True)
        start += size
    return noise


def _fresh_signs(source: Callable[[NoiseRound], Floats]) -> Noise:
    """Put fresh signs on old magnitudes."""
    return lambda at: np.asarray(np.abs(source(at)) * np.where(at.rng(7).random(at.own.shape) < 0.5, -1.0, 1.0))


def _neighbours(at: NoiseRound) -> Floats:
    """Return noise in which every second coordinate takes its magnitude from the one before."""
    noise = at.own.copy()
    noise[:, 1::2] = noise[:, : 2 * (noise.shape[1] // 2) : 2]
    return noise


def _shuffled(share: float, within: bool = False) -> Noise:
    """Keep a share of the noise of the round before, shuffled over all places, or within tensors."""

    def mixed(at: NoiseRound, number: int) -> Floats:
        if number not in at.kept:
            rng = np.random.default_rng((at.key, number, 8))
            draws = at.normals(number)
            order = rng.permutation(draws.shape[1])
            start = 0
            for size in at.sizes if within else ():
                order[start : start + size] = start + rng.permutation(size)
                start += size
            is_first = number == 1
            at.kept[number] = (
                draws if is_first else share * mixed(at, number - 1)[:, order] + math.sqrt(1 - share**2) * draws
            )
        return at.kept[number]

    return lambda at: mixed(at, at.number)


def _keyed(mean: float = 0.0, scale: float = 0.0) -> Noise:
    """Shift or scale every coordinate by a fixed pattern whose sign is the secret."""

    def noise(at: NoiseRound) -> Floats:
        pattern = np.where(np.random.default_rng((at.key, 9)).random(at.own.shape[1]) < 0.5, -1.0, 1.0)
        signed = np.where(at.members, 1.0, -1.0)[:, None] * pattern
        return np.asarray(at.own * (1 + scale * signed) + mean * signed)

    return noise


def _bare_bias(at: NoiseRound) -> Floats:
    """Leave out the noise of the smallest tensor in one round of one trial."""
    if at.number != 1 + at.key % at.rounds:
        return at.own
    smallest = int(np.argmin(at.sizes))
    start = sum(at.sizes[:smallest])
    return _changed(at, np.s_[at.key % len(at.own), start : start + at.sizes[smallest]], 0.0)


def _varying(at: NoiseRound) -> Floats:
    """Let the variance differ from round to round by a tenth, with the right mean."""
    scales = np.sqrt(1 + 0.1 * np.where(at.rng(10).random(len(at.own)) < 0.5, -1.0, 1.0))
    return np.asarray(at.own * scales[:, None])


_LONG, _SMALL = 100, 130
_MANY = 400
_SIGNAL = (T.SIGNAL,)
_TRIAL = (T.SIGNAL_TRIAL,)
_OF_SIGNAL: tuple[Breach, ...] = (
    Breach(
        "the target counts twice", _SIGNAL, target=counted_times(2), multiplier=1.0, trials=_LONG, parameters=_SMALL
    ),
    Breach(
        "the target counts 4 times", _SIGNAL, target=counted_times(4), multiplier=2.0, trials=_LONG, parameters=_SMALL
    ),
    Breach(
        "the target counts 5 times in 5 % of trainings",
        _TRIAL,
        target=counted_times(5, 0.05),
        multiplier=1.0,
        trials=_MANY,
        parameters=_SMALL,
    ),
    Breach(
        "the target counts 5 times in 2 % of trainings",
        _TRIAL,
        target=counted_times(5, 0.02),
        multiplier=1.0,
        trials=2 * _MANY,
        parameters=_SMALL,
    ),
    Breach(
        "the target counts 12 times in one round",
        (T.SIGNAL_ROUND,),
        target=counted_in_round(12, 7),
        multiplier=1.0,
        trials=_LONG,
        parameters=_SMALL,
    ),
    Breach(
        "no noise along the target in 5 % of trainings",
        (T.NOISE_TRIAL,),
        target=unhidden(0.05),
        trials=_MANY,
        parameters=_SMALL,
    ),
    Breach(
        "no noise along the target in 2 % of trainings",
        (T.NOISE_TRIAL,),
        target=unhidden(0.02),
        trials=_MANY,
        parameters=_SMALL,
    ),
    Breach(
        "three copies of the target, alike by .8",
        _SIGNAL,
        target=copied(3, 0.8),
        multiplier=2.0,
        trials=_LONG,
        parameters=_SMALL,
    ),
    Breach(
        "the target alone clipped at 4 times the norm",
        _SIGNAL,
        target=clipped(4.0),
        multiplier=1.0,
        trials=_LONG,
        parameters=_SMALL,
    ),
    Breach(
        "a push along the difference that follows the secret",
        (T.DRIFT_ALONG_RECORD, T.SIGNAL),
        target=pushed_along(1.0),
        multiplier=1.0,
        trials=_LONG,
        parameters=_SMALL,
    ),
    Breach(
        "a push of 5 norms that follows the secret",
        (T.DRIFT_PLACE, T.DISTINGUISHER),
        target=pushed(5.0),
        multiplier=1.0,
        trials=_LONG,
        parameters=_SMALL,
    ),
)
"""Breaches of the signal."""
BREACHES: tuple[Breach, ...] = (
    Breach("noise 2 % too small", (T.NOISE_TOTAL,), lambda at: 0.98 * at.own),
    Breach("noise missing on the smallest tensor", (T.NOISE_TENSOR,), _without_tensor),
    Breach(
        "noise missing on one coordinate of 650",
        (T.NOISE_TENSOR,),
        lambda at: _changed(at, np.s_[:, at.key * 37 % at.own.shape[1]], 0.0),
        trials=_LONG,
    ),
    Breach(
        "no noise in one round of one trial",
        (T.NOISE_ROUND,),
        lambda at: _changed(at, at.key % len(at.own), 0.0) if at.number == 1 + at.key % at.rounds else at.own,
    ),
    # It begins above the claim and ends below it, and its variance is right on average.
    Breach(
        "noise that falls from 1.14 to .84 of the claim",
        (T.NOISE_ROUND,),
        lambda at: at.own * math.sqrt(1 - 0.3 * (2 * (at.number - 1) / max(1, at.rounds - 1) - 1)),
    ),
    Breach(
        "noise left out in a twentieth of the places",
        (T.NOISE_TOTAL,),
        lambda at: at.own * (at.rng(4).random(at.own.shape) >= 0.05),
    ),
    Breach("noise for add-remove under a replace claim", (T.NOISE_TOTAL,), lambda at: 0.5 * at.own),
    Breach(
        "shares missing in a tenth of the rounds",
        (T.NOISE_TOTAL,),
        lambda at: at.own * np.where(at.rng(2).random(len(at.own)) < 0.1, math.sqrt(2 / 3), 1.0)[:, None],
    ),
    Breach("Laplace noise of equal variance", (T.SHAPE,), _laplace),
    Breach(
        "Student noise, 5 degrees, of equal variance",
        (T.SHAPE,),
        lambda at: np.asarray(at.own * np.sqrt(3 / at.rng(11).chisquare(5, at.own.shape))),
    ),
    Breach("uniform noise of equal variance", (T.SHAPE,), lambda at: (2 * at.uniforms - 1) * math.sqrt(3)),
    Breach("noise truncated at 3, variance restored", (T.SHAPE,), _truncated(restored=True)),
    Breach("noise truncated at 3", (T.NOISE_TOTAL,), _truncated(restored=False)),
    Breach("noise with a mean of .05 everywhere", (T.SHAPE,), lambda at: at.own + 0.05),
    Breach("half of the coordinates mirror the other half", (T.CORRELATED_NOISE, T.REPEATED_NOISE), _mirrored),
    Breach("a bias with the weight's noise", (T.CORRELATED_NOISE, T.REPEATED_NOISE), _copied_bias),
    Breach("a tenth copied, places drawn anew", (T.REPEATED_NOISE,), _shuffled_copy, trials=_LONG, parameters=_SMALL),
    Breach("noise of rank 100", (T.CORRELATED_NOISE,), _low_rank),
    Breach(
        "neighbouring coordinates correlated by .1",
        (),
        lambda at: (at.own + 0.05 * (np.roll(at.own, 1, 1) + np.roll(at.own, -1, 1))) / math.sqrt(1 + 2 * 0.05**2),
        below="not asked: copies at a shift; two sampled coordinates show .3, and epsilon is 1.15 times the claim",
    ),
    Breach(
        "the same noise in two rounds",
        (T.REPEATED_NOISE,),
        lambda at: at.normals(1 if at.number == at.rounds else at.number),
    ),
    Breach("the same noise in two trials", (T.REPEATED_NOISE,), lambda at: _changed(at, -1, at.own[0])),
    Breach("noise drawn once and scaled", (T.REPEATED_NOISE,), lambda at: at.normals(1)),
    Breach("noise used again in every seventh round", (T.REPEATED_NOISE,), _again(0)),
    Breach("the same, rolled by one coordinate", (T.REPEATED_NOISE,), _again(1)),
    Breach("the same, rolled by 7 and negated", (T.REPEATED_NOISE,), _again(7, -1.0)),
    Breach(
        "rounds that cancel in pairs",
        (T.REPEATED_NOISE, T.CORRELATED_NOISE),
        lambda at: -at.normals(at.number - 1) if at.number % 2 == 0 else at.own,
    ),
    # A share of the noise of the round before, at the claimed variance.
    Breach(
        "rounds correlated by .02",
        (T.CORRELATED_NOISE,),
        lambda at: at.own if at.number == 1 else 0.02 * at.normals(at.number - 1) + math.sqrt(1 - 0.02**2) * at.own,
        trials=_LONG,
        parameters=_SMALL,
    ),
    Breach("a Sobol sequence", (T.REPEATED_NOISE, T.CORRELATED_NOISE), _sobol),
    Breach("a Kronecker sequence", (T.REPEATED_NOISE, T.CORRELATED_NOISE), _kronecker),
    Breach("seeds of 16 bits", (T.REPEATED_NOISE,), _seeded(16), trials=_LONG, parameters=_SMALL),
    Breach(
        "seeds of 20 bits",
        (T.REPEATED_NOISE,),
        _seeded(20),
        trials=_LONG,
        parameters=_SMALL,
        below="3,000 draws hold two alike in 98.6 % of runs",
    ),
    Breach("seeds of 19 bits", (T.REPEATED_NOISE,), _seeded(19), trials=_LONG, parameters=_SMALL),
    Breach(
        "float16 noise",
        (T.REPEATED_NOISE,),
        lambda at: (at.own * at.sigma[:, None]).astype(np.float16).astype(np.float64) / at.sigma[:, None],
    ),
    Breach("float16 draws, then scaled", (T.REPEATED_NOISE,), lambda at: at.own.astype(np.float16).astype(np.float64)),
    Breach("draws of 16-bit whole numbers", (T.REPEATED_NOISE,), _rounded(1 / 4096, absolute=False)),
    Breach("noise on a grid of .1", (T.REPEATED_NOISE,), _rounded(0.1)),
    Breach("noise on a grid of .01", (T.REPEATED_NOISE,), _rounded(0.01)),
    Breach("noise on a grid of .001", (T.REPEATED_NOISE,), _rounded(0.001)),
    Breach("noise 1.5 times larger under D' only", (T.DISTINGUISHER,), _by_secret(absent=1.5), trials=_LONG),
    Breach("noise 1.1 times larger under D' only", (T.DISTINGUISHER,), _by_secret(absent=1.1), trials=_LONG),
    Breach("noise 1.1 times larger under D only", (T.DISTINGUISHER,), _by_secret(present=1.1), trials=_LONG),
    Breach(
        "Laplace noise under D' only",
        (T.SHAPE, T.DISTINGUISHER),
        lambda at: np.where(at.members[:, None], at.own, _laplace(at)),
    ),
    Breach(
        "a sign that follows the secret", (T.REPEATED_NOISE, T.DISTINGUISHER), _signed, trials=_LONG, parameters=_SMALL
    ),
    Breach("noise of one length in every round", (T.CORRELATED_NOISE,), _of_one_length),
    Breach("noise standardised on every tensor", (T.CORRELATED_NOISE,), _standardised),
    Breach(
        "a variance that differs by a tenth from round to round",
        (),
        _varying,
        trials=_LONG,
        below="not asked: whether sizes vary too much; epsilon is about 1.41",
    ),
    Breach("magnitudes of the first round, fresh signs", (T.REPEATED_NOISE,), _fresh_signs(lambda at: at.normals(1))),
    Breach(
        "magnitudes of the round before, fresh signs",
        (T.REPEATED_NOISE,),
        _fresh_signs(lambda at: at.normals(at.number - at.number % 2 if at.number > 1 else 1)),
    ),
    Breach(
        "magnitudes in common to all trials, fresh signs",
        (T.REPEATED_NOISE,),
        _fresh_signs(lambda at: np.repeat(at.own[:1], len(at.own), axis=0)),
    ),
    Breach("magnitudes in common to neighbours, fresh signs", (T.REPEATED_NOISE,), _fresh_signs(_neighbours)),
    Breach("nine tenths of the round before, shuffled", (T.CORRELATED_NOISE,), _shuffled(0.9)),
    Breach("four tenths of the round before, shuffled", (T.CORRELATED_NOISE,), _shuffled(0.4), trials=_LONG),
    Breach(
        "means of coordinates keyed by the secret, .05",
        (T.DRIFT_PLACE, T.DISTINGUISHER),
        _keyed(mean=0.05),
        trials=_LONG,
    ),
    Breach(
        "means of coordinates keyed by the secret, .02",
        (T.DRIFT_PLACE,),
        _keyed(mean=0.02),
        trials=_LONG,
        below="112 coordinates show .031 together; all of them tell the secret, and epsilon is 24 times the claim",
    ),
    Breach(
        "scales of coordinates keyed by the secret, .05",
        (T.DRIFT_PLACE, T.DISTINGUISHER),
        _keyed(scale=0.05),
        trials=_LONG,
    ),
    Breach("no noise on the smallest tensor in one round", (T.NOISE_ROUND,), _bare_bias),
    Breach("no noise along the sum of all", (T.NOISE_TENSOR,), spares_sum=True),
    Breach("half shuffled within tensors", (T.CORRELATED_NOISE,), _shuffled(0.8, within=True)),
    Breach("one client does not clip", (T.DRIFT_ALONG_GRADIENTS,), unclipped=True),
    Breach("the sum divided by the wrong number", (T.DRIFT_ALONG_GRADIENTS,), scale=0.8),
    Breach("clipping norm 10 % too large", (T.DRIFT_ALONG_GRADIENTS,), clip=1.1, trials=_LONG),
    *_OF_SIGNAL,
)
"""Every breach, and the tests that should find it."""
