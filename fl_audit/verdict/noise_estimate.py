"""Estimate the ratio of the real to the claimed noise, and the epsilon that follows from it.

The module also computes limits of detection, the smallest breaches that a finished or planned run would reveal.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from fl_audit.errors import InputError
from fl_audit.mechanisms.noises.mechanism_noise import MechanismNoise
from fl_audit.privacy.accounting import Accountant
from fl_audit.privacy.accounting_enums import NoiseDistribution
from fl_audit.privacy.calibration import noise_multiplier_for
from fl_audit.privacy.claim import Claim
from fl_audit.privacy.gaussian import gdp_mu
from fl_audit.privacy.guarantee import Guarantee
from fl_audit.privacy.pld import MISPLACED_MASS
from fl_audit.privacy.targets import EpsilonTarget
from fl_audit.root_finding import smallest_number
from fl_audit.value_checks import require_number
from fl_audit.verdict.declared_tests import FAMILY_LEVEL, TestName
from fl_audit.verdict.noise_scale import SquareSum, chi_square_quantile, detectable_ratio, record_squares
from fl_audit.verdict.run_measurements import NoiseMeasurements

_ASSUMPTION = (
    "The noise along the direction in which D and D' differ is {} with one and the same ratio to the claimed noise in "
    "all rounds and trials, and neighbours exist that reach the claimed sensitivity."
)

SAMPLING_ASSUMPTION = "Who takes part is drawn as was claimed."
"""The further assumption of the lower bound on epsilon where units are sampled."""

BREACH = 1.5  # a run is conclusive where a breach of so many times the claimed epsilon would have been found


def assumption_of(claim: Claim) -> str:
    """Return the assumptions, in plain English, under which the measured noise gives a lower bound on epsilon."""
    is_gaussian = claim.distribution is NoiseDistribution.GAUSSIAN
    assumption = _ASSUMPTION.format("normal" if is_gaussian else f"{claim.distribution} noise")
    return assumption if claim.sampling_rate == 1 else f"{assumption} {SAMPLING_ASSUMPTION}"


def mechanism_in_words(claim: Claim) -> str:
    """Return a phrase that names the distribution from which the claim's epsilon is computed.

    For Gaussian noise without sampling, it is the exact Gaussian distribution. Otherwise it is the privacy loss
    distribution of sampled releases, or of releases with other noise.
    """
    if claim.distribution is not NoiseDistribution.GAUSSIAN:
        return f"privacy loss distribution of {claim.distribution} releases"
    is_gaussian = claim.profile.gaussian_mu is not None
    return (
        "exact distribution of Gaussian noise" if is_gaussian else "privacy loss distribution of the sampled releases"
    )


@dataclass(frozen=True)
class NoiseRatioEstimate:
    """Ratios of the measured to the claimed standard deviation of the noise, with exact chi-square intervals."""

    ratio: float  # ratio in the directions orthogonal to f(D) - f(D'); NaN where not measured
    low: float  # lower end of the interval of `ratio`
    high: float  # upper end of the interval of `ratio`
    confidence: float  # confidence of each two-sided interval
    along_record: float  # ratio in the direction of f(D) - f(D'); NaN where D and D' never differed
    along_low: float  # lower end of the interval of `along_record`
    along_high: float  # upper end of the interval of `along_record`
    tensors: tuple[tuple[str, float, float, float], ...]  # name, ratio, low and high of every parameter tensor
    # The ratio, if the noise is significantly above the claim, so that accuracy is lost needlessly; otherwise None.
    excess: float | None
    # The sums of squares behind the intervals, which `ratio_interval` gives at other confidences.
    total: SquareSum | None = None
    along: SquareSum | None = None
    on_tensors: Mapping[str, SquareSum] = field(default_factory=dict)


def ratio_interval(squares: SquareSum, confidence: float) -> tuple[float, float]:
    """Return the exact two-sided interval (low, high) of the ratio of the real to the claimed standard deviation.

    Examples
    --------
    >>> from fl_audit.mechanisms.noises.registry import STANDARD_GAUSSIAN
    >>> [round(end, 3) for end in ratio_interval(SquareSum(3000.0, 3000, STANDARD_GAUSSIAN), 0.95)]
    [0.975, 1.026]
    """
    require_number("confidence is", confidence, "numbers above 0 and below 1")
    tail = (1 - confidence) / 2
    above, below = (
        squares.ratio_at(math.sqrt(squares.value / chi_square_quantile(p, squares.freedom))) for p in (1 - tail, tail)
    )
    return above, below


def estimate_noise(
    confidence: float,
    total: SquareSum | None = None,
    along: SquareSum | None = None,
    tensors: Mapping[str, SquareSum] | None = None,
) -> NoiseRatioEstimate:
    """Return the ratios of the real to the claimed noise, with their intervals, from sums of squares of the noise.

    Each sum of squares is divided by the claimed variance. None means that it was not measured.
    """
    tensor_intervals = tuple(
        (name, squares.ratio, *ratio_interval(squares, confidence)) for name, squares in (tensors or {}).items()
    )
    across = _with_interval(total, confidence)
    known_squares = total or along
    # The interval excludes 1 by chance in less than one of 1,000 runs.
    excess = (
        known_squares.ratio if known_squares and ratio_interval(known_squares, 1 - 2 * FAMILY_LEVEL)[0] > 1 else None
    )
    of_along = _with_interval(along, confidence)
    return NoiseRatioEstimate(*across, confidence, *of_along, tensor_intervals, excess, total, along, tensors or {})


def _with_interval(squares: SquareSum | None, confidence: float) -> tuple[float, float, float]:
    return (math.nan,) * 3 if squares is None else (squares.ratio, *ratio_interval(squares, confidence))


def epsilon_at(claim: Claim, ratio: float) -> float:
    """Return the epsilon, at the claim's delta, that the claimed releases would have with more or less noise.

    With adaptive clipping, the noise on the quantile bits changes by the same ratio.
    """
    return claim.with_noise(ratio).profile.epsilon(claim.delta)


def recomputed_epsilon(guarantee: Guarantee) -> float:
    """Return the epsilon of the guarantee, computed anew at its delta from its claim.

    If the accountant cannot compute epsilon because delta is too small, the result is the epsilon that the guarantee
    states.
    """
    try:
        return guarantee.claim.profile.epsilon(guarantee.delta)
    except InputError:
        return guarantee.epsilon


def epsilon_lower_bound_from_noise(measurements: NoiseMeasurements, confidence: float, claim: Claim) -> float:
    """Return a lower confidence bound on epsilon that follows from the noise measured along f(D) - f(D').

    The sensitivity is taken from the claim. Let f_high be the exact upper confidence bound on the ratio of the real to
    the claimed scale of the noise. The result is the epsilon of the claimed releases with f_high times
    their claimed noise. `assumption_of` states the assumptions.

    `measurements`: If they contain no noise along f(D) - f(D'), the bound is 0.
    """
    if (squares_found := record_squares(measurements)) is None:
        return 0.0
    lowest = chi_square_quantile(1 - confidence, squares_found.freedom)
    if squares_found.value == 0:
        return math.inf
    profile = claim.with_noise(squares_found.ratio_at(math.sqrt(squares_found.value / lowest))).profile
    if profile.gaussian_mu is not None:
        return profile.epsilon(claim.delta)
    # The discretisation of the privacy loss distribution may have added to epsilon; that is subtracted.
    return max(0.0, profile.epsilon(claim.delta + MISPLACED_MASS) - profile.error)


@dataclass(frozen=True)
class NoiseDetectionLimit:
    """The smallest breaches that the tests of the amount of noise would find with probability 0.9.

    The shares of missing noise are known for planned runs alone.
    """

    # Epsilon, at the guarantee's delta, that the test of the noise along f(D) - f(D') would find; infinite where D and
    # D' never differed.
    limit_of_detection: float
    conclusive: bool  # whether a breach of 1.5 times the claimed epsilon would have been found
    # Number of trials, with as many rounds as these had on average, from which a breach of 1.5 times the claimed
    # epsilon is found; None if D and D' never differed.
    trials_needed: int | None
    # Smallest share of the claimed noise that would be found if it were missing in the direction of f(D) - f(D'); None
    # where scores of unknown distribution are judged.
    noise_short: float | None = None
    # Smallest share of the claimed noise that would be found if it were missing in all parameters; None where this is
    # not measured.
    noise_short_in_all: float | None = None


def epsilon_limit(count: int, trials: int, guarantee: Guarantee, noise_kind: MechanismNoise) -> NoiseDetectionLimit:
    """Return the smallest epsilon that the test of the noise along f(D) - f(D') would find with probability 0.9.

    `count`: If it is 0, the limit is infinite.
    """
    if count == 0:
        return NoiseDetectionLimit(math.inf, False, None)
    ratio = breach_ratio(guarantee)
    level = TestName.NOISE_ALONG_RECORD.level
    deviation = noise_kind.residual_ratio(ratio)
    needed = smallest_number(lambda count: detectable_ratio(count, level) >= deviation, 2**52) or 2**53
    epsilon = epsilon_at(guarantee.claim, SquareSum(0.0, count, noise_kind).detectable_ratio(level))
    return NoiseDetectionLimit(epsilon, count >= needed, math.ceil(needed * trials / count))


NOTHING_PLANNED = NoiseDetectionLimit(math.inf, False, None)
"""The limits of a run whose insider has only scores of unknown distribution: no breach is sure to be found."""


def planned_limits(
    guarantee: Guarantee, trials: int, rounds: float, parameters: int | None, noise_kind: MechanismNoise
) -> NoiseDetectionLimit:
    """Return the smallest breaches that a planned run would reveal if its attack uses the exact likelihood ratio."""
    count = max(1, round(trials * rounds))
    level = TestName.NOISE_ALONG_RECORD.level
    in_all = None
    if parameters is not None and parameters > 1:
        everywhere = SquareSum(0.0, count * (parameters - 1), noise_kind)
        in_all = 1 - everywhere.detectable_ratio(TestName.NOISE_TOTAL.level)
    limit = epsilon_limit(count, trials, guarantee, noise_kind)
    along = SquareSum(0.0, count, noise_kind)
    return replace(limit, noise_short=1 - along.detectable_ratio(level), noise_short_in_all=in_all)


def breach_ratio(guarantee: Guarantee) -> float:
    """Return the ratio of real to claimed noise at which epsilon is 1.5 times the guarantee's epsilon.

    If the guarantee's epsilon is 0, the ratio is 1/1.5.
    """
    claim = guarantee.claim
    breach_epsilon = BREACH * guarantee.epsilon
    mu = claim.profile.gaussian_mu
    if breach_epsilon == 0:
        return 1 / BREACH
    if mu is not None:
        return mu / gdp_mu(breach_epsilon, claim.delta)
    return noise_multiplier_for(EpsilonTarget(breach_epsilon), replace(claim, accountant=Accountant.PLD))
