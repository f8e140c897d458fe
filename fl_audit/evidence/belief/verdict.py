"""The verdict: whether what the insider measured contradicts what was promised.

It rests on a family of tests that is declared before the run (`family`), each exact under the claimed law, at level
0.001 together.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from fl_audit.arrays import Floats
from fl_audit.evidence.belief.distinguisher import distinguisher
from fl_audit.evidence.belief.family import FAMILY_LEVEL, Missing, NotOffered, TestName, TestResult
from fl_audit.evidence.belief.measured import Measured
from fl_audit.evidence.belief.noise_copies import copied_places, equal_values, joint_places, shifted_copies
from fl_audit.evidence.belief.noise_drift import drift_along_gradients, drift_along_record
from fl_audit.evidence.belief.noise_estimate import (
    NoiseEstimate,
    assumption_of,
    epsilon_limit,
    epsilon_limit_of,
    epsilon_lower_bound_from_noise,
    estimate_along,
    estimate_noise,
    no_estimate,
)
from fl_audit.evidence.belief.noise_grain import grid, low_bits, sensitivity
from fl_audit.evidence.belief.noise_repeats import repeated_noise
from fl_audit.evidence.belief.noise_scale import (
    NoiseAlong,
    noise_along_record,
    noise_place,
    noise_round,
    noise_sum_test,
    noise_tensor,
    noise_total,
)
from fl_audit.evidence.belief.noise_secret import secret_along, secret_along_record, secret_place, secret_total
from fl_audit.evidence.belief.noise_shape import shape, shape_along_record, support, tails
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
        The tests that have nothing to say about this run, with the reason.
    epsilon_lower_bound
        Lower bound on epsilon, at the promise's delta, that holds with `confidence` under `assumption`.
    confidence
        The configured confidence.
    epsilon_lower_bound_at_level
        The same with confidence 1 - `level`.
    method
        How the lower bound is found, in plain English.
    assumption
        What the lower bound rests on, in plain English.
    limit_of_detection
        Smallest true epsilon, at the promise's delta, that would be called violated with probability 0.9 by the test
        that the lower bound comes from, in the game of membership by that of the noise along the targets; infinite
        where the worlds cannot tell, and where scores are judged of which no law is known.
    worlds_needed
        Worlds that would find a breach of 1.5 times the promise; None where no number of them would, since D and D'
        never differed, and where nothing is known of it, as of scores alone.
    conclusive
        Whether these worlds are enough for that.
    """

    verdict: Verdict
    tests: tuple[TestResult, ...]
    broken: tuple[TestResult, ...]
    level: float
    noise: NoiseEstimate
    not_offered: tuple[tuple[TestName, Missing], ...]
    epsilon_lower_bound: float
    confidence: float
    epsilon_lower_bound_at_level: float
    method: str
    assumption: str
    limit_of_detection: float
    worlds_needed: int | None
    conclusive: bool

    @property
    def level_of_limit(self) -> float:
        """Level of the test that the limit of detection is about."""
        return next((test.level for test in self.tests if test.name == self.method), self.level)


FAMILY: dict[TestName, Callable[[Measured], TestResult | NotOffered]] = {
    TestName.NOISE_TOTAL: noise_total,
    TestName.NOISE_ALONG_RECORD: noise_along_record,
    TestName.NOISE_TENSOR: noise_tensor,
    TestName.NOISE_PLACE: noise_place,
    TestName.NOISE_ROUND: noise_round,
    TestName.SHAPE: shape,
    TestName.TAILS: tails,
    TestName.SUPPORT: support,
    TestName.SHAPE_ALONG_RECORD: shape_along_record,
    TestName.DRIFT_ALONG_RECORD: drift_along_record,
    TestName.DRIFT_ALONG_GRADIENTS: drift_along_gradients,
    TestName.REPEATED_NOISE: repeated_noise,
    TestName.EQUAL_VALUES: equal_values,
    TestName.COPIED_PLACES: copied_places,
    TestName.JOINT_PLACES: joint_places,
    TestName.SHIFTED_COPIES: shifted_copies,
    TestName.SHARED_OVER_WORLDS: shared_over_worlds,
    TestName.SHARED_OVER_ROUNDS: shared_over_rounds,
    TestName.SERIAL_CORRELATION: serial_correlation,
    TestName.LOW_BITS: low_bits,
    TestName.GRID: grid,
    TestName.SENSITIVITY: sensitivity,
    TestName.SECRET_TOTAL: secret_total,
    TestName.SECRET_PLACE: secret_place,
    TestName.SECRET_ALONG_RECORD: secret_along_record,
    TestName.DISTINGUISHER: distinguisher,
}
"""The tests by name, in the order of their declaration."""


def depends_on_secret(found: Judgement) -> bool:
    """Return whether the noise was found to depend on the secret: then noise above the promise is not harmless."""
    return any(test.name.is_about_secret for test in found.broken)


def run_family(measured: Measured) -> tuple[tuple[TestResult, ...], tuple[tuple[TestName, Missing], ...]]:
    """Return the results of all tests of the declared family that are offered, and the reasons of the others."""
    outcomes = {name: test(measured) for name, test in FAMILY.items()}
    tests = tuple(found for found in outcomes.values() if isinstance(found, TestResult))
    missing = tuple((name, found.reason) for name, found in outcomes.items() if isinstance(found, NotOffered))
    return tests, missing


def judge(measured: Measured, guarantee: Guarantee, confidence: float) -> Judgement:
    """Return whether what the insider measured contradicts the promise.

    Parameters
    ----------
    measured
        The run, and the claimed noise.
    guarantee
        The promise, of Gaussian noise. Epsilon follows from the noise by the law of its claim, sampling included.
    confidence
        Confidence of the noise's intervals and of the lower bound on epsilon, 0.5 or more, below 1. The verdict itself
        is always at `FAMILY_LEVEL`.

    Raises
    ------
    InputError
        If a number is out of its range.
    """
    tests, missing = run_family(measured)
    broken = tuple(test for test in tests if test.violated)
    claim = guarantee.claim
    limit = epsilon_limit(measured, TestName.NOISE_ALONG_RECORD.level, guarantee)
    return Judgement(
        verdict=verdict_on(bool(broken), limit.conclusive),
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
        worlds_needed=limit.worlds_needed,
        conclusive=limit.conclusive,
    )


_SCORES_METHOD = BoundMethod.ORDER_STATISTIC


def judge_scores(
    member_scores: Floats,
    nonmember_scores: Floats,
    guarantee: Guarantee,
    confidence: float,
    noise: NoiseAlong | None = None,
) -> Judgement:
    """Return whether scores contradict the promise, by a bound that assumes nothing, and the noise if it is known.

    What the bound can find depends on how far the scores separate, and nothing says how far they would under less
    noise. So scores alone are never consistent: whether a breach would have been found is said by the noise.

    Parameters
    ----------
    member_scores
        Final scores of the worlds with D, higher where the insider rather believes in D.
    nonmember_scores
        Final scores of the worlds with D'.
    guarantee
        The promise, of any kind of noise.
    confidence
        Confidence of the lower bound on epsilon, above 0.5 and below 1. The verdict itself is always at `FAMILY_LEVEL`.
    noise
        The noise along the contribution in question in every world; None where nobody can work it out.

    Returns
    -------
    Judgement
        Violated where the lower bound at the level passes the promised epsilon, where there is less noise than was
        claimed, or where its size tells members from others; otherwise consistent where so little noise that epsilon is
        1.5 times the promised one would have been found, and inconclusive where not.

    Raises
    ------
    InputError
        If a score is not a number or the confidence is out of its range.
    """
    scores = np.asarray(member_scores, dtype=np.float64), np.asarray(nonmember_scores, dtype=np.float64)
    sizes, level = (scores[0].size, scores[1].size), TestName.SCORES.level
    bound, at_level, ceiling = 0.0, 0.0, 0.0
    if min(sizes) > 0:
        bound, at_level = (
            epsilon_lower_bound(*scores, guarantee.delta, one, _SCORES_METHOD).epsilon
            for one in (confidence, 1 - level)
        )
        ceiling = bound_limit(_SCORES_METHOD, *sizes, guarantee.delta, 1 - level)
    alone = judged_by_one(
        _scores_test(at_level, ceiling, guarantee), False, (bound, at_level), confidence, str(_SCORES_METHOD),
        _SCORES_METHOD.assumption, math.inf, missing=Missing.SCORES_ALONE,
    )  # fmt: skip
    return judged_with_noise(alone, noise, guarantee)


def judged_with_noise(alone: Judgement, noise: NoiseAlong | None, guarantee: Guarantee) -> Judgement:
    """Return what one test and the noise along what is in question say together.

    Parameters
    ----------
    alone
        What the one test says by itself, at its share of the level.
    noise
        That noise in every world; None where nobody can work it out.
    guarantee
        The promise.

    Returns
    -------
    Judgement
        Violated by either, or where the size of the noise tells members from others; otherwise consistent where so
        little noise that epsilon is 1.5 times the promised one would have been found, and inconclusive where not.
    """
    if noise is None:
        return alone
    if noise.total.freedom == 0:
        return replace(alone, not_offered=tuple((name, Missing.NO_DIFFERENCE) for name in FAMILY))
    along, secret = noise_sum_test(TestName.NOISE_ALONG_RECORD, noise.total), secret_along(noise)
    of_secret = (secret,) if isinstance(secret, TestResult) else ()
    tests = (along, *of_secret, *alone.tests)
    limit = epsilon_limit_of(noise.total.freedom, noise.members.size, along.level, guarantee)
    broken = tuple(test for test in tests if test.violated)
    reasons = {TestName.SECRET_ALONG_RECORD: secret.reason} if isinstance(secret, NotOffered) else {}
    made = {test.name for test in tests}
    return replace(
        alone,
        verdict=verdict_on(bool(broken), limit.conclusive),
        tests=tests,
        broken=broken,
        noise=estimate_along(noise.total, alone.confidence, guarantee.claim),
        not_offered=tuple((name, reasons.get(name, Missing.TARGETS_ALONE)) for name in FAMILY if name not in made),
        limit_of_detection=limit.epsilon,
        worlds_needed=limit.worlds_needed,
        conclusive=limit.conclusive,
    )


def judged_by_one(
    test: TestResult,
    conclusive: bool,
    lower_bounds: tuple[float, float],
    confidence: float,
    method: str,
    assumption: str,
    limit: float,
    worlds_needed: int | None = None,
    missing: Missing | None = None,
) -> Judgement:
    """Return what one test says by itself, where the family has nothing to say.

    Parameters
    ----------
    test
        The test, at `FAMILY_LEVEL`.
    conclusive
        Whether it would have found a breach of 1.5 times the promise.
    lower_bounds
        On epsilon, with `confidence` and with 1 - `FAMILY_LEVEL`.
    confidence, method, assumption, worlds_needed
        As of `Judgement`.
    limit
        The test's limit of detection, as of `Judgement`.
    missing
        Why no test of the family is offered; None names none.
    """
    return Judgement(
        verdict=verdict_on(test.violated, conclusive),
        tests=(test,),
        broken=(test,) if test.violated else (),
        level=FAMILY_LEVEL,
        noise=no_estimate(confidence),
        not_offered=() if missing is None else tuple((name, missing) for name in FAMILY),
        epsilon_lower_bound=lower_bounds[0],
        confidence=confidence,
        epsilon_lower_bound_at_level=lower_bounds[1],
        method=method,
        assumption=assumption,
        limit_of_detection=limit,
        worlds_needed=worlds_needed,
        conclusive=conclusive,
    )


def _scores_test(at_level: float, ceiling: float, guarantee: Guarantee) -> TestResult:
    """Return the one test: its p-value is not computed, only on which side of the level it lies."""
    passed = at_level > guarantee.epsilon
    return TestResult(
        name=TestName.SCORES,
        statistic=at_level,
        p_value=0.0 if passed else 1.0,
        measured=at_level,
        promised=guarantee.epsilon,
        more={"delta": guarantee.delta, "ceiling": ceiling},
    )


def verdict_on(is_broken: bool, is_conclusive: bool) -> Verdict:
    """Return the verdict of tests.

    Parameters
    ----------
    is_broken
        Whether one of them failed.
    is_conclusive
        Whether they could have found a breach of 1.5 times the promise.
    """
    if is_broken:
        return Verdict.VIOLATED
    return Verdict.CONSISTENT if is_conclusive else Verdict.INCONCLUSIVE


def unjudged(guarantee: Guarantee | None) -> Verdict:
    """Return the verdict of a run without the insider; `guarantee` is the promise, None if nothing was promised."""
    return Verdict.NO_PROMISE if guarantee is None else Verdict.NOT_AUDITED
