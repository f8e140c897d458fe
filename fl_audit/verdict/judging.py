"""Judge a run: make the tests of its guarantee, and estimate the noise and epsilon.

The tests are a family, `FAMILY`, that is fixed before the run. Each test is exact or conservative under the claimed
distribution. The probability that an honest federation fails any of them is at most 0.001.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from fl_audit.array_types import Floats
from fl_audit.errors import InputError
from fl_audit.privacy.guarantee import Guarantee
from fl_audit.statistics.lower_bound_methods import BoundMethod
from fl_audit.statistics.lower_bounds import bound_limit, epsilon_lower_bound
from fl_audit.verdict import (
    distinguisher,
    noise_copies,
    noise_mean_and_independence,
    noise_scale,
    noise_shape,
    off_target_drift,
    participation_tests,
    side_release_tests,
    target_contribution_tests,
)
from fl_audit.verdict import noise_estimate as estimates
from fl_audit.verdict.declared_tests import (
    FAMILY_LEVEL,
    OF_OPENED,
    NotTestedReason,
    TestName,
    TestNotApplicableError,
    TestResult,
    if_known,
)
from fl_audit.verdict.noise_scale import NoiseAlongTarget
from fl_audit.verdict.opened_secrets import OpenedSecrets
from fl_audit.verdict.run_measurements import NoiseMeasurements
from fl_audit.verdict.signal_detection_limit import SignalDetectionLimit
from fl_audit.verdict.verdict import VerdictDetails

Test = Callable[[NoiseMeasurements], TestResult]
OpenedTest = Callable[[OpenedSecrets], TestResult]

OPENED_TESTS: dict[TestName, OpenedTest] = {
    TestName.TARGET_TURNS: participation_tests.target_turns,
    TestName.UNIT_TURNS: participation_tests.unit_turns,
    TestName.SAMPLE_SIZES: participation_tests.sample_sizes,
    TestName.EVEN_TURNS: participation_tests.even_turns,
    TestName.SHARED_SAMPLES: participation_tests.shared_samples,
    TestName.SHARE_PAIRS: side_release_tests.share_pairs,
    TestName.BIT_NOISE: side_release_tests.bit_noise,
    TestName.EXACT_STEPS: side_release_tests.exact_steps,
}
"""The tests of the family that use only values which the challenger reveals after a run."""


def _of_measured(name: TestName) -> Test:
    """Return the test of opened values with the given name, as a test of the measurements of a run."""

    def of_measured(measurements: NoiseMeasurements) -> TestResult:
        return OPENED_TESTS[name](if_known(measurements.opened, NotTestedReason.NOT_OPENED))

    return of_measured


FAMILY: dict[TestName, Test] = {
    TestName.NOISE_TOTAL: noise_scale.noise_total,
    TestName.NOISE_ALONG_RECORD: noise_scale.noise_along_record,
    TestName.NOISE_TENSOR: noise_scale.noise_tensor,
    TestName.NOISE_ROUND: noise_scale.noise_round,
    TestName.SHAPE: noise_shape.shape,
    TestName.NOISE_TRIAL: target_contribution_tests.noise_along_record_trial,
    TestName.SIGNAL: target_contribution_tests.signal,
    TestName.SIGNAL_ROUND: target_contribution_tests.signal_round,
    TestName.SIGNAL_TRIAL: target_contribution_tests.signal_trial,
    TestName.DRIFT_PLACE: off_target_drift.drift_place,
    TestName.DRIFT_ALONG_RECORD: noise_mean_and_independence.drift_along_record,
    TestName.DRIFT_ALONG_GRADIENTS: noise_mean_and_independence.drift_along_gradients,
    TestName.REPEATED_NOISE: noise_copies.repeated_noise,
    TestName.CORRELATED_NOISE: noise_copies.correlated_noise,
    TestName.SENSITIVITY: noise_shape.sensitivity,
    TestName.DISTINGUISHER: distinguisher.distinguisher,
    **{name: _of_measured(name) for name in OPENED_TESTS},
}
"""The tests by name, in the order of their declaration; a test may raise `TestNotApplicableError`."""

_Tested = tuple[tuple[TestResult, ...], tuple[tuple[TestName, NotTestedReason], ...]]


def run_family(measurements: NoiseMeasurements, names: Iterable[TestName] = FAMILY) -> _Tested:
    """Make the named tests on a run and return their results, and the reasons why some could not be made.

    The first element holds the results, the second one pairs (name of the test, reason).

    Parameters
    ----------
    measurements
        Noise measurements of the run.
    names
        Names of the tests to make. By default all of `FAMILY` are made.
    """
    return _offered({name: partial(FAMILY[name], measurements) for name in names})


def _offered(tests: Mapping[TestName, Callable[[], TestResult]]) -> _Tested:
    tested = []
    missing = []
    for name, test in tests.items():
        try:
            tested.append(test())
        except TestNotApplicableError as why:
            missing.append((name, why.reason))
        except (ArithmeticError, InputError, ValueError):
            # One test that cannot be computed may not lose the results of the others.
            missing.append((name, NotTestedReason.NOT_COMPUTED))
    return tuple(tested), tuple(missing)


def judge(measurements: NoiseMeasurements, guarantee: Guarantee, confidence: float) -> VerdictDetails:
    """Test a guarantee by the noise measurements of a run, and return the results with the verdict.

    Parameters
    ----------
    measurements
        Noise measurements of the run, with the claimed noise.
    guarantee
        Guarantee of the run.
    confidence
        Confidence of the intervals of the noise and of the lower bound on epsilon, at least 0.5 and below 1. It does
        not change the level of the tests.

    Raises
    ------
    InputError
        If a number is out of its range.
    """
    claim = guarantee.claim
    count = int(measurements.used_innovations.size)
    name = TestName.NOISE_ALONG_RECORD
    total = noise_scale.total_squares(measurements)
    along = noise_scale.record_squares(measurements)
    limit = estimates.epsilon_limit(count, measurements.trials, guarantee, measurements.noise_kind)
    return VerdictDetails(
        *run_family(measurements),
        estimates.estimate_noise(confidence, total, along, noise_scale.tensor_squares(measurements)),
        estimates.epsilon_lower_bound_from_noise(measurements, confidence, claim),
        estimates.epsilon_lower_bound_from_noise(measurements, 1 - FAMILY_LEVEL, claim),
        confidence,
        str(name),
        estimates.assumption_of(claim),
        limit_of_detection=limit.limit_of_detection,
        trials_needed=limit.trials_needed,
        conclusive=limit.conclusive,
        signal=target_contribution_tests.limit_of_run(measurements),
    )


def judge_scores(
    member_scores: Floats,
    nonmember_scores: Floats,
    guarantee: Guarantee,
    confidence: float,
    noise: NoiseAlongTarget | None = None,
) -> VerdictDetails:
    """Test a guarantee by attack scores of unknown distribution, and by the noise along the target unit if known.

    The guarantee is violated if the lower bound on epsilon from the scores, at the test's significance level, exceeds
    the epsilon of the guarantee. Otherwise the verdict is that of `judged_with_noise`. Scores alone never give a
    consistent verdict, because it is unknown how well the scores would tell D from D' under less noise.

    Parameters
    ----------
    member_scores
        Final scores of the trials with D, shape (trials with D,). A higher score means that D is more likely.
    nonmember_scores
        Final scores of the trials with D', shape (trials with D',).
    guarantee
        Guarantee with noise of any distribution.
    confidence
        Confidence of the reported lower bound on epsilon, above 0.5 and below 1. It does not change the level of the
        tests.
    noise
        Noise along the target's contribution in every trial; None if it cannot be computed.

    Raises
    ------
    InputError
        If a score is not a number or the confidence is out of its range.
    """
    scores = np.asarray(member_scores, dtype=np.float64), np.asarray(nonmember_scores, dtype=np.float64)
    sizes = (scores[0].size, scores[1].size)
    delta = guarantee.delta
    rule = BoundMethod.ORDER_STATISTIC
    level = TestName.SCORES.level
    low = 0.0
    at_level = 0.0
    ceiling = 0.0
    if min(sizes) > 0:
        low, at_level = (epsilon_lower_bound(*scores, delta, level, rule).epsilon for level in (confidence, 1 - level))
        ceiling = bound_limit(rule, *sizes, delta, 1 - level)
    # The p-value is not computed, only on which side of the level it lies.
    p_value = 0.0 if at_level > guarantee.epsilon else 1.0
    details = {"delta": delta, "ceiling": ceiling}
    test = TestResult(TestName.SCORES, at_level, p_value, measured=at_level, claimed=guarantee.epsilon, more=details)
    alone = judged_by_one(
        test,
        (low, at_level),
        NotTestedReason.SCORES_ALONE,
        confidence=confidence,
        method=str(rule),
        assumption=rule.assumption,
    )
    return judged_with_noise(alone, noise, guarantee)


def judged_with_noise(details: VerdictDetails, noise: NoiseAlongTarget | None, guarantee: Guarantee) -> VerdictDetails:
    """Add the tests of the noise along the target unit to the result of another test, and return all with the verdict.

    The guarantee is violated if any test fails. Otherwise the verdict is consistent if the run would have found each of
    two breaches. One is noise so small that epsilon is 1.5 times the claimed epsilon. The other is a target whose
    contribution is counted 1.5 times. If the run would have missed one of them, the verdict is inconclusive.

    Parameters
    ----------
    details
        Result of the other test, at its share of the significance level.
    noise
        Noise along the target in every trial. If it is None, because it cannot be computed, `details` is returned.
    guarantee
        Guarantee that is tested.
    """
    if noise is None:
        return details
    if noise.total.freedom == 0:
        return replace(
            details,
            not_offered=tuple((name, NotTestedReason.NO_DIFFERENCE) for name in FAMILY),
            signal=SignalDetectionLimit(),
        )
    of_noise: dict[TestName, Callable[[], TestResult]] = {
        TestName.NOISE_ALONG_RECORD: partial(
            noise_scale.least_of, TestName.NOISE_ALONG_RECORD, noise.total, NotTestedReason.NO_DIFFERENCE
        ),
        TestName.NOISE_TRIAL: partial(target_contribution_tests.noise_trial_of, noise),
        TestName.SIGNAL: lambda: target_contribution_tests.signal_of(target_contribution_tests.drift_along(noise)),
        TestName.SIGNAL_TRIAL: partial(target_contribution_tests.signal_trial_of, noise),
    }
    test_results, missing = _offered(of_noise)
    tests = (*test_results, *details.tests)
    reasons = dict(missing)
    names = {test.name for test in tests}
    limit = estimates.epsilon_limit(noise.total.freedom, noise.members.size, guarantee, noise.noise)
    return replace(
        details,
        tests=tests,
        not_offered=tuple(
            (name, reasons.get(name, NotTestedReason.TARGETS_ALONE)) for name in FAMILY if name not in names
        ),
        noise=estimates.estimate_noise(details.confidence, along=noise.total),
        limit_of_detection=limit.limit_of_detection,
        trials_needed=limit.trials_needed,
        conclusive=limit.conclusive,
        signal=target_contribution_tests.limit_along(noise),
    )


def judged_with_opened(details: VerdictDetails, opened: OpenedSecrets | None) -> VerdictDetails:
    """Test values that the challenger revealed after the run, such as who took part in a round, and add the results.

    Parameters
    ----------
    details
        Results of tests by scores or guesses. They use only a part of the significance level; the added tests use the
        rest.
    opened
        Secret values that the challenger revealed after the run. If there are none, `details` is returned.
    """
    if opened is None or not opened.is_kept:
        return details
    tests, missing = _offered({name: partial(OPENED_TESTS[name], opened) for name in OF_OPENED})
    not_offered = tuple((name, reason) for name, reason in details.not_offered if name not in OF_OPENED)
    return replace(details, tests=(*details.tests, *tests), not_offered=(*not_offered, *missing))


def judged_by_one(
    test: TestResult,
    lower_bounds: tuple[float, float],
    reason: NotTestedReason | None = None,
    *,
    confidence: float,
    method: str,
    assumption: str,
) -> VerdictDetails:
    """Return a judgement that consists of a single test, for a run on which the test family is not used.

    The judgement has no limit of detection.

    Parameters
    ----------
    test
        Result of the single test.
    lower_bounds
        Lower bounds on epsilon that hold with probability `confidence` and with probability 1 - `FAMILY_LEVEL`.
    reason
        Reason to store why each test of `FAMILY` was not made; None stores no reasons.
    confidence
        Confidence of the first lower bound, above 0 and below 1.
    method
        Method of the lower bounds, in plain English.
    assumption
        Assumption of the lower bounds, in plain English.
    """
    not_offered = () if reason is None else tuple((name, reason) for name in FAMILY)
    nothing = estimates.estimate_noise(confidence)
    return VerdictDetails((test,), not_offered, nothing, *lower_bounds, confidence, method, assumption)


def without_tests(confidence: float) -> VerdictDetails:
    """Return a judgement without any test, for a run on which the tests cannot be computed.

    Its verdict is inconclusive, or violated by the exact questions.
    """
    missing = tuple((name, NotTestedReason.NOT_COMPUTED) for name in FAMILY)
    return VerdictDetails((), missing, estimates.estimate_noise(confidence), 0.0, 0.0, confidence, "", "")


def without_noise(details: VerdictDetails) -> VerdictDetails:
    """Return a judgement without the tests and estimates of noise, for releases that are not sums with noise.

    Tests of scores, guesses and opened values stay: they hold whatever is released. The test of shares does not, since
    it looks at the noise that is left without them.
    """
    stay = {*OF_OPENED, TestName.SCORES, TestName.CANDIDATES, TestName.CANARIES} - {TestName.SHARE_PAIRS}
    tests = tuple(test for test in details.tests if test.name in stay)
    gone = tuple((test.name, NotTestedReason.NOT_A_SUM) for test in details.tests if test.name not in stay)
    is_of_noise = details.method == TestName.NOISE_ALONG_RECORD
    return replace(
        details,
        tests=tests,
        not_offered=(*details.not_offered, *gone),
        noise=estimates.estimate_noise(details.confidence),
        epsilon_lower_bound=0.0 if is_of_noise else details.epsilon_lower_bound,
        epsilon_lower_bound_at_level=0.0 if is_of_noise else details.epsilon_lower_bound_at_level,
        limit_of_detection=np.inf,
        trials_needed=None,
        conclusive=False,
        signal=None,
    )
