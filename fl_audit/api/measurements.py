"""What was shown, in one call each: lower bounds on epsilon from scores, and Epsilon* from losses."""

import numpy as np
from numpy.typing import ArrayLike

from fl_audit.api.promises import choice
from fl_audit.canaries.bounds import OneRunBound, one_run_bound
from fl_audit.canaries.methods import OneRunMethod
from fl_audit.errors import require
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
        Scores of trainings with and without the unit, shapes (n,) and (m,), at least one each, no NaN.
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
    members, nonmembers = (np.asarray(each, dtype=np.float64) for each in (member_scores, nonmember_scores))
    return epsilon_lower_bound(members, nonmembers, delta, confidence, choice(BoundMethod, "method", method))


def one_run_lower_bound(
    scores: ArrayLike,
    coins: ArrayLike,
    delta: float,
    *,
    confidence: float = 0.95,
    method: OneRunMethod | str = OneRunMethod.TRADE_OFF,
    guesses: int | None = None,
    dimension: int | None = None,
) -> OneRunBound:
    """Bound epsilon from below by canaries of one training, each of which was in by the toss of a fair coin.

    Parameters
    ----------
    scores
        Higher for a canary that is likelier in, no NaN, any shape.
    coins
        Which were in, bool or 0 and 1, same shape.
    delta
        The bound is on epsilon at this delta; from 0 to below 1.
    confidence
        Above 0.5 and below 1.
    method
        `trade-off` and `steinke` hold whatever the mechanism. `order-statistic`, `shift` and `cosines` prove more, but
        only where noise is Gaussian and independent: a mechanism that leaks coins together breaks them.
    guesses
        How many coins to guess, fixed beforehand; None takes a fifth, for `order-statistic` half.
    dimension
        Number of parameters of the release, for `cosines` alone.

    Raises
    ------
    InputError
        If shapes do not fit or a number is out of its range.

    Examples
    --------
    >>> in_order = np.arange(1000.0)
    >>> bound = one_run_lower_bound(in_order, in_order >= 500, 1e-5)
    >>> round(bound.epsilon, 2), bound.guesses.right
    (4.19, 200)
    """
    tossed = np.asarray(coins)
    if tossed.dtype != np.bool_:
        require(bool(np.isin(tossed, (0, 1)).all()), "coins are not all 0 or 1: accepted are 0 (out) and 1 (in)")
    chosen = choice(OneRunMethod, "method", method)
    return one_run_bound(scores, tossed.astype(np.bool_), delta, confidence, chosen, guesses, dimension=dimension)


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
        Losses on training records and on a sample of the population, at least 0, finite, shapes (m,) and (p,), at
        least two each.
    delta
        From 0 to below 1; the paper recommends less than one over the number of members.
    method
        `parametric` fits a normal law to each set, `mixture` a mixture of normals, `empirical` counts.
    confidence
        Of the interval, above 0 and below 1.
    rng
        Draws the bootstrap samples; None starts a generator at 0, so that equal calls answer alike.

    Raises
    ------
    InputError
        If a loss is negative or not finite, or a number is out of its range.
    """
    generator = np.random.default_rng(0) if rng is None else rng
    chosen = choice(StarMethod, "method", method)
    return estimate_epsilon_star(member_losses, population_losses, delta, generator, chosen, confidence)
