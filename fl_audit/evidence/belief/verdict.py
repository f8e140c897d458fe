"""The verdict: whether what the insider saw contradicts what was promised.

It rests on one method, declared before the run: the studentised shift of the insider's log-odds.
"""

import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from fl_audit.evidence.bounds.shift import METHOD, detectable_shift, shift_epsilon_lower_bound
from fl_audit.privacy.gaussian import gdp_epsilon, gdp_mu
from fl_audit.privacy.guarantee import Guarantee
from fl_audit.privacy.release import NoiseScaling

VIOLATION_LEVEL = 0.001
"""Probability with which a federation that keeps its promise may be called violated."""

DETECTION_POWER = 0.9
"""Probability with which a breach as large as the limit of detection is found."""


class Verdict(StrEnum):
    """CONSISTENT: nothing seen contradicts the promise. VIOLATED: the promise is refuted at `VIOLATION_LEVEL`.

    NOT_AUDITED: there was a promise and no insider to test it. NO_PROMISE: there was none.
    """

    CONSISTENT = "consistent"
    VIOLATED = "violated"
    NOT_AUDITED = "not audited"
    NO_PROMISE = "no promise"


@dataclass(frozen=True)
class VerdictResult:
    """A verdict with all that a reader needs to weigh it.

    Parameters
    ----------
    verdict
        The verdict.
    lower_bound
        Lower bound on epsilon, at the promise's delta, that holds with `confidence`.
    confidence
        The configured confidence.
    lower_bound_at_violation_level
        The bound at confidence 1 - `violation_level`, which decides.
    limit_of_detection
        Smallest true epsilon, at the promise's delta, that would be called violated with probability 0.9; infinite
        where the worlds cannot tell.
    assumption
        What the bounds rest on, in plain English.
    scope
        What `consistent` covers and what not, in plain English.
    method, violation_level
        How it was decided, fixed before the run.
    """

    verdict: Verdict
    lower_bound: float
    confidence: float
    lower_bound_at_violation_level: float
    limit_of_detection: float
    assumption: str
    scope: str
    method: str = METHOD
    violation_level: float = VIOLATION_LEVEL


def judge(
    log_odds_members: NDArray[np.float64],
    log_odds_nonmembers: NDArray[np.float64],
    guarantee: Guarantee,
    confidence: float,
    neighbour_description: str,
    seed_description: str,
    scaling: NoiseScaling,
) -> VerdictResult:
    """Return whether the insider's log-odds contradict the promised epsilon.

    Parameters
    ----------
    log_odds_members, log_odds_nonmembers
        Final log-odds of D against D' in worlds with bit 1 (D was used) and bit 0, shapes (n1,) and (n0,), finite.
    guarantee
        The promise.
    confidence
        Confidence of `lower_bound`, 0.5 or more, below 1. The verdict itself is always at `VIOLATION_LEVEL`.
    neighbour_description, seed_description
        What pair of training sets and what seed was audited, as they shall read in `scope`.
    scaling
        What the noise was scaled to; it decides whether the assumption holds exactly.

    Raises
    ------
    InputError
        If the log-odds are not finite, or constant at two different values.
    """
    delta = guarantee.delta
    bound = shift_epsilon_lower_bound(log_odds_members, log_odds_nonmembers, delta, confidence)
    decisive = shift_epsilon_lower_bound(log_odds_members, log_odds_nonmembers, delta, 1 - VIOLATION_LEVEL)
    limit = limit_of_detection(int(log_odds_members.size), int(log_odds_nonmembers.size), guarantee.epsilon, delta)
    return VerdictResult(
        verdict=Verdict.VIOLATED if decisive > guarantee.epsilon else Verdict.CONSISTENT,
        lower_bound=bound,
        confidence=confidence,
        lower_bound_at_violation_level=decisive,
        limit_of_detection=limit,
        assumption=_assumption(scaling),
        scope=_scope(neighbour_description, seed_description, limit, delta),
    )


def unjudged(guarantee: Guarantee | None) -> tuple[Verdict, str]:
    """Return the verdict of a run without the insider, and its scope in plain English.

    Parameters
    ----------
    guarantee
        The promise, None if nothing was promised.
    """
    rest = "What was measured of the released models, from their outputs and losses, is no test of a promise."
    if guarantee is None:
        return Verdict.NO_PROMISE, f"The models were trained without clipping and noise: nothing was promised. {rest}"
    return Verdict.NOT_AUDITED, f"No insider took part, so nothing was held against the promise. {rest}"


def limit_of_detection(n1: int, n0: int, promised_epsilon: float, delta: float) -> float:
    """Return the smallest true epsilon at delta that would be called violated with probability `DETECTION_POWER`.

    Parameters
    ----------
    n1, n0
        Numbers of worlds with bit 1 and bit 0; fewer than 2 of either detect nothing: infinity.
    promised_epsilon
        The promise, at least 0; it allows a Gaussian composition with the largest mu whose epsilon at delta keeps it.
    delta
        Above 0 and below 1.

    Raises
    ------
    InputError
        If a number is out of its range.
    """
    allowed = gdp_mu(promised_epsilon, delta)
    return gdp_epsilon(delta, detectable_shift(n1, n0, allowed, VIOLATION_LEVEL, DETECTION_POWER))


def _assumption(scaling: NoiseScaling) -> str:
    normal = "The insider's final log-odds are normal with the same spread whether D or D' was used"
    match scaling:
        case NoiseScaling.LOCAL:
            return (
                f"{normal}: exact under local scaling, where every round has the same signal-to-noise ratio unless its "
                "noise was raised to the floor."
            )
        case NoiseScaling.GLOBAL:
            return (
                f"{normal}: approximate under global scaling, where the signal-to-noise ratio of a round follows the "
                "weights and differs from world to world."
            )


def _scope(neighbour: str, seed: str, limit: float, delta: float) -> str:
    if math.isinf(limit):
        detection = "These worlds are too few to detect any breach."
    else:
        detection = f"A breach with epsilon below {limit:.3g} at delta {delta:g}, the limit of detection, may pass."
    return (
        f"'consistent' covers this pair of neighbouring training sets ({neighbour}) and this seed ({seed}) only; other "
        f"neighbours, other data and other seeds were not tried. {detection}"
    )
