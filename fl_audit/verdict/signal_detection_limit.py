"""Compute the limit of detection: how often released sums must contain a target's contribution for tests to find it.

The claim lets a target, the unit in which D and D' differ, contribute once, within the clipping norm. A target counts k
times if the sums contain its contribution k times. This shifts the noise along its contribution by k - 1 lengths of
that contribution. The smallest shift that is found follows from the distribution of the test, so it can be computed
before a run and after it. A target with a norm below the clipping norm may count more often before it breaks the claim.
So a second limit is stated for a target whose contribution has the clipping norm.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import chdtrc, ndtr, ndtri

from fl_audit.array_types import Floats, finite
from fl_audit.root_finding import smallest_number
from fl_audit.verdict.declared_tests import DETECTION_POWER, TestName
from fl_audit.verdict.noise_estimate import BREACH
from fl_audit.verdict.noise_scale import chi_square_quantile
from fl_audit.verdict.null_distributions import detectable_shift
from fl_audit.verdict.run_measurements import EVIDENT
from fl_audit.words import rounded_up

RARE_TIMES = 5.0
RARE_SHARE = 0.02
"""The rare breach for which every run states its limit of detection: five times in 2 % of the trainings."""

_MOST_TRIALS = 2**40
_MOST_NEEDED = 2**100  # far more trials than feasible, yet reported where the noise hides everything
_RESERVE = 1.3  # over the root of the trials: three standard deviations of the estimated `trials_needed`, as measured
_MOST_FREEDOM = 10**6  # with so many degrees of freedom Student's t is normal


@dataclass(frozen=True)
class NoiseSumAlongTarget:
    """Noise in the direction of a target's contributions, summed over the run.

    The sum is standardised: it is normal with mean (k - 1) `unit` if the target counts k times. Its standard deviation
    is the ratio of the real to the claimed standard deviation of the noise.
    """

    value: float  # the sum of the noise, divided by the claimed standard deviation
    rest: float  # sum of squares of the noise orthogonal to the drift, over the claimed variance
    freedom: int  # degrees of freedom of `rest`
    unit: float  # growth of the sum with every further time that the target counts; positive
    # By how much the sum grows if the target's contribution to every round grows by one clipping norm; None means the
    # value of `unit`.
    claimed: float | None = None

    @property
    def scale(self) -> float:
        """Ratio of the measured to the claimed standard deviation of the noise."""
        return math.sqrt(self.rest / self.freedom)

    @property
    def student(self) -> float:
        """Student's t statistic of the drift: `value` divided by `scale`.

        If there is no noise orthogonal to the drift (`rest` is 0), the statistic is infinite, or 0 if `value` is 0 too.
        """
        if self.rest > 0:
            return self.value / self.scale
        return math.copysign(math.inf, self.value) if self.value else 0.0


@dataclass(frozen=True)
class SignalDetectionLimit:
    """Limits of detection: how often a target must count in the released sums for a test to find it.

    A target counts k times if the sums contain its contribution k times; the claim allows k = 1.
    """

    # Number of times that a target that contributes the clipping norm must count to be found with `DETECTION_POWER`.
    # The claim is 1. Infinite where nothing is found.
    limit: float = math.inf
    # Number of times that the target of this run, whose contributions may be smaller than the clipping norm, must count
    # to be found.
    times: float = math.inf
    # Number of trials, with as many rounds, from which `limit` is at most 1.5; None if no number is enough.
    trials_needed: int | None = None
    # Number of trials that are needed for a target that counts `RARE_TIMES` in a share `RARE_SHARE` of the trainings,
    # and once in the others; None if no number is enough.
    rare_trials: int | None = None
    # Number of times that the target counts, as measured; NaN before a run or without a measurement.
    counted: float = math.nan
    # `trials_needed` with a reserve, since it is estimated from the contributions of a run, whose lengths vary; rounded
    # up to two significant digits. None before a run, or if no number is enough.
    trials_with_reserve: int | None = None

    @property
    def conclusive(self) -> bool:
        """True if the test would find, with probability 0.9, a target that counts 1.5 times with the clipping norm."""
        return self.limit <= BREACH

    def to_json(self) -> dict[str, Any]:
        """Return these limits as a dictionary for `summary.json`; a value is None if infinite or not measured."""
        return {
            "counted": finite(self.counted),
            "limit_of_detection": finite(self.limit),
            "times_of_target": finite(self.times),
            "conclusive": self.conclusive,
            "trials_needed": self.trials_needed,
            "rare": {"times": RARE_TIMES, "share": RARE_SHARE, "trials_needed": self.rare_trials},
        }


def limit_of(noise_sum: NoiseSumAlongTarget, unit: float) -> float:
    """Return how often a target's contribution must count in the released sums for the test of the drift to find it.

    The result is the smallest such number k, from 1; infinite if `unit` is 0. If the noise is significantly larger than
    claimed, k - 1 grows in proportion to the noise.
    """
    is_louder = chdtrc(noise_sum.freedom, noise_sum.rest) < EVIDENT
    scale = noise_sum.scale if is_louder else 1.0
    return 1 + scale * detectable_shift(noise_sum.freedom, TestName.SIGNAL.level) / unit if unit > 0 else math.inf


def signal_limit(noise_sum: NoiseSumAlongTarget | None, lengths: Floats, trials: int) -> SignalDetectionLimit:
    """Return how many times sums must contain a target's contribution so that the tests of a finished run detect it.

    The result also has the number of times that was measured in the run. If nothing was measured, all limits are
    infinite.

    Shapes: `lengths` (trials,).

    `lengths`: It is 0 in trials without the target.
    """
    if noise_sum is None or noise_sum.freedom < 2 or noise_sum.unit == 0:
        return SignalDetectionLimit()
    # A target whose contribution exceeds the norm, which no claim allows, takes the place of the norm.
    limits = [limit_of(noise_sum, unit) for unit in (max(noise_sum.claimed or 0.0, noise_sum.unit), noise_sum.unit)]
    positive_lengths = lengths[lengths > 0]
    typical_length = math.sqrt(float(np.mean(np.square(positive_lengths)))) if positive_lengths.size else 0.0
    limit = _limits(limits[0], trials, noise_sum.freedom, typical_length, positive_lengths.size / trials)
    reserve = 1 + _RESERVE / math.sqrt(trials)
    advised = None if limit.trials_needed is None else rounded_up(reserve * limit.trials_needed)
    return replace(limit, times=limits[1], counted=1 + noise_sum.value / noise_sum.unit, trials_with_reserve=advised)


def planned_signal(trials: int, rounds: float, length: float, share: float) -> SignalDetectionLimit:
    """Compute before a run how often the released sums must contain a target's contribution for a test to find it.

    The contribution is assumed to have the clipping norm.
    """
    count = max(3, round(trials * rounds * share))
    unit = length * math.sqrt(trials * rounds * share)
    times = 1 + detectable_shift(count - 1, TestName.SIGNAL.level) / unit
    return _limits(times, trials, count - 1, length * math.sqrt(rounds), share)


def _limits(limit: float, trials: int, freedom: int, typical_length: float, share: float) -> SignalDetectionLimit:
    """Return a run's limits of detection: how large the target's contribution must be to be noticed as too large.

    `limit` is the smallest multiple of the target's permitted contribution that the run would have found.
    `typical_length` is by how much the standardised noise of one trial shifts if the target contributes once more.
    `share` is the share of the trials that contain the target, and `freedom` the number of degrees of freedom.
    """
    if not math.isfinite(limit):
        return SignalDetectionLimit()
    shift_of_run = detectable_shift(freedom, TestName.SIGNAL.level)

    def is_enough(number: int) -> bool:
        freedom_known = min(_MOST_FREEDOM, max(2, round((freedom + 1) * number / trials) - 1))
        shift = detectable_shift(freedom_known, TestName.SIGNAL.level) / shift_of_run
        return (limit - 1) * shift * math.sqrt(trials / number) <= (BREACH - 1) * (1 + 1e-9)

    return SignalDetectionLimit(limit, limit, smallest_number(is_enough, _MOST_NEEDED), _rare(typical_length, share))


def _rare(typical_length: float, share: float) -> int | None:
    """Return the number of trials that `signal_trial` needs to find the rare breach; None if no number is enough.

    In the rare breach, the target counts 5 times in 2 % of the trials in which it is in. `typical_length` is the shift
    of a trial's score if the target counts once more, and `share` is the share of trials with the target.
    """
    shift = (RARE_TIMES - 1) * typical_length
    affected = RARE_SHARE * share
    return smallest_number(lambda trials: rare_power(trials, shift, affected) >= DETECTION_POWER, _MOST_TRIALS)


def rare_power(trials: int, shift: float, share: float) -> float:
    """Return the approximate power of the test `signal_trial` if the noise is shifted in only some of the trials.

    The test asks whether a trial's noise along the target's contribution, summed over its rounds, is too large.
    """
    level = TestName.SIGNAL_TRIAL.level / 2
    power = share * float(ndtr(shift + ndtri(level / 2 / trials)))
    by_largest = -math.expm1(trials * math.log1p(-power))
    mean = 1 + share * shift**2
    fourth = 3 + share * (6 * shift**2 + shift**4)
    spread = math.sqrt(trials * (fourth - mean**2))
    by_spread = float(ndtr((trials * mean - chi_square_quantile(1 - level, trials)) / spread))
    return max(by_largest, by_spread)
