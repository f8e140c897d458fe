"""The limit of detection of the signal: how much a target could contribute unnoticed, in units of the claim.

The claim lets a target contribute once, within the clipping norm. A target that counts k times shifts the noise along
its contribution by k - 1 lengths of that contribution. The smallest shift that is found follows from the distribution
of the test, before the run as well as after it. In units of the claim it is the same for every target, however small
its contribution: a target whose contribution is shorter than the norm may count more often before it breaks the claim.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import chdtrc, ndtr, ndtri, stdtrit

from fl_audit.array_types import Floats, finite
from fl_audit.root_finding import smallest_number
from fl_audit.statistics.shift_bound import noncentrality_at
from fl_audit.verdict.multiple_testing import DETECTION_POWER, TestName
from fl_audit.verdict.noise_estimate import BREACH
from fl_audit.verdict.noise_scale import chi_square_quantile
from fl_audit.verdict.run_measurements import EVIDENT

RARE_TIMES, RARE_SHARE = 5.0, 0.02
"""The rare breach for which every run states its limit of detection: five times in 2 % of the trainings."""

_MOST_TRIALS = 2**40
_MOST_NEEDED = 2**100  # far more trials than feasible, yet reported where the noise hides everything
_MOST_FREEDOM = 10**6  # with so many degrees of freedom Student's t is normal


@dataclass(frozen=True)
class TargetDrift:
    """The drift along a target: a sum of noise, N(0, 1) times the scale of the noise if the target counts once."""

    value: float  # the sum over the claimed noise
    rest: float  # sum of squares of the noise orthogonal to it, over the claimed variance
    freedom: int  # degrees of freedom of `rest`
    unit: float  # by how much the sum grows for each time more that the target counts; positive
    # By how much the sum grows for each clipping norm that the target contributes in addition to every round; None
    # means the same as `unit`.
    claimed: float | None = None

    @property
    def scale(self) -> float:
        """The ratio of the measured to the claimed noise."""
        return math.sqrt(self.rest / self.freedom)

    @property
    def student(self) -> float:
        """Student's t of the sum."""
        if self.rest > 0:
            return self.value / self.scale
        return math.copysign(math.inf, self.value) if self.value else 0.0


@dataclass(frozen=True)
class SignalDetectionLimit:
    """The limit of detection for a target that counts more than once in the released sums."""

    # Number of times that a target as long as the clipping norm has to count to be found with `DETECTION_POWER`; 1 is
    # the claim, infinite where nothing is found.
    limit: float = math.inf
    # Number of times that the target of this run, whose contributions may be shorter than the clipping norm, has to
    # count to be found.
    times: float = math.inf
    # Number of trials, with rounds like these, from which a limit of 1.5 is reached; None if no number is enough.
    trials_needed: int | None = None
    # Number of trials that are needed for a target that counts `RARE_TIMES` in a share `RARE_SHARE` of the trainings,
    # and once in the others; None if no number is enough.
    rare_trials: int | None = None
    # Number of times that the target counts by measurement; NaN before a run or without a measurement.
    counted: float = math.nan

    @property
    def conclusive(self) -> bool:
        """Whether a target as long as the clipping norm that counts 1.5 times would have been found."""
        return self.limit <= BREACH

    def to_json(self) -> dict[str, Any]:
        """Return the limit as JSON values; a value that is infinite or was not measured is None."""
        return {
            "counted": finite(self.counted),
            "limit_of_detection": finite(self.limit),
            "times_of_target": finite(self.times),
            "conclusive": self.conclusive,
            "trials_needed": self.trials_needed,
            "rare": {"times": RARE_TIMES, "share": RARE_SHARE, "trials_needed": self.rare_trials},
        }


def detectable_shift(freedom: int, level: float) -> float:
    """Return the shift of a normal sum, in standard deviations, that Student's t finds with `DETECTION_POWER`.

    Parameters
    ----------
    freedom
        Degrees of freedom of the spread, at least 1.
    level
        Level of the upper tail, above 0 and below 0.5.

    Examples
    --------
    >>> round(detectable_shift(10_000, 2e-4), 2)
    4.82
    """
    critical = -float(stdtrit(freedom, level))
    return noncentrality_at(1 - DETECTION_POWER, critical, freedom)


def limit_of(drift: TargetDrift, level: float, unit: float) -> float:
    """Return the number of times that the target has to count for a test of its drift to find it, possibly infinite.

    Parameters
    ----------
    drift
        Measured drift along the target. Where its noise is significantly above the claim, the limit grows in
        proportion.
    level
        Level of the test.
    unit
        Increase of the drift for each further time that the target counts.
    """
    is_louder = chdtrc(drift.freedom, drift.rest) < EVIDENT
    scale = drift.scale if is_louder else 1.0
    return 1 + scale * detectable_shift(drift.freedom, level) / unit if unit > 0 else math.inf


def signal_limit(drift: TargetDrift | None, lengths: Floats, trials: int, level: float) -> SignalDetectionLimit:
    """Return the limit of detection for a target that counts more than once in the sum, after a run.

    Parameters
    ----------
    drift
        Drift along the target over the run; None where it was not measured.
    lengths
        Shift of the standardised drift of each trial for each further time that the target counts, shape (trials,); 0
        in trials without the target.
    trials
        Number of trials.
    level
        Level of the test for drift.
    """
    if drift is None or drift.freedom < 2 or drift.unit == 0:
        return SignalDetectionLimit()
    # A target whose contribution exceeds the norm, which no claim allows, takes the place of the norm.
    limits = [limit_of(drift, level, unit) for unit in (max(drift.claimed or 0.0, drift.unit), drift.unit)]
    held = lengths[lengths > 0]
    each = math.sqrt(float(np.mean(np.square(held)))) if held.size else 0.0
    found = _limits(limits[0], trials, drift.freedom, level, each, held.size / trials)
    return replace(found, times=limits[1], counted=1 + drift.value / drift.unit)


def planned_signal(trials: int, rounds: float, length: float, share: float) -> SignalDetectionLimit:
    """Return the limit of detection before a run, for a target whose contributions are as long as the clipping norm.

    Parameters
    ----------
    trials
        Number of trials.
    rounds
        Mean number of rounds of a trial in which the target takes part.
    length
        Clipping norm over the standard deviation of the noise, positive.
    share
        Share of the trials in which the target contributes.
    """
    count = max(3, round(trials * rounds * share))
    unit = length * math.sqrt(trials * rounds * share)
    level = TestName.SIGNAL.level
    times = 1 + detectable_shift(count - 1, level) / unit
    return _limits(times, trials, count - 1, level, length * math.sqrt(rounds), share)


def _limits(limit: float, trials: int, freedom: int, level: float, each: float, share: float) -> SignalDetectionLimit:
    """Return the limits for a drift whose shift grows with the root of the number of trials.

    For the number of trials needed, the degrees of freedom grow with the trials, too: with those of a small run, the
    number would come out far too large.
    """
    if not math.isfinite(limit):
        return SignalDetectionLimit()
    found = detectable_shift(freedom, level)

    def is_enough(number: int) -> bool:
        known = min(_MOST_FREEDOM, max(2, round((freedom + 1) * number / trials) - 1))
        shift = detectable_shift(known, level) / found
        return (limit - 1) * shift * math.sqrt(trials / number) <= (BREACH - 1) * (1 + 1e-9)

    return SignalDetectionLimit(limit, limit, smallest_number(is_enough, _MOST_NEEDED), _rare(each, share))


def _rare(each: float, share: float) -> int | None:
    """Return the number of trials from which `signal_trial` finds the rare breach; None if no number does."""
    shift, affected = (RARE_TIMES - 1) * each, RARE_SHARE * share
    return smallest_number(lambda trials: rare_power(trials, shift, affected) >= DETECTION_POWER, _MOST_TRIALS)


def rare_power(trials: int, shift: float, share: float) -> float:
    """Return the approximate power of `signal_trial` when only a share of the trials is shifted.

    Parameters
    ----------
    trials
        Number of trials, at least 1.
    shift
        Shift of a shifted trial in standard deviations.
    share
        Probability with which a trial is shifted.
    """
    level = TestName.SIGNAL_TRIAL.level / 2
    found = share * float(ndtr(shift + ndtri(level / 2 / trials)))
    by_largest = -math.expm1(trials * math.log1p(-found))
    mean, fourth = 1 + share * shift**2, 3 + share * (6 * shift**2 + shift**4)
    spread = math.sqrt(trials * (fourth - mean**2))
    by_spread = float(ndtr((trials * mean - chi_square_quantile(1 - level, trials)) / spread))
    return max(by_largest, by_spread)
