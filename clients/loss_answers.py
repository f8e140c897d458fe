"""What a data owner tells of its losses on a release: summaries of its shard in each world, never a loss.

The victim's record set follows its bit in each world, as in training. Its answers are sums over the whole shard and go
to the server alone, which has the victim's contributions of that world anyway; no other client sees them. Only the
range of all members and the population goes back to everybody, where no public range is configured.
"""

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from fl_audit.arrays import Flags, Floats
from fl_audit.evidence.star.epsilon_star import StarSettings
from fl_audit.evidence.star.loss_moments import (
    LossRange,
    ScoreMoments,
    epsilon_star_of_moments,
    joint_moments,
    joint_range,
    moments_of,
    range_of,
)
from fl_audit.game.game import Game
from fl_audit.game.membership import Membership


@dataclass(frozen=True)
class LossPart:
    """Losses (worlds, n) on records that a client holds in some worlds, and in which (worlds,)."""

    losses: Floats
    held: Flags


@dataclass(frozen=True)
class MomentsQuestion:
    """What the server says when it asks for moments."""

    # `low`, `high`: the range by which losses are normalised (worlds,).
    low: Floats
    high: Floats
    population: ScoreMoments  # moments of the population sample's scores
    star: StarSettings  # delta and cut of Epsilon*


def losses_held(game: Game, client: int, models: Tensor, membership: Membership | None) -> list[LossPart]:
    """Return a client's losses on the records that it holds.

    Parameters
    ----------
    game
        The game with its data; the client reads its own shard only.
    client
        Who asks.
    models
        Stacked models (worlds, parameters).
    membership
        Which of the client's own targets are in, None where it has none: x is held where it is in, its stand-in, if
        there is one, elsewhere.
    """
    everywhere = np.ones(len(models), dtype=np.bool_)
    parts = [LossPart(game.losses(models, game.honest_shard(client)), everywhere)]
    if membership is not None and game.public.plays_membership:
        own, present = game.shard(client), game.present(client, membership)
        losses, marks = game.losses(models, own), np.flatnonzero(game.differs(client))
        parts += [LossPart(losses[:, [place]], present[:, place]) for place in marks]
    elif membership is not None:
        parts.append(LossPart(game.losses(models, game.differing), membership.bits))
        parts.append(LossPart(game.losses(models, game.replacement), ~membership.bits))
    return parts


def tell_range(parts: list[LossPart]) -> LossRange:
    """Return the range of the losses of a shard."""
    return joint_range([range_of(part.losses).where(part.held) for part in parts])


def tell_moments(parts: list[LossPart], question: MomentsQuestion) -> ScoreMoments:
    """Return the moments of the scores of a shard.

    Parameters
    ----------
    parts
        Losses and labels of the shard's records, part by part.
    question
        Which moments the server asks for.
    """
    found = (moments_of(part.losses, question.low, question.high).where(part.held) for part in parts)
    return joint_moments(list(found))


def own_epsilon_star(moments: ScoreMoments, question: MomentsQuestion) -> Floats:
    """Return Epsilon* (worlds,) of the own shard against the population; NaN where it holds fewer than two records.

    Parameters
    ----------
    moments
        Those of the shard's own scores.
    question
        With the moments of the population, delta and cut.
    """
    star = question.star
    return epsilon_star_of_moments(moments, question.population, star.delta, star.cut)
