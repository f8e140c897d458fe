"""Does the size of the noise tell D from D'? Two-sample tests between the worlds of either.

Whatever is claimed of the noise, its law may not depend on the secret. Sums of squares of honest noise are chi-square
under both, so their ratio is F, whatever the scale. Where worlds of one side differ by more than chance explains, as
noise above the promise may from world to world, they are compared by Student's t instead: what varies without regard
to the secret tells nothing of it. The change costs honest runs a hundredth of a level at most.
"""

import math

import numpy as np
from scipy.special import chdtrc, fdtr, fdtrc, fdtri, stdtr

from fl_audit.adversaries.residuals import stride_names, stride_sizes
from fl_audit.arrays import Flags, Floats, Integers
from fl_audit.evidence.belief.family import DETECTION_POWER, Missing, NotOffered, TestName, TestResult, of_looks
from fl_audit.evidence.belief.measured import Measured
from fl_audit.evidence.belief.noise_excess import EVIDENT
from fl_audit.evidence.belief.noise_scale import NoiseAlong

_Side = tuple[Floats, Integers]
_Sides = tuple[_Side, _Side]

_UNEVEN = 0.01  # probability with which worlds of honest noise are taken for worlds of different noise


def secret_total(measured: Measured) -> TestResult | NotOffered:
    """Test the noise orthogonal to the record in worlds with D against that in worlds with D': F, two-sided."""
    if measured.residuals is None:
        return NotOffered(Missing.NOT_MEASURED)
    squares = measured.residuals.total / measured.sigma**2
    return _least(
        measured.members, TestName.SECRET_TOTAL, {"": _sides(measured, squares, measured.residuals.total_freedom)}
    )


def secret_place(measured: Measured) -> TestResult | NotOffered:
    """Test the same on each parameter tensor and in each class of coordinates: the least p-value, by Bonferroni."""
    if measured.residuals is None or measured.sample is None:
        return NotOffered(Missing.NOT_MEASURED)
    found = {
        f"tensor '{name}'": _sides(
            measured, measured.residuals.squares[..., at] / measured.sigma**2, measured.residuals.freedom[..., at]
        )
        for at, name in enumerate(measured.residuals.tensors)
    }
    known = ~np.isnan(measured.residuals.strides[:, :, 0, 0])
    parameters = measured.residuals.parameters
    for number, (name, size) in enumerate(zip(stride_names(parameters), stride_sizes(parameters), strict=True)):
        squares = np.where(known, measured.residuals.strides[:, :, 0, number], 0.0)
        found[name] = _sides(measured, squares, int(size) * known)
    return _least(measured.members, TestName.SECRET_PLACE, found)


def secret_along_record(measured: Measured) -> TestResult | NotOffered:
    """Test the noise along the record in worlds with D against that in worlds with D': F, two-sided."""
    known = ~np.isnan(measured.innovations)
    if not known.any():
        return NotOffered(Missing.NO_DIFFERENCE)
    squares = np.where(known, np.square(measured.innovations), 0.0)
    return _least(
        measured.members, TestName.SECRET_ALONG_RECORD, {"": _sides(measured, squares, known.astype(np.int64))}
    )


def secret_along(noise: NoiseAlong) -> TestResult | NotOffered:
    """Test the same where nothing else was measured of the noise: F, two-sided."""
    counted = noise.freedom > 0
    one, other = (
        (noise.squares[counted & side], noise.freedom[counted & side]) for side in (noise.members, ~noise.members)
    )
    return _least(noise.members, TestName.SECRET_ALONG_RECORD, {"": (one, other)})


def _sides(measured: Measured, squares: Floats, freedom: Integers) -> _Sides:
    """Return the sums of squares, and their degrees of freedom, of every world with D and of every one with D'."""
    squares = np.maximum(0.0, squares)  # rounding leaves a little less where noise is missing
    # A round that is louder in all worlds would stand for all rounds: it is brought down to the claim in all of them.
    of_round, counted = squares.sum(axis=0), freedom.sum(axis=0)
    louder = chdtrc(counted, of_round) < EVIDENT / measured.rounds
    level = np.where(louder, of_round / np.maximum(counted, 1), 1.0)
    sums, counts = (squares / level).sum(axis=1), freedom.sum(axis=1)
    one, other = (
        (sums[side & (counts > 0)], counts[side & (counts > 0)]) for side in (measured.members, ~measured.members)
    )
    return one, other


def _least(members: Flags, name: TestName, found: dict[str, _Sides]) -> TestResult | NotOffered:
    usable = {place: sides for place, sides in found.items() if all(counts.size for _, counts in sides)}
    if not usable:
        one_side = members.all() or not members.any()
        return NotOffered(Missing.ONE_SIDE if one_side else Missing.NOT_MEASURED)
    p_values = {place: _p_value(*sides) for place, sides in usable.items()}
    place = min(p_values, key=lambda name: p_values[name])
    (with_d, freedom), (without, others) = (_summed(side) for side in usable[place])
    level = name.level / len(usable)
    ratio = float(fdtri(freedom, others, 1 - level / 2) / fdtri(freedom, others, 1 - DETECTION_POWER))
    share = math.sqrt(with_d / freedom / (without / others)) if without > 0 else (math.inf if with_d > 0 else 1.0)
    return TestResult(
        name=name,
        statistic=share**2,
        p_value=of_looks(len(usable), p_values[place]),
        measured=share,
        promised=1.0,
        limit=math.sqrt(ratio) - 1,
        place=place,
        more={"places": len(usable)},
    )


def _summed(side: _Side) -> tuple[float, int]:
    return float(side[0].sum()), int(side[1].sum())


def _p_value(one: _Side, other: _Side) -> float:
    """Return the two-sided p-value of the ratio of two sums of squares; 1 where neither holds any noise."""
    (value, freedom), (against, others) = _summed(one), _summed(other)
    if value <= 0 and against <= 0:
        return 1.0
    uneven = _uneven_p(one, other)
    if uneven is not None:
        return uneven
    if against <= 0:
        return 0.0
    ratio = value / freedom / (against / others)
    return of_looks(2, np.minimum(fdtr(freedom, others, ratio), fdtrc(freedom, others, ratio)))


def _uneven_p(one: _Side, other: _Side) -> float | None:
    """Return the p-value of Student's t between worlds of either side; None where worlds of one side are alike.

    Cube roots of mean squares are nearly normal with a known spread (Wilson and Hilferty 1931).
    """
    rest = one[0].size + other[0].size - 2
    if rest < 1:
        return None
    means, precisions, squares = [], [], 0.0
    for sums, freedom in (one, other):
        roots, weights = np.cbrt(sums / freedom) + 2 / (9 * freedom), 4.5 * freedom
        means.append(float(np.average(roots, weights=weights)))
        precisions.append(float(weights.sum()))
        squares += float(np.sum(weights * (roots - means[-1]) ** 2))
    # Of noise of any scale the spread follows the scale, so it is held against the mean root.
    level = (precisions[0] * means[0] + precisions[1] * means[1]) / sum(precisions)
    if chdtrc(rest, squares / level**2) > _UNEVEN:
        return None
    t = (means[0] - means[1]) / math.sqrt(squares / rest * (1 / precisions[0] + 1 / precisions[1]))
    return float(2 * stdtr(rest, -abs(t)))
