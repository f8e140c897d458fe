"""Estimate the noise scale from black-box trials if the noise looks Gaussian.

Releases are projected on the differing contribution, which is the contribution under D minus that under D'.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy.stats import normaltest

from fl_audit.array_types import Flags, Floats
from fl_audit.statistics.claim_comparisons import READING_LEVEL, ClaimComparison, Reading, compare_with_claim
from fl_audit.statistics.shift_bound import ShiftEstimate, gaussian_shift

_CONFIDENCE = 0.95  # confidence of the lower bound on mu
_NORMAL_LEVEL = 0.01  # there is no estimate if the test of normality has a smaller p-value


@dataclass(frozen=True)
class GaussianMuEstimate:
    """Estimate of how well D and D' can be distinguished by the projections of releases on the differing contribution.

    It holds the shift between D and D', the noise, and mu, which is shift over noise. The noise is assumed to be
    Gaussian.
    """

    shift: float  # absolute difference of the mean releases under D and D', in the units of the model
    spread: float  # standard deviation of the noise, in the units of the model
    mu: float  # estimate of shift / spread, the mu of Gaussian DP
    mu_low: float  # lower confidence bound on mu
    confidence: float  # confidence of `mu_low`, if the noise is Gaussian
    claimed_mu: float  # the largest mu that the claim allows if the noise is Gaussian
    p_value: float  # p-value of the test of normality
    # Lower bound on mu at confidence 1 - `READING_LEVEL`, by which the report compares measurements with claims.
    mu_low_at_level: float = 0.0

    @property
    def reading(self) -> ClaimComparison:
        """The comparison of the lower confidence bound on mu with the claimed mu, as a report words it."""
        return compare_with_claim(
            (self.mu_low, math.inf), self.claimed_mu, wide=lambda _: (self.mu_low_at_level, math.inf), sides=1
        )

    @property
    def is_broken(self) -> bool:
        """Whether the lower bound on mu exceeds what the claim allows."""
        return self.reading.reading is Reading.BROKEN

    @property
    def ratio(self) -> float:
        """The factor by which the noise is too small; 1 or less if there is enough noise."""
        return self.mu / max(self.claimed_mu, 1e-300)

    @property
    def words(self) -> str:
        """A sentence with the estimated shift, noise and mu, the claimed mu, and the assumption of Gaussian noise."""
        return (
            f"If the noise is Gaussian (its test has p = {self.p_value:.2g}): shift {self.shift:.3g} over noise of "
            f"{self.spread:.3g} is mu {self.mu:.2f}, at least {self.mu_low:.2f} with {self.confidence:.0%} confidence; "
            f"the claim allows {self.claimed_mu:.2f}: {self.reading.reading}."
        )


def estimate_gaussian_mu(along: Floats, present: Flags, claimed_mu: float) -> GaussianMuEstimate | None:
    """Return estimates of shift, noise and mu from projected releases, for the case that the noise is Gaussian.

    The result is None if a test rejects normal noise, or with fewer than 20 trials with D or with D'.

    Shapes: `along` (trials,), `present` (trials,).
    """
    ones, zeros = along[present], along[~present]
    if min(ones.size, zeros.size) < 20:
        return None
    residual = np.concatenate([ones - ones.mean(), zeros - zeros.mean()])
    p_value = float(normaltest(residual).pvalue) if np.ptp(residual) > 0 else 0.0
    if not p_value >= _NORMAL_LEVEL:
        return None
    estimate, at_level = (strength(ones, zeros, sure) for sure in (_CONFIDENCE, 1 - READING_LEVEL))
    return GaussianMuEstimate(
        shift=float(abs(ones.mean() - zeros.mean())),
        spread=float(residual.std(ddof=2)),
        mu=estimate.shift,
        mu_low=estimate.low,
        confidence=_CONFIDENCE,
        claimed_mu=claimed_mu,
        p_value=p_value,
        mu_low_at_level=at_level.low,
    )


def strength(ones: Floats, zeros: Floats, confidence: float) -> ShiftEstimate:
    """Return an estimate of the absolute shift between normal releases under D and D', in standard deviations.

    Shapes: `ones` (n1,), `zeros` (n0,).

    `confidence`: The releases also determine the sign of the shift, so each sign gets half of the error probability.
    """
    sign = 1.0 if ones.mean() >= zeros.mean() else -1.0
    return gaussian_shift(sign * ones, sign * zeros, (1 + confidence) / 2)
