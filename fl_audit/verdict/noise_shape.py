"""Test whether the noise is normal and of full precision, and whether D and D' differ by no more than was claimed.

Noise whose density falls off faster than the normal one hides less, or nothing, even if its variance is as claimed. If
the claim holds, the sampled noise is independent N(0, 1), so the statistics of shape have known distributions.

Noise of half precision has only 11 significant bits. A value's phase is the fraction that remains after division by the
unit of the 11th bit. Phases are uniform for continuous noise, and all 0 for noise of half precision. Noise on any grid
is found by its characteristic function. At high frequencies this function is 0 for normal noise, but near 1 at the
frequency of the grid. Noise on a grid reveals the secret, because the release lies on different grids under D and D'.
"""

import math

import numpy as np
from scipy.special import ndtri

from fl_audit.verdict.declared_tests import DETECTION_POWER, NotTestedReason, TestName, TestResult, bonferroni, only_if
from fl_audit.verdict.null_distributions import normal_distance
from fl_audit.verdict.run_measurements import NoiseMeasurements, of_family

ROUNDING = 1e-5  # relative excess of a sensitivity that float32 gradients explain

_FEWEST_FOR_SHAPE = 100  # number of values from which the limiting distribution of the distance is used
# Number of coordinates from which the sum of cosines is close to normal; its tails are lighter than normal ones.
# Number of sampled values from which squared characteristic functions have exponential tails far enough out.
# In units of 1 / sigma: the characteristic function of normal noise is below 1e-100 from here on.


@of_family(TestName.SHAPE)
def shape(measured: NoiseMeasurements) -> TestResult:
    """Test whether the sampled noise is normal, as a whole and on each tensor, by the Kolmogorov-Smirnov distance.

    The p-value is that of the limiting distribution, corrected for the number of values (Stephens 1970), with
    Bonferroni over the whole sample and the tensors.
    """
    values, owners = measured.even_sample, np.array(measured.tensor_of_coordinates)
    groups = {"": values.reshape(-1)}
    if len(set(owners)) > 1:
        groups |= {tensor: values[:, :, owners == tensor].reshape(-1) for tensor in dict.fromkeys(owners)}
    found = {place: normal_distance(part) for place, part in groups.items() if part.size >= _FEWEST_FOR_SHAPE}
    only_if(bool(found), NotTestedReason.TOO_FEW)
    place, (distance, p_value) = min(found.items(), key=lambda entry: entry[1][1])
    limit = _detectable_distance(values.size, TestName.SHAPE.level / len(found))
    p_value, more = bonferroni(len(found), p_value), {"values": groups[place].size}
    return TestResult(TestName.SHAPE, distance, p_value, distance, 0.0, limit, place, more)


def _detectable_distance(count: int, level: float) -> float:
    """Return a Kolmogorov-Smirnov distance that the test of `count` values finds with at least `DETECTION_POWER`.

    The test has the significance level `level`.
    """
    return (math.sqrt(-math.log(level / 2) / 2) + float(ndtri(DETECTION_POWER)) / 2) / math.sqrt(count)


@of_family(TestName.SENSITIVITY)
def sensitivity(measured: NoiseMeasurements) -> TestResult:
    """Test whether ||f(D) - f(D')|| is at most the claimed sensitivity; the p-value is 1 if it is, otherwise 0.

    The norm is compared with sigma / z in each round, where sigma is the standard deviation of the noise and z the
    claimed noise multiplier. If the claim also limits whole trials, the root of the sum of (||f(D) - f(D')|| / sigma)^2
    over a trial's rounds may be at most `largest_mu`.
    """
    signal = measured.sensitivity / measured.sigma
    trial, number = divmod(int(signal.argmax()), measured.rounds)
    shares = [(float(signal.max()) * measured.noise_multiplier, f"trial {trial} round {number + 1}")]
    if measured.largest_mu is not None:
        whole = np.linalg.norm(signal, axis=1) / measured.largest_mu
        shares.append((float(whole.max()), f"all rounds of trial {int(whole.argmax())} together"))
    largest, place = max(shares, key=lambda share: round(share[0], 6))  # if both are equal, the round is reported
    p_value = 0.0 if largest > 1 + ROUNDING else 1.0
    return TestResult(TestName.SENSITIVITY, largest, p_value, largest, claimed=1.0, limit=ROUNDING, place=place)
