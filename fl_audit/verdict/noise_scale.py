"""Test by sums of squares whether there is enough noise, and whether its amount differs between D and D'.

If the claim holds, the sum of n squared noise values over the claimed variance is chi-square with n degrees of freedom.
If the noise has f times the claimed standard deviation, the sum is f^2 times a chi-square variable. So too little noise
shows in the lower tail. More noise than claimed violates nothing.

The noise must not depend on the secret. Honest noise gives chi-square sums under D and under D', so the ratio of their
means has an F distribution at any scale. Noise above the claim may differ from trial to trial. If trials with the same
secret differ by more than chance explains, the two kinds of trials are compared by Student's t instead. This choice
raises the false-positive rate of honest runs by a hundredth of the level at most.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import chdtr, chdtrc, fdtr, fdtrc, fdtri, gammainccinv, gammaincinv, stdtr

from fl_audit.array_types import Flags, Floats, Integers
from fl_audit.errors import require
from fl_audit.verdict.declared_tests import DETECTION_POWER, NotTestedReason, TestName, TestResult, of_looks, only_if
from fl_audit.verdict.noise_statistics import stride_names, stride_sizes
from fl_audit.verdict.run_measurements import EVIDENT, NoiseMeasurements, of_family

_UNEVEN = 0.01  # probability with which trials of equally large noise are taken for trials of different noise


@dataclass(frozen=True)
class SquareSum:
    """A sum of squares of noise, divided by the claimed variance, and its degrees of freedom.

    Raises
    ------
    InputError
        If the sum is negative or not finite.
    """

    value: float
    freedom: int

    def __post_init__(self) -> None:
        require(0 <= self.value < math.inf, f"a sum of squares of noise is {self.value}: accepted are numbers from 0")

    @property
    def ratio(self) -> float:
        """Ratio of the measured to the claimed standard deviation of the noise."""
        return float(np.sqrt(self.value / self.freedom))

    @property
    def p_value(self) -> float:
        """Probability that the sum is at most this large if the noise is as claimed."""
        return float(chdtr(self.freedom, self.value))


@dataclass(frozen=True, eq=False)
class NoiseAlongTarget:
    """The noise in the direction of the contribution of the target, the unit in which D and D' differ.

    It is used for runs in which no other noise was measured.
    """

    squares: Floats  # sum over rounds of the squared noise, divided by the claimed variance, (trials,)
    freedom: Integers  # number of rounds in which the target has a contribution, or would have one, (trials,)
    members: Flags  # the trials that hold the target, (trials,)
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
        return SquareSum(float(self.squares.sum()), int(self.freedom.sum()))


def chi_square_quantile(probability: float, freedom: int) -> float:
    """Return the chi-square quantile: the value below which a chi-square variable lies with the given probability.

    Parameters
    ----------
    probability
        Probability that a variable lies below the quantile, above 0 and below 1.
    freedom
        Degrees of freedom, from 1.
    """
    half = freedom / 2
    return float(2 * (gammaincinv(half, probability) if probability < 0.5 else gammainccinv(half, 1 - probability)))


def detectable_ratio(freedom: int, level: float) -> float:
    """Return the largest ratio of real to claimed noise that a lower-tail chi-square test finds with `DETECTION_POWER`.

    The ratio is that of standard deviations. A smaller ratio is found with a higher probability.

    Parameters
    ----------
    freedom
        Degrees of freedom of the tested sum of squares, at least 1.
    level
        Level of the test, above 0 and below `DETECTION_POWER`.

    Examples
    --------
    >>> round(detectable_ratio(389_400, 1.5e-4), 4)
    0.9945
    """
    return float(np.sqrt(chi_square_quantile(level, freedom) / chi_square_quantile(DETECTION_POWER, freedom)))


def total_squares(measured: NoiseMeasurements) -> SquareSum | None:
    """Return the sum of squares of the noise orthogonal to f(D) - f(D'), over the claimed variance, in the whole run.

    None is returned if this noise was not measured, or if the model has no such direction.
    """
    if measured.residuals is None:
        return None
    freedom = int(measured.residuals.total_freedom.sum())
    return _summed(np.sum(measured.residuals.total / measured.sigma**2), freedom) if freedom else None


def record_squares(measured: NoiseMeasurements) -> SquareSum | None:
    """Return the sum of the squared innovations of a run; None if D and D' never differed.

    The innovation of a round is the noise along f(D) - f(D'), divided by its claimed standard deviation. f is the sum
    of contributions before noise.
    """
    values = measured.used_innovations
    return SquareSum(float(values @ values), int(values.size)) if values.size else None


def tensor_squares(measured: NoiseMeasurements) -> dict[str, SquareSum]:
    """Return the sum of squares of the noise on each parameter tensor, over the claimed variance, by tensor name.

    The noise along f(D) - f(D') is left out. A tensor without any other direction has no entry.
    """
    if measured.residuals is None:
        return {}
    squares = np.sum(measured.residuals.squares / measured.sigma[..., None] ** 2, axis=(0, 1))
    freedom: Integers = measured.residuals.freedom.sum(axis=(0, 1))
    known = zip(measured.residuals.tensors, squares, freedom, strict=True)
    return {name: _summed(value, int(degrees)) for name, value, degrees in known if degrees > 0}


def _summed(value: np.float64, freedom: int) -> SquareSum:
    """Return a sum of squares, with a value that rounding made slightly negative replaced by 0."""
    return SquareSum(float(np.maximum(0.0, value)), freedom)


def has_direction(measured: NoiseMeasurements) -> bool:
    """Return True if noise in directions orthogonal to f(D) - f(D') was measured."""
    return measured.residuals is not None and bool(measured.residuals.total_freedom.any())


def why_no_direction(measured: NoiseMeasurements) -> NotTestedReason:
    """Return the reason why no noise orthogonal to f(D) - f(D') is known.

    The reason is that a model with one parameter has no such direction, or otherwise that the noise was not measured.
    """
    is_only = measured.residuals is not None and measured.residuals.parameters == 1
    return NotTestedReason.NO_OTHER_DIRECTION if is_only else NotTestedReason.NOT_MEASURED


@of_family(TestName.NOISE_TOTAL)
def noise_total(measured: NoiseMeasurements) -> TestResult:
    """Test whether there is too little noise in the directions orthogonal to f(D) - f(D'): chi-square, lower tail."""
    return least_of(TestName.NOISE_TOTAL, total_squares(measured), why_no_direction(measured))


@of_family(TestName.NOISE_ALONG_RECORD)
def noise_along_record(measured: NoiseMeasurements) -> TestResult:
    """Test whether there is too little noise in the direction of f(D) - f(D'): chi-square, lower tail.

    The statistic is the sum of the squared innovations, the standardised noise of each round in this direction.
    """
    return least_of(TestName.NOISE_ALONG_RECORD, record_squares(measured), NotTestedReason.NO_DIFFERENCE)


@of_family(TestName.NOISE_TENSOR)
def noise_tensor(measured: NoiseMeasurements) -> TestResult:
    """Test whether there is too little noise on any parameter tensor: chi-square, lower tail, with Bonferroni.

    The sums of different tensors depend slightly on each other. The corrected p-value is valid all the same.
    """
    return least_of(TestName.NOISE_TENSOR, tensor_squares(measured), why_no_direction(measured))


@of_family(TestName.NOISE_PLACE)
def noise_place(measured: NoiseMeasurements) -> TestResult:
    """Test whether there is too little noise at any sampled coordinate or in any class of coordinates: chi-square.

    A class holds every 31st coordinate. The smallest lower-tail p-value is corrected by Bonferroni, which is valid
    although a coordinate may be sampled and also belong to a class.
    """
    trials, rounds, _ = measured.sample.shape
    squares = np.sum(np.square(measured.sample), axis=(0, 1))
    places = zip(measured.noise.places, squares, strict=True)
    found = {f"coordinate {number} ({tensor})": _summed(value, trials * rounds) for (number, tensor), value in places}
    sums = measured.noise.strides[measured.sampled_trials][:, :, 0].sum(axis=(0, 1))
    for name, size, value in zip(*_classes(measured), sums, strict=True):
        if size > 1:
            found[name] = _summed(value, int(size) * trials * rounds)
    return least_of(TestName.NOISE_PLACE, found, NotTestedReason.NOT_MEASURED)


@of_family(TestName.NOISE_ROUND)
def noise_round(measured: NoiseMeasurements) -> TestResult:
    """Test whether there is too little noise in any round of any trial, in any round over all trials, or in any trial.

    The smallest lower-tail chi-square p-value of all these sums is corrected by Bonferroni.
    """
    only_if(has_direction(measured), why_no_direction(measured))
    freedom = measured.noise.total_freedom
    squares = np.where(freedom > 0, np.maximum(0.0, measured.noise.total / measured.sigma**2), 0.0)
    looks = [
        (squares, freedom, "trial {0} round {1}"),
        (squares.sum(axis=0, keepdims=True), freedom.sum(axis=0, keepdims=True), "round {1} of all trials"),
        (squares.sum(axis=1, keepdims=True), freedom.sum(axis=1, keepdims=True), "all rounds of trial {0}"),
    ]
    found = [(np.where(counts > 0, chdtr(counts, sums), 1.0), sums, counts, name) for sums, counts, name in looks]
    count = sum(p_values.size for p_values, *_ in found)
    p_values, sums, counts, name = min(found, key=lambda one: float(one[0].min()))
    at = np.unravel_index(int(p_values.argmin()), p_values.shape)
    ratio = math.sqrt(float(sums[at] / counts[at]))
    level = TestName.NOISE_ROUND.level / count
    limit = 1 - detectable_ratio(int(freedom[freedom > 0].min()), level)
    more = {"looks": count, "best_limit": 1 - detectable_ratio(int(freedom.sum(axis=0).max()), level)}
    place, p_value = name.format(int(at[0]), int(at[1]) + 1), of_looks(count, float(p_values[at]))
    return TestResult(TestName.NOISE_ROUND, ratio, p_value, ratio, 1.0, limit, place, more)


def least_of(name: TestName, found: dict[str, SquareSum] | SquareSum | None, missing: NotTestedReason) -> TestResult:
    """Test whether any sum of squares of the noise is too small, and return the result of the most significant sum.

    Each sum gets a lower-tail chi-square p-value. The smallest of them is corrected by Bonferroni.

    Parameters
    ----------
    name
        Name of the test, which decides the significance level.
    found
        One sum of squares over the claimed variance, or several by the parts of the model that they cover; None if
        there is none.
    missing
        Reason that the raised `TestNotApplicableError` has if there is no sum.
    """
    found = {"": found} if isinstance(found, SquareSum) else found or {}
    only_if(bool(found), missing)
    place, least = min(found.items(), key=lambda item: item[1].p_value)
    limits = [1 - detectable_ratio(sums.freedom, name.level / len(found)) for sums in found.values()]
    more = {"places": len(found), "best_limit": min(limits)} if place else {}
    p_value = of_looks(len(found), least.p_value)
    return TestResult(name, least.ratio, p_value, least.ratio, 1.0, max(limits), place, more)


def _classes(measured: NoiseMeasurements) -> tuple[list[str], Integers]:
    """Return the names of the classes of coordinates, and the number of coordinates in each class.

    A class is a set of evenly spaced coordinates whose squared noise is summed.
    """
    return stride_names(measured.noise.parameters), stride_sizes(measured.noise.parameters)


_Side = tuple[Floats, Integers]  # sums of squares of trials, and their degrees of freedom
_Sides = tuple[_Side, _Side]


@of_family(TestName.SECRET_TOTAL)
def secret_total(measured: NoiseMeasurements) -> TestResult:
    """Test whether the amount of noise orthogonal to f(D) - f(D') differs between trials with D and with D'.

    The test is a two-sided F test. f is the sum of contributions in a round, before noise.
    """
    sides = _sides(measured, measured.noise.total / measured.sigma**2, measured.noise.total_freedom)
    return _compared(TestName.SECRET_TOTAL, measured.members, {"": sides})


@of_family(TestName.SECRET_PLACE)
def secret_place(measured: NoiseMeasurements) -> TestResult:
    """Test whether the amount of noise on any tensor or class of coordinates differs between trials with D and with D'.

    A class is a set of evenly spaced coordinates. The test is a two-sided F test, with Bonferroni over tensors and
    classes.
    """
    seen, variance = measured.noise, measured.sigma**2
    known = ~np.isnan(seen.strides[:, :, 0, 0])
    only_if(bool(measured.sampled_trials.any()), NotTestedReason.NOT_MEASURED)
    found = {
        f"tensor '{name}'": _sides(measured, seen.squares[..., at] / variance, seen.freedom[..., at])
        for at, name in enumerate(seen.tensors)
    }
    for number, (name, size) in enumerate(zip(*_classes(measured), strict=True)):
        squares = np.where(known, seen.strides[:, :, 0, number], 0.0)
        found[name] = _sides(measured, squares, int(size) * known)
    return _compared(TestName.SECRET_PLACE, measured.members, found)


@of_family(TestName.SECRET_ALONG_RECORD)
def secret_along_record(measured: NoiseMeasurements) -> TestResult:
    """Test whether the amount of noise along f(D) - f(D') differs between trials with D and with D', by an F test.

    The test is two-sided. f is the sum of contributions in a round, before noise.
    """
    known = ~np.isnan(measured.innovations)
    only_if(bool(known.any()), NotTestedReason.NO_DIFFERENCE)
    squares = np.where(known, np.square(measured.innovations), 0.0)
    sides = _sides(measured, squares, known.astype(np.int64))
    return _compared(TestName.SECRET_ALONG_RECORD, measured.members, {"": sides})


def secret_along(noise: NoiseAlongTarget) -> TestResult:
    """Test whether the amount of noise along the target unit's contribution differs between trials with D and with D'.

    The test is a two-sided F test. It is for runs in which only the noise in this direction was measured.
    """
    sides = _split(noise.members, noise.squares, noise.freedom)
    return _compared(TestName.SECRET_ALONG_RECORD, noise.members, {"": sides})


def _sides(measured: NoiseMeasurements, squares: Floats, freedom: Integers) -> _Sides:
    """Sum squared noise over the rounds of each trial, and return the sums for trials with D and for trials with D'.

    `squares` holds sums of squares over the claimed variance, and `freedom` their degrees of freedom, both (trials,
    rounds). Each of the two results is a pair: the trials' sums and their degrees of freedom, both (trials of this
    kind,). If a round has significantly more noise than claimed over all trials, its squares are divided by the excess,
    so that it does not dominate the sums.
    """
    squares = np.maximum(0.0, squares)  # where noise is missing, rounding may leave a slightly negative number
    # A round with more noise than claimed in all trials would dominate the sum: it is scaled down to the claim in all.
    of_round, counted = squares.sum(axis=0), freedom.sum(axis=0)
    louder = chdtrc(counted, of_round) < EVIDENT / measured.rounds
    level = np.where(louder, of_round / np.maximum(counted, 1), 1.0)
    return _split(measured.members, (squares / level).sum(axis=1), freedom.sum(axis=1))


def _split(members: Flags, sums: Floats, freedom: Integers) -> _Sides:
    """Split trials into those with D and those with D', and return the sums and degrees of freedom of each kind.

    `members` is True for trials with D. `sums` and `freedom` have the shape (trials,). Trials with 0 degrees of freedom
    are left out.
    """
    with_d, without = (side & (freedom > 0) for side in (members, ~members))
    return (sums[with_d], freedom[with_d]), (sums[without], freedom[without])


def _compared(name: TestName, members: Flags, found: dict[str, _Sides]) -> TestResult:
    usable = {place: sides for place, sides in found.items() if all(counts.size for _, counts in sides)}
    only_if(
        bool(usable), NotTestedReason.ONE_SIDE if members.all() or not members.any() else NotTestedReason.NOT_MEASURED
    )
    p_values = {place: _p_value(*sides) for place, sides in usable.items()}
    place = min(p_values, key=lambda name: p_values[name])
    (with_d, freedom), (without, others) = (_total(side) for side in usable[place])
    level = name.level / len(usable)
    ratio = float(fdtri(freedom, others, 1 - level / 2) / fdtri(freedom, others, 1 - DETECTION_POWER))
    share = math.sqrt(with_d / freedom / (without / others)) if without > 0 else (math.inf if with_d > 0 else 1.0)
    p_value, limit = of_looks(len(usable), p_values[place]), math.sqrt(ratio) - 1
    return TestResult(name, share**2, p_value, share, 1.0, limit, place, {"places": len(usable)})


def _total(side: _Side) -> tuple[float, int]:
    return float(side[0].sum()), int(side[1].sum())


def _p_value(one: _Side, other: _Side) -> float:
    """Return the p-value for equal amounts of noise in trials with D and trials with D'; 1 if neither has any noise.

    The test is a two-sided F test, or Student's t-test if trials of the same kind differ by more than chance. `one` and
    `other` hold, for each kind, the trials' sums of squares and their degrees of freedom.
    """
    (value, freedom), (against, others) = _total(one), _total(other)
    if value <= 0 and against <= 0:
        return 1.0
    if (uneven := _uneven_p(one, other)) is not None:
        return uneven
    if against <= 0:
        return 0.0
    ratio = value / freedom / (against / others)
    return of_looks(2, np.minimum(fdtr(freedom, others, ratio), fdtrc(freedom, others, ratio)))


def _uneven_p(one: _Side, other: _Side) -> float | None:
    """Return the p-value of Student's t between trials with D and trials with D'; None if no such test is needed.

    It is needed only if the amount of noise differs between trials of the same kind by more than chance. `one` and
    `other` hold the trials' sums of squares and their degrees of freedom. The test compares the cube roots of mean
    squares, which are nearly normal with a known spread (Wilson and Hilferty 1931).
    """
    if (rest := one[0].size + other[0].size - 2) < 1:
        return None
    means, precisions, squares = [], [], 0.0
    for sums, freedom in (one, other):
        roots, weights = np.cbrt(sums / freedom) + 2 / (9 * freedom), 4.5 * freedom
        means.append(float(np.average(roots, weights=weights)))
        precisions.append(float(weights.sum()))
        squares += float(np.sum(weights * (roots - means[-1]) ** 2))
    # The spread is proportional to the scale of the noise, so it is compared with the mean root.
    level = (precisions[0] * means[0] + precisions[1] * means[1]) / sum(precisions)
    if chdtrc(rest, squares / level**2) > _UNEVEN:
        return None
    t = (means[0] - means[1]) / math.sqrt(squares / rest * (1 / precisions[0] + 1 / precisions[1]))
    return float(2 * stdtr(rest, -abs(t)))
