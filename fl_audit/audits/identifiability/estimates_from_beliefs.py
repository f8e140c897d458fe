"""Estimate the insider's success, and delta and epsilon of the audited pair D and D', from the insider's log-odds.

The log-odds L of D against D' are the exact log-likelihood ratio if the noise is as claimed. They give the posterior
probability that the insider's guess is right. The mean of this probability over trials estimates the insider's success
rate. Likewise the mean of max(0, 1 - e^(eps - L)) over trials with D estimates delta(eps) of the pair in one direction.
These means of bounded variables have a far smaller variance than counts of right guesses. For comparison,
`counted_delta` estimates delta by counting trials.
"""

import math

import numpy as np
from scipy.special import expit, logit

from fl_audit.array_types import Flags, Floats
from fl_audit.errors import require
from fl_audit.privacy.gaussian import require_delta, require_epsilon
from fl_audit.privacy.identifiability_bounds import require_prior
from fl_audit.root_finding import falling_root, last_true
from fl_audit.statistics.advantage import MeanBettingTest, MeanInterval, clopper_pearson, mean_interval
from fl_audit.statistics.interval_estimates import EstimateWithConfidence

ASSUMPTION = (
    "The log-odds are the exact likelihood ratio, which holds where the noise is what was claimed: the verdict's tests "
    "and the calibration of the beliefs are the evidence for that."
)
"""The assumption of every number in this module."""

_LARGEST_EPSILON = 1e6

_FIRST_FORESEEN = 16  # number of trials before epsilon is guessed for the first time, to choose stakes


def chance_of_being_right(log_odds: Floats, prior: float = 0.5, coin: float = 0.5) -> Floats:
    """Return the posterior probability that the insider's guess is right, for each trial, shape (trials,).

    Shapes: `log_odds` (trials,).

    `prior`: The insider guesses D if its posterior odds favour D.

    `coin`: If it is not the prior, the result can be below 1/2.

    Examples
    --------
    >>> chance_of_being_right(np.array([0.0, 2.0, -2.0])).round(3).tolist()
    [0.5, 0.881, 0.881]
    """
    require_prior(prior)
    require_prior(coin)
    guess = np.where(log_odds + logit(prior) > 0, 1.0, -1.0)
    return np.asarray(expit(guess * (log_odds + logit(coin))), dtype=np.float64)


def advantage_from_beliefs(log_odds: Floats, confidence: float, prior: float = 0.5, coin: float = 0.5) -> MeanInterval:
    """Return an estimate of the insider's advantage from its log-odds, with a confidence interval.

    The advantage is 2 p - 1, where p is the probability of a right guess. The estimate of p is the mean over trials of
    the insider's posterior probability that its guess is right.

    Shapes: `log_odds` (trials,).

    `prior`: At prior 1/2 the advantage is the total variation distance of the releases under D and D'.
    """
    smallest = 0.0 if prior == coin else -1.0  # whoever knows the coin has no negative advantage
    return mean_interval(2 * chance_of_being_right(log_odds, prior, coin) - 1, confidence, smallest)


def _delta_terms(log_odds: Floats, epsilon: float) -> Floats:
    """Return max(0, 1 - e^(epsilon - L)) for each trial, whose mean is delta(epsilon) (Balle & Wang 2018, theorem 5).

    L are the log-odds of the data set that was used, given as `log_odds`.
    """
    return np.asarray(-np.expm1(np.minimum(0.0, epsilon - log_odds)), dtype=np.float64)


def delta_from_beliefs(log_odds: Floats, members: Flags, epsilon: float, confidence: float) -> EstimateWithConfidence:
    """Estimate the delta of the audited pair D and D' at a given epsilon, from the log-odds of trials.

    The result is the larger of two estimates: one for D against D', and one for D' against D.

    Shapes: `log_odds` (trials,), `members` (trials,).

    `confidence`: Each of the two estimates has half of the error probability.
    """
    require_epsilon(epsilon)
    each = (1 + confidence) / 2
    found = [mean_interval(_delta_terms(part, epsilon), each) for part in _log_odds_of_used_set(log_odds, members)]
    return _larger([(one.mean, one.low, one.high) for one in found], confidence)


def counted_delta(log_odds: Floats, members: Flags, epsilon: float, confidence: float) -> EstimateWithConfidence:
    """Estimate delta of the audited pair as `delta_from_beliefs` does, but by counting trials.

    With L the log-odds, delta(epsilon) is P(L > epsilon | D) - e^epsilon P(L > epsilon | D'), or the same with D and D'
    exchanged, whichever is larger (Neyman-Pearson). Each of the four probabilities has a Clopper-Pearson interval with
    a quarter of the error probability.

    Shapes: `log_odds` (trials,), `members` (trials,).
    """
    require_epsilon(epsilon)
    # If e^eps overflows, a single false alarm already makes the difference negative, so any large factor will do.
    each, price = 1 - (1 - confidence) / 4, math.exp(min(epsilon, 700.0))
    with_d, without = _log_odds_of_used_set(log_odds, members)
    found = []
    for own, other in ((with_d, -without), (without, -with_d)):
        hits, false = int((own > epsilon).sum()), int((other > epsilon).sum())
        low, high = clopper_pearson(hits, own.size, each)
        false_low, false_high = clopper_pearson(false, other.size, each)
        value = hits / own.size - price * false / other.size
        found.append((max(0.0, value), max(0.0, low - price * false_high), max(0.0, high - price * false_low)))
    return _larger(found, confidence)


def epsilon_from_beliefs(log_odds: Floats, members: Flags, delta: float, confidence: float) -> EstimateWithConfidence:
    """Estimate epsilon of the audited pair D and D' at a given delta, from the log-odds of trials.

    The interval contains every epsilon that a betting test does not reject. The test asks whether delta can be the mean
    of max(0, 1 - e^(epsilon - L)) over trials. Here L is the log-odds of the data set that a trial used. The mean falls
    with epsilon, so bisection finds the ends of the interval. Raises `InputError` as `delta_from_beliefs` does.

    Shapes: `log_odds` (trials,), `members` (trials,).

    `delta`: If delta is smaller than a few times 1 / (number of trials), epsilon has no upper bound and `high` is
    infinite.
    """
    require_delta(delta)
    each = (1 + confidence) / 2
    return _larger(
        [_epsilon_interval(part, delta, each) for part in _log_odds_of_used_set(log_odds, members)], confidence
    )


def _log_odds_of_used_set(log_odds: Floats, members: Flags) -> tuple[Floats, ...]:
    """Return two arrays with the log-odds of the data set that was really used, one value per trial.

    The first array has the trials with D, the second one the trials with D'.
    """
    require(log_odds.shape == members.shape, f"bits have shape {members.shape}: accepted is {log_odds.shape}")
    parts = log_odds[members], -log_odds[~members]
    require(all(part.size for part in parts), "one kind of trial is missing: accepted are trials with D and with D'")
    return parts


def _larger(parts: list[tuple[float, float, float]], confidence: float) -> EstimateWithConfidence:
    value, low, high = (max(part[at] for part in parts) for at in range(3))
    return EstimateWithConfidence(value, low, high, confidence)


def _epsilon_interval(log_odds: Floats, delta: float, confidence: float) -> tuple[float, float, float]:
    """Estimate epsilon(delta) in trials that all used D, or all used D'; return the estimate and its interval's ends.

    `log_odds` are the log-odds of the data set that these trials used.
    """
    largest = min(_LARGEST_EPSILON, max(0.0, float(log_odds.max())))
    stakes = MeanBettingTest.of(_foreseen_terms(log_odds, delta), confidence)

    def is_too_small(epsilon: float) -> bool:  # delta(eps) is proven to exceed delta
        return stakes.with_numbers(_delta_terms(log_odds, epsilon)).refutes_too_small(delta)

    def is_too_large(epsilon: float) -> bool:  # delta(eps) is proven to be below delta
        return stakes.with_numbers(_delta_terms(log_odds, epsilon)).refutes_too_large(delta)

    low = last_true(is_too_small, 0.0, largest)
    high = 0.0 if is_too_large(0.0) else math.inf
    if high > 0 and is_too_large(largest):
        high = -last_true(lambda number: is_too_large(-number), -largest, -low)
    return _plug_in_epsilon(log_odds, delta, largest), low, high


def _foreseen_terms(log_odds: Floats, delta: float) -> Floats:
    """Return max(0, 1 - e^(epsilon - L)) for each trial, with epsilon estimated from earlier trials only.

    L are the log-odds of the data set that was used, given as `log_odds`. The stakes of the betting test are chosen
    from the result, so it must not depend on later trials. Epsilon is estimated anew whenever the number of trials has
    doubled.
    """
    found, epsilon, start = np.empty_like(log_odds), 0.0, 0
    while start < log_odds.size:
        end = max(_FIRST_FORESEEN, 2 * start)
        found[start:end] = _delta_terms(log_odds[start:end], epsilon)
        seen = log_odds[:end]
        epsilon, start = _plug_in_epsilon(seen, delta, min(_LARGEST_EPSILON, max(0.0, float(seen.max())))), end
    return found


def _plug_in_epsilon(log_odds: Floats, delta: float, largest: float) -> float:
    """Return the epsilon, from 0 to `largest`, at which the mean of max(0, 1 - e^(epsilon - L)) over trials is delta.

    L are the log-odds of the data set that was used, given as `log_odds`.
    """

    def excess(epsilon: float) -> float:
        return float(_delta_terms(log_odds, epsilon).mean()) - delta

    return falling_root(excess, largest, largest, xtol=1e-10)
