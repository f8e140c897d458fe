"""Test of the mean difference between released and claimed sums, away from the target, with D and with D'.

Let r be a release and f(b) the claimed sum under the secret bit b. The mean of r - f(b) over trials and rounds is 0 in
every coordinate, with D and with D'. An addition that depends on the secret, or a contribution that only one side has,
shifts this mean.
"""

import math
from typing import NamedTuple

import numpy as np
from scipy.special import chdtrc, ndtr

from fl_audit.array_types import Flags, Floats
from fl_audit.verdict.multiple_testing import NotTestedReason, TestName, TestResult, of_looks, only_if
from fl_audit.verdict.noise_scale import chi_square_quantile
from fl_audit.verdict.run_measurements import NoiseMeasurements, of_family
from fl_audit.verdict.signal import even_noise
from fl_audit.verdict.signal_detection_limit import detectable_shift

_KINDS = 4  # kinds of looks: all sampled coordinates of a side, each tensor, each coordinate, and other directions


class _StandardisedMeans(NamedTuple):
    """Means of the noise over the rounds of all trials with D, or with D', standardised to N(0, 1)."""

    name: str
    places: Floats  # at the sampled coordinates, (places,)
    directions: Floats  # along the public directions and along the shared sum, (directions,)


@of_family(TestName.DRIFT_PLACE)
def drift_place(measured: NoiseMeasurements) -> TestResult:
    """Test whether the mean noise away from the target is 0, in trials with D and in trials with D'.

    There are four kinds of statistics: the chi-square over all sampled coordinates, that over the sampled coordinates
    of every tensor, the largest mean of a coordinate, and the chi-square along public directions and the shared sum. A
    quarter of the significance level goes to each kind, and within it the p-value is Bonferroni's.
    """
    owners, sides = np.array(measured.owners), _sides(measured)
    only_if(bool(sides), NotTestedReason.NOT_MEASURED)
    tensors = list(dict.fromkeys(owners.tolist()))
    found: list[tuple[float, float, str]] = []
    for side in sides:
        squares, where = np.square(side.places), f"of the trials with {side.name}"
        of_tensor = {tensor: squares[owners == tensor] for tensor in tensors}
        found.append(_chi_square(squares, len(sides), f"all sampled coordinates {where}"))
        found += [
            _chi_square(part, len(sides) * len(tensors), f"the tensor '{tensor}' {where}")
            for tensor, part in of_tensor.items()
        ]
        at = int(np.abs(side.places).argmax())
        number, largest = measured.noise.places[at][0], abs(float(side.places[at]))
        p_value = of_looks(2 * squares.size * len(sides), float(ndtr(-largest)))
        found.append((p_value, largest, f"coordinate {number} ({owners[at]}) {where}"))
        if side.directions.size:
            found.append(_chi_square(np.square(side.directions), len(sides), f"the public directions {where}"))
    least, size, place = min(found)
    level = TestName.DRIFT_PLACE.level / _KINDS / len(sides)
    values = min(side[1] for side in _counts(measured))
    limit = detectable_shift(10**6, level / 2 / owners.size) / math.sqrt(values)
    more = {"places": float(owners.size), "in_all": _mean_found(owners.size, level) / math.sqrt(values)}
    return TestResult(TestName.DRIFT_PLACE, size, of_looks(_KINDS, least), size, 0.0, limit, place, more)


def _chi_square(squares: Floats, looks: int, place: str) -> tuple[float, float, str]:
    """Return the Bonferroni p-value of a sum of squared means, the root of their mean square, and the place."""
    return of_looks(looks, float(chdtrc(squares.size, squares.sum()))), math.sqrt(float(squares.mean())), place


def _mean_found(places: int, level: float) -> float:
    """Return the standardised mean, equal at all places, that their chi-square test finds with probability 0.9.

    A noncentral chi-square with noncentrality L has the mean n + L and the variance 2 n + 4 L.
    """
    short = chi_square_quantile(1 - level, places) - places
    spread = math.sqrt(2 * places + 4 * short)
    return math.sqrt((short + 1.2816 * spread) / places)


def _rows(measured: NoiseMeasurements) -> list[tuple[str, Flags]]:
    return [(name, rows) for name, rows in (("D", measured.members), ("D'", ~measured.members)) if rows.any()]


def _counts(measured: NoiseMeasurements) -> list[tuple[str, int]]:
    """Return the number of values that each tested coordinate has in the trials of each side."""
    known = measured.sampled_trials
    sizes = [(name, int((rows & known).sum()) * measured.rounds) for name, rows in _rows(measured)]
    return [(name, size) for name, size in sizes if size]


def _sides(measured: NoiseMeasurements) -> list[_StandardisedMeans]:
    """Return the standardised means of every side that has trials."""
    known, found = measured.sampled_trials, []
    sample, noise = measured.even_sample, measured.noise
    beside = np.concatenate([noise.projections, noise.gradient[..., None]], axis=-1)
    beside = beside / (measured.sigma * measured.excess)[..., None]
    for name, rows in _rows(measured):
        part = sample[rows[known]]
        if not part.size:
            continue
        of_places = part.sum(axis=(0, 1)) / math.sqrt(part.shape[0] * part.shape[1])
        of_directions = [_standard_mean(beside[rows][:, :, at]) for at in range(beside.shape[-1])]
        found.append(
            _StandardisedMeans(name, of_places, np.array([one for one in of_directions if not math.isnan(one)]))
        )
    return found


def _standard_mean(noise: Floats) -> float:
    """Return the sum of noise, scaled down where above the claim, over the root of its count; NaN if all is unknown."""
    count = int(np.count_nonzero(~np.isnan(noise)))
    return float(np.nansum(even_noise(noise))) / math.sqrt(count) if count else math.nan
