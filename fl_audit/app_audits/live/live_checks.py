"""Check a running training for inconsistencies.

An inconsistency rules out the verdict `consistent`, and never leads to `violated`. Three kinds of inconsistency are
found from scores. Each of them has a false alarm rate of at most 1 in 1,000 trainings with the claimed noise, for one
analysis. The variance of rounds may also differ for honest reasons: the updates of other clients add to the noise, and
they shrink as the model converges.
"""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from itertools import pairwise
from math import sqrt

import numpy as np
from scipy.special import fdtr
from scipy.stats import binom

from fl_audit.adjacency import Relation
from fl_audit.app_audits.live.observer_store import StoredGuarantee
from fl_audit.app_audits.live.stored_rounds import StoredRound, canary_norms
from fl_audit.array_types import Floats
from fl_audit.audits.canaries.canary_draws import DECOYS
from fl_audit.audits.canaries.other_clients_variance import OtherClientsVariance, is_significantly_below
from fl_audit.privacy.stated_releases import StatedReleases
from fl_audit.statistics.shift_bound import gaussian_slope, noncentral_t_quantile, root_sum_of_squared_deviations
from fl_audit.verdict.declared_tests import FAMILY_LEVEL


class Inconsistency(StrEnum):
    """A kind of inconsistency in the stored rounds of a training. Each kind rules out the verdict `consistent`."""

    OVERRUN = "overrun"  # a round after the last claimed round is stored, so more rounds than claimed may have run
    GAPS = "gaps"  # a round starts from a model other than the one that the previous round released
    OUT = "out"  # canaries that are out seem to send something other than the adjacency relation implies
    FAINT = "faint"  # scores of canaries, or of one canary, are lower than the claimed noise explains
    UNEVEN = "uneven"  # some rounds have far less noise than the others
    # Canaries take part more often than the claimed sampling rate, or it is unknown how often.
    ATTENDANCE = "attendance"


def doubts_about(
    every: Sequence[StoredRound],
    whole: Sequence[StoredRound],
    opened: tuple[Floats, Floats, Floats],
    guarantee: StoredGuarantee,
    variance: OtherClientsVariance,
    weights: Floats,
) -> dict[Inconsistency, tuple[int, ...]]:
    """Return the inconsistencies that a test or comparison finds in the stored rounds of a training, by their kind.

    Each has the numbers of the canaries or rounds concerned, as far as they are known: of canaries whose scores are too
    low for FAINT, and of rounds with far less noise than the others for UNEVEN.

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
    variance
        Variance of other clients' updates, which may hide missing noise.
    weights
        Weight of each canary relative to the heaviest client, from 0 to 1, shape (canaries,).
    """
    scores, coins, decoys = opened
    relation = guarantee.terms.adjacency.relation
    claimed = 1 / guarantee.terms.noise_multiplier
    faint = _too_weak_canaries(scores, coins, claimed, variance, weights)
    expected_difference = weights.min() * variance.measured_mu(claimed)
    uneven = _uneven_rounds(every)
    steps = [pair for pair in pairwise(every) if pair[1].number == pair[0].number + 1]
    holds = {
        Inconsistency.OVERRUN: every[-1].number > guarantee.terms.rounds,
        # The rounds are then not what is released, for example if the observer is wrapped by the code that adds the
        # noise.
        Inconsistency.GAPS: any(
            stored_round.after is not None and then.before != stored_round.after for stored_round, then in steps
        ),
        Inconsistency.OUT: not knows_canaries(whole)
        and _absent_canaries_differ(scores, coins, decoys, relation, expected_difference),
        Inconsistency.FAINT: variance.is_seen or bool(faint),
        Inconsistency.UNEVEN: bool(uneven),
        Inconsistency.ATTENDANCE: _is_sampled_otherwise(every, guarantee.canaries, guarantee.terms),
    }
    concerned = {Inconsistency.FAINT: faint, Inconsistency.UNEVEN: uneven}
    return {kind: concerned.get(kind, ()) for kind, is_so in holds.items() if is_so}


def knows_canaries(rounds: Iterable[StoredRound]) -> bool:
    """Return whether it is stored for each canary what it sends if it is out, and a check of its coins.

    Parameters
    ----------
    rounds
        The complete rounds of a training.
    """
    notes = [note for stored_round in rounds for note in stored_round.present]
    return all(note.is_replaced is not None and note.coins is not None for note in notes)


def _absent_canaries_differ(
    scores: Floats, coins: Floats, decoys: Floats, relation: Relation, expected_difference: float
) -> bool:
    """Return whether a t-test shows that canaries whose coin is 0 do not send what the adjacency relation implies.

    Under replacement such a canary sends its opposite, and its mean score is -`expected_difference` / 2. Otherwise it
    sends nothing, and its mean score is 0. `expected_difference` is the claimed difference of the mean scores with
    coin 1 and coin 0.
    """
    if (out := scores[coins == 0]).size < 2:
        return False
    degrees = out.size - 1 + decoys.size
    root = sqrt(out.size)
    squares = float(out.size * np.var(out) + np.sum(np.square(decoys)))
    below = -float(np.mean(out)) / sqrt(squares / degrees) if squares else 0.0
    if relation is Relation.REPLACE:
        return is_significantly_below(expected_difference / 2, max(0.0, below), (root, degrees), FAMILY_LEVEL)
    return below * root > noncentral_t_quantile(1 - FAMILY_LEVEL, degrees, 0.0)


def _too_weak_canaries(
    scores: Floats, coins: Floats, claimed: float, variance: OtherClientsVariance, weights: Floats
) -> tuple[int, ...]:
    """Return the numbers of the canaries whose scores grow too little in the rounds in which the audit inserts them.

    The reason may be a client that inserts its canary in other rounds than the audit's coins say. A comparison with
    decoys would not reveal this, because the canary's scores still exceed those of decoys.
    """
    weak = []
    count = scores.shape[1]
    for index in range(count):
        mu = max(0.0, gaussian_slope(coins[:, index], scores[:, index], 0.5).shift)
        sizes = root_sum_of_squared_deviations(coins[:, index]), len(coins) - 2
        if is_significantly_below(weights[index] * variance.measured_mu(claimed), mu, sizes, FAMILY_LEVEL / count):
            weak.append(index)
    return tuple(weak)


def _uneven_rounds(rounds: Sequence[StoredRound]) -> tuple[int, ...]:
    """Return the numbers of the rounds in which the scores of decoys vary far less than in all other rounds.

    Decoys are directions that nobody sends, so their scores vary only by noise and by the updates of other clients. An
    F-test compares each round with the others.
    """
    stored_rounds = [round for round in rounds if len(round.scores) > DECOYS]
    if len(stored_rounds) < 2:
        return ()
    squares = np.square(
        np.array([stored_round.scores[-DECOYS:] for stored_round in stored_rounds])
        / canary_norms(stored_rounds)[:, None]
    ).sum(axis=1)
    degrees = np.array(
        [1 / (1 / DECOYS + (1 / stored_round.size if stored_round.size else 0)) for stored_round in stored_rounds]
    )
    other_squares = squares.sum() - squares
    freedom = degrees.sum() - degrees
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.where(other_squares > 0, squares / degrees * freedom / other_squares, 1.0)
    chances = fdtr(degrees, freedom, ratios)
    return tuple(
        stored_round.number
        for stored_round, chance in zip(stored_rounds, chances, strict=True)
        if chance < FAMILY_LEVEL / len(stored_rounds)
    )


def _is_sampled_otherwise(rounds: Sequence[StoredRound], canaries: int, releases: StatedReleases) -> bool:
    """Return True if canaries took part too often for the claimed sampling rate, or if nothing shows how often."""
    if releases.sampling_rate == 1:
        return False
    answered = [note for round in rounds for note in round.present]
    if any(round.models_only for round in rounds) or any(note.coins is None for note in answered):
        return True
    often = binom.sf(len(answered) - 1, canaries * len(rounds), releases.sampling_rate)
    return bool(often < FAMILY_LEVEL)
