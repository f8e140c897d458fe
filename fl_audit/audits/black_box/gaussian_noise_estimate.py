"""An estimate of the noise scale in black-box trials whose noise looks Gaussian; it does not affect the verdict."""

import math
from dataclasses import dataclass

import numpy as np
from scipy.stats import normaltest

from fl_audit.array_types import Floats
from fl_audit.audits.black_box.claim import StatedClaim
from fl_audit.audits.black_box.claim_audit import DistinguisherTest
from fl_audit.statistics.claim_comparisons import ClaimComparison, read
from fl_audit.statistics.shift_bound import ShiftEstimate, gaussian_shift
from fl_audit.statistics.significance_levels import READING_LEVEL

_NORMAL_LEVEL = 0.01  # a residual whose test of normality has a smaller p-value gets no reading


@dataclass(frozen=True)
class GaussianNoiseEstimate:
    """Estimated shift, noise and mu of the release along the differing contribution, if the noise is Gaussian."""

    shift: float  # by how much D is ahead of D', in the model's units
    spread: float  # standard deviation of the noise there
    mu: float  # shift over spread, the parameter of a Gaussian mechanism of this strength
    mu_low: float  # its lower bound
    confidence: float  # of the bound, if the noise is Gaussian
    claimed_mu: float  # the largest shift over spread that the claim leaves room for, had the noise been Gaussian
    p_value: float  # of the test of normality
    # The lower bound at the level of readings: whoever tells no more than is claimed passes the claim so rarely.
    mu_low_at_level: float = 0.0

    @property
    def reading(self) -> ClaimComparison:
        """The comparison of the lower bound on mu with the claim."""
        return read((self.mu_low, math.inf), self.claimed_mu, wide=lambda _: (self.mu_low_at_level, math.inf), sides=1)

    @property
    def ratio(self) -> float:
        """The factor by which the noise is too small; 1 or less if there is enough noise."""
        return self.mu / max(self.claimed_mu, 1e-300)

    @property
    def words(self) -> str:
        """The estimate and its comparison with the claim in one sentence, with the assumption."""
        return (
            f"If the noise is Gaussian (its test has p = {self.p_value:.2g}): shift {self.shift:.3g} over noise of "
            f"{self.spread:.3g} is mu {self.mu:.2f}, at least {self.mu_low:.2f} with {self.confidence:.0%} confidence; "
            f"the claim allows {self.claimed_mu:.2f}: {self.reading.reading}."
        )


def noise_reading(
    claim: StatedClaim, attempt: DistinguisherTest, confidence: float = 0.95
) -> GaussianNoiseEstimate | None:
    """Return the noise estimate from the trials of a test.

    None if a test rejects normality or there are too few trials.

    Parameters
    ----------
    claim
        The claim under audit.
    attempt
        The test of a distinguisher, with its trials.
    confidence
        Confidence of the bound, above 0.5 and below 1.
    """
    one, zero = attempt.along[attempt.present], attempt.along[~attempt.present]
    if min(one.size, zero.size) < 20:
        return None
    residual = np.concatenate([one - one.mean(), zero - zero.mean()])
    p_value = float(normaltest(residual).pvalue) if np.ptp(residual) > 0 else 0.0
    if not p_value >= _NORMAL_LEVEL:
        return None
    estimate, at_level = (strength(one, zero, sure) for sure in (confidence, 1 - READING_LEVEL))
    return GaussianNoiseEstimate(
        shift=float(abs(one.mean() - zero.mean())), spread=float(residual.std(ddof=2)), mu=estimate.shift,
        mu_low=estimate.low, confidence=confidence, claimed_mu=claim.allowed_mu, p_value=p_value,
        mu_low_at_level=at_level.low,
    )  # fmt: skip


def strength(one: Floats, zero: Floats, confidence: float) -> ShiftEstimate:
    """Return the estimated ratio of shift to standard deviation of normal releases under D and D', in absolute value.

    Parameters
    ----------
    one
        Releases under D, shape (n1,).
    zero
        Releases under D', shape (n0,).
    confidence
        Confidence of the lower bound, at least 0.5 and below 1. Each sign of the shift gets half of the error
        probability, because the releases themselves determine the sign.
    """
    sign = 1.0 if one.mean() >= zero.mean() else -1.0
    return gaussian_shift(sign * one, sign * zero, (1 + confidence) / 2)
