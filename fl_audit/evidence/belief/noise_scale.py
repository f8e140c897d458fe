"""Is there as much noise as was claimed? Exact chi-square tests in total, per parameter tensor and along the record.

A sum of n squares of noise over the claimed variance is chi-square with n degrees of freedom if the claim holds, and
f^2 times that if the noise has f times the claimed standard deviation. Too little noise shows in the lower tail; more
noise than claimed violates nothing.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import chdtr, gammainccinv, gammaincinv

from fl_audit.adversaries.residuals import stride_names, stride_sizes
from fl_audit.arrays import Flags, Floats, Integers
from fl_audit.errors import require
from fl_audit.evidence.belief.family import DETECTION_POWER, Missing, NotOffered, TestName, TestResult, of_looks
from fl_audit.evidence.belief.measured import Measured


@dataclass(frozen=True)
class SquareSum:
    """A sum of squares of noise over the claimed variance, and its degrees of freedom.

    Raises
    ------
    InputError
        If it is negative or not finite.
    """

    value: float
    freedom: int

    def __post_init__(self) -> None:
        require(0 <= self.value < math.inf, f"a sum of squares of noise is {self.value}: accepted are numbers from 0")

    @property
    def ratio(self) -> float:
        """The measured over the claimed standard deviation."""
        return float(np.sqrt(self.value / self.freedom))

    @property
    def p_value(self) -> float:
        """Probability of so small a sum, or a smaller one, if the claim holds."""
        return float(chdtr(self.freedom, self.value))


@dataclass(frozen=True, eq=False)
class NoiseAlong:
    """The noise along what is in question in every world, where nothing else was measured of it."""

    squares: Floats  # sum over rounds of its squares over the claimed variance, (worlds,)
    freedom: Integers  # in how many rounds there is something that it hides, (worlds,)
    members: Flags  # which worlds hold what is in question, (worlds,)

    @property
    def total(self) -> SquareSum:
        """The sum over all worlds."""
        return SquareSum(float(self.squares.sum()), int(self.freedom.sum()))


def chi_square_quantile(probability: float, freedom: int) -> float:
    """Return the value that a chi-square variable stays under with a probability above 0 and below 1.

    Parameters
    ----------
    probability
        Above 0 and below 1.
    freedom
        Degrees of freedom, from 1.
    """
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
    return _summed(np.sum(measured.residuals.total / measured.sigma**2), freedom) if freedom else None


def record_squares(measured: Measured) -> SquareSum | None:
    """Return the noise along the record's direction, the squares of the innovations; None where there are none."""
    values = measured.used_innovations
    return SquareSum(float(values @ values), int(values.size)) if values.size else None


def tensor_squares(measured: Measured) -> dict[str, SquareSum]:
    """Return the noise on each parameter tensor that has a direction left beside the record's."""
    if measured.residuals is None:
        return {}
    squares = np.sum(measured.residuals.squares / measured.sigma[..., None] ** 2, axis=(0, 1))
    freedom: Integers = measured.residuals.freedom.sum(axis=(0, 1))
    known = zip(measured.residuals.tensors, squares, freedom, strict=True)
    return {name: _summed(value, int(degrees)) for name, value, degrees in known if degrees > 0}


def _summed(value: np.float64, freedom: int) -> SquareSum:
    """Return a sum of squares; where noise is missing altogether, rounding leaves one that is a little under 0."""
    return SquareSum(float(np.maximum(0.0, value)), freedom)


def why_no_direction(measured: Measured) -> Missing:
    """Return why nothing is known of the noise beside the record's direction: there is none, or it was not measured."""
    seen = measured.residuals
    return Missing.NO_OTHER_DIRECTION if seen is not None and seen.parameters == 1 else Missing.NOT_MEASURED


def noise_total(measured: Measured) -> TestResult | NotOffered:
    """Test the noise in all directions but the record's: chi-square, lower tail."""
    found = total_squares(measured)
    if found is None:
        return NotOffered(why_no_direction(measured))
    return noise_sum_test(TestName.NOISE_TOTAL, found)


def noise_along_record(measured: Measured) -> TestResult | NotOffered:
    """Test the noise along the record's direction: sum of squared innovations, chi-square, lower tail."""
    found = record_squares(measured)
    return NotOffered(Missing.NO_DIFFERENCE) if found is None else noise_sum_test(TestName.NOISE_ALONG_RECORD, found)


def noise_tensor(measured: Measured) -> TestResult | NotOffered:
    """Test the noise on every parameter tensor: the smallest lower-tail p-value times the number of tensors.

    The sums of different tensors depend slightly on each other, so the p-value is Bonferroni's: never too small.
    """
    found = tensor_squares(measured)
    if not found:
        return NotOffered(why_no_direction(measured))
    return _least(TestName.NOISE_TENSOR, found)


def noise_place(measured: Measured) -> TestResult | NotOffered:
    """Test the noise of every sampled coordinate, and of every class of coordinates: the smallest lower-tail p-value.

    A coordinate without noise shows in the sample, or in its class, which holds one of every 31 of them. Classes
    hold sampled coordinates, so the p-value is Bonferroni's: never too small.
    """
    found = place_squares(measured)
    return _least(TestName.NOISE_PLACE, found) if found else NotOffered(Missing.NOT_MEASURED)


def noise_round(measured: Measured) -> TestResult | NotOffered:
    """Test the noise of every round of every world, of every round over all worlds, and of every world.

    The smallest lower-tail p-value of all these sums of squares: chi-square, by Bonferroni.
    """
    if measured.residuals is None or not measured.residuals.total_freedom.any():
        return NotOffered(why_no_direction(measured))
    freedom = measured.residuals.total_freedom
    squares = np.where(freedom > 0, np.maximum(0.0, measured.residuals.total / measured.sigma**2), 0.0)
    looks = [
        (squares, freedom, "world {0} round {1}"),
        (squares.sum(axis=0, keepdims=True), freedom.sum(axis=0, keepdims=True), "round {1} of all worlds"),
        (squares.sum(axis=1, keepdims=True), freedom.sum(axis=1, keepdims=True), "all rounds of world {0}"),
    ]
    found = [(np.where(counts > 0, chdtr(counts, sums), 1.0), sums, counts, name) for sums, counts, name in looks]
    count = sum(p_values.size for p_values, *_ in found)
    p_values, sums, counts, name = min(found, key=lambda one: float(one[0].min()))
    at = np.unravel_index(int(p_values.argmin()), p_values.shape)
    ratio = math.sqrt(float(sums[at] / counts[at]))
    level = TestName.NOISE_ROUND.level / count
    return TestResult(
        name=TestName.NOISE_ROUND,
        statistic=ratio,
        p_value=of_looks(count, float(p_values[at])),
        measured=ratio,
        promised=1.0,
        limit=1 - detectable_ratio(int(freedom[freedom > 0].min()), level),
        place=name.format(int(at[0]), int(at[1]) + 1),
        more={"looks": count, "best_limit": 1 - detectable_ratio(int(freedom.sum(axis=0).max()), level)},
    )


def place_squares(measured: Measured) -> dict[str, SquareSum]:
    """Return the noise at each sampled coordinate and in each class of coordinates, by name."""
    if measured.residuals is None or measured.sample is None:
        return {}
    worlds, rounds, _ = measured.sample.shape
    places = measured.residuals.places
    squares = np.sum(np.square(measured.sample), axis=(0, 1))
    found = {
        f"coordinate {number} ({tensor})": _summed(value, worlds * rounds)
        for (number, tensor), value in zip(places, squares, strict=True)
    }
    sums = measured.residuals.strides[measured.sampled_worlds][:, :, 0].sum(axis=(0, 1))
    sizes = stride_sizes(measured.residuals.parameters)
    return found | {
        name: _summed(value, int(size) * worlds * rounds)
        for name, value, size in zip(stride_names(measured.residuals.parameters), sums, sizes, strict=True)
        if size > 1
    }


def _least(name: TestName, found: dict[str, SquareSum]) -> TestResult:
    """Return the lower-tail test of several sums of squares, by Bonferroni."""
    place, least = min(found.items(), key=lambda item: item[1].p_value)
    limits = [1 - detectable_ratio(sums.freedom, name.level / len(found)) for sums in found.values()]
    return TestResult(
        name=name,
        statistic=least.ratio,
        p_value=of_looks(len(found), least.p_value),
        measured=least.ratio,
        promised=1.0,
        limit=max(limits),
        place=place,
        more={"places": len(found), "best_limit": min(limits)},
    )


def noise_sum_test(name: TestName, found: SquareSum) -> TestResult:
    """Return the lower-tail test of a sum of squares of noise, which is chi-square if the claim holds.

    Parameters
    ----------
    name
        Which test it is.
    found
        The sum over the claimed variance.
    """
    limit = 1 - detectable_ratio(found.freedom, name.level)
    return TestResult(name, found.ratio, found.p_value, measured=found.ratio, promised=1.0, limit=limit)
