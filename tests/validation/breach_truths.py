"""True epsilons of the breaches that are played: the largest of any two neighbours, at the delta of the claim.

The worst neighbours have contributions as long as the clipping norm in every round, along the direction in which the
breach hides them least. Where a fault lies between trainings, all of them are seen. None stands where no closed form is
known, and infinity where no epsilon holds.
"""

import math
from functools import cache

import numpy as np
from scipy.linalg import toeplitz

from fl_audit.adjacency import Adjacency
from fl_audit.privacy.claim import Claim
from fl_audit.privacy.events import gaussian_rounds
from fl_audit.privacy.gaussian import gdp_epsilon
from fl_audit.verdict.participation_tests import epsilon_if_participation_known
from tests.validation.breach_kinds import Breach
from tests.validation.corpus.truth import NONE, gaussian, laplace, mixed, outside, sampled, tail
from tests.validation.held_back_breaches import LAG, SHARE
from tests.validation.opened_breaches import OpenedBreach
from tests.validation.synthetic_opened import OpenedSetting

DELTA, ROUNDS = 0.01, 30
MULTIPLIER = 8.0  # of made-up breaches that state none
_OPENED_MULTIPLIER = 2.0  # of those whose samples, shares and bits are opened
_RATE = OpenedSetting().rate
_KEPT = {"noise with a mean of .05 everywhere": 1.0, "the sum divided by the wrong number": 0.8}
_UNKNOWN = (
    "shares missing in a tenth of the rounds",
    "Student noise, 5 degrees, of equal variance",
    "noise 1.5 times larger under D' only",
    "noise 1.1 times larger under D' only",
    "noise 1.1 times larger under D only",
    "Laplace noise under D' only",
    "a variance that differs by a tenth from round to round",
    "nine tenths of the round before, shuffled",
    "four tenths of the round before, shuffled",
    "half shuffled within tensors",
    "scales of coordinates keyed by the secret, .05",
    "a round takes nobody of the round before",
    "the target takes part in large samples",
    "others drawn 1.2 times as often with D",
    "bits with half of the noise",
    "bits with the same noise in all rounds",
    "bits with the same noise in two trials",
    "noise of bits 1.5 times larger with D'",
    "the sample of every seventh round used before",
)
"""Mixtures of scales, noise that hides by an order or a pattern, and samples that depend on each other."""


def claimed(breach: Breach | OpenedBreach) -> float:
    """Return the epsilon that is claimed of the made-up runs of a breach."""
    if isinstance(breach, OpenedBreach):
        return sampled(_OPENED_MULTIPLIER, ROUNDS, _RATE, DELTA)
    return gdp_epsilon(DELTA, _mu(breach))


def true_epsilon(breach: Breach | OpenedBreach) -> float | None:
    """Return the true epsilon of a breach, infinite where there is none, None where it is not known in closed form."""
    if breach.name in _UNKNOWN:
        return None
    if isinstance(breach, OpenedBreach):
        return _opened().get(breach.name, NONE)
    mu = _mu(breach)
    if breach.name in _KEPT:
        return gaussian(mu * _KEPT[breach.name], DELTA)
    if breach.name in (shifts := _shifts(breach.parameters)):
        return gaussian(shifts[breach.name] * mu, DELTA)
    step = 1 / (breach.multiplier or MULTIPLIER)  # by how many deviations a round moves a single number at most
    narrow = math.sqrt(1 - 6 * math.exp(-4.5) / math.sqrt(2 * math.pi) / math.erf(3 / math.sqrt(2)))
    match breach.name:
        case "Laplace noise of equal variance":
            return laplace(1 / math.sqrt(2), step, ROUNDS, DELTA)
        case "uniform noise of equal variance":
            return outside(DELTA, step / math.sqrt(12), ROUNDS)
        case "noise truncated at 3":
            return outside(DELTA, tail(3.0, step), ROUNDS)
        case "noise truncated at 3, variance restored":
            return outside(DELTA, tail(3.0, step * narrow), ROUNDS)
        case "the target counts 5 times in 5 % of trainings":
            return mixed(mu, 5.0, 0.05, DELTA, upper_end=600.0)
        case "the target counts 5 times in 2 % of trainings":
            return mixed(mu, 5.0, 0.02, DELTA, upper_end=600.0)
    # Some number, or some combination of numbers, has no noise, or noise that takes few values.
    return NONE


def _mu(breach: Breach) -> float:
    return math.sqrt(ROUNDS) / (breach.multiplier or MULTIPLIER)


def _shifts(parameters: int) -> dict[str, float]:
    """Return by what each breach multiplies the deviations by which a release moves."""
    variances = [1 - 0.3 * (2 * number / (ROUNDS - 1) - 1) for number in range(ROUNDS)]
    lagged = [SHARE ** (index // LAG) if index % LAG == 0 else 0.0 for index in range(ROUNDS)]
    correlated = [0.02**index for index in range(ROUNDS)]

    def least(row: list[float]) -> float:
        return 1 / math.sqrt(float(np.linalg.eigvalsh(toeplitz(row)).min()))

    def keyed(mean: float) -> float:
        return 1 + 2 * mean * math.sqrt(parameters) * MULTIPLIER

    return {
        "noise 2 % too small": 1 / 0.98,
        "noise for add-remove under a replace claim": 2.0,
        "noise that falls from 1.14 to .84 of the claim": math.sqrt(float(np.mean(1 / np.array(variances)))),
        "neighbouring coordinates correlated by .1": math.sqrt(1 + 2 * 0.05**2) / (1 - 2 * 0.05),
        "rounds correlated by .02": least(correlated),
        "three tenths of the noise of five rounds before": least(lagged),
        "means of coordinates keyed by the secret, .05": keyed(0.05),
        "means of coordinates keyed by the secret, .02": keyed(0.02),
        "clipping norm 10 % too large": 1.1,
        "the target counts twice": 2.0,
        "the target counts 4 times": 4.0,
        "the target counts 12 times in one round": math.sqrt((ROUNDS - 1 + 12**2) / ROUNDS),
        "three copies of the target, alike by .8": math.hypot(1 + 3 * 0.8, 0.6 * math.sqrt(3)),
        "the target alone clipped at 4 times the norm": 4.0,
        "a push along the difference that follows the secret": 2.0,
        "a push of 5 norms that follows the secret": 6.0,
    }


@cache
def _opened() -> dict[str, float]:
    """Return the epsilons of breaches of samples, shares and bits, where one holds."""
    claim = Claim(Adjacency.ADD_REMOVE_RECORD, gaussian_rounds(_OPENED_MULTIPLIER, ROUNDS, _RATE), DELTA)
    epsilon_if_seen = epsilon_if_participation_known(claim)

    def at(rate: float, multiplier: float = _OPENED_MULTIPLIER, rounds: int = ROUNDS) -> float:
        return sampled(multiplier, rounds, rate, DELTA)

    always = gaussian(math.sqrt(ROUNDS) / _OPENED_MULTIPLIER, DELTA)
    # Of the four shares that a client does not know, so many are left to one that knows more.
    unknown_shares = {
        "two clients draw from one seed": 3.0,
        "two clients whose shares cancel": 2.0,
        "a tenth of a share in common": 3 + (1 - 0.1**2),
    }
    return {
        "samples of a fixed size, claimed as Poisson": epsilon_if_seen,
        "shuffled batches, claimed as Poisson": gaussian(math.sqrt(ROUNDS * _RATE) / _OPENED_MULTIPLIER, DELTA),
        "one sample for all rounds of a trial": at(_RATE, _OPENED_MULTIPLIER / math.sqrt(ROUNDS), 1),
        "the same samples in all trials": epsilon_if_seen,
        "two trials with the same samples": epsilon_if_seen,
        "the target drawn 1.5 times as often": at(1.5 * _RATE),
        "the target drawn twice as often": at(2 * _RATE),
        "the target always drawn": always,
        "the target drawn twice as often with D": at(2 * _RATE),
        "the target drawn 1.1 times as often": at(1.1 * _RATE),
        "the target takes part where another does": epsilon_if_seen,
        "another unit always drawn": always,
        "noise of bits with a mean of .3": at(_RATE),
    } | {name: at(_RATE, _OPENED_MULTIPLIER * math.sqrt(count / 4)) for name, count in unknown_shares.items()}
