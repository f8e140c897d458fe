"""Numbers with their confidence intervals."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Interval:
    """An estimate with its confidence interval."""

    value: float  # the estimate
    low: float  # lower end of the interval
    high: float  # its upper end, which may be infinite


@dataclass(frozen=True)
class Estimate(Interval):
    """An estimate with its confidence interval and the confidence of that."""

    confidence: float  # least probability with which the interval covers the true number
