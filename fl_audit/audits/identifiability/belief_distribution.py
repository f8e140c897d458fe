"""The exact distribution of the insider's log-odds of D against D' and of its beliefs, as curves for figures.

If the signal-to-noise ratios mu_i of all rounds are fixed, the final log-odds are N(+-mu^2/2, mu^2) with mu^2 the sum
of the mu_i^2. If units are sampled, the distribution is computed on a grid. The belief is the logistic function of the
log-odds plus the prior log-odds.
"""

from collections.abc import Mapping

import numpy as np
import scipy
from numpy.typing import ArrayLike
from scipy.special import expit, logit, ndtri

from fl_audit.array_types import Floats
from fl_audit.privacy.log_odds_distribution import GriddedLogOdds, LogOddsDistribution, NormalLogOdds


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


def belief_band(mu: float, rounds: int, bit: int, prior: float, level: float) -> tuple[Floats, ...]:
    """Return lower end, median and upper end of a central interval of the belief in D after each round.

    Each array has shape (rounds + 1,), from round 0 (before the first release) to the last round.
    """
    variance = mu**2 * np.arange(rounds + 1) / rounds
    centre = (1 if bit == 1 else -1) * variance / 2 + logit(prior)
    reach = float(ndtri((1 + level) / 2)) * np.sqrt(variance)
    return expit(centre - reach), expit(centre), expit(centre + reach)
