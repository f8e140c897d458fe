"""Test whether the noise is normal and of full precision, and whether D and D' differ by no more than was claimed.

Noise whose density falls off faster than the normal one hides less, or nothing, even if its variance is as claimed. If
the claim holds, the sampled noise is independent N(0, 1), so the statistics of shape have known distributions.

Noise of half precision has only 11 significant bits. A value's phase is the fraction that remains after division by the
unit of the 11th bit. Phases are uniform for continuous noise, and all 0 for noise of half precision. Noise on any grid
is found by its characteristic function. At high frequencies this function is 0 for normal noise, but near 1 at the
frequency of the grid. Noise on a grid reveals the secret, because the release lies on different grids under D and D'.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.fft import rfft
from scipy.special import chdtrc, ndtr, ndtri

from fl_audit.array_types import Floats
from fl_audit.statistics.exact_counts import binomial_p
from fl_audit.verdict import declared_tests
from fl_audit.verdict.declared_tests import DETECTION_POWER, NotTestedReason, TestName, TestResult, bonferroni, only_if
from fl_audit.verdict.noise_statistics import LOW_BITS_KINDS
from fl_audit.verdict.null_distributions import detectable_deviation, largest_p, normal_distance
from fl_audit.verdict.run_measurements import NoiseMeasurements, of_family

ROUNDING = 1e-5  # relative excess of a sensitivity that float32 gradients explain

_FEWEST_FOR_SHAPE = 100  # number of values from which the limiting distribution of the distance is used
_TAIL = 3.0
_TAIL_SHARE = float(2 * ndtr(-_TAIL))
# Number of coordinates from which the sum of cosines is close to normal; its tails are lighter than normal ones.
_FEWEST_COORDINATES = 50
# Number of sampled values from which squared characteristic functions have exponential tails far enough out.
_FEWEST_FOR_GRID = 1000
_BINS = 2**20
_HALF_WIDTH = 8.0
_SHARE_OF_STEP = 0.25
# In units of 1 / sigma: the characteristic function of normal noise is below 1e-100 from here on.
_LOWEST_FREQUENCY = 4.0


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


@of_family(TestName.TAILS)
def tails(measured: NoiseMeasurements) -> TestResult:
    """Test whether as many sampled noise values lie beyond 3 standard deviations as a normal distribution implies.

    The test is the exact two-sided binomial test.
    """
    values = measured.even_sample
    beyond, count = int(np.count_nonzero(np.abs(values) > _TAIL)), values.size
    reach = detectable_deviation(TestName.TAILS.level / 2) * math.sqrt(_TAIL_SHARE / count)
    p_value, more = float(binomial_p(beyond, count, _TAIL_SHARE)), {"deviations": _TAIL}
    return TestResult(TestName.TAILS, beyond, p_value, beyond / count, _TAIL_SHARE, limit=reach, more=more)


@of_family(TestName.SUPPORT)
def support(measured: NoiseMeasurements) -> TestResult:
    """Test whether the largest absolute value of the sampled noise fits normal noise; the test is exact and two-sided.

    Truncated noise has too small a largest value.
    """
    values = measured.even_sample
    largest, count = float(np.abs(values).max()), values.size
    claimed, limit = _largest_at(0.5, count), _largest_at(TestName.SUPPORT.level / 2, count)
    p_value, more = largest_p(largest, count), {"values": count}
    return TestResult(TestName.SUPPORT, largest, p_value, largest, claimed, limit=limit, more=more)


def _largest_at(probability: float, count: int) -> float:
    """Return a quantile of the maximum of |x| over `count` independent draws x from N(0, 1).

    `probability` is the probability that the maximum is at most this quantile.
    """
    return float(-ndtri(-math.expm1(math.log(probability) / count) / 2))


@of_family(TestName.SHAPE_ALONG_RECORD)
def shape_along_record(measured: NoiseMeasurements) -> TestResult:
    """Test whether the innovations, the noise along f(D) - f(D'), are normal, by three tests at once.

    They are the same three tests as in `shape`, `tails` and `support`. The smallest p-value is corrected by Bonferroni.
    The test is not made if there is significantly more noise than claimed, at level 0.001. Such noise may be a mixture
    of several scales, which is not normal although it is no breach.
    """
    values = measured.used_innovations
    only_if(
        values.size >= _FEWEST_FOR_SHAPE, NotTestedReason.NO_DIFFERENCE if values.size == 0 else NotTestedReason.TOO_FEW
    )
    squares = float(values @ values)
    only_if(not chdtrc(values.size, squares) < declared_tests.FAMILY_LEVEL, NotTestedReason.MORE_NOISE)
    values = values / max(1.0, math.sqrt(squares / values.size))
    distance, of_distance = normal_distance(values)
    beyond = int(np.count_nonzero(np.abs(values) > _TAIL))
    largest = float(np.abs(values).max())
    least = min(of_distance, float(binomial_p(beyond, values.size, _TAIL_SHARE)), largest_p(largest, values.size))
    limit = _detectable_distance(values.size, TestName.SHAPE_ALONG_RECORD.level / 3)
    more = {"largest": largest, "beyond": beyond / values.size}
    return TestResult(
        TestName.SHAPE_ALONG_RECORD, distance, bonferroni(3, least), distance, 0.0, limit=limit, more=more
    )


@of_family(TestName.LOW_BITS)
def low_bits(measured: NoiseMeasurements) -> TestResult:
    """Test whether the noise was rounded to half precision, which keeps only the first 11 significant bits of a number.

    The phase of a number is the remainder after these 11 bits, in units of the last of them. Phases are uniform for
    continuous noise, and 0 for rounded noise. The statistic is the sum of cos(2 pi phase) over all coordinates, divided
    by sqrt(count / 2), where count is the number of coordinates. The statistic is computed for each of
    `LOW_BITS_KINDS`: the noise, the noise over its standard deviation, and the release. The largest statistic is
    compared with N(0, 1) (upper tail), with Bonferroni's correction for the number of kinds. For few coordinates the
    p-value is slightly too large, because a cosine is bounded.
    """
    sums, counts = measured.noise.low_bits[:, :, 0], measured.noise.low_bits_count[:, :, 0]
    known = ~np.isnan(sums)
    total, count = np.where(known, sums, 0.0).sum(axis=(0, 1)), np.where(known, counts, 0).sum(axis=(0, 1))
    kinds = [at for at in range(len(LOW_BITS_KINDS)) if count[at] >= _FEWEST_COORDINATES]
    offered = {LOW_BITS_KINDS[at]: float(total[at]) / math.sqrt(count[at] / 2) for at in kinds}
    only_if(bool(offered), NotTestedReason.ROUNDING)
    kind, largest = max(offered.items(), key=lambda item: item[1])
    place = LOW_BITS_KINDS.index(kind)
    reach = detectable_deviation(TestName.LOW_BITS.level / len(offered))
    fewest = float(min(count[at] for at in kinds))
    p_value, limit = bonferroni(len(offered), float(ndtr(-largest))), min(1.0, reach / math.sqrt(2 * fewest))
    mean = float(total[place] / count[place])
    return TestResult(TestName.LOW_BITS, largest, p_value, mean, claimed=0.0, limit=limit, place=kind)


@dataclass(frozen=True)
class _NoiseGridTestInput:
    """Noise values, and the range of frequencies at which their characteristic function is tested.

    The test looks for a grid, on which all values are multiples of one step.
    """

    unit: str  # name of the unit of the values; frequencies are in its inverse
    values: Floats  # values of the noise, in this unit
    lowest: float  # lowest tested frequency: below it the characteristic function of normal noise itself is not 0
    highest: float  # highest tested frequency: above it float32 rounding shows


@of_family(TestName.GRID)
def grid(measured: NoiseMeasurements) -> TestResult:
    """Test whether all sampled noise values are multiples of a step, by their characteristic function phi.

    For N values without such a step, N |phi|^2 is exponential with mean 1 at each frequency. The noise divided by its
    claimed standard deviation is tested. If this deviation varies, the noise itself is tested, too. Bonferroni's
    correction covers all tested frequencies. Frequencies at which float32 rounding itself makes steps are not tested.
    """
    looks = [look for look in _looks(measured) if look.highest >= 2 * look.lowest]
    only_if(bool(looks), NotTestedReason.ROUNDING)
    count = measured.sample.size
    only_if(count >= _FEWEST_FOR_GRID, NotTestedReason.TOO_FEW)
    found = [(*_strongest_frequency(look), look) for look in looks]
    power, frequency, _, look = max(found, key=lambda one: one[0])
    looked_at = sum(number for _, _, number, _ in found)
    reach = math.sqrt(math.log(looked_at / TestName.GRID.level)) + float(ndtri(DETECTION_POWER)) / math.sqrt(2)
    p_value, limit = bonferroni(looked_at, math.exp(-power)), min(1.0, reach / math.sqrt(count))
    more = {"step": 1 / frequency, "finest": 1 / look.highest}
    return TestResult(TestName.GRID, power, p_value, math.sqrt(power / count), 0.0, limit, look.unit, more)


def _looks(measured: NoiseMeasurements) -> Iterator[_NoiseGridTestInput]:
    sample, known = measured.sample, measured.sampled_trials
    sigma, grain = measured.sigma[known], measured.noise.grain[known]
    widest, narrowest = float(sigma.max()), float(sigma.min())
    finest = _BINS / (8 * _HALF_WIDTH)
    highest = min(finest, _SHARE_OF_STEP / max(1e-30, float(grain.max())))
    yield _NoiseGridTestInput("of the claimed noise", sample.reshape(-1), _LOWEST_FREQUENCY, highest)
    if widest - narrowest > 1e-9 * widest:
        values = (sample * (sigma / widest)[..., None]).reshape(-1)
        highest = min(finest, _SHARE_OF_STEP / max(1e-30, float((grain * sigma).max()) / widest))
        yield _NoiseGridTestInput(
            "of the largest claimed noise", values, _LOWEST_FREQUENCY * widest / narrowest, highest
        )


def _strongest_frequency(look: _NoiseGridTestInput) -> tuple[float, float, int]:
    """Return the largest N |phi|^2 over the tested frequencies, its frequency, and the number of tested frequencies.

    N is the number of noise values and phi their characteristic function.
    """
    counts, _ = np.histogram(look.values, bins=_BINS, range=(-_HALF_WIDTH, _HALF_WIDTH))
    frequencies = np.arange(_BINS // 2 + 1) / (2 * _HALF_WIDTH)
    first, last = np.searchsorted(frequencies, look.lowest), np.searchsorted(frequencies, look.highest, side="right")
    found = rfft(counts.astype(np.float64))[first:last]
    power = (np.square(found.real) + np.square(found.imag)) / look.values.size
    at = int(power.argmax())
    return float(power[at]), float(frequencies[first + at]), int(last - first)


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
