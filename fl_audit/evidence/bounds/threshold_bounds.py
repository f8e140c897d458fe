"""Lower bounds on epsilon from how many scores of either group lie above a threshold.

All three depend on the order of the scores alone: a strictly increasing transformation changes nothing, infinite scores
are scores like others. The rule is chosen on scores set apart (`selection`).
"""

import math
from functools import lru_cache

import numpy as np
from scipy.special import betainc, ndtr, ndtri

from fl_audit.arrays import Floats
from fl_audit.confidence.beta_mean import BetaMean, where_it_reaches
from fl_audit.evidence.bounds.selection import Counts, ScoreReading, chosen_by_rank, chosen_by_value, ratio_bound
from fl_audit.privacy.gaussian import gdp_epsilon

LARGEST_EPSILON = 700.0  # no search goes far beyond it: e^epsilon overflows soon after
_LARGEST_MU = 75.0


def clopper_pearson_epsilon(ways: tuple[ScoreReading, ...], delta: float, level: float) -> float:
    """Return the Clopper-Pearson bound: log((TPR_low - delta) / FPR_high), at least 0.

    (epsilon, delta)-DP allows no event with TPR > e^epsilon FPR + delta (Kairouz, Oh & Viswanath 2015, theorem 2.1).
    TPR and FPR are bounded at half the level each (Clopper & Pearson 1934), on scores that did not choose the event. No
    assumption but that scores are independent, and alike within a group.

    Parameters
    ----------
    ways
        The four directions.
    delta
        At least 0, below 1.
    level
        1 - confidence.
    """
    return clopper_pearson_of(chosen_by_value(ways, delta, level), delta, level)


def clopper_pearson_of(counts: Counts, delta: float, level: float) -> float:
    """Return the Clopper-Pearson bound of a rule that was fixed before these scores were seen.

    Parameters
    ----------
    counts
        What was measured.
    delta
        At least 0, below 1.
    level
        1 - confidence.
    """
    hits, alarms = np.array([float(counts.hits)]), np.array([float(counts.alarms)])
    return max(0.0, float(ratio_bound(hits, counts.first, alarms, counts.second, delta, level)[0]))


def bayes_epsilon(ways: tuple[ScoreReading, ...], delta: float, level: float) -> float:
    """Return the posterior quantile of epsilon at `level`, at least 0.

    TPR and FPR have independent Jeffreys posteriors Beta(hits + 1/2, misses + 1/2); epsilon is the smallest for which
    (FPR, TPR) is allowed: TPR <= min(e^eps FPR + delta, 1 - e^-eps (1 - delta - FPR)) (Zanella-Beguelin et al. 2022,
    Bayesian estimation of differential privacy, arXiv 2206.05199). The mirror image below the diagonal is left out:
    with it the posterior of epsilon had no mass at 0, and pure noise would always be certified. The rule is chosen as
    for Clopper-Pearson; no frequentist coverage is promised.

    Parameters
    ----------
    ways, delta, level
        As for `clopper_pearson_epsilon`.
    """
    return bayes_of(chosen_by_value(ways, delta, level), delta, level)


@lru_cache(maxsize=4096)
def bayes_of(counts: Counts, delta: float, level: float) -> float:
    """Return the posterior quantile of epsilon for a rule.

    Parameters
    ----------
    counts
        What was measured.
    delta
        At least 0, below 1.
    level
        Level of the quantile, above 0 and below 1.
    """
    tpr = (counts.hits + 0.5, counts.first - counts.hits + 0.5)
    fpr = (counts.alarms + 0.5, counts.second - counts.alarms + 0.5)
    law = BetaMean(*fpr)

    def below(epsilon: float) -> float:
        """Return the posterior probability that epsilon is at most this."""
        return law.mean(lambda v: betainc(*tpr, largest_tpr(v, epsilon, delta)), kink=bend_at(epsilon, delta))

    return where_it_reaches(below, level, LARGEST_EPSILON)


def largest_tpr(fpr: Floats, epsilon: float, delta: float) -> Floats:
    """Return the largest TPR that (epsilon, delta)-DP in both directions allows at each FPR, from 0 to 1.

    Parameters
    ----------
    fpr
        From 0 to 1, any shape.
    epsilon
        At least 0.
    delta
        At least 0, below 1.
    """
    line = np.exp(np.minimum(epsilon + np.log(np.maximum(fpr, 1e-300)), 1.0)) + delta
    mirror = 1 - math.exp(-epsilon) * (1 - delta - fpr)
    return np.clip(np.minimum(line, mirror), 0.0, 1.0)


def bend_at(epsilon: float, delta: float) -> float:
    """Return the FPR at which both lines of `largest_tpr` meet.

    Parameters
    ----------
    epsilon
        At least 0.
    delta
        At least 0, below 1.
    """
    return (1 - delta) / (1 + math.exp(min(epsilon, LARGEST_EPSILON)))


def gdp_threshold_epsilon(ways: tuple[ScoreReading, ...], delta: float, level: float) -> float:
    """Return the bound under a Gaussian trade-off function: `gdp_epsilon` of `gdp_threshold_mu`, at least 0.

    Parameters
    ----------
    ways
        The four directions in which scores can be read.
    delta
        Above 0 and below 1.
    level
        1 - confidence.
    """
    return gdp_epsilon(delta, gdp_threshold_mu(*chosen_by_rank(ways), level))


def gdp_threshold_mu(counts: Counts, rank: int, level: float) -> float:
    """Return the lower confidence bound of mu from the first group's scores above the reference's `rank`-th largest.

    Under mu-GDP every event has TPR <= Phi(Phi^-1(FPR) + mu) (Dong, Roth & Su 2022, definition 2.6). The FPR at the
    k-th largest of n scores is Beta(k, n - k + 1) whatever their law (ties only lower it), and given the threshold the
    hits are binomial. So the probability of so many hits is at most the mean of
    P(Binomial(n1, Phi(Phi^-1(V) + mu)) >= hits) over that beta law: an exact p-value, without sharing the level between
    both error rates, and the bound is the mu at which it equals the level. The shift of two Clopper-Pearson bounds at
    half the level each, Phi^-1(TPR_low) - Phi^-1(FPR_high), is valid, too, and smaller.

    Parameters
    ----------
    counts
        What was measured.
    rank
        k, fixed before these scores were seen, 1 to the number of reference scores.
    level
        1 - confidence.
    """
    if counts.hits == 0:
        return 0.0
    tpr = (float(counts.hits), counts.first - counts.hits + 1.0)
    law = BetaMean(float(rank), counts.second - rank + 1.0)
    normal = ndtri(law.values)
    return where_it_reaches(lambda mu: law.mean(lambda _: betainc(*tpr, ndtr(normal + mu))), level, _LARGEST_MU)
