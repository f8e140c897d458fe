"""A lower bound on epsilon from one target of every world: scores that are independent, so that any bound holds.

Scores of one world share its model, so the bounds of `bounds`, which ask for independent scores, must not be given all
of them. With one target of each world, drawn before scores are seen, what remains are pairs of a score and a coin that
are independent and alike over worlds, and the score has a law P1 if the coin says in and P0 if not.

**P1 and P0 are close where the mechanism is private.** For fixed coins of all other targets, P1 and P0 are laws of what
is computed from the releases of two neighbours: P1(A) <= e^epsilon P0(A) + delta for every event and the same with both
exchanged. Coins are independent, so averaging over the others' coins and over the target drawn keeps both inequalities.
Nothing else is used; records may depend on each other as they like.

**What the scores may rest on.** The score of a world rests on its own release and on shadow worlds that are not among
those of the bound. Were every world a shadow of all others, one world's coin would move other worlds' scores, and they
would be independent no more. Attacks take the shadow worlds by name; give only the others to these functions.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from fl_audit.arrays import Floats, Integers
from fl_audit.errors import require
from fl_audit.evidence.bounds.lower_bounds import LowerBound, epsilon_lower_bound
from fl_audit.evidence.bounds.methods import BoundMethod
from fl_audit.game.membership import Membership


@dataclass(frozen=True)
class OneTargetScores:
    """One score of every world."""

    # `members`, `nonmembers`: scores of worlds whose drawn target was in, and of the others, shapes (n1,) and (n0,).
    members: Floats
    nonmembers: Floats
    targets: Integers  # which target was drawn in each world, shape (worlds,)


def one_target_scores(scores: ArrayLike, membership: Membership, generator: np.random.Generator) -> OneTargetScores:
    """Draw one target of every world and return its score.

    Parameters
    ----------
    scores
        Scores of worlds that served no other as a shadow, no NaN, shape (worlds, targets).
    membership
        Membership of the same worlds.
    generator
        Draws the targets; it must not depend on scores.

    Raises
    ------
    InputError
        If shapes do not fit.
    """
    values = np.asarray(scores, dtype=np.float64)
    shape = (membership.worlds, membership.targets)
    require(values.shape == shape, f"scores have shape {values.shape}: accepted is {shape}, worlds and targets")
    targets = generator.integers(membership.targets, size=membership.worlds)
    rows = np.arange(membership.worlds)
    drawn, was_in = values[rows, targets], membership.is_in[rows, targets]
    return OneTargetScores(drawn[was_in], drawn[~was_in], np.asarray(targets, dtype=np.int64))


def epsilon_of_one_target(
    scores: ArrayLike,
    membership: Membership,
    delta: float,
    generator: np.random.Generator,
    confidence: float = 0.95,
    method: BoundMethod = BoundMethod.ORDER_STATISTIC,
) -> LowerBound:
    """Return a lower bound on epsilon at delta from one target of every world.

    Parameters
    ----------
    scores, membership, generator
        As for `one_target_scores`.
    delta
        At least 0, below 1.
    confidence
        Above 0.5, below 1.
    method
        How; see `BoundMethod` for what each assumes.

    Raises
    ------
    InputError
        If shapes do not fit, a score is NaN, a number is out of its range, or the drawn targets were all in or all out.
    """
    drawn = one_target_scores(scores, membership, generator)
    found = f"of {membership.worlds} drawn targets {drawn.members.size} were in"
    require(min(drawn.members.size, drawn.nonmembers.size) > 0, f"{found}: accepted are some, but not all; play more")
    return epsilon_lower_bound(drawn.members, drawn.nonmembers, delta, confidence, method)
