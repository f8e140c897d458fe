"""Breaches that were written when the tests of the family stood, and for which no test was changed afterwards.

They show how the family does where nobody had the breach in mind. No test is named for them: any may find them. As the
family stood then, the first was found in 50 of 50 made-up and 5 of 5 real runs, and the others in none. The last one
led to another look of the test `noise-along-record-trial`, so it is held back no more.
"""

import math
from functools import cache

import numpy as np
from scipy.special import ndtri

from fl_audit.array_types import Floats, Integers
from tests.validation.breach_kinds import Breach, NoiseRound
from tests.validation.signal_breaches import TargetRound

LAG, SHARE = 5, 0.3
_RANDU = 65_539
_MODULUS = 2**31


def _of_earlier(at: NoiseRound) -> Floats:
    """Return noise of which a share is that of five rounds before, as of a matrix that is claimed to be the unit."""
    noise = at.normals((at.number - 1) % LAG + 1)
    for number in range((at.number - 1) % LAG + 1 + LAG, at.number + 1, LAG):
        noise = SHARE * noise + math.sqrt(1 - SHARE**2) * at.normals(number)
    return noise


def _of_randu(at: NoiseRound) -> Floats:
    """Return normal quantiles of RANDU, every trial and round with a seed of its own: triples lie on 15 planes."""
    seeds = at.rng(20).integers(1, _MODULUS, size=(len(at.own), 1)) | 1
    return np.asarray(ndtri(seeds * _powers(at.own.shape[1]) % _MODULUS / _MODULUS))


@cache
def _powers(count: int) -> Integers:
    """Return by what a seed is multiplied for each number that follows it, modulo 2^31."""
    return np.array([pow(_RANDU, exponent, _MODULUS) for exponent in range(1, count + 1)], dtype=np.int64)


def cancelling(at: TargetRound, noise: Floats) -> Floats:
    """Let the noise along the target cancel over every two rounds; each round by itself looks honest."""
    along = np.sum(noise * at.unit, axis=1, keepdims=True)
    size = np.linalg.norm(noise, axis=1, keepdims=True) / math.sqrt(noise.shape[1])
    pair, is_second = divmod(at.number - 1, 2)
    draws = np.random.default_rng((at.key, 21, pair)).standard_normal((len(noise), 1))
    return np.asarray(noise + ((-1) ** is_second * size * draws - along) * at.unit)


HELD_BACK: tuple[Breach, ...] = (
    Breach("three tenths of the noise of five rounds before", (), _of_earlier),
    Breach(
        "noise from RANDU", (), _of_randu, below="three draws depend on each other, and no test looks at more than two"
    ),
    Breach("noise along the target that cancels over two rounds", (), target=cancelling),
)
"""The breaches, in the order in which they were written."""
