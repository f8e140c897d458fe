"""Canaries of a simulated training: what the clients that carry them add, and how an observer of releases reads them.

Directions follow from the public seed, world, round and canary; coins are the challenger's. Beside the canaries stand
decoys, directions that nobody sends, wherever what is out is nothing: they tell how scores are spread without a canary.
"""

from dataclasses import dataclass
from math import sqrt

import numpy as np
import torch
from torch import Tensor

from fl_audit.adjacency import Relation, Unit
from fl_audit.arrays import Flags, Floats
from fl_audit.audits.canaries.directions import DECOYS, canary_direction, canary_score, canary_update
from fl_audit.federation.contributing import Contributed, private_steps
from fl_audit.federation.game import Game
from fl_audit.federation.public import PublicGame
from fl_audit.federation.seen import SeenRound
from fl_audit.mechanisms.contribution import FixedCohort, PrivateTraining
from fl_audit.mechanisms.standpoint import Place


def directions_read(public: PublicGame) -> int:
    """Return along how many directions a release is read: canaries first, then decoys."""
    return public.canaries + (DECOYS if public.law.adjacency.relation is Relation.ADD_REMOVE else 0)


def canary_contribution(
    game: Game, canary: int, server_round: int, worlds: tuple[int, ...], coins: Flags, norms: Tensor | None
) -> Contributed:
    """Return what a canary client adds: its canary at the clipping norm, or what the relation compares with.

    Parameters
    ----------
    game, canary, server_round, worlds
        The game, the number of the canary, from 0, the round, from 1, and the numbers of the worlds.
    coins, norms
        Whether the canary is in, (worlds,); clipping norms of the round where they are adaptive, float64 (worlds,).
    """
    law, size = game.public.law, game.model.layout.size
    lengths = np.full(len(worlds), law.clipping_norm) if norms is None else norms.cpu().numpy()
    is_replaced = law.adjacency.relation is Relation.REPLACE
    signs = np.where(coins, 1.0, -1.0 if is_replaced else 0.0)
    total = np.zeros((len(worlds), size), dtype=np.float32)
    for row, world in enumerate(worlds):
        if signs[row]:
            direction = canary_direction(game.public.data_seed, server_round, canary, size, world)
            total[row] = canary_update(signs[row] * direction, float(lengths[row]))
    bits = torch.from_numpy(np.where(coins | is_replaced, 1.0, 0.5)) if law.is_adaptive else None
    return Contributed(torch.from_numpy(total), bits)


def canary_records(game: Game, server_round: int, worlds: tuple[int, ...]) -> list[Tensor]:
    """Return the gradients of the canary records of a round, float32 (canaries, parameters) for each world; norm 1.

    Parameters
    ----------
    game, server_round, worlds
        As for `canary_contribution`.
    """
    seed, canaries, size = game.public.data_seed, range(game.public.canaries), game.model.layout.size
    drawn = ([canary_direction(seed, server_round, one, size, world) for one in canaries] for world in worlds)
    return [torch.from_numpy(np.stack(one).astype(np.float32)) for one in drawn]


def canary_scores(game: Game, seen: SeenRound, worlds: tuple[int, ...]) -> Floats:
    """Return the inner products of what was seen with all directions, (worlds, directions), in units of a canary.

    Parameters
    ----------
    game, seen, worlds
        The game, what the observer saw of the round, and the numbers of the worlds.
    """
    public, at_server = game.public, game.public.standpoint.place is Place.SERVER
    observed = seen.side.contribution if at_server else seen.sums(public.law)
    assert observed is not None, "the server sees what every client sent"
    units = np.broadcast_to(_unit(game) if seen.side.norms_array is None else seen.side.norms_array, len(worlds))
    scores = np.empty((len(worlds), directions_read(public)))
    for row, (world, sums) in enumerate(zip(worlds, observed.double().cpu().numpy(), strict=True)):
        for one in range(scores.shape[1]):
            direction = canary_direction(public.data_seed, seen.number, one, sums.size, world)
            scores[row, one] = canary_score(sums, direction) / units[row]
    return scores


def parts(public: PublicGame, steps: int, times: Floats) -> Floats:
    """Return how much of its canary a score holds if it is in: all of it, or what the steps took of it.

    Parameters
    ----------
    public
        The game.
    steps, times
        Steps of the canaries' client in a round, and in how many of them each canary was taken, of any shape.
    """
    return times / sqrt(steps) if isinstance(public.law.contribution, PrivateTraining) else np.ones_like(times)


@dataclass(frozen=True)
class CanaryFacts:
    """What is known of a game's canaries beforehand."""

    mu: float  # of one canary in one round by the noise that the law prescribes; of one step where the steps are noised
    client: int | None = None  # whose records the canaries are; None where they are clients
    records: int = 0  # how many records that client has beside the canaries; 0 where canaries are clients
    others: float = 0.0  # how many canaries' worth all others add to a release at most, on average over rounds
    size: int = 1  # number of parameters


def canary_facts(game: Game) -> CanaryFacts | None:
    """Return what is known of a game's canaries beforehand; None where it has none."""
    law = game.public.law
    if game.public.canaries == 0:
        return None
    if not isinstance(law.contribution, PrivateTraining):
        units = game.public.clients if law.adjacency.unit is Unit.CLIENT else game.public.records
        others = law.participation.size if isinstance(law.participation, FixedCohort) else units * law.sampling_rate
        return CanaryFacts(1 / law.noise_multiplier, others=others, size=game.model.layout.size)
    steps, own = private_steps(law), len(game.shards[game.victim])
    seen = [own] if game.public.standpoint.place is Place.SERVER else [len(shard) for shard in game.shards]
    # A step moves by a canary over the mean batch, and by its records by no more than one canary.
    others = steps.mean_batch(own) * sum(map(steps.count, seen)) / sqrt(steps.count(own))
    mu = _unit(game) / sqrt(sum(map(steps.update_variance, seen)))
    return CanaryFacts(mu, game.victim, own, others, game.model.layout.size)


def _unit(game: Game) -> float:
    """Return what a canary weighs in the release: the clipping norm, or how far the steps of a round move by it."""
    law = game.public.law
    if not isinstance(law.contribution, PrivateTraining):
        return law.clipping_norm
    steps, records = private_steps(law), len(game.shards[game.victim])
    return sqrt(steps.update_variance(records)) / law.noise_multiplier
