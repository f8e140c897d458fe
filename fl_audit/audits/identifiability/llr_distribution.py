"""The exact distribution of the insider's log-odds: a test of their innovations, and the curves in figures.

Whatever adaptivity chose Delta_i, r_i is normal given the past. So with mu_i = Delta_i / sigma_i the innovation (L_i -
L_{i-1} -+ mu_i^2/2) / mu_i is N(0, 1) and independent of the past, in every mode. This is the strongest test of a whole
run, because noise, bits, sensitivities and log-odds all enter it.

So in round i the log-odds of D against D' change by N(+-mu_i^2/2, mu_i^2), with the positive mean if D was used and the
negative one if D' was used. If mu_i is fixed, the final log-odds are N(+-mu^2/2, mu^2); if units are sampled, their
distribution is computed on a grid. The belief is the logistic function of the log-odds plus the prior log-odds.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, logit, ndtri

from fl_audit.array_types import Flags, Floats
from fl_audit.privacy.log_odds import GriddedLogOdds, LogOddsDistribution, NormalLogOdds

LARGEST_Z_SCORE = 4.0
SMALLEST_P_VALUE = 0.001


@dataclass(frozen=True)
class HypothesisInnovations:
    """Statistics of the innovations of the trials with one secret bit."""

    count: int  # number of innovations; below 2 nothing is tested: the moments are 0, 1, 0, the z-scores 0, p 1
    mean: float  # of all innovations; 0 expected
    variance: float  # of all innovations; 1 expected
    serial_correlation: float  # between consecutive rounds of the same trial; 0 expected
    mean_z: float  # distance of the mean from what is expected, in standard errors
    variance_z: float  # distance of the variance from the expected one, in standard errors
    serial_correlation_z: float  # distance of the serial correlation from the expected one, in standard errors
    ks_p_value: float  # of the Kolmogorov-Smirnov test against N(0, 1)

    @property
    def holds(self) -> bool:
        """Whether every z-score is within 4 and the Kolmogorov-Smirnov p-value above 0.001."""
        largest = max(abs(self.mean_z), abs(self.variance_z), abs(self.serial_correlation_z))
        return self.ks_p_value > SMALLEST_P_VALUE and largest <= LARGEST_Z_SCORE


@dataclass(frozen=True)
class InnovationCheck:
    """The test of the innovations, separately for trials with bit 1 and with bit 0."""

    members: HypothesisInnovations  # the innovations of trials with bit 1
    nonmembers: HypothesisInnovations  # of trials with bit 0
    rounds: int  # number of rounds of all trials together
    left_out: int  # number of those without an innovation, because their signal is under `SMALLEST_SIGNAL`

    @property
    def holds(self) -> bool:
        """Whether the innovations of both groups pass the test; a correct run fails with probability of about 0.2 %."""
        return self.members.holds and self.nonmembers.holds


def check_scores(values: Floats, bits: NDArray[np.integer] | Flags) -> InnovationCheck:
    """Test values for being independent and N(0, 1), separately for each secret bit.

    Parameters
    ----------
    values
        Innovations, shape (trials, rounds); NaN in rounds without information. If the increments are not Gaussian, they
        are the normal scores, under the true hypothesis, of the noise along the difference of D and D'.
    bits
        1 or True where D was used, shape (trials,).
    """
    member = bits.astype(bool)
    groups = _group(values[member]), _group(values[~member])
    return InnovationCheck(*groups, values.size, int(np.isnan(values).sum()))


def _group(values: Floats) -> HypothesisInnovations:
    """Return the test statistics of the innovations of some trials, shape (trials, rounds)."""
    used = values[~np.isnan(values)]
    count = int(used.size)
    if count < 2:
        return HypothesisInnovations(count, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0)
    mean, variance = float(np.mean(used)), float(np.var(used, ddof=1))
    products = (values[:, :-1] - mean) * (values[:, 1:] - mean)
    pairs = products[~np.isnan(products)]  # of consecutive rounds within trials
    correlation = float(np.mean(pairs)) / variance if pairs.size and variance else 0.0
    return HypothesisInnovations(
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
    """Return the density of the log-odds of D against D' under a distribution.

    A distribution on a grid is smoothed over a hundredth of its central 99.8 % range. An atom, e.g. of a unit that was
    never sampled, is a peak of that width.
    """
    point = np.asarray(log_odds, dtype=np.float64)
    if isinstance(distribution, NormalLogOdds):
        return np.asarray(scipy.stats.norm.pdf(point, distribution.mean, distribution.mu), dtype=np.float64)
    low, high = distribution.quantile([0.001, 0.999])
    half = max(float(high - low) / 200, distribution.error)
    ends = (point + half, point - half)
    if isinstance(distribution, GriddedLogOdds):  # without its steps, which would show as ripples
        above, below = (
            np.interp(end, distribution.values, distribution.cumulative, left=0.0, right=1.0) for end in ends
        )
    else:
        above, below = (distribution.cdf(end) for end in ends)
    return np.asarray((above - below) / (2 * half), dtype=np.float64)


def belief_density(
    belief: ArrayLike, distributions: Mapping[int, LogOddsDistribution], prior: float = 0.5, share: float = 0.5
) -> Floats:
    """Return the density of the final belief in the data set that was used.

    It is a change of variables: with l = logit(belief), the density is that of l times dl/dbelief = 1 / (belief (1 -
    belief)).

    Parameters
    ----------
    belief
        Beliefs at which the density is evaluated, strictly between 0 and 1.
    distributions
        Distribution of the final log-odds of D against D' for each secret bit: 1 where D was used, and 0 where D' was
        used.
    prior
        Belief in D before the first release.
    share
        Share of the trials that used D. It matters only if the two distributions are not mirror images or the prior is
        not 1/2.
    """
    point, shift = np.asarray(belief, dtype=np.float64), float(logit(prior))
    with_d = _log_odds_density(logit(point) - shift, distributions[1])
    without = _log_odds_density(-logit(point) - shift, distributions[0])
    density = share * with_d + (1 - share) * without
    return np.asarray(density / (point * (1 - point)), dtype=np.float64)


def belief_grid(
    distributions: Mapping[int, LogOddsDistribution], prior: float = 0.5, points: int = 600, tail: float = 1e-6
) -> Floats:
    """Return beliefs at which to plot their density, equally spaced in logit.

    The probability `tail` lies beyond each end.

    Parameters
    ----------
    distributions
        Distribution of the log-odds of D against D' for each secret bit.
    prior
        Belief in D before the first release.
    points
        Number of beliefs.
    tail
        Probability beyond either end.
    """
    shift, tails = float(logit(prior)), [tail, 1 - tail]
    ends = np.concatenate([distributions[1].quantile(tails) + shift, -distributions[0].quantile(tails) - shift])
    beliefs = expit(np.linspace(ends.min(), ends.max(), points))
    # Little noise makes beliefs that round to certainty, where no density is defined.
    return np.asarray(np.clip(beliefs, np.finfo(np.float64).tiny, np.nextafter(1.0, 0.0)), dtype=np.float64)


def belief_band(mu: float, rounds: int, bit: int, prior: float = 0.5, level: float = 0.95) -> tuple[Floats, ...]:
    """Return lower end, median and upper end of the central interval of the belief in D after rounds 0 to `rounds`.

    Parameters
    ----------
    mu
        Gaussian-DP parameter of all rounds together; each round has mu / sqrt(rounds).
    rounds
        Number of rounds, at least 1.
    bit
        The secret bit: 1 if D was used, 0 if D' was used.
    prior
        Belief in D before the first release.
    level
        Probability of the interval at each round.
    """
    variance = mu**2 * np.arange(rounds + 1) / rounds
    centre = (1 if bit == 1 else -1) * variance / 2 + logit(prior)
    reach = float(ndtri((1 + level) / 2)) * np.sqrt(variance)
    return expit(centre - reach), expit(centre), expit(centre + reach)
