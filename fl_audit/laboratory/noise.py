"""The noise of a foreign mechanism, measured where it looks Gaussian: a reading with an assumption, which it names."""

from dataclasses import dataclass

import numpy as np
from scipy.stats import normaltest

from fl_audit.arrays import Floats
from fl_audit.confidence.shift import ShiftEstimate, gaussian_shift
from fl_audit.laboratory.claim import StatedClaim
from fl_audit.laboratory.trial import Attempt

_NORMAL_LEVEL = 0.01  # a residual whose test of normality has a smaller p-value gets no reading


@dataclass(frozen=True)
class NoiseReading:
    """What was released along the differing contribution, if its noise is Gaussian."""

    shift: float  # by how much D is ahead of D', in the model's units
    spread: float  # standard deviation of the noise there
    # `mu`, `mu_low`: shift over spread, the parameter of a Gaussian mechanism of this strength, and its lower bound.
    mu: float
    mu_low: float
    confidence: float  # of the bound, if the noise is Gaussian
    claimed_mu: float  # the largest shift over spread that the claim leaves room for, had the noise been Gaussian
    p_value: float  # of the test of normality

    @property
    def ratio(self) -> float:
        """How many times too little noise there is: 1 or less where there is enough."""
        return self.mu / max(self.claimed_mu, 1e-300)

    @property
    def words(self) -> str:
        """The reading in one sentence, with what it rests on."""
        return (
            f"If the noise is Gaussian (its test has p = {self.p_value:.2g}): shift {self.shift:.3g} over noise of "
            f"{self.spread:.3g} is mu {self.mu:.2f}, at least {self.mu_low:.2f} with {self.confidence:.0%} confidence; "
            f"the claim allows {self.claimed_mu:.2f}."
        )


def noise_reading(claim: StatedClaim, attempt: Attempt, confidence: float = 0.95) -> NoiseReading | None:
    """Return the reading of the noise in the games of an attempt; None where it is not Gaussian.

    Parameters
    ----------
    claim, attempt, confidence
        What is claimed, and games of one kind; 0.5 or more, below 1.
    """
    one, zero = attempt.along[attempt.present], attempt.along[~attempt.present]
    if min(one.size, zero.size) < 20:
        return None
    residual = np.concatenate([one - one.mean(), zero - zero.mean()])
    p_value = float(normaltest(residual).pvalue) if np.ptp(residual) > 0 else 0.0
    if not p_value >= _NORMAL_LEVEL:
        return None
    estimate = strength(one, zero, confidence)
    return NoiseReading(
        shift=float(abs(one.mean() - zero.mean())),
        spread=float(residual.std(ddof=2)),
        mu=estimate.shift,
        mu_low=estimate.low,
        confidence=confidence,
        claimed_mu=claim.allowed_mu,
        p_value=p_value,
    )


def strength(one: Floats, zero: Floats, confidence: float) -> ShiftEstimate:
    """Return the shift over spread of normal releases under D and D', whichever is ahead.

    Parameters
    ----------
    one, zero
        What was released under D and under D', shapes (n1,) and (n0,).
    confidence
        Confidence of the lower bound, 0.5 or more, below 1. As the releases say which is ahead, each way has half of
        the rest.
    """
    sign = 1.0 if one.mean() >= zero.mean() else -1.0
    return gaussian_shift(sign * one, sign * zero, (1 + confidence) / 2)
