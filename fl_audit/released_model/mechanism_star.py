"""Epsilon* (privacy risk) of a training mechanism, and its mean over models (Negoescu et al. 2023, appendix A).

Equation (19) averages the false negative rates of many models at one false positive rate and computes Epsilon* of these
averages. With the exact rates of the mechanism, the result is a lower bound on the mechanism's epsilon. Theorem 2
claims that the mean of the models' own Epsilon* is at least as large as this result. Its proof assumes that four
functions are convex in FNR. But two of them, log (1-delta-FNR)/FPR and log (FNR-delta)/(1-FPR), are concave, and the
theorem does not hold. For example, if half of the models have no leak and half have scores shifted by 1 (delta 1e-5),
the mean is 2.19 and the value of Eq. (19) is 3.53. Therefore both numbers are returned, and either of them may be the
larger one.

If the rates are estimated from losses, both numbers are point estimates with an upward bias, because the maximum of
estimated ratios is biased upwards. Without a leak (losses of members and population Beta(2, 2), delta 0.001) the value
of Eq. (19) is 0.27 on average with 10 models of 100 + 100 losses, and 0.03 with 100 models of 200 + 200. A lower
confidence bound on the mechanism's epsilon is returned with them. It is valid for any distribution of losses and any
number of models, for three reasons:

* Each model has its own threshold: the r-th smallest of its p population losses. A record that was not trained on is
  exchangeable with these p records. So its loss is below the threshold with a probability of at most a = r / (p + 1)
  over records and models. The false-positive rate need not be estimated.
* Let T be the share of a model's members whose losses are below its threshold. For a mechanism that is (epsilon,
  delta)-DP the mean of T over models is at most b = min(e^epsilon a + delta, 1 - e^-epsilon (1 - delta - a)), by Eq.
  (17) of the paper for this event and its complement. Both terms are linear in the false-positive rate, so it does not
  matter how this rate varies between models. The result is a lower bound both on the mechanism's epsilon and on the
  value of Eq. (19). The same holds for losses above the r-th largest.
* Consider a bet with stake c in [0, 1], which pays 1 - c + c T / b. If T lies in [0, 1] and its mean is at most b, then
the payment is not negative and has a mean of at most 1. Models are independent, so the product of the payments over
models also has a
  mean of at most 1. So has the average of these products over ranks, stakes and both tails (Waudby-Smith & Ramdas 2024,
  "Estimating means of bounded random variables by betting"). By Markov's inequality this average exceeds 1 / level with
  a probability of at most `level`. The bound is the smallest epsilon for which the average does not exceed 1 / level.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp

from fl_audit.array_types import Floats, Integers
from fl_audit.errors import require
from fl_audit.released_model import parametric_star as parametric
from fl_audit.released_model.mixture_star import epsilon_star_mixtures
from fl_audit.released_model.normal_mixture import NormalMixture, normal
from fl_audit.released_model.star_methods import PARAMETRIC_CUT
from fl_audit.root_finding import falling_root
from fl_audit.value_checks import require_number

_RANKS = 8
_LARGEST_RATE = 1 / 3
_STAKES = np.array([0.1, 0.3, 0.6, 0.9])


@dataclass(frozen=True)
class MechanismEpsilonStar:
    """Epsilon* of a training mechanism, and the mean Epsilon* of its models; either may be larger.

    Epsilon* of the mechanism is Eq. (19) of Negoescu et al. 2023, from error rates averaged over models.
    """

    # Epsilon* of the false negative rates averaged over models, Eq. (19); at least 0. If rates were estimated, it is
    # biased upwards and no bound.
    mechanism: float
    mean_of_models: float  # mean of the Epsilon* of the models; at least 0
    models: int  # number of models
    delta: float  # delta of all these values
    # Lower confidence bound on the mechanism's epsilon, at least 0; None for exact distributions.
    lower_bound: float | None = None
    confidence: float | None = None  # confidence of `lower_bound`; None without a bound


def mechanism_star_gaussian(
    member_mean: ArrayLike,
    member_std: ArrayLike,
    population_mean: ArrayLike,
    population_std: ArrayLike,
    delta: float,
    tolerance: float = 1e-6,
    cut: float = 0.0,
) -> MechanismEpsilonStar:
    """Return Epsilon* of a training mechanism, and the mean Epsilon* of its models, if scores are normal and known.

    The mechanism's Epsilon* (Negoescu et al. 2023, Eq. 19) is computed from error rates averaged over models. For each
    model, scores are standardised so that the population is N(0, 1). Then the average FNR at a given FPR is that of a
    test between a mixture of normals (members) and N(0, 1) (population).

    Parameters
    ----------
    member_mean
        Mean of the members' scores under each model, finite. The shapes of all means and standard deviations broadcast
        to (models,).
    population_mean
        Mean of the population's scores under each model, finite.
    member_std
        Standard deviation of the members' scores under each model, finite and positive.
    population_std
        Standard deviation of the population's scores under each model, finite and positive.
    delta
        Delta of Epsilon*, at least 0 and below 1. At 0 and without a cut, both values are infinite if any model has
        different distributions for members and population.
    tolerance
        Largest gap in nats at which the search for the supremum ends, positive.
    cut
        Stability cut, from 0 to below 0.5: thresholds with an error rate below `cut` or above 1 - `cut` are left out.
        It is applied to each model and to the mechanism.

    Raises
    ------
    InputError
        If a number is out of its range.
    """
    moments = (member_mean, member_std, population_mean, population_std)
    mean_1, std_1, mean_0, std_0 = np.broadcast_arrays(
        *(np.atleast_1d(np.asarray(x, dtype=np.float64)) for x in moments)
    )
    epsilon_stars = parametric.epsilon_star_gaussian(mean_1, std_1, mean_0, std_0, delta, cut)
    require(mean_1.ndim == 1 and mean_1.size >= 1, f"models have shape {mean_1.shape}: accepted is (models,)")
    require(bool(np.all((std_1 > 0) & (std_0 > 0))), "a standard deviation is 0: accepted are positive numbers")
    distributions, counts = np.unique(np.stack([(mean_1 - mean_0) / std_0, std_1 / std_0]), axis=1, return_counts=True)
    mixture = NormalMixture(counts / mean_1.size, distributions[0], distributions[1])
    together = epsilon_star_mixtures(mixture, normal(0.0, 1.0), delta, cut, tolerance)
    return MechanismEpsilonStar(together.epsilon_star, float(epsilon_stars.mean()), int(mean_1.size), delta)


def parametric_mechanism_star(
    member_losses: ArrayLike,
    population_losses: ArrayLike,
    delta: float,
    shift: float = parametric.DEFAULT_SHIFT,
    confidence: float = 0.95,
    cut: float = PARAMETRIC_CUT,
) -> MechanismEpsilonStar:
    """Estimate a training mechanism's Epsilon* and the mean Epsilon* of its models, with a lower bound on epsilon.

    A normal distribution is fitted to the scores of each model's members, and another one to those of the population.
    `mechanism_star_gaussian` gives the estimates from these distributions, `mechanism_lower_bound` the bound.

    Parameters
    ----------
    member_losses
        Losses on training records, finite and at least 0, shape (models, m), m at least 2, not all equal within a
        model. The lower bound holds only for independent models, each with its own training and population records.
    population_losses
        Losses on samples of the population, finite and at least 0, shape (models, p), p at least 2, not all equal
        within a model.
    delta
        Delta of Epsilon*, at least 0 and below 1.
    shift
        Number above 0 that is added to each normalised loss (`loss_scores`).
    confidence
        Confidence of the lower bound, which does not assume normal scores; above 0 and below 1.
    cut
        Stability cut, from 0 to below 0.5: thresholds with an error rate below `cut` or above 1 - `cut` are left out.
        It is not used for the lower bound.

    Raises
    ------
    InputError
        If a loss is negative or not finite, a model's losses are constant, or a shape or number is not accepted.
    """
    members, population = parametric.checked_pair(member_losses, population_losses)
    low = mechanism_lower_bound(members, population, delta, confidence)
    member_scores, population_scores = parametric.scores_of_pair(members, population, shift)
    estimate = mechanism_star_gaussian(
        *parametric.fit_normal(member_scores), *parametric.fit_normal(population_scores), delta, cut=cut
    )
    return replace(estimate, lower_bound=low, confidence=confidence)


def mechanism_lower_bound(
    member_losses: ArrayLike, population_losses: ArrayLike, delta: float, confidence: float = 0.95
) -> float:
    """Return a lower confidence bound on the mechanism's epsilon at `delta`, from losses of several of its models.

    The bound also holds for Epsilon* of the mechanism (Negoescu et al. 2023, Eq. 19). If it is 0, the losses prove no
    leak.

    Parameters
    ----------
    member_losses
        Losses on training records, finite and at least 0, shape (models, m), m at least 1. The models must be trained
        independently, each on its own sample of training records, or the bound is invalid.
    population_losses
        Losses on samples of the population, finite and at least 0, shape (models, p), p at least 1. Each model must
        have its own sample from the same source, or the bound is invalid.
    delta
        Delta of the guarantee, at least 0 and below 1.
    confidence
        Smallest probability with which the mechanism's epsilon is at least the bound, above 0 and below 1.

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
    parametric.require_star_delta(delta)
    require_number("confidence is", confidence, "numbers above 0 and below 1")
    members, population = parametric.checked_pair(member_losses, population_losses, at_least=1)
    require(members.ndim == 2, f"member losses have shape {members.shape}: accepted is (models, losses)")
    p = population.shape[1]
    ranks = np.unique(np.geomspace(1, max(1, int(p * _LARGEST_RATE)), _RANKS).round().astype(np.int64))
    rates = np.stack([_rates_below(sign * members, sign * population, ranks) for sign in (1, -1)])
    fpr = ranks / (p + 1)
    needed = -math.log(1 - confidence)

    def over(epsilon: float) -> float:
        """Return a number that is positive if the observed error rates reject `epsilon`.

        It is the log of the average gain of the bets in the module's docstring, minus log(1 / level).
        """
        # `beyond` has the members' rates, shape (tails, models, ranks), `most` their largest allowed means by rank.
        largest_mean = np.minimum(np.exp(epsilon) * fpr + delta, 1 - math.exp(-epsilon) * (1 - delta - fpr))
        gains = np.log1p(_STAKES * (rates / np.minimum(largest_mean, 1.0) - 1)[..., None]).sum(axis=1)
        return float(logsumexp(gains) - math.log(gains.size)) - needed

    return falling_root(over, xtol=1e-9)


def _rates_below(members: Floats, population: Floats, ranks: Integers) -> Floats:
    """Return the shares of each model's member losses below its r-th smallest population loss, for every r of `ranks`.

    The result has the shape (models, ranks).
    """
    thresholds = np.sort(population, axis=1)[:, ranks - 1]
    ordered = np.sort(members, axis=1)
    below = [
        np.searchsorted(model_losses, cut, side="left") for model_losses, cut in zip(ordered, thresholds, strict=True)
    ]
    return np.asarray(np.stack(below) / members.shape[1], dtype=np.float64)
