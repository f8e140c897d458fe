"""What was shown, in one call each: lower bounds on epsilon from scores, and Epsilon* from losses."""

import numpy as np
from numpy.typing import ArrayLike

from fl_audit.errors import as_floats, choice
from fl_audit.evidence.bounds.lower_bounds import LowerBound, epsilon_lower_bound
from fl_audit.evidence.bounds.methods import BoundMethod
from fl_audit.evidence.star.methods import StarMethod
from fl_audit.evidence.star.star_estimate import StarEstimate, estimate_epsilon_star


def lower_bound(
    member_scores: ArrayLike,
    nonmember_scores: ArrayLike,
    delta: float,
    *,
    confidence: float = 0.95,
    method: BoundMethod | str = BoundMethod.CLOPPER_PEARSON,
) -> LowerBound:
    """Bound epsilon from below by the scores of any attack; higher scores mean members.

    Parameters
    ----------
    member_scores, nonmember_scores
        Scores of trainings with the unit, shape (n,), and without it, (m,), at least one of each, no NaN.
    delta
        The bound is on epsilon at this delta; from 0 to below 1.
    confidence
        Above 0.5 and below 1.
    method
        `clopper-pearson` assumes nothing of the scores; others are named by `BoundMethod`, each with its assumption.

    Raises
    ------
    InputError
        If a number is out of its range or the method cannot take the scores.

    Examples
    --------
    >>> scores = np.arange(100.0)
    >>> round(lower_bound(scores + 100, scores, 0.0).epsilon, 2)
    3.05
    """
    members, nonmembers = as_floats("member scores", member_scores), as_floats("nonmember scores", nonmember_scores)
    return epsilon_lower_bound(members, nonmembers, delta, confidence, choice(BoundMethod, "method", method))


def epsilon_star(
    member_losses: ArrayLike,
    population_losses: ArrayLike,
    delta: float,
    *,
    method: StarMethod | str = StarMethod.PARAMETRIC,
    confidence: float = 0.95,
    rng: np.random.Generator | None = None,
) -> StarEstimate:
    """Measure the privacy risk of one model from its losses: Epsilon* of Negoescu et al. 2023, Definition 2.

    Parameters
    ----------
    member_losses, population_losses
        Losses on training records, shape (m,), and on a sample of the population, (p,), at least two of each, finite
        and at least 0.
    delta
        From 0 to below 1; the paper recommends less than one over the number of members.
    method
        `parametric` fits a normal law to each set, `mixture` a mixture of normals, `empirical` counts.
    confidence
        Confidence of the interval, above 0 and below 1.
    rng
        Draws the bootstrap samples; None starts a generator at 0, so that equal calls answer alike.

    Raises
    ------
    InputError
        If a loss is negative or not finite, or a number is out of its range.
    """
    generator = np.random.default_rng(0) if rng is None else rng
    chosen = choice(StarMethod, "method", method)
    members, population = as_floats("member losses", member_losses), as_floats("population losses", population_losses)
    return estimate_epsilon_star(members, population, delta, generator, chosen, confidence)
