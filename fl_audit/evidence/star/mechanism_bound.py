"""A lower confidence bound on the epsilon of a training mechanism, from the losses of several of its models.

`mechanism_star` puts fitted or counted rates into Eq. (19) of Negoescu et al. 2023. The largest ratio of such estimates
exceeds the truth on average: it is above 0 even if nothing leaks. The bound of this module exceeds the truth with at
most the stated probability, for any losses and even for few models. It rests on three facts:

* Each model has its own threshold: the r-th smallest of its p population losses. A record that was not trained on is
  exchangeable with these p records, so its loss is below the threshold with a probability of at most a = r / (p + 1),
  taken over records and models. So no false-positive rate has to be estimated.
* Let T be the share of a model's members whose losses are below its threshold. For a mechanism that is (epsilon,
  delta)-DP the mean of T over models is at most b = min(e^epsilon a + delta, 1 - e^-epsilon (1 - delta - a)), by
  Eq. (17) of the paper for this event and its complement. Both terms are linear in the false-positive rate, so it does
  not matter how that rate varies between models, and a bound on the epsilon of the mechanism also bounds that of
  Eq. (19). The same holds for losses above the r-th largest.
* If the mean of numbers T from 0 to 1 is at most b, then 1 - c + c T / b with c from 0 to 1 is not negative and has a
  mean of at most 1: it is what a bet with the stake c pays. Models are independent, so the product of such payments
  over models has a mean of at most 1, and so has the average of the products over ranks, stakes and both tails
  (Waudby-Smith & Ramdas 2024, "Estimating means of bounded random variables by betting"). By Markov's inequality this
  average exceeds 1 / level with a probability of at most `level`. The bound is the smallest epsilon at which it does
  not.
"""

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp

from fl_audit.arrays import Floats, Integers
from fl_audit.errors import require
from fl_audit.evidence.star.epsilon_star import require_star_delta
from fl_audit.evidence.star.loss_samples import checked_pair
from fl_audit.search import falling_root

_RANKS = 8
_LARGEST_RATE = 1 / 3
_STAKES = np.array([0.1, 0.3, 0.6, 0.9])


def mechanism_lower_bound(
    member_losses: ArrayLike, population_losses: ArrayLike, delta: float, confidence: float = 0.95
) -> float:
    """Return a lower confidence bound on the mechanism's epsilon: that of its (epsilon, delta)-DP and of Eq. (19).

    Parameters
    ----------
    member_losses
        Losses on training records, finite and at least 0, shape (models, m), each size at least 1. The models must be
        trained independently, each on its own draw of training records: with one training set for all of them the bound
        is not valid.
    population_losses
        Losses on samples of the population, finite and at least 0, shape (models, p). Each model must have its own
        sample from the same source: with one sample for all of them the bound is not valid.
    delta
        From 0 to below 1.
    confidence
        Least probability with which the mechanism's epsilon is at or above the bound, above 0 and below 1.

    Returns
    -------
    float
        At least 0; 0 certifies nothing.

    Raises
    ------
    InputError
        If a loss is negative or not finite, or a shape or number is not accepted.

    Examples
    --------
    >>> losses = np.linspace(0, 1, 50)
    >>> mechanism_lower_bound(np.tile(losses, (20, 1)), np.tile(losses, (20, 1)), 1e-5)
    0.0
    >>> round(mechanism_lower_bound(np.tile(losses, (20, 1)), np.tile(losses + 2, (20, 1)), 1e-5), 2)
    3.56
    """
    require_star_delta(delta)
    require(0 < confidence < 1, f"confidence is {confidence}: accepted are numbers above 0 and below 1")
    members, population = checked_pair(member_losses, population_losses, at_least=1)
    require(members.ndim == 2, f"member losses have shape {members.shape}: accepted is (models, losses)")
    p = population.shape[1]
    ranks = np.unique(np.geomspace(1, max(1, int(p * _LARGEST_RATE)), _RANKS).round().astype(np.int64))
    beyond = np.stack([_rates_below(sign * members, sign * population, ranks) for sign in (1, -1)])
    needed = -math.log(1 - confidence)

    def over(epsilon: float) -> float:
        """Return how far the log of the winnings lies above what refutes this epsilon."""
        return _log_winnings(beyond, ranks / (p + 1), epsilon, delta) - needed

    return falling_root(over, xtol=1e-9)


def _rates_below(members: Floats, population: Floats, ranks: Integers) -> Floats:
    """Return the share of each model's members strictly below its r-th smallest population loss, (models, ranks)."""
    thresholds = np.sort(population, axis=1)[:, ranks - 1]
    ordered = np.sort(members, axis=1)
    below = [np.searchsorted(own, cut, side="left") for own, cut in zip(ordered, thresholds, strict=True)]
    return np.asarray(np.stack(below) / members.shape[1], dtype=np.float64)


def _log_winnings(beyond: Floats, fpr: Floats, epsilon: float, delta: float) -> float:
    """Return the log of the average over tails, ranks and stakes of the products over models.

    Parameters
    ----------
    beyond
        Members' rates, shape (tails, models, ranks).
    fpr
        False-positive rates of the ranks, shape (ranks,).
    epsilon, delta
        Of the claim.
    """
    most = np.minimum(np.exp(epsilon) * fpr + delta, 1 - math.exp(-epsilon) * (1 - delta - fpr))
    fair = np.minimum(most, 1.0)
    gains = np.log1p(_STAKES * (beyond / fair - 1)[..., None]).sum(axis=1)
    return float(logsumexp(gains) - math.log(gains.size))
