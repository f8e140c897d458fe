"""Cases of the breaches of the sum and its noise: federations in numpy, of which a trial releases all noised sums.

A record is replaced by its opposite, both of the full clipping norm in every round, so that the noise that is claimed
gives the epsilon that is claimed and no less. The others contribute the same in all trials.
"""

import math
from functools import cache, partial

import numpy as np
from scipy.linalg import circulant

from fl_audit.adjacency import Adjacency
from fl_audit.app_audits.claim_audit.claim import StatedClaim
from fl_audit.words import capital
from tests.validation.breach_kinds import BREACHES, Breach
from tests.validation.corpus.case import Case, Floats, Layout
from tests.validation.corpus.federated import claim_of
from tests.validation.corpus.truth import NONE, correlated, gaussian, laplace, mixed, outside, tail
from tests.validation.faulty_mechanisms.honest_twins import DELTA
from tests.validation.synthetic_noise import NORM, NoiseSetting, draw_gradients, released

FAMILY, HONEST = "made-up", "made-up/honest"
_SETTING = NoiseSetting((("weight", 120), ("bias", 10)), 1, 8, multiplier=math.sqrt(8))
"""One trial whose rounds together move by one standard deviation of the noise."""
_SIZE = _SETTING.parameters
_ROUNDS = _SETTING.rounds
_STEP = 1 / math.sqrt(_SIZE * _ROUNDS)  # by how many standard deviations the target moves each released number
_KEY = 5
_HELD = (
    "noise missing on one coordinate of 650",
    "noise left out in a twentieth of the places",
    "noise of rank 100",
    "means of coordinates keyed by the secret, .05",
    "scales of coordinates keyed by the secret, .05",
    "a push of 5 norms that follows the secret",
    "no noise in one round of one trial",
    "no noise on the smallest tensor in one round",
)
"""Breaches whose own draws, as of places or directions, are the same in all trials."""
_NO_NOISE_SOMEWHERE = (
    "noise missing on the smallest tensor",
    "noise missing on one coordinate of 650",
    "no noise in one round of one trial",
    "noise left out in a twentieth of the places",
    "noise of rank 100",
    "half of the coordinates mirror the other half",
    "a bias with the weight's noise",
    "the same noise in two rounds",
    "noise drawn once and scaled",
    "noise used again in every seventh round",
    "the same, rolled by one coordinate",
    "the same, rolled by 7 and negated",
    "rounds that cancel in pairs",
    "no noise along the sum of all",
    "no noise on the smallest tensor in one round",
    "no noise along the target in 5 % of trainings",
    "no noise along the target in 2 % of trainings",
)
"""Some combination of released numbers has no noise, and the target moves it."""
_OF_FEW_VALUES = (
    "seeds of 16 bits",
    "float16 noise",
    "noise on a grid of .1",
    "noise on a grid of .001",
    "noise of one length in every round",
    "noise standardised on every tensor",
    "a sign that follows the secret",
    "magnitudes of the first round, fresh signs",
    "magnitudes in common to neighbours, fresh signs",
)
"""Breaches whose releases with the target have a probability below delta without it."""
_UNKNOWN = (
    "shares missing in a tenth of the rounds",
    "Student noise, 5 degrees, of equal variance",
    "noise 1.5 times larger under D' only",
    "noise 1.1 times larger under D' only",
    "noise 1.1 times larger under D only",
    "Laplace noise under D' only",
    "scales of coordinates keyed by the secret, .05",
)
"""Breaches whose true epsilon is not known in closed form."""
_HARMLESS = {
    "noise with a mean of .05 everywhere": 1.0,
    "one client does not clip": 1.0,
    "the sum divided by the wrong number": 0.8,
}
"""Departures from the description that keep the epsilon, with the standard deviations by which the release moves."""


@cache
def _sums(clip: float, unclipped: bool) -> tuple[Floats, Floats, Floats, Floats]:
    """Return the contributions of everybody: the target's have the length of the norm, and one sign in each place."""
    gradients = draw_gradients(np.random.default_rng(11), _SETTING)
    altered_gradients = gradients.made(Breach("none", (), clip=clip, unclipped=unclipped))
    signs = np.random.default_rng(12).choice([-1.0, 1.0], size=(1, _ROUNDS, _SIZE))
    present = NORM / math.sqrt(_SIZE) * signs
    return gradients.shared, altered_gradients, present, -present


def _along_pushes() -> float:
    """Return by how many deviations the release moves under a push of five norms in one direction of all rounds."""
    direction = np.random.default_rng((_KEY, 2)).standard_normal(_SIZE)
    _, _, present, absent = _sums(1.0, False)
    moved = (present - absent)[0] + 10 * NORM * direction / np.linalg.norm(direction)
    return float(np.linalg.norm(moved)) / (_SETTING.multiplier * 2 * NORM)


def _along_key() -> float:
    """Return by how many deviations the release moves where every coordinate has a mean of .05 by the secret."""
    pattern = np.where(np.random.default_rng((_KEY, 9)).random(_SIZE) < 0.5, -1.0, 1.0)
    _, _, present, absent = _sums(1.0, False)
    moved = (present - absent)[0] / (_SETTING.multiplier * 2 * NORM) + 2 * 0.05 * pattern
    return float(np.linalg.norm(moved))


def _of_neighbours() -> float:
    """Return by how many deviations the release moves where the noise of neighbouring coordinates is correlated."""
    row = np.zeros(_SIZE)
    row[[0, 1, -1]] = 1.0, 0.05, 0.05
    mixing = circulant(row) / math.sqrt(1 + 2 * 0.05**2)
    _, _, present, _ = _sums(1.0, False)
    shifts = [correlated(_ROUNDS**-0.5, mixing @ mixing.T, contribution) for contribution in present[0]]
    return math.hypot(*shifts)


def _of_falling_noise() -> float:
    """Return by how many deviations the release moves where the variance falls from 1.3 to .7 of the claim."""
    variances = [1 - 0.3 * (2 * index / (_ROUNDS - 1) - 1) for index in range(_ROUNDS)]
    return math.sqrt(sum(1 / variance for variance in variances) / _ROUNDS)


@cache
def _truths() -> dict[str, float | None]:
    """Return what each breach that breaks its epsilon really gives, None where that is not known."""
    narrow = 1 - 6 * math.exp(-4.5) / math.sqrt(2 * math.pi) / math.erf(3 / math.sqrt(2))
    shifts = {
        "noise 2 % too small": 1 / 0.98,
        "noise for add-remove under a replace claim": 2.0,
        "noise that falls from 1.14 to .84 of the claim": _of_falling_noise(),
        "neighbouring coordinates correlated by .1": _of_neighbours(),
        "means of coordinates keyed by the secret, .05": _along_key(),
        "a push of 5 norms that follows the secret": _along_pushes(),
        "the target counts twice": 2.0,
        "the target counts 4 times": 4.0,
        "the target counts 12 times in one round": math.sqrt((_ROUNDS - 1 + 12**2) / _ROUNDS),
        "the target alone clipped at 4 times the norm": 4.0,
        "a push along the difference that follows the secret": 2.0,
    }
    coordinates = _SIZE * _ROUNDS
    return {
        **dict.fromkeys((*_NO_NOISE_SOMEWHERE, *_OF_FEW_VALUES), NONE),
        **dict.fromkeys(_UNKNOWN, None),
        **{name: gaussian(mu, DELTA) for name, mu in shifts.items()},
        "the target counts 5 times in 5 % of trainings": mixed(1.0, 5.0, 0.05, DELTA),
        "the target counts 5 times in 2 % of trainings": mixed(1.0, 5.0, 0.02, DELTA),
        "Laplace noise of equal variance": laplace(1 / math.sqrt(2), _STEP, coordinates, DELTA),
        "uniform noise of equal variance": outside(DELTA, _STEP / math.sqrt(12), coordinates),
        "noise truncated at 3": outside(DELTA, tail(3.0, _STEP), coordinates),
        "noise truncated at 3, variance restored": outside(DELTA, tail(3.0, _STEP * math.sqrt(narrow)), coordinates),
    }


def _said(breach_name: str) -> str:
    """Return what a breach does to each trial of the corpus: all of them are alike, and have other sizes."""
    return breach_name.removesuffix(" of 650").removesuffix(" of one trial")


def _label(name: str) -> str:
    words = _said(name).replace("D'", "absence").replace("'", "").replace(",", "").replace("%", "percent")
    return f"{FAMILY}/" + "-".join(words.split())


def names() -> list[str]:
    """Return the names of all cases."""
    return [*map(_label, _truths()), HONEST, *map(_label, _HARMLESS)]


def case(name: str) -> Case:
    """Return a case by its name."""
    if name == HONEST:
        return _case(name, Breach("none", ()), gaussian(1.0, DELTA))
    breach = next(candidate for candidate in BREACHES if _label(candidate.name) == name)
    if breach.name in _HARMLESS:
        return _case(name, breach, gaussian(_HARMLESS[breach.name], DELTA))
    wrong = _said(breach.name)
    return _case(name, breach, _truths()[breach.name], f"{capital(wrong)}.")


def _case(name: str, breach: Breach, true: float | None, wrong: str = "") -> Case:
    multiplier = _SETTING.multiplier
    stated = StatedClaim(Adjacency.REPLACE_RECORD, noise_multiplier=multiplier, rounds=_ROUNDS)
    _, _, present, absent = _sums(1.0, False)
    return Case(
        name,
        claim_of(stated),
        partial(_play, breach),
        Layout(_ROUNDS, _SETTING.tensors),
        true,
        wrong,
        HONEST if wrong else "",
        (present - absent).ravel(),
    )


def _play(breach: Breach, generator: np.random.Generator, with_target: bool) -> Floats:
    key = _KEY if breach.name in _HELD else None
    sums = _sums(breach.clip, breach.unclipped)
    return released(generator, _SETTING, breach, sums, np.array([with_target]), key).ravel()
