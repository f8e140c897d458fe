"""Epsilon* of a training mechanism beside the mean of Epsilon* over its models (Negoescu et al. 2023, appendix A).

Equation (19) averages the false negative rates of many models at one false positive rate and takes Epsilon* of the
averages. With the exact rates of the mechanism this is a lower bound on its epsilon. Theorem 2 says that the mean of
the models' own Epsilon* is at least as large. Its proof takes four functions to be convex in FNR, but two of them,
log (1-delta-FNR)/FPR and log (FNR-delta)/(1-FPR), are concave, and the theorem does not hold: if half of the models
have no leak and half have scores shifted by 1 (delta 1e-5), the mean is 2.19 and the value of Eq. (19) is 3.53. So both
numbers are returned, and nothing is said of their order.

Where the rates are estimated from losses, both numbers are estimates without a confidence, and too large on average,
since the largest ratio of estimated rates is. Where nothing leaks (losses of members and population Beta(2, 2), delta
0.001) the value of Eq. (19) is 0.27 on average with 10 models of 100 + 100 losses, and 0.03 with 100 models of
200 + 200. The lower bound that is returned beside them does have a confidence (`mechanism_bound`).
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from fl_audit.errors import require
from fl_audit.evidence.star.empirical_star import epsilon_star_of_rates
from fl_audit.evidence.star.epsilon_star import epsilon_star_gaussian, fit_normal
from fl_audit.evidence.star.loss_samples import checked_pair, scores_of_pair
from fl_audit.evidence.star.mechanism_bound import mechanism_lower_bound
from fl_audit.evidence.star.mixture_star import epsilon_star_mixtures
from fl_audit.evidence.star.normal_mixture import NormalMixture, normal


@dataclass(frozen=True)
class MechanismStar:
    """Epsilon* of a mechanism and of its models; neither of the two bounds the other."""

    # Epsilon* of the false negative rates averaged over models, Eq. (19); at least 0. Where the rates were estimated it
    # is too large on average, and no bound.
    mechanism: float
    mean_of_models: float  # mean of the Epsilon* of the models; at least 0
    models: int  # number of models
    delta: float  # the delta at which all of them hold
    # Lower confidence bound on the mechanism's epsilon, at least 0; None where exact rates were given, which need no
    # bound.
    lower_bound: float | None = None
    # Least probability with which the mechanism's epsilon is at or above `lower_bound`; None without one.
    confidence: float | None = None


def mechanism_star_of_rates(fpr: ArrayLike, fnr: ArrayLike, delta: float) -> MechanismStar:
    """Return both numbers from the exact error rates of models at common false positive rates.

    Parameters
    ----------
    fpr
        False positive rates, shape (thresholds,). Threshold i of every model is the one at which its FPR is `fpr[i]`.
    fnr
        False negative rates of each model at these thresholds, shape (models, thresholds), at least one model.
    delta
        From 0 to below 1.

    Raises
    ------
    InputError
        If shapes do not fit or a number is out of its range.
    """
    positive, negative = np.asarray(fpr, dtype=np.float64), np.asarray(fnr, dtype=np.float64)
    fits = negative.ndim == 2 and len(negative) >= 1 and positive.shape == negative.shape[1:]
    require(fits, f"FNR have shape {negative.shape}: accepted is (models, {positive.size}), as many as FPR")
    each = epsilon_star_of_rates(np.broadcast_to(positive, negative.shape), negative, delta)
    together = epsilon_star_of_rates(positive, negative.mean(axis=0), delta)
    return MechanismStar(float(together), float(each.mean()), len(negative), delta)


def mechanism_star_gaussian(
    member_mean: ArrayLike,
    member_std: ArrayLike,
    population_mean: ArrayLike,
    population_std: ArrayLike,
    delta: float,
    tolerance: float = 1e-6,
) -> MechanismStar:
    """Return both numbers of models whose scores follow known normal laws, over all false positive rates.

    If the scores of each model are standardised by its population, all models have the same threshold for a given FPR.
    Averaging their FNR then means mixing the laws of their members, so the mechanism is a mixture of normals against
    one standard normal.

    Parameters
    ----------
    member_mean
        Mean of the members' scores under each model, finite. All four arguments have shapes that broadcast to
        (models,).
    member_std
        Standard deviation of the members' scores under each model, finite and positive.
    population_mean
        Mean of the population's scores under each model, finite.
    population_std
        Standard deviation of the population's scores under each model, finite and positive.
    delta
        From 0 to below 1; at 0 both numbers are infinite unless no model has a leak.
    tolerance
        Accuracy of the supremum in nats, see `epsilon_star_mixtures`.

    Raises
    ------
    InputError
        If a number is out of its range.
    """
    given = (member_mean, member_std, population_mean, population_std)
    mean_1, std_1, mean_0, std_0 = np.broadcast_arrays(*(np.atleast_1d(np.asarray(x, dtype=np.float64)) for x in given))
    each = epsilon_star_gaussian(mean_1, std_1, mean_0, std_0, delta)
    require(mean_1.ndim == 1 and mean_1.size >= 1, f"models have shape {mean_1.shape}: accepted is (models,)")
    require(bool(np.all((std_1 > 0) & (std_0 > 0))), "a standard deviation is 0: accepted are positive numbers")
    laws, counts = np.unique(np.stack([(mean_1 - mean_0) / std_0, std_1 / std_0]), axis=1, return_counts=True)
    mixture = NormalMixture(counts / mean_1.size, laws[0], laws[1])
    together = epsilon_star_mixtures(mixture, normal(0.0, 1.0), delta, tolerance=tolerance)
    return MechanismStar(together.epsilon_star, float(each.mean()), int(mean_1.size), delta)


def parametric_mechanism_star(
    member_losses: ArrayLike, population_losses: ArrayLike, delta: float, shift: float = 1.0, confidence: float = 0.95
) -> MechanismStar:
    """Return estimates of both numbers by normals fitted to the losses of each model, and a lower bound.

    Parameters
    ----------
    member_losses
        Losses on training records, finite and at least 0, not all equal within a model, shape (models, m). The lower
        bound holds only for independent models, each with its own training and population records, see
        `mechanism_lower_bound`.
    population_losses
        Losses on samples of the population, finite and at least 0, not all equal within a model, shape (models, p).
    delta
        From 0 to below 1.
    shift
        As for `parametric_epsilon_star`.
    confidence
        Confidence of the lower bound, above 0 and below 1. The bound does not assume normal scores.

    Raises
    ------
    InputError
        If a loss is negative or not finite, a model's losses are constant, or a shape or number is not accepted.
    """
    members, population = checked_pair(member_losses, population_losses)
    require(members.ndim == 2, f"member losses have shape {members.shape}: accepted is (models, losses)")
    member_scores, population_scores = scores_of_pair(members, population, shift)
    low = mechanism_lower_bound(members, population, delta, confidence)
    found = mechanism_star_gaussian(*fit_normal(member_scores), *fit_normal(population_scores), delta)
    return replace(found, lower_bound=low, confidence=confidence)
