"""The laws that the figures draw beside what was measured.

With mu_i = Delta_i / sigma_i the log-odds of D against D' move by N(+-mu_i^2/2, mu_i^2) in round i: upwards where D
was used, downwards where D' was. Where mu_i is fixed the final log-odds are N(+-mu^2/2, mu^2), or where units are
sampled follow a law on a grid; the belief is their image under the logistic map, shifted by the prior log-odds.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats
from scipy.special import expit, logit

from fl_audit.arrays import Floats
from fl_audit.privacy.log_odds import GriddedLogOdds, LogOddsLaw, NormalLogOdds


def _log_odds_density(log_odds: ArrayLike, law: LogOddsLaw) -> Floats:
    """Return the density of the log-odds of D against D' under a law.

    A law on a grid is drawn as the mean density over a hundredth of the range of nearly all worlds; an atom of it, such
    as of a unit that was never in, shows as a peak of that width.
    """
    point = np.asarray(log_odds, dtype=np.float64)
    if isinstance(law, NormalLogOdds):
        return np.asarray(stats.norm.pdf(point, law.mean, law.mu), dtype=np.float64)
    low, high = law.quantile([0.001, 0.999])
    half = max(float(high - low) / 200, law.error)
    above, below = (_interpolated_cdf(law, end) for end in (point + half, point - half))
    return np.asarray((above - below) / (2 * half), dtype=np.float64)


def _interpolated_cdf(law: LogOddsLaw, point: Floats) -> Floats:
    """Return P(L <= point), on a grid without its steps, which would show as ripples."""
    if isinstance(law, GriddedLogOdds):
        return np.interp(point, law.values, law.cumulative, left=0.0, right=1.0)
    return law.cdf(point)


def belief_density(belief: ArrayLike, laws: Mapping[int, LogOddsLaw], prior: float = 0.5, share: float = 0.5) -> Floats:
    """Return the density of the final belief in the dataset that was really used.

    Parameters
    ----------
    belief
        Where to evaluate, strictly between 0 and 1.
    laws
        Laws of the final log-odds of D against D', where D was used (1) and where it was not (0).
    prior
        Belief in D before the first release.
    share
        Share of the worlds that used D; matters only where the two laws are no mirror images or the prior is not 1/2.

    Notes
    -----
    Change of variables: with l = logit(belief), the density is that of l times dl/dbelief = 1 / (belief (1 - belief)).
    """
    point, shift = np.asarray(belief, dtype=np.float64), float(logit(prior))
    with_d = _log_odds_density(logit(point) - shift, laws[1])
    without = _log_odds_density(-logit(point) - shift, laws[0])
    density = share * with_d + (1 - share) * without
    return np.asarray(density / (point * (1 - point)), dtype=np.float64)


def bound_in_other(bound: float, prior: float) -> float:
    """Return the belief bound for D' that allows the same evidence as the bound for D; equal where the prior is 1/2.

    Parameters
    ----------
    bound, prior
        Bound of the belief in D, and prior probability of D, both above 0 and below 1.
    """
    return float(expit(logit(bound) - 2 * logit(prior)))


def belief_grid(laws: Mapping[int, LogOddsLaw], prior: float = 0.5, points: int = 600, tail: float = 1e-6) -> Floats:
    """Return beliefs, dense where the theoretical curve bends, that span all but `tail` of it on either side.

    Parameters
    ----------
    laws
        Laws of the log-odds of D, by the secret bit.
    prior, points, tail
        Prior probability of D, how many beliefs, and the probability that may lie beyond each end.
    """
    shift, tails = float(logit(prior)), [tail, 1 - tail]
    ends = np.concatenate([laws[1].quantile(tails) + shift, -laws[0].quantile(tails) - shift])
    beliefs = expit(np.linspace(ends.min(), ends.max(), points))
    # Little noise makes beliefs that round to certainty, where no density is defined.
    return np.asarray(np.clip(beliefs, np.finfo(np.float64).tiny, np.nextafter(1.0, 0.0)), dtype=np.float64)


def belief_band(mu: float, rounds: int, bit: int, prior: float = 0.5, level: float = 0.95) -> tuple[Floats, ...]:
    """Return low end, median and high end of the central band of the belief in D after rounds 0 to `rounds`.

    Parameters
    ----------
    mu, rounds
        Gaussian-DP parameter of all rounds together, of which each has mu / sqrt(rounds), and their number.
    bit
        1 where D was used, 0 where D' was.
    prior, level
        Belief in D before the first release, and share of the worlds inside the band at each round.
    """
    variance = mu**2 * np.arange(rounds + 1) / rounds
    centre = (1 if bit == 1 else -1) * variance / 2 + logit(prior)
    reach = float(stats.norm.ppf((1 + level) / 2)) * np.sqrt(variance)
    return expit(centre - reach), expit(centre), expit(centre + reach)
