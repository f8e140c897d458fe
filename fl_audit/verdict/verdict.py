"""Define the verdict on whether the measurements of a run contradict its claim.

The verdict rests on a family of tests, `FAMILY`, that is fixed before the run. Each test is exact or conservative under
the claimed distribution. The probability that an honest federation fails any of them is at most 0.001.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial

import numpy as np

from fl_audit.array_types import Floats
from fl_audit.privacy.guarantee import Guarantee
from fl_audit.statistics.lower_bound_methods import BoundMethod
from fl_audit.statistics.lower_bounds import bound_limit, epsilon_lower_bound
from fl_audit.verdict import (
    copied_noise_magnitudes,
    distinguisher,
    noise_copies,
    noise_moments,
    noise_scale,
    noise_shape,
    noise_size_variation,
    off_target_drift,
    participation,
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
)
from fl_audit.verdict.noise_scale import NoiseAlongTarget
from fl_audit.verdict.opened_secrets import OpenedSecrets
from fl_audit.verdict.run_measurements import OPENED_TESTS, TESTS, NoiseMeasurements, Test
from fl_audit.verdict.signal_detection_limit import SignalDetectionLimit


class Verdict(StrEnum):
    """Verdict on the guarantee of a run.

    CONSISTENT: no test refutes the guarantee. VIOLATED: a test refutes it at `FAMILY_LEVEL`. INCONCLUSIVE: no test
    refutes it, but even a breach of 1.5 times the claimed epsilon might not have been found. NOT_AUDITED: there was a
    guarantee, but no insider to test it. NO_GUARANTEE: the run had no guarantee.
    """

    CONSISTENT = "consistent"
    VIOLATED = "violated"
    INCONCLUSIVE = "inconclusive"
    NOT_AUDITED = "not audited"
    NO_GUARANTEE = "no guarantee"


@dataclass(frozen=True)
class VerdictPhrases:
    """Phrases with which the reports of one kind of audit describe its tests.

    A field that is None stands for the phrase used in audits of a pair D, D'.
    """

    shown_by: str = "scores"  # name of the values from which a lower bound on epsilon was computed
    blind: str | None = None  # sentence for a run in which no breach could have been found
    to_find_more: str | None = None  # sentence on how smaller breaches are found
    next_step: str | None = None  # sentence on the next step after a consistent verdict
    lists_questions: bool = True  # whether the report lists the tests beside those of the amount of noise


@dataclass(frozen=True)
class VerdictDetails:
    """The results of all tests of a run's guarantee, with estimates, limits of detection and the verdict."""

    tests: tuple[TestResult, ...]  # every test that was made, in the order of their declaration
    # The tests that could not be made on this run, each with the reason.
    not_offered: tuple[tuple[TestName, NotTestedReason], ...]
    noise: estimates.NoiseRatioEstimate  # ratios of the measured to the claimed noise
    epsilon_lower_bound: float  # a lower bound at the guarantee's delta that holds with `confidence` under `assumption`
    # A lower bound at the guarantee's delta that holds with 1 - `level` under `assumption`.
    epsilon_lower_bound_at_level: float
    confidence: float  # confidence of the intervals and of `epsilon_lower_bound`, as configured
    method: str  # method of the lower bound, in plain English
    assumption: str  # assumption of the lower bound, in plain English
    # Smallest true epsilon, at the guarantee's delta, at which a test fails with probability 0.9. The test is the one
    # that the lower bound comes from; in the membership audit it is the test of the noise along the targets. Infinite
    # where the trials cannot tell, and where only scores of unknown distribution are judged.
    limit_of_detection: float = math.inf
    # Number of trials that would find a breach of 1.5 times the guarantee. None where no number would, because D and D'
    # never differed, and where the number is unknown, because only scores are judged.
    trials_needed: int | None = None
    conclusive: bool = False  # whether a breach of 1.5 times the guarantee would have been found in this run
    # Limit of detection for a target that counts more than once in the sum, and the estimate of how often it counts;
    # None where no test was made of it.
    signal: SignalDetectionLimit | None = None
    words: VerdictPhrases = VerdictPhrases()

    @property
    def level(self) -> float:
        """Significance level of the whole family of tests."""
        return FAMILY_LEVEL

    @property
    def broken(self) -> tuple[TestResult, ...]:
        """Results of the tests that refute the guarantee."""
        return tuple(test for test in self.tests if test.violated)

    @property
    def verdict(self) -> Verdict:
        """Verdict that follows from the tests: violated, consistent or inconclusive."""
        return verdict_on(bool(self.broken), self.conclusive and (self.signal is None or self.signal.conclusive))

    @property
    def trials_that_tell(self) -> int | None:
        """Number of trials with which a run would be conclusive; None if no number is enough, or if it is unknown.

        A run is conclusive if it would find both of two breaches: an epsilon of 1.5 times the claimed one, and a target
        that counts 1.5 times in the released sums.
        """
        needed = [self.trials_needed] + ([] if self.signal is None else [self.signal.trials_needed])
        known = [number for number in needed if number is not None]
        return max(known) if len(known) == len(needed) else None

    @property
    def level_of_limit(self) -> float:
        """Significance level of the test from which `limit_of_detection` was computed.

        It is the level of the whole family if that test is not in `tests`.
        """
        return next((test.level for test in self.tests if test.name == self.method), self.level)


# They declare the tests.
_MODULES = (
    distinguisher,
    off_target_drift,
    noise_copies,
    noise_moments,
    noise_scale,
    noise_shape,
    target_contribution_tests,
)
_MORE_MODULES = (copied_noise_magnitudes, noise_size_variation, participation, side_release_tests)

FAMILY: dict[TestName, Test] = {name: TESTS[name] for name in TestName if name in TESTS}
"""The tests by name, in the order of their declaration."""


def depends_on_secret(found: VerdictDetails) -> bool:
    """Return True if a test found that the noise depends on the secret; then more noise than claimed may do harm."""
    return any(test.name.is_about_secret for test in found.broken)


def has_open_shares(found: VerdictDetails) -> bool:
    """Return True if the clients' shares of the noise are known to be independent, or if clients add no shares.

    They count as independent if they were opened and no test found otherwise. Shares that are copies of each other add
    up to more noise than claimed, but hide less. So more noise than claimed is harmless only if this function returns
    True.
    """
    name = TestName.SHARE_PAIRS
    is_unopened = (name, NotTestedReason.UNOPENED_SHARES) in found.not_offered
    return not is_unopened and not any(test.name is name for test in found.broken)


_Tested = tuple[tuple[TestResult, ...], tuple[tuple[TestName, NotTestedReason], ...]]


def run_family(measured: NoiseMeasurements, names: Iterable[TestName] = FAMILY) -> _Tested:
    """Make the named tests on a run and return their results, and the reasons why some could not be made.

    The first element holds the results, the second one pairs (name of the test, reason).

    Parameters
    ----------
    measured
        Noise measurements of the run.
    names
        Names of the tests to make. By default all of `FAMILY` are made.
    """
    return _offered({name: partial(FAMILY[name], measured) for name in names})


def _offered(tests: Mapping[TestName, Callable[[], TestResult]]) -> _Tested:
    made, missing = [], []
    for name, test in tests.items():
        try:
            made.append(test())
        except TestNotApplicableError as why:
            missing.append((name, why.reason))
    return tuple(made), tuple(missing)


def judge(measured: NoiseMeasurements, guarantee: Guarantee, confidence: float) -> VerdictDetails:
    """Test a guarantee of Gaussian noise by the noise measurements of a run, and return the results with the verdict.

    Parameters
    ----------
    measured
        Noise measurements of the run, with the claimed noise.
    guarantee
        Guarantee with Gaussian noise. The epsilon of the measured noise is computed by its accountant, with
        subsampling.
    confidence
        Confidence of the intervals of the noise and of the lower bound on epsilon, at least 0.5 and below 1. All tests
        together have the level `FAMILY_LEVEL` whatever the confidence.

    Raises
    ------
    InputError
        If a number is out of its range.
    """
    claim, count, name = guarantee.claim, int(measured.used_innovations.size), TestName.NOISE_ALONG_RECORD
    total, along = noise_scale.total_squares(measured), noise_scale.record_squares(measured)
    return VerdictDetails(
        *run_family(measured),
        estimates.estimate_noise(confidence, total, along, noise_scale.tensor_squares(measured)),
        estimates.epsilon_lower_bound_from_noise(measured, confidence, claim),
        estimates.epsilon_lower_bound_from_noise(measured, 1 - FAMILY_LEVEL, claim),
        confidence,
        str(name),
        estimates.assumption_of(claim),
        **vars(estimates.epsilon_limit(count, measured.trials, name.level, guarantee)),
        signal=target_contribution_tests.limit_of_run(measured),
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
    its epsilon. Otherwise the verdict is that of `judged_with_noise`. It is unknown how well the scores separate under
    less noise than claimed, so the limit of detection of the scores is unknown too. So scores alone never give a
    consistent verdict.

    Parameters
    ----------
    member_scores
        Final scores of the trials with D, shape (trials with D,). A higher score means that D is more likely.
    nonmember_scores
        Final scores of the trials with D', shape (trials with D',).
    guarantee
        Guarantee with noise of any distribution.
    confidence
        Confidence of the reported lower bound on epsilon, above 0.5 and below 1. All tests together have the level
        `FAMILY_LEVEL` whatever the confidence.
    noise
        Noise along the target's contribution in every trial; None if it cannot be computed.

    Raises
    ------
    InputError
        If a score is not a number or the confidence is out of its range.
    """
    scores = np.asarray(member_scores, dtype=np.float64), np.asarray(nonmember_scores, dtype=np.float64)
    sizes, delta = (scores[0].size, scores[1].size), guarantee.delta
    rule, level = BoundMethod.ORDER_STATISTIC, TestName.SCORES.level
    low, at_level, ceiling = 0.0, 0.0, 0.0
    if min(sizes) > 0:
        low, at_level = (epsilon_lower_bound(*scores, delta, one, rule).epsilon for one in (confidence, 1 - level))
        ceiling = bound_limit(rule, *sizes, delta, 1 - level)
    # The p-value is not computed, only on which side of the level it lies.
    p_value, more = 0.0 if at_level > guarantee.epsilon else 1.0, {"delta": delta, "ceiling": ceiling}
    test = TestResult(TestName.SCORES, at_level, p_value, measured=at_level, claimed=guarantee.epsilon, more=more)
    alone = judged_by_one(
        test,
        (low, at_level),
        NotTestedReason.SCORES_ALONE,
        confidence=confidence,
        method=str(rule),
        assumption=rule.assumption,
    )
    return judged_with_noise(alone, noise, guarantee)


def judged_with_noise(alone: VerdictDetails, noise: NoiseAlongTarget | None, guarantee: Guarantee) -> VerdictDetails:
    """Add the tests of the noise along the target unit to the result of another test, and return all with the verdict.

    The guarantee is violated if any test fails. One of them asks whether the amount of noise depends on the membership.
    Otherwise the verdict is consistent if the run would have found two breaches: noise so small that epsilon is 1.5
    times the claimed one, and a target that counts 1.5 times. If not, it is inconclusive.

    Parameters
    ----------
    alone
        Result of the other test, at its share of the significance level.
    noise
        Noise along the target in every trial. If it is None, because it cannot be computed, `alone` is returned.
    guarantee
        Guarantee that is tested.
    """
    if noise is None:
        return alone
    if noise.total.freedom == 0:
        return replace(
            alone,
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
        TestName.SECRET_ALONG_RECORD: partial(noise_scale.secret_along, noise),
    }
    made, missing = _offered(of_noise)
    tests, reasons = (*made, *alone.tests), dict(missing)
    names = {test.name for test in tests}
    return replace(
        alone,
        tests=tests,
        not_offered=tuple(
            (name, reasons.get(name, NotTestedReason.TARGETS_ALONE)) for name in FAMILY if name not in names
        ),
        noise=estimates.estimate_noise(alone.confidence, along=noise.total),
        **vars(
            estimates.epsilon_limit(
                noise.total.freedom, noise.members.size, TestName.NOISE_ALONG_RECORD.level, guarantee
            )
        ),
        signal=target_contribution_tests.limit_along(noise),
    )


def judged_with_opened(found: VerdictDetails, opened: OpenedSecrets | None) -> VerdictDetails:
    """Add the tests of values revealed after the run, such as who took part, to the results of other tests.

    All results are returned together.

    Parameters
    ----------
    found
        Results of tests by scores or guesses, which leave the added tests their share of the significance level.
    opened
        Secret values that the challenger revealed after the run. If there are none, `found` is returned.
    """
    if opened is None or not opened.is_kept:
        return found
    tests, missing = _offered({name: partial(OPENED_TESTS[name], opened) for name in OF_OPENED})
    left = tuple((name, reason) for name, reason in found.not_offered if name not in OF_OPENED)
    return replace(found, tests=(*found.tests, *tests), not_offered=(*left, *missing))


def judged_by_one(
    test: TestResult,
    lower_bounds: tuple[float, float],
    missing: NotTestedReason | None = None,
    *,
    confidence: float,
    method: str,
    assumption: str,
) -> VerdictDetails:
    """Return the result of a single test as a judgement without a limit of detection.

    It is used if no test of `FAMILY` was made.

    Parameters
    ----------
    test
        Result of the single test.
    lower_bounds
        Lower bounds on epsilon that hold with probability `confidence` and with probability 1 - `FAMILY_LEVEL`.
    missing
        Reason why the tests of `FAMILY` were not made, stored for each of them; None stores nothing.
    confidence
        Confidence of the first lower bound, above 0 and below 1.
    method
        Method of the lower bounds, in plain English.
    assumption
        Assumption of the lower bounds, in plain English.
    """
    not_offered = () if missing is None else tuple((name, missing) for name in FAMILY)
    nothing = estimates.estimate_noise(confidence)
    return VerdictDetails((test,), not_offered, nothing, *lower_bounds, confidence, method, assumption)


def verdict_on(is_broken: bool, is_conclusive: bool) -> Verdict:
    """Return the verdict: violated if a test refuted the guarantee, otherwise consistent or inconclusive.

    Parameters
    ----------
    is_broken
        True if at least one test refuted the guarantee.
    is_conclusive
        True if the tests would have found a breach of 1.5 times the guarantee. If it is False, and no test refuted the
        guarantee, the verdict is inconclusive.
    """
    if is_broken:
        return Verdict.VIOLATED
    return Verdict.CONSISTENT if is_conclusive else Verdict.INCONCLUSIVE
