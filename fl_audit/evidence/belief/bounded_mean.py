"""A confidence interval of the mean of bounded numbers that holds for every law and every sample size: by betting.

Whoever bets against a candidate mean m, with stakes that depend on the past alone, has a capital that is a nonnegative
martingale if m is the true mean; it passes 2/alpha with a probability of at most alpha/2 (Ville). The candidates
against which neither a bet on more nor one on less has won so much make up the interval. It adapts to the variance.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fl_audit.arrays import Floats
from fl_audit.errors import require

_LARGEST_STAKE = 0.75  # largest share of the capital that a single number may cost

_STEPS = 50


@dataclass(frozen=True)
class MeanInterval:
    """A mean with a two-sided interval."""

    mean: float  # the mean of the numbers
    # `low`, `high`: the interval.
    low: float
    high: float
    standard_error: float  # of the mean: standard deviation over the root of the count; NaN for one number
    confidence: float  # least probability with which the interval covers the true mean
    count: int  # how many numbers


def mean_interval(values: Floats, confidence: float, smallest: float = 0.0, largest: float = 1.0) -> MeanInterval:
    """Return the mean of independent bounded numbers and the betting interval of its expectation.

    Parameters
    ----------
    values
        Independent and alike, or at least with the same expectation given those before; shape (n,), n at least 1, all
        from `smallest` to `largest`. Their order matters a little to the interval, never to its coverage.
    confidence
        Above 0 and below 1.
    smallest
        No number can be below it.
    largest
        No number can be above it; larger than `smallest`.

    Raises
    ------
    InputError
        If there is no number, one lies outside its bounds, or the confidence is out of its range.

    Notes
    -----
    Waudby-Smith & Ramdas 2024, "Estimating means of bounded random variables by betting", theorem 3 (hedged capital)
    with the stakes of their section 4.2 for a fixed sample size.

    Examples
    --------
    >>> found = mean_interval(np.tile([0.4, 0.6], 500), 0.95)
    >>> found.mean, round(found.low, 2), round(found.high, 2)
    (0.5, 0.49, 0.51)
    """
    bets = Bets.of(values, confidence, smallest, largest)
    scaled, width = bets.values, largest - smallest
    mean = float(scaled.mean())
    low = _boundary(bets.refutes_too_small, 0.0, mean) if mean > 0 else 0.0
    high = _boundary(bets.refutes_too_large, 1.0, mean) if mean < 1 else 1.0
    count = int(scaled.size)
    error = width * float(scaled.std(ddof=1)) / math.sqrt(count) if count > 1 else math.nan
    ends = smallest + width * low, smallest + width * high
    return MeanInterval(smallest + width * mean, *ends, error, confidence, count)


@dataclass(frozen=True, eq=False)
class Bets:
    """Numbers scaled to 0 to 1, the stakes on each of them, and the capital at which a candidate mean is refuted."""

    values: Floats
    stakes: Floats
    log_threshold: float

    @classmethod
    def of(cls, values: Floats, confidence: float, smallest: float = 0.0, largest: float = 1.0) -> "Bets":
        """Return the bets on numbers from `smallest` to `largest`; see `mean_interval`.

        Parameters
        ----------
        values, confidence, smallest, largest
            As for `mean_interval`.

        Raises
        ------
        InputError
            As for `mean_interval`.
        """
        require(values.ndim == 1 and values.size > 0, f"values have shape {values.shape}: accepted is (n,), n from 1")
        require(0 < confidence < 1, f"confidence is {confidence}: accepted are numbers above 0 and below 1")
        within = bool(np.all((values >= smallest) & (values <= largest)))
        require(within, f"a value lies outside {smallest:g} to {largest:g}: accepted are numbers within")
        scaled = (np.asarray(values, dtype=np.float64) - smallest) / (largest - smallest)
        log_threshold = math.log(2 / (1 - confidence))
        return cls(scaled, _stakes(scaled, log_threshold), log_threshold)

    def on(self, values: Floats) -> "Bets":
        """Return the same stakes on other numbers from 0 to 1, each seen together with the number that it replaces."""
        return Bets(values, self.stakes, self.log_threshold)

    def refutes_too_small(self, mean: float) -> bool:
        """Return whether bets on more than `mean` have won enough."""
        stakes = np.minimum(self.stakes, _LARGEST_STAKE / mean) if mean > 0 else self.stakes
        return self._wins(stakes * (self.values - mean))

    def refutes_too_large(self, mean: float) -> bool:
        """Return whether bets on less than `mean` have won enough."""
        stakes = np.minimum(self.stakes, _LARGEST_STAKE / (1 - mean)) if mean < 1 else self.stakes
        return self._wins(-stakes * (self.values - mean))

    def _wins(self, gains: Floats) -> bool:
        return bool(np.log1p(gains).cumsum().max() >= self.log_threshold)


def _stakes(values: Floats, log_threshold: float) -> Floats:
    """Return the stakes, each from the numbers before its own: sqrt(2 log(2/alpha) / (n variance so far))."""
    count = np.arange(1, values.size + 1)
    means = (0.5 + np.cumsum(values)) / (count + 1)
    variances = (0.25 + np.cumsum(np.square(values - means))) / (count + 1)
    before = np.concatenate([[0.25], variances[:-1]])
    return np.sqrt(2 * log_threshold / (values.size * before))


def _boundary(refuted: Callable[[float], bool], outside: float, inside: float) -> float:
    """Return the candidate nearest to `outside` that is not refuted, to within rounding on the side of `outside`."""
    if not refuted(outside):
        return outside
    for _ in range(_STEPS):
        middle = (outside + inside) / 2
        outside, inside = (middle, inside) if refuted(middle) else (outside, middle)
    return outside
