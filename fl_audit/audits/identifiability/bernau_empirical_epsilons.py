"""The three empirical epsilons of section 5.3 of Bernau et al. 2021, each a point estimate with an interval.

None of the estimates is a lower bound on the epsilon of the mechanism; for lower bounds see
`fl_audit.statistics.lower_bounds`. The note of each estimate says what its interval means. Equation numbers are those
of the paper.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import assert_never

import numpy as np
from scipy.special import betaincinv, ndtri

from fl_audit.array_types import Floats
from fl_audit.errors import require
from fl_audit.privacy.accounting import account, epsilon_of_mu
from fl_audit.privacy.claim import Claim
from fl_audit.privacy.events import (
    GaussianRelease,
    LaplaceRelease,
    RandomizedResponse,
    ReleaseEvent,
    SampledGaussianRelease,
)
from fl_audit.privacy.gaussian import require_delta, require_mu
from fl_audit.privacy.identifiability_bounds import epsilon_from_advantage
from fl_audit.statistics.advantage import clopper_pearson
from fl_audit.value_checks import require_number


@dataclass(frozen=True)
class EmpiricalEpsilonEstimate:
    """One of the three empirical epsilons of Bernau et al. 2021, with an interval."""

    epsilon: float  # the point estimate, at least 0; infinite for an advantage of 1
    low: float  # lower end of the interval, at least 0
    high: float  # upper end of the interval, which may be infinite
    confidence: float  # confidence of the interval; 1 if the interval is a range of exact values
    note: str  # one or more sentences on the meaning of the interval


def epsilon_from_measured_advantage(advantage: float, delta: float) -> float:
    """Return the epsilon that Eq. (6) of Bernau et al. 2021 gives for a measured advantage.

    This is variant (iii) of section 5.3. The result is 0 for an advantage of at most 0.

    `delta`: (6), above 0 and below 1.
    """
    require_number("advantage is", advantage, "numbers from -1 to 1")
    require_delta(delta)
    if advantage <= 0:
        return 0.0
    return epsilon_from_advantage(advantage, delta) if advantage < 1 else math.inf


def sensitivity_interval(signal: Floats, claim: Claim) -> EmpiricalEpsilonEstimate:
    """Return the largest and the smallest epsilon over the trials, each computed from the trial's local sensitivities.

    The method is variant (i) in section 5.3 of Bernau et al. 2021. The estimate is the largest epsilon over the trials,
    and the interval is the range over the trials. Without sampling, the rounds of a trial compose to Gaussian DP with
    mu = sqrt(sum of mu_i^2). With sampling, the claimed releases are accounted with another noise multiplier: the
    claimed one, times the claimed sensitivity, divided by the root mean square of the observed sensitivity over the
    rounds. With other noise than Gaussian, the rounds are accounted with their own sensitivities, in the trials with
    the largest and the smallest sum of them.

    Shapes: `signal` (trials, rounds).
    """
    require(signal.ndim == 2 and signal.size > 0, f"signal has shape {signal.shape}: accepted is (trials, rounds)")
    wrong = ~(np.isfinite(signal) & (signal >= 0))
    require(not wrong.any(), f"signal is {next(iter(signal[wrong]), None)}: accepted are finite numbers from 0")
    largest, smallest = _largest_and_smallest(signal, claim)
    note = "Smallest and largest over the trials played: bookkeeping of what was released, not an estimate."
    return EmpiricalEpsilonEstimate(largest, smallest, largest, 1.0, note)


def _largest_and_smallest(signal: Floats, claim: Claim) -> tuple[float, float]:
    """Return the largest and the smallest epsilon over the trials of a signal, (trials, rounds)."""
    squares = np.sum(np.square(signal, dtype=np.float64), axis=1)
    if claim.profile.gaussian_mu is not None:
        mus = np.sqrt(squares)
        largest, smallest = (epsilon_of_mu(claim.accountant, float(mu), claim.delta) for mu in (mus.max(), mus.min()))
        return largest, smallest
    release = claim.events[0]
    match release:
        case LaplaceRelease() if all(type(event) is type(release) for event in claim.events):
            sums = signal.sum(axis=1)
            trials = [
                [replace(release, sensitivity=float(ratio), scale=1.0, count=1) for ratio in signal[row] if ratio > 0]
                for row in (sums.argmax(), sums.argmin())
            ]
            largest, smallest = (_epsilon_of_rounds(rounds, claim) for rounds in trials)
        case LaplaceRelease() | GaussianRelease() | SampledGaussianRelease() | RandomizedResponse():
            means = np.sqrt(squares / np.maximum(np.count_nonzero(signal, axis=1), 1))
            largest, smallest = (_sampled_epsilon(float(mean), claim) for mean in (means.max(), means.min()))
        case _:
            assert_never(release)
    return largest, smallest


def _epsilon_of_rounds(releases: Sequence[ReleaseEvent], claim: Claim) -> float:
    """Return the epsilon of the releases of the rounds that released something about the unit."""
    if not releases:
        return 0.0
    return account(replace(claim, events=tuple(releases)).profile, claim.accountant, claim.delta)


def _sampled_epsilon(signal: float, claim: Claim) -> float:
    """Return the epsilon of the claim's releases if the noise had `signal` as sensitivity over standard deviation."""
    z = claim.noise_over_sensitivity
    if signal == 0 or z is None:
        return 0.0
    return account(claim.with_noise(1 / (signal * z)).profile, claim.accountant, claim.delta)


def belief_interval(log_odds: Floats, confidence: float, mu: float | None = None) -> EmpiricalEpsilonEstimate:
    """Return the largest log-odds of the true data set over all trials, at least 0, with an interval.

    This is variant (ii) of section 5.3 of Bernau et al. 2021: Eq. (5) at the largest posterior belief. It is computed
    from log-odds because beliefs round to 1. The largest of n log-odds grows with n, so the interval is not an interval
    of the mechanism's epsilon.

    If `mu` is given, the log-odds of a trial are distributed as N(mu^2/2, mu^2). The interval then contains the largest
    of n log-odds with probability `confidence`. Its ends are the quantiles mu^2/2 + mu Phi^-1(p^(1/n)) at p = (1 -
    confidence)/2 and at p = (1 + confidence)/2. Without `mu`, the upper end is infinite. The lower end is then a lower
    confidence bound on the median of the largest of n, from order statistics.

    Shapes: `log_odds` (trials,).

    `mu`: It is the square root of the sum over rounds of (Delta_i / sigma_i)^2, where Delta_i is the local sensitivity
    and sigma_i the noise.
    """
    require(log_odds.size > 0, "number of trials is 0: accepted are whole numbers from 1")
    require(bool(np.all(np.isfinite(log_odds))), "log-odds contain NaN or infinity: accepted are finite numbers")
    require_number("confidence is", confidence, "numbers above 0 and below 1")
    largest = max(0.0, float(np.max(log_odds)))
    trials = int(log_odds.size)
    warning = "The largest belief is an extreme value: it grows with the number of trials and converges to nothing."
    if mu is None:
        # The lower end is the highest order statistic that is at most the quantile of order p = 2^(-1/n), with the
        # given confidence, or 0. The r-th smallest of n is, where P(Binomial(n, p) >= r) = P(Beta(r, n - r + 1) <= p)
        # reaches the confidence.
        rank = np.arange(1, trials + 1)
        covered = betaincinv(rank, trials - rank + 1, confidence) <= 0.5 ** (1 / trials)
        low = max(0.0, float(np.sort(log_odds)[covered][-1])) if np.any(covered) else 0.0
        note = (
            f"{warning} The interval is of the median of the largest of {trials}, open above without a known "
            "distribution."
        )
        return EmpiricalEpsilonEstimate(largest, low, math.inf, confidence, note)
    require_mu(mu)
    tail = (1 - confidence) / 2
    # The upper end 1 - (1 - tail)^(1/n) is small, so it is computed without cancellation.
    ends = (float(ndtri(math.exp(math.log(tail) / trials))), -float(ndtri(-math.expm1(math.log1p(-tail) / trials))))
    low, high = (max(0.0, mu * mu / 2 + mu * end) for end in ends)
    note = (
        f"{warning} The interval is where the largest of {trials} falls if the log-odds follow their exact "
        "distribution."
    )
    return EmpiricalEpsilonEstimate(largest, low, high, confidence, note)


def advantage_interval(wins: int, trials: int, delta: float, confidence: float) -> EmpiricalEpsilonEstimate:
    """Return the epsilon that Eq. (6) of Bernau et al. 2021 gives for the measured advantage, with an interval.

    The interval is Eq. (6) at the ends of the Clopper-Pearson interval of the advantage.

    `delta`: (6), above 0 and below 1.

    Examples
    --------
    >>> found = advantage_interval(613, 1000, 0.01, 0.95)
    >>> round(found.low, 2), round(found.epsilon, 2), round(found.high, 2)
    (1.29, 1.78, 2.28)
    """
    ends = clopper_pearson(wins, trials, confidence)
    epsilons = [epsilon_from_measured_advantage(2 * p - 1, delta) for p in (ends[0], wins / trials, ends[1])]
    note = (
        "Clopper-Pearson interval of the share of trials won, through Eq. (6) of the paper, which describes noise "
        "calibrated by Eq. (1): elsewhere it is no interval of the mechanism's epsilon."
    )
    return EmpiricalEpsilonEstimate(epsilons[1], epsilons[0], epsilons[2], confidence, note)
