"""Where a leak may be: every group of features of every kind of game, ranked on games that prove nothing."""

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri
from scipy.stats import rankdata

from fl_audit.arrays import Flags, Floats
from fl_audit.evidence.bounds.lower_bounds import epsilon_lower_bound
from fl_audit.evidence.bounds.methods import BoundMethod
from fl_audit.laboratory.claim import Limit
from fl_audit.laboratory.features import feature_groups
from fl_audit.laboratory.rules import Rule, learned_rule
from fl_audit.laboratory.seen import Games

METHODS = (BoundMethod.ORDER_STATISTIC, BoundMethod.CLOPPER_PEARSON)
"""The bounds that assume nothing of the scores."""
_SURE = 12.0
"""A shift, in spreads, beyond which two groups never overlap in any number of games that anybody plays."""
_LARGE_DELTA = 0.03
"""From here on counting guesses is the better bound where so few games prove nothing by either."""
_RANKING_CONFIDENCE = 0.8
"""Confidence of bounds that rank leads; nothing is certified by it."""
_RANKING_QUANTILE = 2.3
"""Standard errors that a bound of fresh games is expected to lose on each of its two rates."""
_RATES = np.geomspace(1e-4, 0.5, 200)
"""Rates of false alarms at which a bound is expected."""


@dataclass(frozen=True)
class Lead:
    """A way to tell D from D', to be tried on games of its own.

    Parameters
    ----------
    kind
        The kind of game.
    group
        What is looked at.
    rule
        From this group's features to scores.
    limit
        The part of the claim that it is most likely to break.
    method
        The bound that did best.
    margin
        By how much it seems to pass the claim's epsilon; only its order counts.
    threshold
        Score above which D is believed, for the share of right guesses.
    """

    kind: str
    group: str
    rule: Rule
    limit: Limit
    method: BoundMethod
    margin: float
    threshold: float


def leads(kind: str, games: Games, present: Flags, limits: tuple[Limit, ...], fresh: int) -> list[Lead]:
    """Return a lead for every group of features, the best first.

    Half of the games teach the rules and the other half ranks them, after which the rules are learned on all of them.

    Parameters
    ----------
    kind
        Name of the kind of game.
    games
        Games of this kind.
    present
        Whether D was played, shape (games,).
    limits
        What follows from the claim.
    fresh
        How many games may try a lead: few games prove little at a small delta.
    """
    teaches = _half(present)
    found = []
    for group, features in feature_groups(games).items():
        rule = learned_rule(features[teaches], present[teaches])
        scores, truth = rule(features[~teaches]), present[~teaches]
        margin, limit, method = max(_margins(scores, truth, limits, fresh // 2), key=lambda entry: entry[0])
        final = learned_rule(features, present)
        threshold = _best_threshold(final(features), present)
        found.append(Lead(kind, group, final, limit, method, margin, threshold))
    return sorted(found, key=lambda lead: -lead.margin)


def _half(present: Flags) -> Flags:
    """Return a mask of every second game of either truth."""
    mask = np.zeros(len(present), dtype=bool)
    for truth in (True, False):
        mask[np.flatnonzero(present == truth)[::2]] = True
    return mask


def _margins(
    scores: Floats, truth: Flags, limits: tuple[Limit, ...], fresh: int
) -> list[tuple[float, Limit, BoundMethod]]:
    """Return how far every limit will be passed: by the shift of the scores, or by their tails, whichever says more."""
    one, zero = scores[truth], scores[~truth]
    mu = _cautious_shift(one, zero)
    entries = []
    for limit in limits:
        by_shift = _expected_epsilon(mu, limit.delta, fresh)
        for method in METHODS if limit.delta < _LARGE_DELTA else METHODS[::-1]:
            by_tail = epsilon_lower_bound(one, zero, limit.delta, _RANKING_CONFIDENCE, method).epsilon
            # The second term decides between methods, and between leads that no number of games could tell apart.
            entries.append((max(by_shift, by_tail) - limit.epsilon + 1e-3 * by_tail + 1e-6 * mu, limit, method))
    return entries


def _expected_epsilon(mu: float, delta: float, fresh: int) -> float:
    """Return about the epsilon that so many fresh games of either truth would prove of normal scores."""
    lost = _RANKING_QUANTILE / math.sqrt(fresh)
    found = ndtr(mu + ndtri(_RATES))
    at_least = found - lost * np.sqrt(found * (1 - found)) - delta
    at_most = _RATES + lost * np.sqrt(_RATES * (1 - _RATES)) + lost**2
    return max(0.0, float(np.max(np.log(np.maximum(at_least, 1e-300) / at_most))))


def _cautious_shift(one: Floats, zero: Floats) -> float:
    """Return the shift of two normal laws with this area under the ROC curve, less one standard error."""
    ordered = rankdata(np.concatenate([one, zero]))
    pairs = one.size * zero.size
    area = (ordered[: one.size].sum() - one.size * (one.size + 1) / 2) / pairs
    if np.min(one) > np.max(zero):
        spread = math.sqrt((np.var(one) + np.var(zero)) / 2)
        gap = float(np.mean(one) - np.mean(zero))
        return min(_SURE, gap / spread if spread > gap / _SURE else _SURE)
    shift = math.sqrt(2) * float(ndtri(min(max(area, 0.5 / pairs), 1 - 0.5 / pairs)))
    return max(0.0, shift - math.sqrt(1 / one.size + 1 / zero.size))


def _best_threshold(scores: Floats, present: Flags) -> float:
    """Return the score above which most games are guessed right."""
    order = np.argsort(scores)
    ordered, truth = scores[order], present[order]
    right = np.concatenate([[truth.sum()], truth.sum() - np.cumsum(truth) + np.cumsum(~truth)])
    # Between equal scores there is no threshold.
    right[1:-1][ordered[1:] == ordered[:-1]] = -1
    best = int(np.argmax(right))
    if best == 0:
        return float(ordered[0]) - 1.0
    return float(ordered[-1]) + 1.0 if best == len(ordered) else float((ordered[best - 1] + ordered[best]) / 2)
