"""Test whether the noise has mean 0 and is independent between trials and between rounds, by means and sums.

A mean that is not 0 shows that the released sum is not the claimed one. The release always shifts in one direction if
contributions are not clipped, if the sum is divided by the wrong number, or if a record counts more than once.
Independent noise adds up at a known rate. Shared noise adds up faster, and noise that cancels adds up more slowly. The
tests estimate the scale of the noise from the measurements, so more noise than claimed does not fail them. Under the
claimed distribution, the tests are still exact.
"""

import math

import numpy as np
from scipy.optimize import brentq
from scipy.special import fdtrc, fdtri, ncfdtr

from fl_audit.array_types import Floats
from fl_audit.verdict.declared_tests import DETECTION_POWER, Look, NotTestedReason, TestName, TestResult, only_if
from fl_audit.verdict.noise_scale import has_direction, why_no_direction
from fl_audit.verdict.null_distributions import along_previous, detectable_mean, f_test_p, student_p
from fl_audit.verdict.run_measurements import NoiseMeasurements


def drift_along_record(measurements: NoiseMeasurements) -> TestResult:
    """Test whether the noise along f(D) - f(D') has mean 0, in trials with D and in trials with D', by an F-test.

    The G = 2 groups are the trials with D and those with D'; an empty group is left out. A group has n innovations
    (standardised noise of a round) with the sum S, and all groups together have N. The statistic is the mean of S^2/n
    over the groups, divided by the variance within the groups. Its distribution is F(G, N - G). The test finds a shift
    under D alone as well as a shift under both.
    """
    split = [_used(measurements.innovations[rows]) for rows in (measurements.members, ~measurements.members)]
    groups = [group for group in split if group.size]
    only_if(bool(groups), NotTestedReason.NO_DIFFERENCE)
    count = sum(group.size for group in groups)
    remaining = count - len(groups)
    only_if(remaining >= 2, NotTestedReason.TOO_FEW)
    between = sum(float(group.sum()) ** 2 / group.size for group in groups) / len(groups)
    within = sum(float(np.sum((group - group.mean()) ** 2)) for group in groups) / remaining
    statistic = between / within if within > 0 else (math.inf if between > 0 else 0.0)
    sides = zip(("mean_with", "mean_without"), split, strict=True)
    means = {side: float(values.mean()) for side, values in sides if values.size}
    p_value = float(fdtrc(len(groups), remaining, statistic))
    largest = max(means.values(), key=abs)
    limit = _detectable_shift(count, len(groups), TestName.DRIFT_ALONG_RECORD.level)
    return TestResult(TestName.DRIFT_ALONG_RECORD, statistic, p_value, largest, 0.0, limit, more=means)


def _used(values: Floats) -> Floats:
    return values[~np.isnan(values)]


def _detectable_shift(count: int, groups: int, level: float) -> float:
    """Return the smallest mean of the noise, in standard deviations, that the F-test of `drift_along_record` detects.

    It is detected with probability `DETECTION_POWER`: with this mean the statistic is noncentral F, with noncentrality
    count * mean^2.
    """
    remaining = count - groups
    critical = float(fdtri(groups, remaining, 1 - level))

    def missed(noncentrality: float) -> float:
        return float(ncfdtr(groups, remaining, noncentrality, critical)) - (1 - DETECTION_POWER)

    high = 1.0
    while missed(high) > 0:
        high *= 2
    return math.sqrt(float(brentq(missed, high / 2 if high > 1 else 0.0, high)) / count)


def drift_along_gradients(measurements: NoiseMeasurements) -> TestResult:
    """Test whether the noise along the sum of the contributions common to D and D' has mean 0: Student's t, two-sided.

    The direction of this sum is taken orthogonal to f(D) - f(D').
    """
    only_if(has_direction(measurements), why_no_direction(measurements))
    values = _used(measurements.noise.gradient / measurements.sigma)
    only_if(values.size > 0, NotTestedReason.NO_SHARED_SUM)
    only_if(values.size >= 3, NotTestedReason.TOO_FEW)
    t, p_value = student_p(values)
    limit = detectable_mean(values.size, TestName.DRIFT_ALONG_GRADIENTS.level)
    return TestResult(TestName.DRIFT_ALONG_GRADIENTS, t, p_value, float(values.mean()), claimed=0.0, limit=limit)


def shared_over_trials(measurements: NoiseMeasurements, level: float) -> Look:
    """Test whether trials share noise, by two variances: of the noise summed over trials, and of the remainder.

    For J coordinates, k rounds and W trials, the ratio of the two variances is F(J k, J k (W - 1)). The test is
    two-sided. Shared noise makes the ratio too large. Noise that cancels between trials, such as antithetic draws,
    makes it too small.
    """
    only_if(measurements.trials >= 2, NotTestedReason.ONE_TRIAL)
    return _sharing("all-trials", measurements, level, axis=0)


def shared_over_rounds(measurements: NoiseMeasurements, level: float) -> Look:
    """Test whether rounds share noise, by the variance of noise sums over rounds relative to the remaining variance.

    For J coordinates, k rounds and W trials, the ratio of the two variances is F(J W, J W (k - 1)). The test is
    two-sided. Shared noise makes the ratio too large. Noise that cancels over rounds makes the ratio too small; such
    noise protects each round but not the final model.
    """
    only_if(measurements.rounds >= 2, NotTestedReason.ONE_ROUND)
    return _sharing("all-rounds", measurements, level, axis=1)


def _sharing(question: str, measurements: NoiseMeasurements, level: float, axis: int) -> Look:
    sample = measurements.even_sample
    added = sample.shape[axis]
    means = sample.mean(axis=axis, keepdims=True)
    only_if(added >= 2, NotTestedReason.ONE_TRIAL)
    freedom = int(means.size)
    denominator_freedom = freedom * (added - 1)
    common = added * float(np.sum(np.square(means))) / freedom
    denominator = float(np.sum(np.square(sample - means))) / denominator_freedom
    only_if(not common == denominator == 0, NotTestedReason.NO_NOISE)
    statistic = common / denominator if denominator > 0 else math.inf
    p_value = f_test_p(statistic, freedom, denominator_freedom)
    limit = _detectable_share(added, freedom, level)
    return Look(question, statistic, p_value, measured=statistic, claimed=1.0, limit=limit)


def _detectable_share(added: int, freedom: int, level: float) -> float:
    """Return the smallest share s of common variance between the terms of a noise sum that the F-test detects.

    If the m terms have the share s of their variance in common, the ratio of variances in the F-test is multiplied by
    (1 - s + m s) / (1 - s). `added` is m, and `freedom` the degrees of freedom of the sum.
    """
    denominator_freedom = freedom * (added - 1)
    factor = float(
        fdtri(freedom, denominator_freedom, 1 - level / 2) / fdtri(freedom, denominator_freedom, 1 - DETECTION_POWER)
    )
    return (factor - 1) / (added - 1 + factor)


def serial_correlation(measurements: NoiseMeasurements, level: float) -> Look:
    """Test whether the noise of consecutive rounds of a trial is correlated at the sampled coordinates: Student's t.

    Let p be the noise of a round and q the noise of the next round. Then <p, q> / |p| is normal, and its spread does
    not depend on p. So these values are independent over rounds and trials. Their mean is tested two-sided. The test
    finds moving-average noise with far more power than sums over rounds do.
    """
    only_if(measurements.rounds >= 2, NotTestedReason.ONE_ROUND)
    sample = measurements.even_sample
    steps = along_previous(sample[:, :-1], sample[:, 1:])
    only_if(steps.size >= 3, NotTestedReason.TOO_FEW)
    t, p_value = student_p(steps)
    # The mean length of a standard normal vector is sqrt(2) Gamma((J + 1)/2) / Gamma(J/2).
    size = sample.shape[-1]
    length = math.sqrt(2) * math.exp(math.lgamma((size + 1) / 2) - math.lgamma(size / 2))
    scale = math.sqrt(float(np.mean(np.square(sample))))
    limit = min(1.0, detectable_mean(steps.size, level) / length)
    correlation = float(steps.mean()) / length / scale
    return Look("next-round", t, p_value, measured=correlation, claimed=0.0, limit=limit)
