"""Does the size of the noise tell D from D'? Two-sample tests between the worlds of either.

Whatever is claimed of the noise, its law may not depend on the secret. Sums of squares of honest noise are chi-square
under both, so their ratio is F, whatever the scale: noise above the promise that is alike in all worlds passes.
"""

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import fdtr, fdtrc, fdtri

from fl_audit.adversaries.residuals import stride_names, stride_sizes
from fl_audit.evidence.belief.family import DETECTION_POWER, Missing, NotOffered, TestName, TestResult
from fl_audit.evidence.belief.measured import Measured

Floats = NDArray[np.float64]
_Sides = tuple[tuple[float, int], tuple[float, int]]


def secret_total(measured: Measured) -> TestResult | NotOffered:
    """Test the noise orthogonal to the record in worlds with D against that in worlds with D': F, two-sided."""
    if measured.residuals is None:
        return NotOffered(Missing.NOT_MEASURED)
    squares = measured.residuals.total / measured.sigma**2
    return _least(TestName.SECRET_TOTAL, {"": _sides(measured, squares, measured.residuals.total_freedom)})


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
    return _least(TestName.SECRET_PLACE, found)


def secret_along_record(measured: Measured) -> TestResult | NotOffered:
    """Test the noise along the record in worlds with D against that in worlds with D': F, two-sided."""
    known = ~np.isnan(measured.innovations)
    if not known.any():
        return NotOffered(Missing.NO_DIFFERENCE)
    squares = np.where(known, np.square(measured.innovations), 0.0)
    return _least(TestName.SECRET_ALONG_RECORD, {"": _sides(measured, squares, known.astype(np.int64))})


def _sides(measured: Measured, squares: Floats, freedom: NDArray[np.int64]) -> _Sides:
    """Return the sums of squares, and their degrees of freedom, of the worlds with D and of those with D'."""
    rows = measured.members, ~measured.members
    one, other = ((float(squares[side].sum()), int(freedom[side].sum())) for side in rows)
    return one, other


def _least(name: TestName, found: dict[str, _Sides]) -> TestResult | NotOffered:
    usable = {place: sides for place, sides in found.items() if all(count for _, count in sides)}
    if not usable:
        return NotOffered(Missing.ONE_SIDE)
    p_values = {place: _p_value(*sides) for place, sides in usable.items()}
    place = min(p_values, key=lambda name: p_values[name])
    (with_d, freedom), (without, others) = usable[place]
    level = name.level / len(usable)
    ratio = float(fdtri(freedom, others, 1 - level / 2) / fdtri(freedom, others, 1 - DETECTION_POWER))
    measured = math.sqrt(with_d / freedom / (without / others)) if without > 0 else (math.inf if with_d > 0 else 1.0)
    return TestResult(
        name=name,
        statistic=measured**2,
        p_value=min(1.0, len(usable) * p_values[place]),
        measured=measured,
        promised=1.0,
        limit=math.sqrt(ratio) - 1,
        place=place,
        more={"places": len(usable)},
    )


def _p_value(one: tuple[float, int], other: tuple[float, int]) -> float:
    """Return the two-sided p-value of the ratio of two sums of squares; 1 where neither holds any noise."""
    (value, freedom), (against, others) = one, other
    if value <= 0 and against <= 0:
        return 1.0
    if against <= 0:
        return 0.0
    ratio = value / freedom / (against / others)
    return min(1.0, 2 * min(float(fdtr(freedom, others, ratio)), float(fdtrc(freedom, others, ratio))))
