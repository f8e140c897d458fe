"""Test whether anything in the noise depends on the secret: its amount, single coordinates, or its last bits.

Honest noise gives chi-square sums of squares under D and under D', so the ratio of their means has an F distribution at
any scale. Noise above the claim may differ from trial to trial. If trials with the same secret differ by more than
chance explains, the two kinds of trials are compared by Student's t instead. This choice raises the false-positive rate
of honest runs by a hundredth of the level at most.
"""

import math

import numpy as np
from scipy.special import chdtrc, fdtri, ndtri_exp, stdtr

from fl_audit.array_types import Flags, Floats, Integers
from fl_audit.statistics.exact_counts import table_p
from fl_audit.verdict.declared_tests import (
    DETECTION_POWER,
    NotTestedReason,
    TestName,
    TestResult,
    bonferroni,
    if_known,
    only_if,
)
from fl_audit.verdict.noise_scale import NoiseAlongTarget
from fl_audit.verdict.noise_statistics import stride_names, stride_sizes
from fl_audit.verdict.null_distributions import detectable_deviation, detectable_mean, f_test_p
from fl_audit.verdict.opened_secrets import OpenedSecrets
from fl_audit.verdict.run_measurements import EVIDENT, NoiseMeasurements, of_family, of_opened

_UNEVEN = 0.01  # probability with which trials of equally large noise are taken for trials of different noise
_FEWEST_TRIALS = 6  # with D, and with D', from which single coordinates are compared
_Side = tuple[Floats, Integers]  # sums of squares of trials, and their degrees of freedom
_Sides = tuple[_Side, _Side]


@of_family(TestName.SECRET_TOTAL)
def secret_total(measured: NoiseMeasurements) -> TestResult:
    """Test whether the amount of noise orthogonal to f(D) - f(D') differs between D and D', by a two-sided F test."""
    sides = _sides(measured, measured.noise.total / measured.sigma**2, measured.noise.total_freedom)
    return _compared(TestName.SECRET_TOTAL, measured.members, {"": sides})


@of_family(TestName.SECRET_PLACE)
def secret_place(measured: NoiseMeasurements) -> TestResult:
    """Test whether the amount of noise on any tensor, or on any class of coordinates, differs between D and D'.

    A class is a set of evenly spaced coordinates. Each comparison is a two-sided F test. Bonferroni's correction counts
    all tensors and classes.
    """
    seen, variance = measured.noise, measured.sigma**2
    known = ~np.isnan(seen.strides[:, :, 0, 0])
    only_if(bool(measured.sampled_trials.any()), NotTestedReason.NOT_MEASURED)
    found = {
        f"tensor '{name}'": _sides(measured, seen.squares[..., at] / variance, seen.freedom[..., at])
        for at, name in enumerate(seen.tensors)
    }
    classes = zip(stride_names(seen.parameters), stride_sizes(seen.parameters), strict=True)
    for number, (name, size) in enumerate(classes):
        squares = np.where(known, seen.strides[:, :, 0, number], 0.0)
        found[name] = _sides(measured, squares, int(size) * known)
    return _compared(TestName.SECRET_PLACE, measured.members, found)


@of_family(TestName.SECRET_ALONG_RECORD)
def secret_along_record(measured: NoiseMeasurements) -> TestResult:
    """Test, by a two-sided F-test, whether trials with D and D' have equal amounts of noise along f(D) - f(D')."""
    known = ~np.isnan(measured.innovations)
    only_if(bool(known.any()), NotTestedReason.NO_DIFFERENCE)
    squares = np.where(known, np.square(measured.innovations), 0.0)
    sides = _sides(measured, squares, known.astype(np.int64))
    return _compared(TestName.SECRET_ALONG_RECORD, measured.members, {"": sides})


def secret_along(noise: NoiseAlongTarget) -> TestResult:
    """Test whether the amount of noise along the target unit's contribution differs between D and D'.

    It is a two-sided F test, for runs in which only the noise in this direction was measured.
    """
    sides = _split(noise.members, noise.squares, noise.freedom)
    return _compared(TestName.SECRET_ALONG_RECORD, noise.members, {"": sides})


def _sides(measured: NoiseMeasurements, squares: Floats, freedom: Integers) -> _Sides:
    """Return the trials' sums of squared noise and their degrees of freedom, for trials with D and for trials with D'.

    If a round has significantly more noise than claimed over all trials, its squares are scaled down to the claim, so
    that they do not dominate the sums.
    """
    squares = np.maximum(0.0, squares)  # where noise is missing, rounding may leave a slightly negative number
    # A round with more noise than claimed in all trials would dominate the sum: it is scaled down to the claim in all.
    of_round, counted = squares.sum(axis=0), freedom.sum(axis=0)
    louder = chdtrc(counted, of_round) < EVIDENT / measured.rounds
    level = np.where(louder, of_round / np.maximum(counted, 1), 1.0)
    return _split(measured.members, (squares / level).sum(axis=1), freedom.sum(axis=1))


def _split(members: Flags, sums: Floats, freedom: Integers) -> _Sides:
    """Return the sums and degrees of freedom of trials with D, and those of trials with D'.

    Trials with 0 degrees of freedom are left out.
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
    p_value, limit = bonferroni(len(usable), p_values[place]), math.sqrt(ratio) - 1
    return TestResult(name, share**2, p_value, share, 1.0, limit, place, {"places": len(usable)})


def _total(side: _Side) -> tuple[float, int]:
    return float(side[0].sum()), int(side[1].sum())


def _p_value(one: _Side, other: _Side) -> float:
    """Return the two-sided p-value for equal amounts of noise with D and with D'; 1 if neither has any noise."""
    (value, freedom), (against, others) = _total(one), _total(other)
    if value <= 0 and against <= 0:
        return 1.0
    if (uneven := _uneven_p(one, other)) is not None:
        return uneven
    if against <= 0:
        return 0.0
    ratio = value / freedom / (against / others)
    return f_test_p(ratio, freedom, others)


def _uneven_p(one: _Side, other: _Side) -> float | None:
    """Return the p-value of a t-test of whether the size of the noise differs between trials with D and trials with D'.

    Sizes are compared as cube roots of mean squares, which are nearly normal (Wilson and Hilferty 1931). None if sizes
    do not vary more than by chance among trials with the same secret; then this test is not needed.
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


@of_family(TestName.SECRET_COORDINATES)
def secret_coordinates(measured: NoiseMeasurements) -> TestResult:
    """Test whether the mean or the size of the noise at sampled coordinates differs between trials with D and with D'.

    Student's t-test compares trials with D and trials with D' at each coordinate. Its results are combined in two ways:
    the sum of squared normal scores finds many small differences, and the largest t finds a single large one. Each
    combination is computed for means and for sizes. The smallest of the four p-values is corrected by Bonferroni.
    """
    members = measured.members[measured.sampled_trials]
    only_if(bool(members.any() and not members.all()), NotTestedReason.ONE_SIDE)
    sample = measured.even_sample
    only_if(min(int(members.sum()), int((~members).sum())) >= _FEWEST_TRIALS, NotTestedReason.TOO_FEW)
    kinds = {"mean": sample.mean(axis=1), "size": np.cbrt(np.square(sample).mean(axis=1))}
    looks = []
    for kind, values in kinds.items():
        p_values, t = _by_side(values, members)
        scores = ndtri_exp(np.log(np.maximum(p_values / 2, 1e-300)))
        total, at = float(np.sum(np.square(scores))), int(p_values.argmin())
        number = measured.noise.places[at][0]
        shift = float(np.sqrt(np.mean(np.square(t)) / members.size))
        looks.append((float(chdtrc(t.size, total)), shift, f"the {kind} at all sampled coordinates"))
        looks.append((bonferroni(t.size, float(p_values[at])), float(t[at]) / math.sqrt(members.size),
                      f"the {kind} at coordinate {number}"))  # fmt: skip
    p_value, size, place = min(looks)
    level = TestName.SECRET_COORDINATES.level / len(looks) / sample.shape[-1]
    limit = 2 * detectable_mean(members.size, level) / math.sqrt(measured.rounds)
    more, p_value = {"places": sample.shape[-1]}, bonferroni(len(looks), p_value)
    return TestResult(TestName.SECRET_COORDINATES, size, p_value, abs(size), 0.0, limit, place, more)


def _by_side(values: Floats, members: Flags) -> tuple[Floats, Floats]:
    """Compare trials with D and trials with D' in each column; return two-sided p-values and Student's t.

    `values` has the shape (trials, columns).
    """
    one, other = values[members], values[~members]
    rest = len(values) - 2
    within = np.sum(np.square(one - one.mean(axis=0)), axis=0) + np.sum(np.square(other - other.mean(axis=0)), axis=0)
    spread = np.sqrt(np.maximum(within / rest * (1 / len(one) + 1 / len(other)), 1e-300))
    t = (one.mean(axis=0) - other.mean(axis=0)) / spread
    return np.asarray(2 * stdtr(rest, -np.abs(t)), dtype=np.float64), t


@of_opened(TestName.SECRET_LAST_BITS)
def secret_last_bits(opened: OpenedSecrets) -> TestResult:
    """Test whether the last bits of releases are 1 equally often with D and with D'.

    One test uses all coordinates. Last bits of one release may depend on each other and need not be fair. So each trial
    counts by its fraction of ones, and Student's t compares the trials with D and with D'. Further tests use one
    sampled coordinate each: its number of ones with D is hypergeometric, given its number of ones in all trials. The
    smallest p-value is corrected by Bonferroni.
    """
    found = if_known(opened.last_bits, NotTestedReason.NOT_OPENED)
    odd = if_known(opened.odd, NotTestedReason.NOT_OPENED)
    only_if(bool(found.of_places.min() > 0), NotTestedReason.ONE_SIDE)
    looks = [(_gap_of_trials(odd, opened.members), "all coordinates", found.odd / found.of)]
    looks += [
        _last_bit(f"coordinate {place}", counts, found.of_places)
        for place, counts in zip(found.places, found.odd_places, strict=True)
    ]
    p_value, place, shares = min(looks, key=lambda one: one[0])
    gap, more, p_value = float(abs(shares[0] - shares[1])), {"looks": len(looks)}, bonferroni(len(looks), p_value)
    level = TestName.SECRET_LAST_BITS.level / len(looks)
    reach = detectable_deviation(level / 2)
    limit = min(1.0, reach * math.sqrt(float(np.sum(0.25 / found.of_places))))
    return TestResult(TestName.SECRET_LAST_BITS, gap, p_value, gap, 0.0, limit, place, more)


def _gap_of_trials(odd: Floats, members: Flags) -> float:
    """Return the p-value of Student's t-test that compares the shares of odd last bits with D and with D'.

    `odd`, (trials, rounds), holds the share of ones among the last bits of each release, as a standardised deviation
    from 1/2. Each trial counts by its mean. The p-value is 1 if all means are equal, or if there are too few trials.
    """
    means = odd.mean(axis=1)
    sides = means[members], means[~members]
    freedom = means.size - 2
    if freedom < 1 or min(side.size for side in sides) == 0:
        return 1.0
    squares = sum(float(np.square(side - side.mean()).sum()) for side in sides)
    gap = float(sides[0].mean() - sides[1].mean())
    if squares == 0:
        return 1.0 if gap == 0 else 0.0
    error = math.sqrt(squares / freedom * sum(1 / side.size for side in sides))
    return 2 * float(stdtr(freedom, -abs(gap / error)))


def _last_bit(place: str, odd: Integers, of: Integers) -> tuple[float, str, Floats]:
    return table_p(int(odd[0]), int(odd.sum()), int(of[0]), int(of[1])), place, odd / of
