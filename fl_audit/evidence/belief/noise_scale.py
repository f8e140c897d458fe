"""Is there as much noise as was claimed? Exact chi-square tests in total, per parameter tensor and along the record.

A sum of n squares of noise over the claimed variance is chi-square with n degrees of freedom if the claim holds, and
f^2 times that if the noise has f times the claimed standard deviation. Too little noise shows in the lower tail; more
noise than claimed violates nothing.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtr, gammainccinv, gammaincinv

from fl_audit.evidence.belief.family import (
    DETECTION_POWER,
    NO_DIFFERENCE,
    NOT_MEASURED,
    NotOffered,
    TestName,
    TestResult,
    percent,
    times,
)
from fl_audit.evidence.belief.measured import Measured


@dataclass(frozen=True)
class SquareSum:
    """A sum of squares of noise over the claimed variance, and its degrees of freedom."""

    value: float
    freedom: int

    @property
    def ratio(self) -> float:
        """The measured over the claimed standard deviation."""
        return float(np.sqrt(self.value / self.freedom))

    @property
    def p_value(self) -> float:
        """Probability of so small a sum, or a smaller one, if the claim holds."""
        return float(chdtr(self.freedom, self.value))


def chi_square_quantile(probability: float, freedom: int) -> float:
    """Return the value that a chi-square variable stays under with a probability above 0 and below 1."""
    half = freedom / 2
    return float(2 * (gammaincinv(half, probability) if probability < 0.5 else gammainccinv(half, 1 - probability)))


def detectable_ratio(freedom: int, level: float, power: float = DETECTION_POWER) -> float:
    """Return the largest ratio of real over claimed noise that a lower-tail test finds with a given probability.

    Parameters
    ----------
    freedom
        Degrees of freedom, at least 1.
    level
        Level of the test, above 0 and below `power`.
    power
        Probability of finding it, below 1.

    Examples
    --------
    >>> round(detectable_ratio(389_400, 1.5e-4), 4)
    0.9945
    """
    return float(np.sqrt(chi_square_quantile(level, freedom) / chi_square_quantile(power, freedom)))


def total_squares(measured: Measured) -> SquareSum | None:
    """Return the noise in all directions but the record's; None where it was not measured or has no direction left."""
    if measured.residuals is None:
        return None
    freedom = int(measured.residuals.total_freedom.sum())
    return SquareSum(float(np.sum(measured.residuals.total / measured.sigma**2)), freedom) if freedom else None


def record_squares(measured: Measured) -> SquareSum | None:
    """Return the noise along the record's direction, the squares of the innovations; None where there are none."""
    values = measured.used_innovations
    return SquareSum(float(values @ values), int(values.size)) if values.size else None


def tensor_squares(measured: Measured) -> dict[str, SquareSum]:
    """Return the noise on each parameter tensor that has a direction left beside the record's."""
    if measured.residuals is None:
        return {}
    squares = np.sum(measured.residuals.squares / measured.sigma[..., None] ** 2, axis=(0, 1))
    freedom: NDArray[np.int64] = measured.residuals.freedom.sum(axis=(0, 1))
    known = zip(measured.residuals.tensors, squares, freedom, strict=True)
    # Where noise is missing altogether, rounding leaves sums that are a little under 0.
    return {name: SquareSum(max(0.0, float(value)), int(degrees)) for name, value, degrees in known if degrees > 0}


_DIFFERENCE = "the direction in which D and D' differ"
_NO_OTHER_DIRECTION = NotOffered("No direction but that in which D and D' differ is left.")


def noise_total(measured: Measured) -> TestResult | NotOffered:
    """Test the noise in all directions but the record's: chi-square, lower tail."""
    found = total_squares(measured)
    if found is None:
        return NOT_MEASURED if measured.residuals is None else _NO_OTHER_DIRECTION
    return _result(TestName.NOISE_TOTAL, found, f"over all parameters, orthogonal to {_DIFFERENCE}")


def noise_along_record(measured: Measured) -> TestResult | NotOffered:
    """Test the noise along the record's direction: sum of squared innovations, chi-square, lower tail."""
    found = record_squares(measured)
    if found is None:
        return NO_DIFFERENCE
    return _result(TestName.NOISE_ALONG_RECORD, found, f"along {_DIFFERENCE}")


def noise_tensor(measured: Measured) -> TestResult | NotOffered:
    """Test the noise on every parameter tensor: the smallest lower-tail p-value times the number of tensors.

    The sums of different tensors depend slightly on each other, so the p-value is Bonferroni's: never too small.
    """
    found = tensor_squares(measured)
    if not found:
        return NOT_MEASURED if measured.residuals is None else NotOffered("No tensor has a direction left.")
    name, least = min(found.items(), key=lambda item: item[1].p_value)
    level = TestName.NOISE_TENSOR.level
    limits = {tensor: 1 - detectable_ratio(sums.freedom, level / len(found)) for tensor, sums in found.items()}
    widest = max(limits, key=lambda tensor: limits[tensor])
    limit = (
        f"noise {percent(limits[widest])} below the promise on the tensor '{widest}' would have been found, and "
        f"{percent(min(limits.values()))} on the one that shows it best"
    )
    return TestResult(
        name=TestName.NOISE_TENSOR,
        statistic=least.ratio,
        p_value=min(1.0, len(found) * least.p_value),
        level=level,
        measured=f"{times(least.ratio)} times the claimed noise on the tensor '{name}'",
        promised=f"the claimed noise on each of {len(found)} tensors",
        limit=limit,
        where=f"tensor '{name}'",
    )


def _result(name: TestName, found: SquareSum, where: str) -> TestResult:
    """Return the lower-tail test of a sum of squares; `where` says of which noise."""
    detectable = percent(1 - detectable_ratio(found.freedom, name.level))
    return TestResult(
        name=name,
        statistic=found.ratio,
        p_value=found.p_value,
        level=name.level,
        measured=f"{times(found.ratio)} times the claimed noise {where}",
        promised="the claimed noise or more",
        limit=f"noise {detectable} below the promise would have been found",
        where=where,
    )
