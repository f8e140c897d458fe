"""Checks of a running training: reasons for no verdict, and other clients' updates that can hide missing noise.

An inconsistency never leads to the verdict `violated`. If it shows that scores do not belong to the canaries, these
scores are no evidence. Each of the three inconsistencies that are found from scores has a false alarm rate of at most 1
in 1,000 trainings with the claimed noise, at one analysis. The variance of rounds also differs for honest reasons:
updates of other clients add to the noise, and they shrink as the model converges.

**How other updates hide missing noise.** In units of the sensitivity D, the score of a canary is c + <X, v> / D + z'
N(0, 1). Here c is the canary's own contribution, which its coin decides, X is the sum of what all others send, v is the
canary's direction, and z' is the true noise multiplier. v is uniform on the sphere of d dimensions and independent of
X, so <X, v> has mean 0 and variance |X|^2 / d. The standard deviation of scores is sqrt(z'^2 + s^2), where s = |X| / (D
sqrt(d)), and the observable part of mu = 1/z' is

    m = 1 / sqrt(1/mu^2 + s^2) <= min(mu, 1/s).

A test that detects m* detects mu only from 1 / sqrt(1/m*^2 - s^2). If s >= 1/m* it detects nothing, not even the
absence of noise.

Scores do not separate s from z': they show only z'^2 + s^2. But s is bounded. Let D be the sensitivity of the heaviest
client; c may be a fraction of it. n other clients, each clipped to C and with no larger weight than the heaviest
client, send |X| <= n C together. The other canaries have independent directions, and each of them that is sent adds C^2
to |X|^2. A larger variance of the scores is detected.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from math import hypot, inf, sqrt

import numpy as np
from scipy.special import fdtr
from scipy.stats import binom

from fl_audit.adjacency import Relation
from fl_audit.array_types import Floats
from fl_audit.audits.canaries.canary_draws import DECOYS
from fl_audit.audits.canaries.observer_store import StoredGuarantee
from fl_audit.audits.canaries.stored_rounds import StoredRound, units
from fl_audit.privacy.stated_releases import StatedReleases
from fl_audit.statistics.shift_bound import gaussian_slope, noncentral_t_quantile, spread_of_parts
from fl_audit.verdict.multiple_testing import FAMILY_LEVEL


@dataclass(frozen=True)
class BackgroundVariance:
    """The variance that other clients' updates add to the noise in the scores."""

    spread: float  # s, at least 0: the bound, or more where more is seen; infinite where no canary stands out
    # Whether canaries stand out less than the claimed noise and the bound explain: others' updates lie over them,
    # clients did not take part, coins are not those that were tossed, or there is more noise than was claimed.
    is_seen: bool

    def shown(self, mu: float) -> float:
        """Return the mu that is observable in the scores, for a true mu above 0 and finite."""
        return 1 / hypot(1 / mu, self.spread)

    def behind(self, shown: float) -> float:
        """Return the true mu for an observable mu above 0; infinite if no true mu is observable as so much."""
        left = shown**-2 - self.spread**2
        return 1 / sqrt(left) if left > 0 else inf


def squared_spread(others: float, canaries: int, size: int, is_replaced: bool) -> float:
    """Return an upper bound on s^2, the variance that other clients' updates add to the scores of a round.

    Parameters
    ----------
    others
        The number of clients that answered and do not send canaries, or their total weight in units of the heaviest
        client.
    canaries
        Number of canaries. In expectation half of them are sent, or all of them if a canary that is out sends its
        opposite.
    size
        Number of parameters d, at least 1.
    is_replaced
        Whether the relation is replacement of a client, so that the sensitivity is 2 C instead of C.
    """
    sent, unit = (canaries, 2) if is_replaced else (canaries / 2, 1)
    return (others**2 + sent) / size / unit**2


def dilution(
    squared: float, claimed: float, found: float, low: float, sizes: tuple[float, float]
) -> BackgroundVariance:
    """Return the variance that other clients' updates add to the noise in the scores.

    By default it is the upper bound `squared`. If the estimate of mu is so low that the claimed noise and this bound
    explain it in at most 1 in 1,000 trainings, the variance is the largest one that this estimate allows beside the
    claimed noise.

    Parameters
    ----------
    squared
        Upper bound on s^2, the variance that other clients' updates add.
    claimed
        Claimed mu of a round, above 0.
    found
        Estimate of mu of a round, at least 0.
    low
        Lower confidence bound of mu of a round, at least 0.
    sizes
        Root of the sum of squared deviations of the scores' parts from their mean, and degrees of freedom, as for
        `detectable_slope`.
    """
    least = BackgroundVariance(sqrt(squared), is_seen=False)
    if not _stands_out_too_little(least.shown(claimed), found, sizes, FAMILY_LEVEL):
        return least
    left = low**-2 - claimed**-2 if low else inf
    return BackgroundVariance(sqrt(max(squared, left)), is_seen=True)


def _stands_out_too_little(shown: float, found: float, sizes: tuple[float, float], level: float) -> bool:
    """Return whether so low an estimate has a probability below the level if mu shows as much as it should."""
    root, degrees = sizes
    return degrees >= 2 and found * root < noncentral_t_quantile(level, degrees, shown * root)


class Inconsistency(StrEnum):
    """A kind of inconsistency in the stored rounds of a training."""

    OVERRUN = "overrun"  # a later round than the last claimed one was kept: those that were not may be too many
    GAPS = "gaps"  # rounds start from other models than those before them were seen to release
    OUT = "out"  # contribution of canaries that are out: not stated, and different from the guarantee's need
    FAINT = "faint"  # canaries, or one of them, stand out less than the claimed noise lets them
    UNEVEN = "uneven"  # rounds have far less noise than the others, or are on another scale
    ATTENDANCE = "attendance"  # canaries take part more often than units are sampled, or nobody saw how often


@dataclass(frozen=True)
class Inconsistencies:
    """All inconsistencies in the stored rounds of a training."""

    kinds: frozenset[Inconsistency]  # reasons why no finding is `consistent`
    faint: tuple[int, ...]  # canaries that stand out too little, each by itself
    uneven: tuple[int, ...]  # rounds with far less noise than the others
    knows_canaries: bool  # whether of every canary it was kept what it sends, and with which coins


def doubts_about(
    every: Sequence[StoredRound], whole: Sequence[StoredRound], opened: tuple[Floats, Floats, Floats],
    guarantee: StoredGuarantee,
    hidden: BackgroundVariance, weights: Floats,
) -> Inconsistencies:  # fmt: skip
    """Return the inconsistencies in the stored rounds of a training.

    Parameters
    ----------
    every
        All rounds that were stored.
    whole
        The complete rounds, in which every canary answered once.
    opened
        Scores, coins and decoy scores of the complete rounds.
    guarantee
        The claimed guarantee of the training.
    hidden
        Variance of the updates of other clients, which may hide missing noise.
    weights
        Weight of each canary relative to the heaviest client, from 0 to 1, shape (canaries,).
    """
    (scores, coins, decoys), relation = opened, guarantee.terms.adjacency.relation
    claimed = 1 / guarantee.terms.noise_multiplier
    faint, shown = _faint(scores, coins, claimed, hidden, weights), weights.min() * hidden.shown(claimed)
    uneven, steps = _uneven_rounds(every), [pair for pair in pairwise(every) if pair[1].number == pair[0].number + 1]
    knows = all(note.is_replaced is not None and note.coins is not None for one in whole for note in one.present)
    found = {
        Inconsistency.OVERRUN: every[-1].number > guarantee.terms.rounds,
        # A round that starts from another model than the one before it released: what was seen is then not what is
        # released. Who watches inside of what adds the noise, for one, sees none of it.
        Inconsistency.GAPS: any(one.after is not None and then.before != one.after for one, then in steps),
        Inconsistency.OUT: not knows and _is_other_out(scores, coins, decoys, relation, shown),
        Inconsistency.FAINT: hidden.is_seen or bool(faint),
        Inconsistency.UNEVEN: bool(uneven),
        Inconsistency.ATTENDANCE: _is_sampled_otherwise(every, guarantee.canaries, guarantee.terms),
    }
    return Inconsistencies(frozenset(one for one, is_so in found.items() if is_so), faint, uneven, knows)


def _is_other_out(scores: Floats, coins: Floats, decoys: Floats, relation: Relation, shown: float) -> bool:
    """Return whether canaries that are out send something other than the adjacency relation implies.

    Updates along other directions have mean 0 along the canary's direction. So a canary that is out has a mean score of
    0 if it sends nothing, and of minus half the observable mu if it sends its opposite. A t-test at level 1 in 1,000
    checks this.
    """
    if (out := scores[coins == 0]).size < 2:
        return False
    degrees, root = out.size - 1 + decoys.size, sqrt(out.size)
    squares = float(out.size * np.var(out) + np.sum(np.square(decoys)))
    below = -float(np.mean(out)) / sqrt(squares / degrees) if squares else 0.0
    if relation is Relation.REPLACE:
        return _stands_out_too_little(shown / 2, max(0.0, below), (root, degrees), FAMILY_LEVEL)
    return below * root > noncentral_t_quantile(1 - FAMILY_LEVEL, degrees, 0.0)


def _faint(
    scores: Floats, coins: Floats, claimed: float, hidden: BackgroundVariance, weights: Floats
) -> tuple[int, ...]:
    """Return the canaries whose scores are too low, as happens if a canary uses other coins than the evaluation.

    Scores of a canary that is in are compared with its own scores when it is out, not with decoys: with wrong coins it
    would still exceed decoys, since it is sent in half of the rounds.
    """
    found, count = [], scores.shape[1]
    for one in range(count):
        mu = max(0.0, gaussian_slope(coins[:, one], scores[:, one], 0.5).shift)
        sizes = spread_of_parts(coins[:, one]), len(coins) - 2
        if _stands_out_too_little(weights[one] * hidden.shown(claimed), mu, sizes, FAMILY_LEVEL / count):
            found.append(one)
    return tuple(found)


def _uneven_rounds(rounds: Sequence[StoredRound]) -> tuple[int, ...]:
    """Return the numbers of rounds whose decoy scores have a far smaller variance than those of all other rounds.

    This is an F-test of each round's sum of squares against that of all other rounds, with degrees of freedom from the
    numbers of decoys and parameters. It finds rounds without noise, or with an average over far more clients.
    """
    kept = [one for one in rounds if len(one.scores) > DECOYS]
    if len(kept) < 2:
        return ()
    squares = np.square(np.array([one.scores[-DECOYS:] for one in kept]) / units(kept)[:, None]).sum(axis=1)
    degrees = np.array([1 / (1 / DECOYS + (1 / one.size if one.size else 0)) for one in kept])
    rest, freedom = squares.sum() - squares, degrees.sum() - degrees
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.where(rest > 0, squares / degrees * freedom / rest, 1.0)
    chances = fdtr(degrees, freedom, ratios)
    return tuple(one.number for one, chance in zip(kept, chances, strict=True) if chance < FAMILY_LEVEL / len(kept))


def _is_sampled_otherwise(rounds: Sequence[StoredRound], canaries: int, terms: StatedReleases) -> bool:
    """Return whether canaries took part more often than the claimed sampling rate implies, or how often is unknown."""
    if terms.sampling_rate == 1:
        return False
    answered = [note for one in rounds for note in one.present]
    if any(one.models_only for one in rounds) or any(note.coins is None for note in answered):
        return True
    often = binom.sf(len(answered) - 1, canaries * len(rounds), terms.sampling_rate)
    return bool(often < FAMILY_LEVEL)
