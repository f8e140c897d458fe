"""Does the noise have mean 0? A mean that is not 0 means that the released sum is not the one that was claimed.

Contributions that were not clipped, a sum divided by the wrong number, or a record that counts more than once shift
what is released, always in the same direction. The scale of the noise is taken from the measurements themselves, so
that noise above the promise is not taken for a shift; under the claimed law the tests are exact all the same.
"""

import math

import numpy as np
from scipy.optimize import brentq
from scipy.special import fdtrc, fdtri, ncfdtr, stdtr, stdtrit

from fl_audit.arrays import Floats
from fl_audit.confidence.noncentral_t import noncentrality_at
from fl_audit.evidence.belief.family import DETECTION_POWER, Missing, NotOffered, TestName, TestResult
from fl_audit.evidence.belief.measured import Measured
from fl_audit.evidence.belief.noise_scale import why_no_direction


def student_p(values: Floats) -> tuple[float, float]:
    """Return Student's t of the mean of normal values of unknown spread, and its two-sided p-value.

    Parameters
    ----------
    values
        Shape (n,), n at least 2. Values that are all the same and not 0 give p-value 0.
    """
    spread, mean = float(values.std(ddof=1)), float(values.mean())
    if spread == 0:
        return (0.0, 1.0) if mean == 0 else (math.copysign(math.inf, mean), 0.0)
    t = mean / spread * math.sqrt(values.size)
    return t, float(2 * stdtr(values.size - 1, -abs(t)))


def detectable_mean(count: int, level: float, power: float = DETECTION_POWER) -> float:
    """Return the mean, in standard deviations, that the two-sided t-test on `count` values finds with a probability.

    Parameters
    ----------
    count
        From 2.
    level
        Level of the test, above 0 and below 1.
    power
        The probability of finding it, above the level and below 1.

    Examples
    --------
    >>> round(detectable_mean(600, 1e-4), 3)
    0.212
    """
    critical = -float(stdtrit(count - 1, level / 2))
    return noncentrality_at(1 - power, critical, count - 1) / math.sqrt(count)


def drift_along_record(measured: Measured) -> TestResult | NotOffered:
    """Test the means of the innovations in worlds with D and in worlds with D': analysis of variance, F.

    With n innovations of sum S in each of G groups, the sum of S^2/n over the groups, over G, and the variance within
    the groups have the ratio F(G, N - G). A shift that is there under D alone shows as well as one under both.
    """
    split = [_used(measured.innovations[rows]) for rows in (measured.members, ~measured.members)]
    groups = [group for group in split if group.size]
    if not groups:
        return NotOffered(Missing.NO_DIFFERENCE)
    count = sum(group.size for group in groups)
    rest = count - len(groups)
    if rest < 2:
        return NotOffered(Missing.TOO_FEW)
    between = sum(float(group.sum()) ** 2 / group.size for group in groups) / len(groups)
    within = sum(float(np.sum((group - group.mean()) ** 2)) for group in groups) / rest
    statistic = between / within if within > 0 else (math.inf if between > 0 else 0.0)
    sides = zip(("mean_with", "mean_without"), split, strict=True)
    means = {side: float(part.mean()) for side, part in sides if part.size}
    return TestResult(
        name=TestName.DRIFT_ALONG_RECORD,
        statistic=statistic,
        p_value=float(fdtrc(len(groups), rest, statistic)),
        measured=max(means.values(), key=abs),
        promised=0.0,
        limit=detectable_shift(count, len(groups), TestName.DRIFT_ALONG_RECORD.level),
        more=means,
    )


def _used(values: Floats) -> Floats:
    return values[~np.isnan(values)]


def detectable_shift(count: int, groups: int, level: float, power: float = DETECTION_POWER) -> float:
    """Return the mean, in standard deviations, that the F-test on `count` innovations finds with a probability.

    Its statistic is then noncentral F with noncentrality count times the square of the mean.

    Parameters
    ----------
    count
        Above `groups`.
    groups
        Number of groups whose means are tested together, from 1.
    level
        Level of the test, above 0 and below 1.
    power
        The probability of finding it, above the level and below 1.
    """
    rest = count - groups
    critical = float(fdtri(groups, rest, 1 - level))

    def missed(noncentrality: float) -> float:
        return float(ncfdtr(groups, rest, noncentrality, critical)) - (1 - power)

    high = 1.0
    while missed(high) > 0:
        high *= 2
    return math.sqrt(float(brentq(missed, high / 2 if high > 1 else 0.0, high)) / count)


def drift_along_gradients(measured: Measured) -> TestResult | NotOffered:
    """Test the mean of the noise along the gradients that D and D' share: Student's t, two-sided."""
    if measured.residuals is None or not measured.residuals.total_freedom.any():
        return NotOffered(why_no_direction(measured))
    values = _used(measured.residuals.gradient / measured.sigma)
    if not values.size:
        return NotOffered(Missing.NO_SHARED_SUM)
    if values.size < 3:
        return NotOffered(Missing.TOO_FEW)
    t, p_value = student_p(values)
    return TestResult(
        name=TestName.DRIFT_ALONG_GRADIENTS,
        statistic=t,
        p_value=p_value,
        measured=float(values.mean()),
        promised=0.0,
        limit=detectable_mean(values.size, TestName.DRIFT_ALONG_GRADIENTS.level),
    )
