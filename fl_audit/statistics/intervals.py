"""Numbers with their confidence intervals."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Interval:
    """An estimate with its confidence interval."""

    value: float  # the estimate
    low: float  # lower end of the interval
    high: float  # upper end of the interval, which may be infinite


@dataclass(frozen=True)
class Estimate(Interval):
    """An estimate with its confidence interval and the confidence level of the interval."""

    confidence: float  # least probability with which the interval covers the true number
