"""Why nothing is said of a training though enough rounds were kept: what they hold does not go together.

A doubt never makes a promise broken, and where it says that scores are of something else, they are no evidence. The
three that rest on scores come up by chance in at most 1 in 1,000 trainings each, at one look, whose noise is the
promised one; rounds are uneven also where updates of others lie over it, and shrink as the model learns.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from math import sqrt

import numpy as np
from scipy.special import fdtr
from scipy.stats import binom

from fl_audit.adjacency import Relation
from fl_audit.arrays import Floats
from fl_audit.canaries.directions import DECOYS
from fl_audit.canaries.kept import KeptPromise
from fl_audit.canaries.rounds import KeptRound, units
from fl_audit.confidence.shift import gaussian_slope, noncentral_t_quantile, spread_of_parts
from fl_audit.evidence.belief.family import FAMILY_LEVEL
from fl_audit.evidence.canary_dilution import Dilution, stands_out_too_little
from fl_audit.privacy.terms import TrainingTerms


class Doubt(StrEnum):
    """What does not go together."""

    OVERRUN = "overrun"  # a later round than the last promised one was kept: those that were not may be too many
    GAPS = "gaps"  # rounds start from other models than those before them were seen to release
    OUT = "out"  # what canaries send where they are out was not said, and seems to be another than the promise needs
    FAINT = "faint"  # canaries, or one of them, stand out less than the promised noise lets them
    UNEVEN = "uneven"  # rounds have far less noise than the others, or are on another scale
    ATTENDANCE = "attendance"  # canaries take part more often than units are sampled, or nobody saw how often


@dataclass(frozen=True)
class Doubts:
    """All that does not go together in what was kept of a training."""

    kinds: frozenset[Doubt]  # why nothing that was found is `consistent`
    # `faint`, `uneven`: canaries that stand out too little each by itself, and rounds with far less noise than others.
    faint: tuple[int, ...]
    uneven: tuple[int, ...]
    knows_canaries: bool  # whether of every canary it was kept what it sends, and with which coins


def doubts_about(
    every: Sequence[KeptRound], whole: Sequence[KeptRound], opened: tuple[Floats, Floats, Floats], promise: KeptPromise,
    hidden: Dilution, weights: Floats,
) -> Doubts:  # fmt: skip
    """Return what does not go together.

    Parameters
    ----------
    every, whole, opened
        All rounds that were kept, those that count, and scores, coins and decoys of these that are judged.
    promise, hidden
        What is promised, and what is known to lie over the noise.
    weights
        How much of the heaviest client each canary weighs, (canaries,), from 0 to 1.
    """
    (scores, coins, decoys), relation = opened, promise.terms.adjacency.relation
    claimed = 1 / promise.terms.noise_multiplier
    faint, shown = _faint(scores, coins, claimed, hidden, weights), weights.min() * hidden.shown(claimed)
    uneven = _uneven_rounds(every)
    knows = all(note.is_replaced is not None and note.coins is not None for one in whole for note in one.present)
    found = {
        Doubt.OVERRUN: every[-1].number > promise.terms.rounds,
        Doubt.GAPS: _has_gaps(every),
        Doubt.OUT: not knows and _is_other_out(scores, coins, decoys, relation, shown),
        Doubt.FAINT: hidden.is_seen or bool(faint),
        Doubt.UNEVEN: bool(uneven),
        Doubt.ATTENDANCE: _is_sampled_otherwise(every, promise.canaries, promise.terms),
    }
    return Doubts(frozenset(one for one, is_so in found.items() if is_so), faint, uneven, knows)


def _has_gaps(rounds: Sequence[KeptRound]) -> bool:
    """Return whether a round starts from another model than the one before it was seen to release.

    Then what was seen is not what is released: who watches inside of what adds the noise, for one, sees none of it.
    """
    return any(
        one.after is not None and then.number == one.number + 1 and then.before != one.after
        for one, then in pairwise(rounds)
    )


def _is_other_out(scores: Floats, coins: Floats, decoys: Floats, relation: Relation, shown: float) -> bool:
    """Return whether canaries that are out do not look like what a relation compares with.

    What is sent along other directions has mean 0 along theirs. So what is out scores 0 on average if nothing is sent,
    and lies half of what shows of mu below if its opposite is: either is held to Student's t, at 1 in 1,000.
    """
    out = scores[coins == 0]
    if out.size < 2:
        return False
    degrees, root = out.size - 1 + decoys.size, sqrt(out.size)
    squares = float(out.size * np.var(out) + np.sum(np.square(decoys)))
    below = -float(np.mean(out)) / sqrt(squares / degrees) if squares else 0.0
    if relation is Relation.REPLACE:
        return stands_out_too_little(shown / 2, max(0.0, below), (root, degrees), FAMILY_LEVEL)
    return below * root > noncentral_t_quantile(1 - FAMILY_LEVEL, degrees, 0.0)


def _faint(scores: Floats, coins: Floats, claimed: float, hidden: Dilution, weights: Floats) -> tuple[int, ...]:
    """Return which canaries stand out too little each by itself, as one does whose coins are not those of the judge.

    What one scores where it is in is compared with what it scores where it is out, and with no decoy: above these it
    stands out half of the time whatever its coins.
    """
    found, count = [], scores.shape[1]
    for one in range(count):
        mu = max(0.0, gaussian_slope(coins[:, one], scores[:, one], 0.5).shift)
        sizes = spread_of_parts(coins[:, one]), len(coins) - 2
        if stands_out_too_little(weights[one] * hidden.shown(claimed), mu, sizes, FAMILY_LEVEL / count):
            found.append(one)
    return tuple(found)


def _uneven_rounds(rounds: Sequence[KeptRound]) -> tuple[int, ...]:
    """Return the numbers of rounds whose decoys are spread far less than those of the others.

    An F-test of each round's sum of squares against all others', with as many degrees of freedom as the decoys and the
    model have; noise that is left out of some rounds shows so, and canaries that are averaged with far more others.
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


def _is_sampled_otherwise(rounds: Sequence[KeptRound], canaries: int, terms: TrainingTerms) -> bool:
    """Return whether canaries took part more often than the promised sampling lets them, or nobody saw how often."""
    if terms.sampling_rate == 1:
        return False
    answered = [note for one in rounds for note in one.present]
    if any(one.models_only for one in rounds) or any(note.coins is None for note in answered):
        return True
    often = binom.sf(len(answered) - 1, canaries * len(rounds), terms.sampling_rate)
    return bool(often < FAMILY_LEVEL)
