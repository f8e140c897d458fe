"""Define estimates with their confidence intervals."""

from dataclasses import dataclass


@dataclass(frozen=True)
class IntervalEstimate:
    """An estimate with the two ends of its confidence interval."""

    value: float  # the estimate
    low: float  # lower end of the interval
    high: float  # upper end of the interval, which may be infinite


@dataclass(frozen=True)
class EstimateWithConfidence(IntervalEstimate):
    """An estimate with the two ends and the confidence of its confidence interval."""

    confidence: float  # smallest probability with which the interval covers the true number
