"""Test whether the noise is normal, and whether D and D' differ by no more than was claimed.

Noise whose density falls off faster than the normal one hides less, or nothing, even if its variance is as claimed. If
the claim holds, the sampled noise is independent N(0, 1), so the statistics of shape have known distributions.
"""

import math
from functools import partial

import numpy as np
from scipy.special import ndtr, ndtri
from scipy.stats import binom

from fl_audit.verdict.declared_tests import (
    DETECTION_POWER,
    Look,
    NotTestedReason,
    TestName,
    TestResult,
    bonferroni,
    clearest_of,
    only_if,
)
from fl_audit.verdict.null_distributions import detectable_deviation, normal_distance
from fl_audit.verdict.run_measurements import NoiseMeasurements

ROUNDING = 1e-5  # relative excess of a sensitivity that float32 gradients explain

_FEWEST_FOR_SHAPE = 100  # number of values from which the limiting distribution of the distance is used
_FEWEST_IN_TAILS = 20.0  # expected number of values in the tails from which these are counted
_TAIL = 3.0
_TAIL_SHARE = float(2 * ndtr(-_TAIL))


def shape(measurements: NoiseMeasurements) -> TestResult:
    """Test whether the sampled noise is normal, by its distribution as a whole and by its tails."""
    return clearest_of(TestName.SHAPE, [partial(question, measurements) for question in (distance, tails)])


def distance(measurements: NoiseMeasurements, level: float) -> Look:
    """Test whether the sampled noise is normal, as a whole and on each tensor, by the Kolmogorov-Smirnov distance.

    The p-value is that of the limiting distribution, corrected for the number of values (Stephens 1970), with
    Bonferroni over the whole sample and the tensors.
    """
    values = measurements.even_sample
    owners = np.array(measurements.tensor_of_coordinates)
    groups = {"": values.reshape(-1)}
    if len(set(owners)) > 1:
        groups |= {tensor: values[:, :, owners == tensor].reshape(-1) for tensor in dict.fromkeys(owners)}
    distances = {name: normal_distance(group) for name, group in groups.items() if group.size >= _FEWEST_FOR_SHAPE}
    only_if(bool(distances), NotTestedReason.TOO_FEW)
    location, (largest, p_value) = min(distances.items(), key=lambda entry: entry[1][1])
    limit = _detectable_distance(values.size, level / len(distances))
    p_value = bonferroni(len(distances), p_value)
    details = {"values": groups[location].size}
    return Look("distance", largest, p_value, largest, 0.0, limit, location, details)


def tails(measurements: NoiseMeasurements, level: float) -> Look:
    """Test whether fewer sampled values lie beyond 3 standard deviations than of a normal distribution.

    The test is the exact binomial test, lower tail: noise that is cut off hides nothing from who looks for what it
    cannot reach. Heavier tails come with noise of several scales, which may be more than was claimed.
    """
    values = measurements.even_sample
    beyond = int(np.count_nonzero(np.abs(values) > _TAIL))
    count = values.size
    only_if(count * _TAIL_SHARE >= _FEWEST_IN_TAILS, NotTestedReason.TOO_FEW)
    limit = min(1.0, detectable_deviation(level) / math.sqrt(count * _TAIL_SHARE))
    p_value = float(binom.cdf(beyond, count, _TAIL_SHARE))
    return Look("tails", beyond, p_value, beyond / count, _TAIL_SHARE, limit, more={"deviations": _TAIL})


def _detectable_distance(count: int, level: float) -> float:
    """Return a Kolmogorov-Smirnov distance that the test of `count` values finds with at least `DETECTION_POWER`.

    The test has the significance level `level`.
    """
    return (math.sqrt(-math.log(level / 2) / 2) + float(ndtri(DETECTION_POWER)) / 2) / math.sqrt(count)


def sensitivity(measurements: NoiseMeasurements) -> TestResult:
    """Test whether ||f(D) - f(D')|| is at most the claimed sensitivity; the p-value is 1 if it is, otherwise 0.

    The norm is compared with sigma / z in each round, where sigma is the standard deviation of the noise and z the
    claimed noise multiplier. If the claim also limits whole trials, the root of the sum of (||f(D) - f(D')|| / sigma)^2
    over a trial's rounds may be at most `largest_mu`.
    """
    signal = measurements.sensitivity / measurements.sigma
    trial, number = divmod(int(signal.argmax()), measurements.rounds)
    shares = [(float(signal.max()) * measurements.noise_multiplier, f"trial {trial} round {number + 1}")]
    if measurements.largest_mu is not None:
        whole = np.linalg.norm(signal, axis=1) / measurements.largest_mu
        shares.append((float(whole.max()), f"all rounds of trial {int(whole.argmax())} together"))
    largest, location = max(shares, key=lambda share: round(share[0], 6))  # if both are equal, the round is reported
    p_value = 0.0 if largest > 1 + ROUNDING else 1.0
    return TestResult(TestName.SENSITIVITY, largest, p_value, largest, claimed=1.0, limit=ROUNDING, place=location)
