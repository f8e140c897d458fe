"""Check a running training for inconsistencies, and for other clients' updates that can hide missing noise.

An inconsistency rules out the verdict `consistent`, and never leads to `violated`. Three kinds of inconsistency are
found from scores. Each of them has a false alarm rate of at most 1 in 1,000 trainings with the claimed noise, for one
analysis. The variance of rounds may also differ for honest reasons: the updates of other clients add to the noise, and
they shrink as the model converges.

**How other updates hide missing noise.** In units of the sensitivity D, the score of a canary is c + <X, v> / D + z'
N(0, 1). Here c is the canary's own contribution, X is the sum of the contributions of all others, v is the canary's
direction, and z' is the true noise multiplier. The direction v is uniform on the sphere of d dimensions and independent
of X, so <X, v> has mean 0 and variance |X|^2 / d. Therefore the standard deviation of scores is sqrt(z'^2 + s^2) with s
= |X| / (D sqrt(d)). The scores then show, instead of mu = 1 / z', only

    m = 1 / sqrt(1/mu^2 + s^2) <= min(mu, 1/s).

A test that detects the value m* of m detects mu only from 1 / sqrt(1/m*^2 - s^2). If s >= 1/m* it detects nothing, not
even the absence of noise.

The scores show only the sum z'^2 + s^2, but s has an upper bound. Let D be the sensitivity of the heaviest client, and
n the number of other clients. Each of them is clipped to C and has no larger weight than the heaviest client, so
together they contribute at most n C to |X|. The other canaries have independent directions, and each canary that is
sent adds C^2 to |X|^2.
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
from fl_audit.app_audits.live.observer_store import StoredGuarantee
from fl_audit.app_audits.live.stored_rounds import StoredRound, canary_norms
from fl_audit.array_types import Floats
from fl_audit.audits.canaries.canary_draws import DECOYS
from fl_audit.privacy.stated_releases import StatedReleases
from fl_audit.statistics.shift_bound import gaussian_slope, noncentral_t_quantile, root_sum_of_squared_deviations
from fl_audit.verdict.declared_tests import FAMILY_LEVEL


@dataclass(frozen=True)
class OtherClientsVariance:
    """The variance that the updates of other clients add to the scores of canaries, on top of the noise."""

    # Its standard deviation, s in the module's docstring, at least 0: an upper bound, or the value that the scores
    # allow if they show more. Infinite if the scores show no canary.
    spread: float
    # Whether the scores of canaries are lower than the claimed noise and the upper bound explain. Possible reasons are
    # other clients' updates, canaries that did not take part, wrong coins, or more noise than claimed.
    is_seen: bool

    def measured_mu(self, mu: float) -> float:
        """Return the mu that is measured from the scores of canaries if their true mu is `mu`, above 0 and finite.

        The measured mu is smaller, because the updates of other clients act as additional noise.
        """
        return 1 / hypot(1 / mu, self.spread)

    def true_mu(self, shown: float) -> float:
        """Return the true mu of a canary from the smaller mu that its scores show, `shown`.

        Updates of other clients lower the mu that scores show. The result is infinite if even an infinite true mu would
        show no more than `shown`.
        """
        left = shown**-2 - self.spread**2
        return 1 / sqrt(left) if left > 0 else inf


def squared_spread(others: float, canaries: int, size: int, is_replaced: bool) -> float:
    """Return an upper bound on the variance that other clients' updates add to the canary scores of a round.

    This bound is s^2 in the docstring of the module. Its unit is the squared sensitivity.

    Parameters
    ----------
    others
        Number of clients that answered and do not send canaries, or their total weight relative to the heaviest client.
    canaries
        Number of canaries.
    size
        Number of parameters of the model, at least 1; d in the module's docstring.
    is_replaced
        Whether the relation is replacement of a client, so that the sensitivity is twice the clipping norm.
    """
    sent, unit = (canaries, 2) if is_replaced else (canaries / 2, 1)
    return (others**2 + sent) / size / unit**2


def other_clients_variance(
    squared: float, claimed: float, found: float, low: float, sizes: tuple[float, float]
) -> OtherClientsVariance:
    """Return the variance that other clients' updates add to the scores of canaries, on top of the noise.

    The variance lowers mu. The result is the upper bound `squared` if the claimed noise and this bound explain a mu as
    low as `found`. If they do not (at level 1 in 1,000), the result is the larger of `squared` and the variance at
    which the claimed noise gives the mu `low`.

    Parameters
    ----------
    squared
        Upper bound on the variance, s^2 in the module's docstring, at least 0.
    claimed
        Claimed mu of a round, above 0.
    found
        Estimate of the mu of a round from the scores, at least 0.
    low
        Lower confidence bound on the mu of a round, at least 0.
    sizes
        Two numbers, as for `detectable_slope`: the root of the sum of squared deviations of the coins from their mean,
        and the degrees of freedom.
    """
    least = OtherClientsVariance(sqrt(squared), is_seen=False)
    if not _stands_out_too_little(least.measured_mu(claimed), found, sizes, FAMILY_LEVEL):
        return least
    left = low**-2 - claimed**-2 if low else inf
    return OtherClientsVariance(sqrt(max(squared, left)), is_seen=True)


def _stands_out_too_little(shown: float, found: float, sizes: tuple[float, float], level: float) -> bool:
    """Return whether the estimated mu of a canary, `found`, is significantly below the expected mu, `shown`.

    `sizes` holds two numbers: the square root of the coins' sum of squared deviations from their mean, and the degrees
    of freedom of the test. `level` is its significance level.
    """
    root, degrees = sizes
    return degrees >= 2 and found * root < noncentral_t_quantile(level, degrees, shown * root)


class Inconsistency(StrEnum):
    """A kind of inconsistency in the stored rounds of a training. Each kind rules out the verdict `consistent`."""

    OVERRUN = "overrun"  # a round after the last claimed round is stored, so more rounds than claimed may have run
    GAPS = "gaps"  # a round starts from a model other than the one that the previous round released
    OUT = "out"  # canaries that are out seem to send something other than the adjacency relation implies
    FAINT = "faint"  # scores of canaries, or of one canary, are lower than the claimed noise explains
    UNEVEN = "uneven"  # some rounds have far less noise than the others
    # Canaries take part more often than the claimed sampling rate, or it is unknown how often.
    ATTENDANCE = "attendance"


@dataclass(frozen=True)
class Inconsistencies:
    """The inconsistencies in the stored rounds of a training: their kinds, and the canaries and rounds concerned."""

    kinds: frozenset[Inconsistency]  # the kinds of inconsistency that were found
    faint: tuple[int, ...]  # numbers of the canaries whose scores are too low
    uneven: tuple[int, ...]  # numbers of the rounds with far less noise than the others
    knows_canaries: bool  # whether it is stored for each canary what it sends if it is out, and a check of its coins


def doubts_about(
    every: Sequence[StoredRound], whole: Sequence[StoredRound], opened: tuple[Floats, Floats, Floats],
    guarantee: StoredGuarantee,
    hidden: OtherClientsVariance, weights: Floats,
) -> Inconsistencies:  # fmt: skip
    """Return the inconsistencies that a test or comparison finds in the stored rounds of a training.

    Parameters
    ----------
    every
        All stored rounds, complete or not, in order.
    whole
        The complete rounds, in which every canary answered once.
    opened
        Scores and coins of canaries, (rounds, canaries), and scores of decoys, (rounds, decoys), in the complete
        rounds. Decoys are directions that nobody sends.
    guarantee
        The claimed guarantee of the training.
    hidden
        Variance of other clients' updates, which may hide missing noise.
    weights
        Weight of each canary relative to the heaviest client, from 0 to 1, shape (canaries,).
    """
    (scores, coins, decoys), relation = opened, guarantee.terms.adjacency.relation
    claimed = 1 / guarantee.terms.noise_multiplier
    faint, shown = (
        _too_weak_canaries(scores, coins, claimed, hidden, weights),
        weights.min() * hidden.measured_mu(claimed),
    )
    uneven, steps = _uneven_rounds(every), [pair for pair in pairwise(every) if pair[1].number == pair[0].number + 1]
    knows = all(note.is_replaced is not None and note.coins is not None for one in whole for note in one.present)
    found = {
        Inconsistency.OVERRUN: every[-1].number > guarantee.terms.rounds,
        # The rounds are then not what is released, for example if the observer is wrapped by the code that adds the
        # noise.
        Inconsistency.GAPS: any(one.after is not None and then.before != one.after for one, then in steps),
        Inconsistency.OUT: not knows and _absent_canaries_differ(scores, coins, decoys, relation, shown),
        Inconsistency.FAINT: hidden.is_seen or bool(faint),
        Inconsistency.UNEVEN: bool(uneven),
        Inconsistency.ATTENDANCE: _is_sampled_otherwise(every, guarantee.canaries, guarantee.terms),
    }
    return Inconsistencies(frozenset(one for one, is_so in found.items() if is_so), faint, uneven, knows)


def _absent_canaries_differ(scores: Floats, coins: Floats, decoys: Floats, relation: Relation, shown: float) -> bool:
    """Return whether a t-test shows that canaries whose coin is 0 do not send what the adjacency relation implies.

    Under replacement such a canary sends its opposite, and its mean score is -`shown` / 2. Otherwise it sends nothing,
    and its mean score is 0. `shown` is the claimed difference of the mean scores with coin 1 and coin 0.
    """
    if (out := scores[coins == 0]).size < 2:
        return False
    degrees, root = out.size - 1 + decoys.size, sqrt(out.size)
    squares = float(out.size * np.var(out) + np.sum(np.square(decoys)))
    below = -float(np.mean(out)) / sqrt(squares / degrees) if squares else 0.0
    if relation is Relation.REPLACE:
        return _stands_out_too_little(shown / 2, max(0.0, below), (root, degrees), FAMILY_LEVEL)
    return below * root > noncentral_t_quantile(1 - FAMILY_LEVEL, degrees, 0.0)


def _too_weak_canaries(
    scores: Floats, coins: Floats, claimed: float, hidden: OtherClientsVariance, weights: Floats
) -> tuple[int, ...]:
    """Return the numbers of the canaries whose scores grow too little in the rounds in which the audit inserts them.

    The reason may be a client that inserts its canary in other rounds than the audit's coins say. A comparison with
    decoys would not reveal this, because the canary's scores still exceed those of decoys.
    """
    found, count = [], scores.shape[1]
    for one in range(count):
        mu = max(0.0, gaussian_slope(coins[:, one], scores[:, one], 0.5).shift)
        sizes = root_sum_of_squared_deviations(coins[:, one]), len(coins) - 2
        if _stands_out_too_little(weights[one] * hidden.measured_mu(claimed), mu, sizes, FAMILY_LEVEL / count):
            found.append(one)
    return tuple(found)


def _uneven_rounds(rounds: Sequence[StoredRound]) -> tuple[int, ...]:
    """Return the numbers of the rounds in which the scores of decoys vary far less than in all other rounds.

    Decoys are directions that nobody sends, so their scores vary only by noise and by the updates of other clients. An
    F-test compares each round with the others.
    """
    kept = [one for one in rounds if len(one.scores) > DECOYS]
    if len(kept) < 2:
        return ()
    squares = np.square(np.array([one.scores[-DECOYS:] for one in kept]) / canary_norms(kept)[:, None]).sum(axis=1)
    degrees = np.array([1 / (1 / DECOYS + (1 / one.size if one.size else 0)) for one in kept])
    rest, freedom = squares.sum() - squares, degrees.sum() - degrees
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.where(rest > 0, squares / degrees * freedom / rest, 1.0)
    chances = fdtr(degrees, freedom, ratios)
    return tuple(one.number for one, chance in zip(kept, chances, strict=True) if chance < FAMILY_LEVEL / len(kept))


def _is_sampled_otherwise(rounds: Sequence[StoredRound], canaries: int, terms: StatedReleases) -> bool:
    """Return True if canaries took part too often for the claimed sampling rate, or if nothing shows how often."""
    if terms.sampling_rate == 1:
        return False
    answered = [note for one in rounds for note in one.present]
    if any(one.models_only for one in rounds) or any(note.coins is None for note in answered):
        return True
    often = binom.sf(len(answered) - 1, canaries * len(rounds), terms.sampling_rate)
    return bool(often < FAMILY_LEVEL)
