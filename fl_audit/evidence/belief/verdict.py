"""The verdict: whether what the insider measured contradicts what was promised.

It rests on a family of tests that is declared before the run (`family`), each exact under the claimed law, at level
0.001 together.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from fl_audit.evidence.belief.family import (
    DETECTION_POWER,
    FAMILY_LEVEL,
    NotOffered,
    TestName,
    TestResult,
)
from fl_audit.evidence.belief.measured import Measured
from fl_audit.evidence.belief.noise_drift import drift_along_gradients, drift_along_record
from fl_audit.evidence.belief.noise_estimate import (
    BREACH,
    EpsilonLimit,
    NoiseEstimate,
    assumption_of,
    epsilon_at,
    epsilon_limit,
    epsilon_lower_bound_from_noise,
    estimate_noise,
    law_in_words,
    no_estimate,
)
from fl_audit.evidence.belief.noise_grain import low_bits, sensitivity
from fl_audit.evidence.belief.noise_repeats import repeated_noise
from fl_audit.evidence.belief.noise_scale import noise_along_record, noise_tensor, noise_total
from fl_audit.evidence.belief.noise_sharing import serial_correlation, shared_over_rounds, shared_over_worlds
from fl_audit.evidence.bounds.lower_bounds import bound_limit, epsilon_lower_bound
from fl_audit.evidence.bounds.methods import BoundMethod
from fl_audit.privacy.guarantee import Guarantee


class Verdict(StrEnum):
    """What became of the promise.

    CONSISTENT: nothing seen contradicts it. VIOLATED: it is refuted at `FAMILY_LEVEL`. INCONCLUSIVE: nothing seen
    contradicts it, and not even a breach of 1.5 times the promised epsilon would have been found. NOT_AUDITED: there
    was a promise and no insider to test it. NO_PROMISE: there was none.
    """

    CONSISTENT = "consistent"
    VIOLATED = "violated"
    INCONCLUSIVE = "inconclusive"
    NOT_AUDITED = "not audited"
    NO_PROMISE = "no promise"


@dataclass(frozen=True)
class Judgement:
    """A verdict with all that a reader needs to weigh it.

    Parameters
    ----------
    verdict
        The verdict.
    tests
        Every test that was made, in the order of their declaration.
    broken
        Those that refute the promise.
    level
        Level of the whole family.
    noise
        How much noise there is over what was promised.
    not_offered
        Names of the tests that have nothing to say about this run, with the reason.
    epsilon_lower_bound
        Lower bound on epsilon, at the promise's delta, that holds with `confidence` under `assumption`.
    confidence
        The configured confidence.
    epsilon_lower_bound_at_level
        The same with confidence 1 - `level`.
    method, assumption
        How the lower bound is found, and what it rests on, in plain English.
    limit_of_detection
        Smallest true epsilon, at the promise's delta, that would be called violated with probability 0.9 by the test
        that the lower bound comes from; infinite where the worlds cannot tell. Where only scores are judged: the
        largest epsilon that so many can certify at `level`, however well they separate.
    limit_text
        The same in plain English, with the number of worlds that would find a breach of 1.5 times the promise.
    worlds_needed
        That number of worlds; None where no number of them would, since D and D' never differed.
    scope
        What `consistent` covers and what not, in plain English.
    """

    verdict: Verdict
    tests: tuple[TestResult, ...]
    broken: tuple[TestResult, ...]
    level: float
    noise: NoiseEstimate
    not_offered: tuple[tuple[str, str], ...]
    epsilon_lower_bound: float
    confidence: float
    epsilon_lower_bound_at_level: float
    method: str
    assumption: str
    limit_of_detection: float
    limit_text: str
    worlds_needed: int | None
    scope: str


_FAMILY: dict[TestName, Callable[[Measured], TestResult | NotOffered]] = {
    TestName.NOISE_TOTAL: noise_total,
    TestName.NOISE_ALONG_RECORD: noise_along_record,
    TestName.NOISE_TENSOR: noise_tensor,
    TestName.DRIFT_ALONG_RECORD: drift_along_record,
    TestName.DRIFT_ALONG_GRADIENTS: drift_along_gradients,
    TestName.REPEATED_NOISE: repeated_noise,
    TestName.SHARED_OVER_WORLDS: shared_over_worlds,
    TestName.SHARED_OVER_ROUNDS: shared_over_rounds,
    TestName.SERIAL_CORRELATION: serial_correlation,
    TestName.LOW_BITS: low_bits,
    TestName.SENSITIVITY: sensitivity,
}


def run_family(measured: Measured) -> tuple[tuple[TestResult, ...], tuple[tuple[str, str], ...]]:
    """Return the results of all tests of the declared family that are offered, and the reasons of the others."""
    outcomes = {name: test(measured) for name, test in _FAMILY.items()}
    tests = tuple(found for found in outcomes.values() if isinstance(found, TestResult))
    missing = tuple((str(name), found.reason) for name, found in outcomes.items() if isinstance(found, NotOffered))
    return tests, missing


def judge(
    measured: Measured,
    guarantee: Guarantee,
    confidence: float,
    neighbour_description: str,
    seed_description: str,
) -> Judgement:
    """Return whether what the insider measured contradicts the promise.

    Parameters
    ----------
    measured
        The run, and the claimed noise.
    guarantee
        The promise, of Gaussian noise. Epsilon follows from the noise by the law of its claim, sampling included.
    confidence
        Of the noise's intervals and of the lower bound on epsilon, 0.5 or more, below 1. The verdict itself is always
        at `FAMILY_LEVEL`.
    neighbour_description, seed_description
        What pair of training sets and what seed was audited, as they shall read in `scope`.

    Raises
    ------
    InputError
        If a number is out of its range.
    """
    tests, missing = run_family(measured)
    broken = tuple(test for test in tests if test.violated)
    claim = guarantee.claim
    limit = epsilon_limit(measured, TestName.NOISE_ALONG_RECORD.level, guarantee)
    limit_text = _limit_text(limit, guarantee)
    return Judgement(
        verdict=_verdict(bool(broken), limit.conclusive),
        tests=tests,
        broken=broken,
        level=FAMILY_LEVEL,
        noise=estimate_noise(measured, confidence, claim),
        not_offered=missing,
        epsilon_lower_bound=epsilon_lower_bound_from_noise(measured, confidence, claim),
        confidence=confidence,
        epsilon_lower_bound_at_level=epsilon_lower_bound_from_noise(measured, 1 - FAMILY_LEVEL, claim),
        method=str(TestName.NOISE_ALONG_RECORD),
        assumption=assumption_of(claim),
        limit_of_detection=limit.epsilon,
        limit_text=limit_text,
        worlds_needed=limit.worlds_needed,
        scope=_scope(neighbour_description, seed_description, limit_text),
    )


_Scores = tuple[NDArray[np.float64], NDArray[np.float64]]

_SCORES_METHOD = BoundMethod.ORDER_STATISTIC
_MOST_WORLDS = 2**40

NOT_WEIGHED = "What the insider sees has no law that it could weigh exactly: its scores alone are judged."


def judge_scores(
    member_scores: NDArray[np.float64],
    nonmember_scores: NDArray[np.float64],
    guarantee: Guarantee,
    confidence: float,
    neighbour_description: str,
    seed_description: str,
    why_alone: str = NOT_WEIGHED,
) -> Judgement:
    """Return whether scores that are no likelihood ratio contradict the promise, by a bound that assumes nothing.

    Parameters
    ----------
    member_scores, nonmember_scores
        Final scores of the worlds with D and of those with D', higher where the insider rather believes in D.
    guarantee
        The promise, of any kind of noise.
    confidence
        Of the lower bound on epsilon, above 0.5 and below 1. The verdict itself is always at `FAMILY_LEVEL`.
    neighbour_description, seed_description
        As for `judge`.
    why_alone
        Why nothing but the scores is judged, in a sentence.

    Returns
    -------
    Judgement
        Violated where the lower bound at `FAMILY_LEVEL` passes the promised epsilon; otherwise consistent if scores
        that separate perfectly would have shown 1.5 times the promise, and inconclusive if not.

    Raises
    ------
    InputError
        If a score is not a number or the confidence is out of its range.
    """
    scores = np.asarray(member_scores, dtype=np.float64), np.asarray(nonmember_scores, dtype=np.float64)
    bound, at_level = (_bound_of(scores, guarantee.delta, one) for one in (confidence, 1 - FAMILY_LEVEL))
    ceiling = _ceiling(scores, guarantee.delta)
    test = _scores_test(at_level, ceiling, guarantee)
    return Judgement(
        verdict=_verdict(test.violated, ceiling >= BREACH * guarantee.epsilon),
        tests=(test,),
        broken=(test,) if test.violated else (),
        level=FAMILY_LEVEL,
        noise=no_estimate(confidence),
        not_offered=tuple((str(name), why_alone) for name in _FAMILY),
        epsilon_lower_bound=bound,
        confidence=confidence,
        epsilon_lower_bound_at_level=at_level,
        method=str(_SCORES_METHOD),
        assumption=_SCORES_METHOD.assumption,
        limit_of_detection=ceiling,
        limit_text=f"{test.limit.capitalize()}.",
        worlds_needed=worlds_for_scores(BREACH * guarantee.epsilon, guarantee.delta),
        scope=_scope(neighbour_description, seed_description, f"{test.limit.capitalize()}."),
    )


def _bound_of(scores: _Scores, delta: float, confidence: float) -> float:
    if not all(part.size for part in scores):
        return 0.0
    return epsilon_lower_bound(*scores, delta, confidence, _SCORES_METHOD).epsilon


def _ceiling(scores: _Scores, delta: float) -> float:
    if not all(part.size for part in scores):
        return 0.0
    return ceiling_of_scores(scores[0].size, scores[1].size, delta)


def ceiling_of_scores(members: int, nonmembers: int, delta: float) -> float:
    """Return the largest epsilon that so many scores can certify at `FAMILY_LEVEL`, however well they separate."""
    return bound_limit(_SCORES_METHOD, members, nonmembers, delta, 1 - FAMILY_LEVEL)


def worlds_for_scores(epsilon: float, delta: float) -> int | None:
    """Return how many worlds, half of them with D, could show an epsilon; None where no number that can be played."""
    half = 1
    while ceiling_of_scores(half, half, delta) < epsilon:
        half *= 2
        if half > _MOST_WORLDS:
            return None
    low = half // 2
    while half - low > 1:
        middle = (low + half) // 2
        low, half = (low, middle) if ceiling_of_scores(middle, middle, delta) >= epsilon else (middle, half)
    return 2 * half


def _scores_test(at_level: float, ceiling: float, guarantee: Guarantee) -> TestResult:
    """Return the one test: its p-value is not computed, only on which side of the level it lies."""
    passed = at_level > guarantee.epsilon
    return TestResult(
        name=TestName.SCORES,
        statistic=at_level,
        p_value=0.0 if passed else 1.0,
        level=FAMILY_LEVEL,
        measured=f"scores that certify an epsilon of at least {at_level:.3g} at delta {guarantee.delta:g}",
        promised=f"an epsilon of at most {guarantee.epsilon:.3g}",
        limit=f"so many worlds could show an epsilon of {ceiling:.3g} at most, and only if their scores separated "
        "perfectly",
    )


def _verdict(is_broken: bool, is_conclusive: bool) -> Verdict:
    if is_broken:
        return Verdict.VIOLATED
    return Verdict.CONSISTENT if is_conclusive else Verdict.INCONCLUSIVE


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


def _limit_text(limit: EpsilonLimit, guarantee: Guarantee) -> str:
    if limit.worlds_needed is None:
        return "D and D' hardly differed in any round, so no breach of epsilon could have been found there."
    kept = epsilon_at(guarantee.claim, 1.0)
    found = (
        "Along the direction in which D and D' differ, noise so small that epsilon is "
        f"{limit.epsilon:.3g} would have been found with probability {DETECTION_POWER:g}, where the claimed noise "
        f"keeps {kept:.3g} ({law_in_words(guarantee.claim)}, delta {guarantee.delta:g}) and "
        f"{guarantee.epsilon:.3g} is promised."
    )
    worlds = f"{limit.worlds_needed:,} world{'s' if limit.worlds_needed > 1 else ''}"
    if limit.conclusive:
        return f"{found} {worlds} would be enough to find a breach of 1.5 times the promise."
    return f"{found} That is too little to tell: {worlds} with as many rounds would find one of 1.5 times the promise."


def _scope(neighbour: str, seed: str, limit_text: str) -> str:
    return (
        f"A verdict covers this pair of neighbouring training sets ({neighbour}) and this seed ({seed}) only; other "
        f"neighbours, other data and other seeds were not tried. {limit_text} A smaller breach may pass."
    )
