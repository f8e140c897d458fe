"""Test by sums of squares whether there is enough noise.

If the claim holds, the sum of n squared noise values over the claimed variance is chi-square with n degrees of freedom.
If the noise has f times the claimed standard deviation, the sum is f^2 times a chi-square variable. So too little noise
shows in the lower tail. More noise than claimed violates nothing.
"""

import math
from dataclasses import dataclass, field

import numpy as np
from scipy.special import chdtr, gammainccinv, gammaincinv

from fl_audit.array_types import Flags, Floats, Integers
from fl_audit.errors import require
from fl_audit.mechanisms.noises.mechanism_noise import MechanismNoise
from fl_audit.verdict.declared_tests import DETECTION_POWER, NotTestedReason, TestName, TestResult, bonferroni, only_if
from fl_audit.verdict.noise_statistics import stride_names, stride_sizes
from fl_audit.verdict.run_measurements import NoiseMeasurements


@dataclass(frozen=True)
class SquareSum:
    """A sum of squares of standard residuals of the noise, and its degrees of freedom.

    Raises
    ------
    InputError
        If the sum is negative or not finite.
    """

    value: float
    freedom: int
    noise: MechanismNoise  # kind of noise, by which residuals become ratios of scales

    def __post_init__(self) -> None:
        require(0 <= self.value < math.inf, f"a sum of squares of noise is {self.value}: accepted are numbers from 0")

    @property
    def ratio(self) -> float:
        """Ratio of the measured to the claimed scale of the noise."""
        return self.ratio_at(float(np.sqrt(self.value / self.freedom)))

    def ratio_at(self, deviation: float) -> float:
        """Return the ratio of the real to the claimed scale at which residuals have a given standard deviation."""
        return self.noise.noise_ratio(deviation)

    def detectable_ratio(self, level: float) -> float:
        """Return the largest ratio of real to claimed scale that the test of this sum finds."""
        return self.ratio_at(detectable_ratio(self.freedom, level))

    @property
    def p_value(self) -> float:
        """Probability that the sum is at most this large if the noise is as claimed."""
        return float(chdtr(self.freedom, self.value))


@dataclass(frozen=True, eq=False)
class NoiseAlongTarget:
    """The noise along the target's contribution, standardised; used in runs that did not measure the noise elsewhere.

    The target is the unit in which D and D' differ.
    """

    squares: Floats  # sum over rounds of the squared noise, divided by the claimed variance, (trials,)
    freedom: Integers  # number of rounds in which the target has a contribution, or would have one, (trials,)
    members: Flags  # the trials that hold the target, (trials,)
    noise: MechanismNoise = field(kw_only=True)  # kind of noise
    # Sum over those rounds of the noise over the claimed standard deviation, (trials,); None where not measured.
    sums: Floats | None = None
    # Sum over those rounds of the length of the contribution over the claimed standard deviation, 0 in trials without
    # the target, (trials,); None where not measured.
    lengths: Floats | None = None
    # For every target the noise summed over all trials that hold it, N(0, 1) if the claim holds, (targets,); None if
    # there is only one target.
    of_targets: Floats | None = None
    # Largest norm of a target's contribution to a round that the claim allows, divided by the noise; None where the
    # claim sets no such limit.
    claimed_length: float | None = None

    @property
    def total(self) -> SquareSum:
        """Sum of squares of the noise along the target's contribution over all trials, with its degrees of freedom."""
        return SquareSum(float(self.squares.sum()), int(self.freedom.sum()), self.noise)


def chi_square_quantile(probability: float, freedom: int) -> float:
    """Return the chi-square quantile of a probability."""
    half = freedom / 2
    return float(2 * (gammaincinv(half, probability) if probability < 0.5 else gammainccinv(half, 1 - probability)))


def detectable_ratio(freedom: int, level: float) -> float:
    """Return the largest ratio of real to claimed noise that a lower-tail chi-square test finds with `DETECTION_POWER`.

    The noise is measured by the standard deviation of its residuals. The ratio is below 1, because the test looks for
    missing noise.

    Examples
    --------
    >>> round(detectable_ratio(389_400, 1.5e-4), 4)
    0.9945
    """
    return float(np.sqrt(chi_square_quantile(level, freedom) / chi_square_quantile(DETECTION_POWER, freedom)))


def total_squares(measurements: NoiseMeasurements) -> SquareSum | None:
    """Return the sum of squares of the noise orthogonal to f(D) - f(D'), over the claimed variance, in the whole run.

    It is None if this noise was not measured, or if the model has no direction orthogonal to f(D) - f(D').
    """
    if measurements.residuals is None:
        return None
    freedom = int(measurements.residuals.total_freedom.sum())
    squares = np.sum(measurements.residuals.total / measurements.sigma**2)
    return _summed(squares, freedom, measurements.noise_kind) if freedom else None


def record_squares(measurements: NoiseMeasurements) -> SquareSum | None:
    """Return the sum of the squared innovations of a run; None if D and D' never differed.

    The innovation of a round is the noise along f(D) - f(D'), divided by its claimed standard deviation.
    """
    values = measurements.used_innovations
    return SquareSum(float(values @ values), int(values.size), measurements.noise_kind) if values.size else None


def tensor_squares(measurements: NoiseMeasurements) -> dict[str, SquareSum]:
    """Return the sum of squares of the noise on each parameter tensor, over the claimed variance, by tensor name.

    The noise along f(D) - f(D') is left out. A tensor has no entry if nothing of its noise is left.
    """
    if measurements.residuals is None:
        return {}
    squares = np.sum(measurements.residuals.squares / measurements.sigma[..., None] ** 2, axis=(0, 1))
    freedom: Integers = measurements.residuals.freedom.sum(axis=(0, 1))
    tensor_rows = zip(measurements.residuals.tensors, squares, freedom, strict=True)
    return {
        name: _summed(value, int(degrees), measurements.noise_kind)
        for name, value, degrees in tensor_rows
        if degrees > 0
    }


def _summed(value: np.float64, freedom: int, noise_kind: MechanismNoise) -> SquareSum:
    """Return a sum of squares, at least 0 in spite of rounding."""
    return SquareSum(float(np.maximum(0.0, value)), freedom, noise_kind)


def has_direction(measurements: NoiseMeasurements) -> bool:
    """Return True if noise in directions orthogonal to f(D) - f(D') was measured."""
    return measurements.residuals is not None and bool(measurements.residuals.total_freedom.any())


def why_no_direction(measurements: NoiseMeasurements) -> NotTestedReason:
    """Return why no noise orthogonal to f(D) - f(D') is known.

    Either the model has only one parameter, so that there is no orthogonal direction, or the noise was not measured.
    """
    is_only = measurements.residuals is not None and measurements.residuals.parameters == 1
    return NotTestedReason.NO_OTHER_DIRECTION if is_only else NotTestedReason.NOT_MEASURED


def noise_total(measurements: NoiseMeasurements) -> TestResult:
    """Test whether there is too little noise in the directions orthogonal to f(D) - f(D'): chi-square, lower tail."""
    return least_of(TestName.NOISE_TOTAL, total_squares(measurements), why_no_direction(measurements))


def noise_along_record(measurements: NoiseMeasurements) -> TestResult:
    """Test whether there is too little noise in the direction of f(D) - f(D'), by a one-sided chi-square test.

    The statistic is the sum of squares of the noise in this direction, each divided by the claimed variance.
    """
    return least_of(TestName.NOISE_ALONG_RECORD, record_squares(measurements), NotTestedReason.NO_DIFFERENCE)


def noise_tensor(measurements: NoiseMeasurements) -> TestResult:
    """Test whether there is too little noise on any part of the model, by lower-tail chi-square tests with Bonferroni.

    Parts are the tensors, the sampled coordinates, classes of every 31st coordinate, and the direction of the sum of
    the contributions that D and D' share. The correction is valid although sums of parts depend on each other.
    """
    tensors = {f"the tensor '{name}'": squares for name, squares in tensor_squares(measurements).items()}
    sums = tensors | _squares_of_places(measurements) | _squares_along_shared(measurements)
    return least_of(TestName.NOISE_TENSOR, sums, why_no_direction(measurements))


def _squares_of_places(measurements: NoiseMeasurements) -> dict[str, SquareSum]:
    """Return the sum of squares of the noise at each sampled coordinate, and in each class of coordinates."""
    if not measurements.sampled_trials.any():
        return {}
    trials, rounds, _ = measurements.sample.shape
    squares = np.sum(np.square(measurements.sample), axis=(0, 1))
    coordinate_rows = zip(measurements.noise.places, squares, strict=True)
    squares_by_coordinate = {
        f"coordinate {number} ({tensor})": _summed(value, trials * rounds, measurements.noise_kind)
        for (number, tensor), value in coordinate_rows
    }
    sums = measurements.noise.strides[measurements.sampled_trials][:, :, 0].sum(axis=(0, 1))
    parameters = measurements.noise.parameters
    classes = zip(stride_names(parameters), stride_sizes(parameters), sums, strict=True)
    return squares_by_coordinate | {
        name: _summed(value, int(size) * trials * rounds, measurements.noise_kind)
        for name, size, value in classes
        if size > 1
    }


def _squares_along_shared(measurements: NoiseMeasurements) -> dict[str, SquareSum]:
    """Return the sum of squares of the noise along the sum that D and D' share, orthogonal to their difference."""
    if not has_direction(measurements):
        return {}
    values = measurements.noise.gradient / measurements.sigma
    values = values[~np.isnan(values)]
    if not values.size:
        return {}
    return {
        "the sum of all other contributions": SquareSum(float(values @ values), values.size, measurements.noise_kind)
    }


def noise_round(measurements: NoiseMeasurements) -> TestResult:
    """Test whether there is too little noise in any round of any trial, in any round over all trials, or in any trial.

    Of a model with several tensors, each is looked at in each round of each trial too. The smallest lower-tail
    chi-square p-value of all these sums is corrected by Bonferroni.
    """
    only_if(has_direction(measurements), why_no_direction(measurements))
    freedom = measurements.noise.total_freedom
    squares = np.where(freedom > 0, np.maximum(0.0, measurements.noise.total / measurements.sigma**2), 0.0)
    looks = [
        *_tensors_by_round(measurements),
        (squares, freedom, "trial {0} round {1}"),
        (squares.sum(axis=0, keepdims=True), freedom.sum(axis=0, keepdims=True), "round {1} of all trials"),
        (squares.sum(axis=1, keepdims=True), freedom.sum(axis=1, keepdims=True), "all rounds of trial {0}"),
    ]
    looks_made = [
        (np.where(counts > 0, chdtr(np.maximum(counts, 1), sums), 1.0), sums, counts, name)
        for sums, counts, name in looks
    ]
    count = sum(p_values.size for p_values, *_ in looks_made)
    p_values, sums, counts, name = min(looks_made, key=lambda look: float(look[0].min()))
    at = np.unravel_index(int(p_values.argmin()), p_values.shape)
    smallest_sum = SquareSum(float(sums[at]), max(1, int(counts[at])), measurements.noise_kind)
    ratio = smallest_sum.ratio
    level = TestName.NOISE_ROUND.level / count
    limit = 1 - smallest_sum.ratio_at(detectable_ratio(int(freedom[freedom > 0].min()), level))
    best_limit = 1 - smallest_sum.ratio_at(detectable_ratio(int(freedom.sum(axis=0).max()), level))
    details = {"looks": count, "best_limit": best_limit}
    location = name.format(int(at[0]), int(at[1]) + 1)
    p_value = bonferroni(count, float(p_values[at]))
    return TestResult(TestName.NOISE_ROUND, ratio, p_value, ratio, 1.0, limit, location, details)


def _tensors_by_round(measurements: NoiseMeasurements) -> list[tuple[Floats, Integers, str]]:
    """Return the squares, degrees of freedom and name of each tensor in each round; nothing of a model with one."""
    names = measurements.noise.tensors
    freedom = measurements.noise.freedom.copy()
    trials = measurements.sampled_trials
    squares = np.maximum(0.0, measurements.noise.squares / measurements.sigma[..., None] ** 2)
    if len(names) == 1:
        return []
    for at, name in enumerate(names) if trials.any() else ():
        # The sums hold a little noise of other tensors, which a tensor whose coordinates are all sampled has not.
        is_of_tensor = np.array([owner == name for owner in measurements.tensor_of_coordinates], dtype=np.bool_)
        if np.count_nonzero(is_of_tensor) >= max(1, int(freedom[..., at].max())):
            squares[trials, :, at] = np.square(measurements.sample[..., is_of_tensor]).sum(axis=-1)
            freedom[trials, :, at] = np.count_nonzero(is_of_tensor)
    locations = [f"trial {{0}} round {{1}} on the tensor '{name}'" for name in names]
    return [(squares[..., at], freedom[..., at], location) for at, location in enumerate(locations)]


def least_of(
    name: TestName, squares_found: dict[str, SquareSum] | SquareSum | None, reason: NotTestedReason
) -> TestResult:
    """Test whether any sum of squares of the noise is too small, and return the result of the most significant sum.

    The smallest lower-tail chi-square p-value is corrected by Bonferroni.

    `squares_found`: None or empty if there is no sum.
    """
    squares_found = {"": squares_found} if isinstance(squares_found, SquareSum) else squares_found or {}
    only_if(bool(squares_found), reason)
    location, smallest_sum = min(squares_found.items(), key=lambda item: item[1].p_value)
    limits = [1 - sums.detectable_ratio(name.level / len(squares_found)) for sums in squares_found.values()]
    details = {"places": len(squares_found), "best_limit": min(limits)} if location else {}
    p_value = bonferroni(len(squares_found), smallest_sum.p_value)
    return TestResult(name, smallest_sum.ratio, p_value, smallest_sum.ratio, 1.0, max(limits), location, details)
