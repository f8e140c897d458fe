"""Where a leak may be: every group of features of every kind of game, ranked on games that prove nothing."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri
from scipy.stats import rankdata

from fl_audit.evidence.bounds.lower_bounds import epsilon_lower_bound
from fl_audit.evidence.bounds.methods import BoundMethod
from fl_audit.laboratory.claim import Limit
from fl_audit.laboratory.features import feature_groups
from fl_audit.laboratory.rules import Rule, learned_rule
from fl_audit.laboratory.seen import Floats, Games

METHODS = (BoundMethod.ORDER_STATISTIC, BoundMethod.CLOPPER_PEARSON)
"""The bounds that assume nothing of the scores."""
_SURE = 12.0
"""A shift, in spreads, beyond which two groups never overlap in any number of games that anybody plays."""
_RARE = 1 / 200
"""No rate is taken to be nearer to 0 or 1 than this: so few games cannot tell."""
_RANKING_CONFIDENCE = 0.8
"""Confidence of bounds that rank leads; nothing is certified by it."""


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
        How surely it seems to break the limit, in standard errors of a single game; only its order counts.
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


def leads(kind: str, games: Games, present: NDArray[np.bool_], limits: tuple[Limit, ...]) -> list[Lead]:
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
    """
    teaches = _half(present)
    found = []
    for group, features in feature_groups(games).items():
        rule = learned_rule(features[teaches], present[teaches])
        threshold = _best_threshold(rule(features[teaches]), present[teaches])
        entries = _margins(rule(features[~teaches]), present[~teaches], threshold, limits)
        margin, limit, method = max(entries, key=lambda entry: entry[0])
        final = learned_rule(features, present)
        found.append(Lead(kind, group, final, limit, method, margin, _best_threshold(final(features), present)))
    return sorted(found, key=lambda lead: -lead.margin)


def _half(present: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return a mask of every second game of either truth."""
    mask = np.zeros(len(present), dtype=bool)
    for truth in (True, False):
        mask[np.flatnonzero(present == truth)[::2]] = True
    return mask


def _margins(
    scores: Floats, truth: NDArray[np.bool_], threshold: float, limits: tuple[Limit, ...]
) -> list[tuple[float, Limit, BoundMethod]]:
    """Return how surely every limit seems passed: by the shift of the scores, or by a threshold, whichever says more."""
    one, zero = scores[truth], scores[~truth]
    mu = _cautious_shift(one, zero)
    rates = _smoothed(one, threshold), _smoothed(zero, threshold)
    entries = []
    for limit in limits:
        sureness = max(_sureness_of_shift(mu, limit), _sureness(*rates, limit), _sureness(*_turned(*rates), limit))
        for method in METHODS:
            by_tail = epsilon_lower_bound(one, zero, limit.delta, _RANKING_CONFIDENCE, method).epsilon
            # The second term decides between methods, the third between leads that no number of games could tell apart.
            entries.append((sureness + 1e-3 * by_tail + 1e-6 * mu, limit, method))
    return entries


def _smoothed(scores: Floats, threshold: float) -> float:
    """Return the share of scores above a threshold, drawn a little towards one half."""
    return (float(np.sum(scores > threshold)) + 1) / (scores.size + 2)


def _turned(hits: float, alarms: float) -> tuple[float, float]:
    """Return the rates of the rule that looks for D' instead of D."""
    return 1 - alarms, 1 - hits


def _sureness(hits: float | Floats, alarms: float | Floats, limit: Limit) -> float:
    """Return by how many standard errors of a single game a rule breaks hits <= e^epsilon alarms + delta.

    The largest epsilon is not what counts: at a tiny delta it may be large, and take a million games to be shown.
    """
    alarms, hits = np.clip(alarms, _RARE, 1.0), np.clip(hits, 0.0, 1 - _RARE)
    odds = math.exp(limit.epsilon)
    spread = np.sqrt(hits * (1 - hits) + odds**2 * alarms * (1 - alarms))
    return float(np.max((hits - odds * alarms - limit.delta) / spread))


def _sureness_of_shift(mu: float, limit: Limit) -> float:
    """Return the same of the best threshold on normal scores with a shift."""
    thresholds = np.linspace(-_SURE, 2 * _SURE, 361)
    return _sureness(ndtr(mu - thresholds), ndtr(-thresholds), limit)


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


def _best_threshold(scores: Floats, present: NDArray[np.bool_]) -> float:
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
