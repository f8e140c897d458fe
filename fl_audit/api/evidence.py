"""Functions for evidence on epsilon: `lower_bound` from the scores of an attack and `epsilon_star` from losses."""

import numpy as np
from numpy.typing import ArrayLike

from fl_audit.released_model.star_estimate import StarEstimate, estimate_epsilon_star
from fl_audit.released_model.star_methods import StarMethod
from fl_audit.statistics.lower_bound_methods import BoundMethod
from fl_audit.statistics.lower_bounds import LowerBound, epsilon_lower_bound
from fl_audit.value_checks import as_floats, choice


def lower_bound(
    member_scores: ArrayLike,
    nonmember_scores: ArrayLike,
    delta: float,
    *,
    confidence: float = 0.95,
    method: BoundMethod | str = BoundMethod.CLOPPER_PEARSON,
) -> LowerBound:
    """Return a lower confidence bound on epsilon, computed from the scores of an attack.

    Parameters
    ----------
    member_scores
        Scores of trainings with the unit in question, shape (n,), n at least 1, no NaN. A higher score indicates that
        the unit was in the training data.
    nonmember_scores
        Scores of trainings without this unit, shape (m,), m at least 1, no NaN.
    delta
        Delta at which epsilon is bounded, at least 0 and below 1.
    confidence
        Confidence of the bound, above 0.5 and below 1.
    method
        Method of the bound. `clopper-pearson` assumes nothing about the scores; see `BoundMethod` for others.

    Raises
    ------
    InputError
        If a number is out of its range, or the method is not applicable to the scores.

    Examples
    --------
    >>> scores = np.arange(100.0)
    >>> round(lower_bound(scores + 100, scores, 0.0).epsilon, 2)
    3.05
    """
    members = as_floats("member scores", member_scores)
    nonmembers = as_floats("nonmember scores", nonmember_scores)
    return epsilon_lower_bound(members, nonmembers, delta, confidence, choice(BoundMethod, "method", method))


def epsilon_star(
    member_losses: ArrayLike,
    population_losses: ArrayLike,
    delta: float,
    *,
    method: StarMethod | str | None = None,
    confidence: float = 0.95,
    cut: float | None = None,
    rng: np.random.Generator | None = None,
) -> StarEstimate:
    """Return an estimate of Epsilon*, the privacy risk of one released model (Negoescu et al. 2023), from its losses.

    Parameters
    ----------
    member_losses
        Losses on training records, finite and at least 0, shape (m,), m at least 2.
    population_losses
        Losses on a sample of the population, finite and at least 0, shape (p,), p at least 2.
    delta
        Delta of Epsilon* (Definition 2), at least 0 and below 1. The paper recommends a value below 1 / m.
    method
        `parametric` fits a normal distribution to each set of losses, `mixture` a mixture of normal distributions, and
        `empirical` uses the empirical distributions. None selects `parametric` if a test accepts its fit, else
        `empirical`.
    confidence
        Confidence of the bootstrap interval, above 0 and below 1.
    cut
        Error rates below `cut` or above 1 - `cut` are ignored for numerical stability; at least 0 and below 0.5. None
        selects the cut of the paper: 0.001 for `empirical`, 1e-6 otherwise.
    rng
        Random generator of the bootstrap samples. None uses seed 0, so that equal calls return equal results.

    Raises
    ------
    InputError
        If a loss is negative or not finite, or a number is out of its range.
    """
    generator = np.random.default_rng(0) if rng is None else rng
    chosen = None if method is None else choice(StarMethod, "method", method)
    members = as_floats("member losses", member_losses)
    population = as_floats("population losses", population_losses)
    return estimate_epsilon_star(members, population, delta, generator, chosen, confidence, cut)
