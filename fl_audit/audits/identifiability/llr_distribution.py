"""The exact distribution of the insider's log-odds of D against D': tests of their increments, and curves for figures.

In round i the log-odds L_i change by a normal increment N(+-mu_i^2/2, mu_i^2). Here mu_i is the local sensitivity
divided by the standard deviation of the noise. The mean is positive if D was used and negative if D' was used.

**Innovations.** The standardised increment (L_i - L_{i-1} -+ mu_i^2/2) / mu_i is called the innovation. It is N(0, 1)
and independent of the past, even if mu_i was chosen adaptively. Its test is the strongest test of a whole run, because
noise, secret bits, sensitivities and log-odds all enter it.

**Final log-odds.** If all mu_i are fixed, the final log-odds are N(+-mu^2/2, mu^2) with mu^2 the sum of the mu_i^2. If
units are sampled, the distribution is computed on a grid. The belief is the logistic function of the log-odds plus the
prior log-odds.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, logit, ndtri

from fl_audit.array_types import Flags, Floats
from fl_audit.privacy.log_odds_distribution import GriddedLogOdds, LogOddsDistribution, NormalLogOdds

LARGEST_Z_SCORE = 4.0  # the test of innovations fails if the absolute value of a z-score is larger
SMALLEST_P_VALUE = 0.001  # the test of innovations fails if the Kolmogorov-Smirnov p-value is not larger


@dataclass(frozen=True)
class LlrIncrementStatistics:
    """Statistics of the innovations (standardised increments of the log-odds) in the trials with one secret bit."""

    count: int  # number of innovations; below 2 the other fields have their expected values, z-scores 0 and p-value 1
    mean: float  # mean of all innovations; 0 is expected
    variance: float  # variance of all innovations; 1 is expected
    serial_correlation: float  # correlation between consecutive rounds of the same trial; 0 is expected
    mean_z: float  # mean minus expected mean, in standard errors
    variance_z: float  # variance minus expected variance, in standard errors
    serial_correlation_z: float  # serial correlation in standard errors
    ks_p_value: float  # p-value of the Kolmogorov-Smirnov test against N(0, 1)

    @property
    def holds(self) -> bool:
        """Whether the innovations agree with N(0, 1).

        They agree if every z-score is at most 4 in absolute value, and the p-value is above 0.001.
        """
        largest = max(abs(self.mean_z), abs(self.variance_z), abs(self.serial_correlation_z))
        return self.ks_p_value > SMALLEST_P_VALUE and largest <= LARGEST_Z_SCORE


@dataclass(frozen=True)
class LlrIncrementTest:
    """Tests that innovations (standardised increments of the log-odds) are N(0, 1), one for D and one for D'."""

    members: LlrIncrementStatistics  # the innovations of trials with D
    nonmembers: LlrIncrementStatistics  # the innovations of trials with D'
    rounds: int  # number of rounds of all trials together
    left_out: int  # number of these rounds without an innovation, because their signal is below `SMALLEST_SIGNAL`

    @property
    def holds(self) -> bool:
        """Whether the innovations pass the test, both for trials with D and for trials with D'.

        Innovations are the standardised increments of the log-odds. A correct run fails with a probability of about 0.2
        %.
        """
        return self.members.holds and self.nonmembers.holds


def check_scores(values: Floats, bits: NDArray[np.integer] | Flags) -> LlrIncrementTest:
    """Test whether innovations are independent and N(0, 1), separately for trials with D and with D'.

    Shapes: `values` (trials, rounds), `bits` (trials,).

    `values`: NaN in rounds without information. If the increments are not Gaussian, normal scores of the noise instead.
    """
    member = bits.astype(bool)
    groups = _group(values[member]), _group(values[~member])
    return LlrIncrementTest(*groups, values.size, int(np.isnan(values).sum()))


def _group(values: Floats) -> LlrIncrementStatistics:
    """Return the test statistics of innovations, (trials, rounds), in which NaN means that there is none."""
    used = values[~np.isnan(values)]
    count = int(used.size)
    if count < 2:
        return LlrIncrementStatistics(count, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0)
    mean = float(np.mean(used))
    variance = float(np.var(used, ddof=1))
    products = (values[:, :-1] - mean) * (values[:, 1:] - mean)
    pairs = products[~np.isnan(products)]  # of consecutive rounds within trials
    correlation = float(np.mean(pairs)) / variance if pairs.size and variance else 0.0
    return LlrIncrementStatistics(
        count=count,
        mean=mean,
        variance=variance,
        serial_correlation=correlation,
        mean_z=mean * math.sqrt(count),
        variance_z=(variance - 1) * math.sqrt((count - 1) / 2),
        serial_correlation_z=correlation * math.sqrt(pairs.size),
        ks_p_value=float(scipy.stats.kstest(used, "norm").pvalue),
    )


def _log_odds_density(log_odds: ArrayLike, distribution: LogOddsDistribution) -> Floats:
    """Return the density of the log-odds of D against D'.

    A distribution on a grid is smoothed over a hundredth of its central 99.8 % range, so an atom becomes a narrow peak.
    """
    point = np.asarray(log_odds, dtype=np.float64)
    if isinstance(distribution, NormalLogOdds):
        return np.asarray(scipy.stats.norm.pdf(point, distribution.mean, distribution.mu), dtype=np.float64)
    low, high = distribution.quantile([0.001, 0.999])
    half = max(float(high - low) / 200, distribution.error)
    ends = (point + half, point - half)
    if isinstance(distribution, GriddedLogOdds):  # interpolated, since its steps would show as ripples
        above, below = (
            np.interp(end, distribution.values, distribution.cumulative, left=0.0, right=1.0) for end in ends
        )
    else:
        above, below = (distribution.cdf(end) for end in ends)
    return np.asarray((above - below) / (2 * half), dtype=np.float64)


def belief_density(
    belief: ArrayLike, distributions: Mapping[int, LogOddsDistribution], prior: float = 0.5, share: float = 0.5
) -> Floats:
    """Return the density of the final belief in the data set that was used, with the shape of `belief`.

    It is the density of l = logit(belief) times dl/dbelief = 1 / (belief (1 - belief)).
    """
    point = np.asarray(belief, dtype=np.float64)
    shift = float(logit(prior))
    with_d = _log_odds_density(logit(point) - shift, distributions[1])
    without = _log_odds_density(-logit(point) - shift, distributions[0])
    density = share * with_d + (1 - share) * without
    return np.asarray(density / (point * (1 - point)), dtype=np.float64)


def belief_grid(
    distributions: Mapping[int, LogOddsDistribution], prior: float = 0.5, points: int = 600, tail: float = 1e-6
) -> Floats:
    """Return beliefs at which to plot their density, equally spaced in logit, shape (points,)."""
    shift = float(logit(prior))
    tails = [tail, 1 - tail]
    ends = np.concatenate([distributions[1].quantile(tails) + shift, -distributions[0].quantile(tails) - shift])
    beliefs = expit(np.linspace(ends.min(), ends.max(), points))
    # With little noise, beliefs round to 0 or 1, where no density is defined.
    return np.asarray(np.clip(beliefs, np.finfo(np.float64).tiny, np.nextafter(1.0, 0.0)), dtype=np.float64)


def belief_band(mu: float, rounds: int, bit: int, prior: float = 0.5, level: float = 0.95) -> tuple[Floats, ...]:
    """Return lower end, median and upper end of a central interval of the belief in D after each round.

    Each array has shape (rounds + 1,), from round 0 (before the first release) to the last round.
    """
    variance = mu**2 * np.arange(rounds + 1) / rounds
    centre = (1 if bit == 1 else -1) * variance / 2 + logit(prior)
    reach = float(ndtri((1 + level) / 2)) * np.sqrt(variance)
    return expit(centre - reach), expit(centre), expit(centre + reach)
