"""Test for copied noise: similar noise vectors, correlated coordinates, autocorrelation, and repeated values.

An adversary who knows from where noise was copied, even with a change of scale, can subtract it. So copied noise hides
nothing. The cosine c of two independent normal vectors of dimension J has c^2 ~ Beta(1/2, (J-1)/2), whatever their
scales. The cosines of different pairs are pairwise independent.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.special import chdtrc, gammainc, gammaincc

from fl_audit.array_types import Floats
from fl_audit.randomness import Purpose, generator
from fl_audit.verdict.declared_tests import (
    Look,
    NotTestedReason,
    TestName,
    TestResult,
    bonferroni,
    clearest_of,
    only_if,
)
from fl_audit.verdict.noise_mean_and_independence import serial_correlation, shared_over_rounds, shared_over_trials
from fl_audit.verdict.noise_sizes import carried_sizes, even_sizes
from fl_audit.verdict.null_distributions import cosine_at, cosine_tail, detectable_cosine, detectable_deviation
from fl_audit.verdict.run_measurements import NoiseMeasurements

_LARGEST_GROUP = 2**14  # up to this number of vectors all pairs are compared; of more vectors, only pairs within groups
_BLOCK = 512  # larger blocks of cosines are allocated anew by the system each time, which takes as long as filling them
_FEWEST_DRAWS = 8  # number of rounds, over all trials, from which coordinates are compared with each other
# The same for the sum over all pairs of coordinates: with fewer rounds it is too far from a gamma distribution.
_FEWEST_JOINT_DRAWS = 100
_CLOSE = 4e-6
_LARGEST_CLOSE = 1e-2


@dataclass(frozen=True)
class MostSimilarPair:
    """The two noise vectors whose cosine has the largest absolute value among all compared pairs."""

    cosine: float  # absolute value of the cosine of the two vectors
    first: int  # index of the first vector
    second: int  # index of the second vector
    pairs: int  # number of compared pairs


def _likest_pair(vectors: Floats, group: int = _LARGEST_GROUP) -> MostSimilarPair:
    """Return the two rows of `vectors`, (n, J), whose cosine is the largest in absolute value.

    Only rows in the same group of `group` consecutive rows are compared.
    """
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    units = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)
    single = units.astype(np.float32)  # for finding the pair; its cosine is computed again in float64
    best = -1.0
    at = (0, 1)
    pairs = 0
    for start, stop, offset, end in _blocks(len(units), group):
        cosines = single[start:stop] @ single[offset:end].T
        if start == offset:
            np.fill_diagonal(cosines, 0.0)
        # Maximum and minimum are several times faster than the index of the largest absolute value.
        largest = max(float(cosines.max()), -float(cosines.min()))
        if largest > best:
            row, column = divmod(int(np.abs(cosines).argmax()), cosines.shape[1])
            best = largest
            at = (start + row, offset + column)
        size = stop - start
        width = end - offset
        pairs += size * (size - 1) // 2 if start == offset else size * width
    return MostSimilarPair(min(1.0, abs(float(units[at[0]] @ units[at[1]]))), min(at), max(at), pairs)


def _blocks(count: int, group: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield pairs of blocks of rows such that each pair of rows of one group is in exactly one pair of blocks.

    A pair of blocks is (start, stop, start, stop). A group is `group` consecutive rows out of `count` rows.
    """
    for low in range(0, count, group):
        high = min(count, low + group)
        for start in range(low, high, _BLOCK):
            for offset in range(start, high, _BLOCK):
                yield start, min(high, start + _BLOCK), offset, min(high, offset + _BLOCK)


def _evened(vectors: Floats) -> Floats:
    """Return vectors, (number, dimension), whitened if their spread differs between directions by more than chance.

    Unequal spread makes all vectors similar although none was copied.
    """
    count, dimensions = vectors.shape
    spreads, axes = np.linalg.eigh(vectors.T @ vectors / count)
    usual = (1 + math.sqrt(dimensions / count)) ** 2 + 10 / math.sqrt(count)
    if count <= dimensions or spreads[-1] <= max(1.0, float(np.median(spreads))) * usual:
        return vectors
    return np.asarray(vectors @ axes / np.sqrt(np.maximum(spreads, 1e-12 * spreads[-1])))


def repeated_noise(measurements: NoiseMeasurements) -> TestResult:
    """Test whether noise was used more than once: by vectors, by values, and by sums over trials and over rounds."""
    questions = (used_twice, equal_values, shared_over_trials, shared_over_rounds)
    return clearest_of(TestName.REPEATED_NOISE, [partial(question, measurements) for question in questions])


def correlated_noise(measurements: NoiseMeasurements) -> TestResult:
    """Test whether noise depends on other noise: between coordinates, between rounds in a row, and by its size."""
    questions = (copied_places, joint_places, serial_correlation, even_sizes, carried_sizes)
    return clearest_of(TestName.CORRELATED_NOISE, [partial(question, measurements) for question in questions])


def used_twice(measurements: NoiseMeasurements, level: float) -> Look:
    """Test whether noise was repeated, by the largest absolute cosine over all pairs of rounds.

    The two rounds of a pair may be of the same trial or of different trials. The noise of a round is represented by its
    projections on public random directions. Let c be the largest absolute cosine, m the number of pairs, and p the
    exact probability that the absolute cosine of one pair is at least c under the claim. The p-value is 1 - (1 - p)^m.
    Cosines are only pairwise independent. At the level of the test, however, the p-value differs from the Bonferroni
    bound m p by a ten-thousandth only.
    """
    unscaled = measurements.noise.projections
    only_if(unscaled.shape[-1] > 0 and not np.isnan(unscaled).any(), NotTestedReason.NO_DIRECTIONS)
    projections = unscaled / measurements.sigma[..., None]
    dimensions = projections.shape[-1]
    count = measurements.trials * measurements.rounds
    only_if(min(dimensions, count) >= 2, NotTestedReason.TOO_FEW)
    pair = _likest_pair(_evened(projections.reshape(count, dimensions)))
    critical = cosine_at(level / pair.pairs, dimensions)
    (trial, number), (other_trial, later) = (divmod(index, measurements.rounds) for index in (pair.first, pair.second))
    location = f"trial {trial} round {number + 1} and trial {other_trial} round {later + 1}"
    return _look_at_largest_cosine("used-twice", pair, dimensions, critical, critical, location, {"pairs": pair.pairs})


def _look_at_largest_cosine(
    question: str,
    pair: MostSimilarPair,
    dimensions: int,
    claimed: float,
    limit: float,
    location: str,
    details: dict[str, int],
) -> Look:
    """Return a look at the largest absolute cosine over all pairs of vectors with `dimensions` coordinates."""
    # The probability that at least one of so many independent events occurs, each with the probability `tail`.
    tail = cosine_tail(pair.cosine, dimensions)
    p_value = -math.expm1(pair.pairs * math.log1p(-tail)) if tail < 1 else 1.0
    return Look(question, pair.cosine, p_value, pair.cosine, claimed, limit, location, details)


def copied_places(measurements: NoiseMeasurements, level: float) -> Look:
    """Test for copied coordinates by the largest absolute correlation between two sampled coordinates of the model.

    The correlation is the cosine of the coordinates' noise over all rounds of all trials. The p-value is computed as in
    the question `used_twice`.
    """
    vectors = _by_coordinate(measurements)
    size, draws = vectors.shape
    pair = _likest_pair(vectors)
    limit = detectable_cosine(level / pair.pairs, draws)
    first, second = (measurements.noise.places[at] for at in (pair.first, pair.second))
    location = f"coordinates {first[0]} ({first[1]}) and {second[0]} ({second[1]})"
    return _look_at_largest_cosine("two-places", pair, draws, 0.0, limit, location, {"places": size})


def _by_coordinate(measurements: NoiseMeasurements) -> Floats:
    """Return the sampled noise with one row per coordinate, (coordinates, trials * rounds)."""
    vectors = measurements.even_sample.reshape(-1, measurements.even_sample.shape[-1]).T
    only_if(vectors.shape[0] >= 2 and vectors.shape[1] >= _FEWEST_DRAWS, NotTestedReason.TOO_FEW)
    return vectors


def joint_places(measurements: NoiseMeasurements, level: float) -> Look:
    """Test whether many coordinates of the noise are slightly correlated, by all pairs of sampled coordinates.

    For each pair, the squared correlation of its two coordinates over all rounds of all trials is taken. The statistic
    is the sum over pairs, and the test is two-sided.

    Noise from low-discrepancy sequences, which fill space evenly, makes the sum too small. With n rounds in all trials
    together, each squared correlation has mean 1/n and variance 2 (n - 1) / (n^2 (n + 2)), and any two are
    uncorrelated. The p-value is from a shifted gamma distribution with the exact mean, variance and third cumulant:
    with more coordinates than rounds, the upper tail is far heavier than a normal one.
    """
    vectors = _by_coordinate(measurements)
    coordinates, draws = vectors.shape
    only_if(draws >= _FEWEST_JOINT_DRAWS, NotTestedReason.TOO_FEW)
    units = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-300)
    cosines = units @ units.T
    pairs = coordinates * (coordinates - 1) // 2
    total = draws * (float(np.sum(np.square(cosines))) - float(np.sum(np.square(np.diag(cosines))))) / 2
    variance = 2 * (draws - 1) / (draws + 2)
    degrees, scale, start = _joint_distribution(coordinates, draws)
    above = float(np.maximum(0.0, total - start)) / scale
    lower, upper = float(gammainc(degrees, above)), float(gammaincc(degrees, above))
    spread = math.sqrt(variance / pairs)
    reach = detectable_deviation(level / 2)
    p_value = bonferroni(2, float(np.minimum(lower, upper)))
    size = math.sqrt(total / pairs / draws)
    claimed = math.sqrt(1 / draws)
    limit = math.sqrt(reach * spread / draws)
    return Look("all-places", total / pairs, p_value, size, claimed, limit, more={"pairs": pairs})


def _joint_distribution(size: int, draws: int) -> tuple[float, float, float]:
    """Return shape, scale and location of a gamma distribution that approximates the statistic of `joint_places`.

    The statistic is the sum of n cos^2 over all pairs of `size` independent normal vectors of dimension n = `draws`.
    The gamma distribution has its mean, variance and third cumulant.
    """
    pairs = size * (size - 1) / 2
    variance = 2 * (draws - 1) / (draws + 2)
    third = pairs * 4 * variance * (draws - 2) / (draws + 4)
    third += 24 * math.comb(size, 3) * (draws - 1) / (draws + 2) ** 2
    scale = third / (2 * pairs * variance)
    degrees = pairs * variance / scale**2
    return degrees, scale, pairs - degrees * scale


def equal_values(measurements: NoiseMeasurements, level: float) -> Look:
    """Test for copied values anywhere in a run by the number of pairs of sampled noise values that are nearly equal.

    Two values are nearly equal if their absolute values differ by at most t, a few millionths of the claimed noise. The
    number of such pairs among N values has the mean N (N - 1) t / sqrt(pi) and the variance of a U-statistic. The
    p-value is the larger of two upper tails: of a scaled Poisson distribution, exact if few pairs are expected, and of
    a gamma distribution, which has twice the skewness. Uniform random numbers as wide as a rounding step are added to
    the values, because rounding makes more of them equal than chance does.
    """
    pairs = equal_pairs(measurements.even_sample, float(np.max(measurements.noise.grain)))
    only_if(pairs.close <= _LARGEST_CLOSE, NotTestedReason.ROUNDING)
    only_if(pairs.mean >= 20, NotTestedReason.TOO_FEW)
    spread = math.sqrt(pairs.variance)
    limit = min(1.0, detectable_deviation(level) * spread / pairs.count)
    statistic = (pairs.pairs - pairs.mean) / spread
    details = {"close": pairs.close, "values": pairs.count}
    return Look("equal-values", statistic, pairs.p_value, pairs.pairs, pairs.mean, limit, more=details)


@dataclass(frozen=True)
class EqualPairs:
    """Number of pairs of noise values that are nearly equal, and what is expected of independent values."""

    pairs: float
    mean: float
    variance: float
    p_value: float
    close: float  # difference up to which two values are nearly equal
    count: int  # number of values


def equal_pairs(values: Floats, grain: float) -> EqualPairs:
    """Return the pairs of nearly equal values, up to signs, of noise over its scale; `grain` is a step of rounding."""
    close = max(_CLOSE, 2 * grain)
    steps = generator(0, Purpose.DITHER).uniform(-0.5, 0.5, values.size) * grain
    ranked = np.sort(np.abs(values.reshape(-1) + steps))
    count = ranked.size
    pairs = float(np.sum(np.searchsorted(ranked, ranked + close, side="right") - np.arange(1, count + 1)))
    # Mean and variance follow from the integrals of f^2 and f^3, with f the density of |N(0, 1)|.
    second = 1 / math.sqrt(math.pi)
    third = 2 / (math.pi * math.sqrt(3))
    chance = 2 * close * second
    covariance = 4 * close**2 * (third - second**2)
    all_pairs = count * (count - 1) / 2
    mean = all_pairs * chance
    variance = all_pairs * (2 * (count - 2) * covariance + chance * (1 - chance))
    if pairs <= 0 or mean <= 0:
        return EqualPairs(pairs, mean, variance, 1.0, close, count)
    stretch = variance / mean
    tails = gammainc(pairs / stretch, mean / stretch), chdtrc(2 * mean / stretch, 2 * (pairs - 0.5) / stretch)
    return EqualPairs(pairs, mean, variance, float(max(tails)), close, count)
