"""Test whether released and claimed sums differ on average in directions other than that of the target.

The target is the unit in which D and D' differ. Let r be a release, and f(b) the claimed sum under the secret bit b. If
the claim holds, the mean of r - f(b) over trials and rounds is 0 in every coordinate, with D and with D'. The mean is
not 0 if something that depends on the secret is added, or if a contribution is present with D only or with D' only.
"""

import math
from typing import NamedTuple

import numpy as np
from scipy.special import chdtrc, ndtr

from fl_audit.array_types import Floats
from fl_audit.verdict.declared_tests import NotTestedReason, TestName, TestResult, bonferroni, only_if
from fl_audit.verdict.noise_scale import chi_square_quantile
from fl_audit.verdict.null_distributions import detectable_shift
from fl_audit.verdict.run_measurements import NoiseMeasurements
from fl_audit.verdict.target_contribution_tests import reduced_noise

_KINDS = 4  # kinds of looks: all sampled coordinates of a side, each tensor, each coordinate, and other directions


class _StandardisedMeans(NamedTuple):
    """Means of the noise over all rounds of the trials with D, or of those with D', standardised to N(0, 1)."""

    name: str
    values: int  # number of noise values in each mean at a sampled coordinate
    places: Floats  # means at the sampled coordinates, (places,)
    directions: Floats  # means along the public directions and along the shared sum, (directions,)


def drift_place(measurements: NoiseMeasurements) -> TestResult:
    """Test whether the noise has mean 0 in directions other than the target's, in trials with D and in trials with D'.

    Means are over all rounds of the trials with D, or of the trials with D'. Four kinds of statistics are computed: the
    chi-square of the means at all sampled coordinates, the chi-square at the coordinates of each tensor, the largest
    mean at a coordinate, and the chi-square of the means along public directions and along the shared sum. Bonferroni's
    correction is for the number of tests of each kind, and for the number of kinds.
    """
    owners = np.array(measurements.tensor_of_coordinates)
    sides = _sides(measurements)
    only_if(bool(sides), NotTestedReason.NOT_MEASURED)
    tensors = list(dict.fromkeys(owners.tolist()))
    candidates: list[tuple[float, float, str]] = []
    for side in sides:
        squares = np.square(side.places)
        where = f"of the trials with {side.name}"
        of_tensor = {tensor: squares[owners == tensor] for tensor in tensors}
        candidates.append(_chi_square(squares, len(sides), f"all sampled coordinates {where}"))
        candidates += [
            _chi_square(means, len(sides) * len(tensors), f"the tensor '{tensor}' {where}")
            for tensor, means in of_tensor.items()
        ]
        at = int(np.abs(side.places).argmax())
        number = measurements.noise.places[at][0]
        largest = abs(float(side.places[at]))
        p_value = bonferroni(2 * squares.size * len(sides), float(ndtr(-largest)))
        candidates.append((p_value, largest, f"coordinate {number} ({owners[at]}) {where}"))
        if side.directions.size:
            candidates.append(_chi_square(np.square(side.directions), len(sides), f"the public directions {where}"))
    smallest_p, size, location = min(candidates)
    level = TestName.DRIFT_PLACE.level / _KINDS / len(sides)
    values = min(side.values for side in sides)
    limit = detectable_shift(10**6, level / 2 / owners.size) / math.sqrt(values)
    details = {"places": float(owners.size), "in_all": _mean_found(owners.size, level) / math.sqrt(values)}
    return TestResult(TestName.DRIFT_PLACE, size, bonferroni(_KINDS, smallest_p), size, 0.0, limit, location, details)


def _chi_square(squares: Floats, looks: int, location: str) -> tuple[float, float, str]:
    """Return the p-value of a chi-square test that some means are 0, the root mean square of the means, and `location`.

    `squares` are the squares of the standardised means. The p-value is corrected by Bonferroni for `looks` tests.
    """
    return bonferroni(looks, float(chdtrc(squares.size, squares.sum()))), math.sqrt(float(squares.mean())), location


def _mean_found(size: int, level: float) -> float:
    """Return the smallest mean of the noise that the chi-square test detects with probability 0.9.

    The unit is the standard deviation of the noise, and every coordinate has this mean. The calculation is a normal
    approximation: with n coordinates and noncentrality L, the statistic has mean n + L and variance 2 n + 4 L.
    """
    short = chi_square_quantile(1 - level, size) - size
    spread = math.sqrt(2 * size + 4 * short)
    return math.sqrt((short + 1.2816 * spread) / size)


def _sides(measurements: NoiseMeasurements) -> list[_StandardisedMeans]:
    """Return the standardised means of the trials with D and of those with D', if there are any."""
    sampled = measurements.sampled_trials
    sides = []
    sample = measurements.even_sample
    noise = measurements.noise
    beside = np.concatenate([noise.projections, noise.gradient[..., None]], axis=-1)
    beside = beside / (measurements.sigma * measurements.excess)[..., None]
    for name, rows in (("D", measurements.members), ("D'", ~measurements.members)):
        residuals = sample[rows[sampled]]
        if not residuals.size:
            continue
        count = residuals.shape[0] * residuals.shape[1]
        of_places = residuals.sum(axis=(0, 1)) / math.sqrt(count)
        of_directions = [_standard_mean(beside[rows][:, :, at]) for at in range(beside.shape[-1])]
        sides.append(
            _StandardisedMeans(
                name,
                count,
                of_places,
                np.array([direction for direction in of_directions if not math.isnan(direction)]),
            )
        )
    return sides


def _standard_mean(noise: Floats) -> float:
    """Return a statistic of the mean noise, which is N(0, 1) if the noise is as claimed; NaN if no value is known.

    It is the sum of the known values over the root of their number. Noise that is larger than claimed is scaled down to
    the claimed size first.
    """
    count = int(np.count_nonzero(~np.isnan(noise)))
    return float(np.nansum(reduced_noise(noise))) / math.sqrt(count) if count else math.nan
