"""Private training of the clients: what a client does with its secret draws, and what others can expect of it."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fl_audit.arrays import Flags
from fl_audit.game.examples import Examples
from fl_audit.game.game import Game
from fl_audit.learning.private_training import CanaryRecords, PrivateSteps, PrivateUpdates, private_updates
from fl_audit.mechanisms.contribution import PrivateTraining
from fl_audit.mechanisms.law import ReleaseLaw
from fl_audit.randomness import Purpose, generator


@dataclass(frozen=True)
class OwnDraws:
    """Where a client draws its samples and its noise from."""

    seed: int  # the client's own secret seed
    worlds: tuple[int, ...]  # numbers of the worlds that are trained


def private_steps(law: ReleaseLaw) -> PrivateSteps:
    """Return what a client does in a round of private training."""
    assert isinstance(law.contribution, PrivateTraining), "asked only where clients train privately"
    return PrivateSteps(law.contribution.schedule, law.clipping_norm, law.noise_multiplier)


def trained_privately(
    game: Game,
    client: int,
    models: Tensor,
    server_round: int,
    draws: OwnDraws,
    is_in: Flags | None = None,
    accountant: str | None = None,
    canaries: CanaryRecords | None = None,
) -> PrivateUpdates:
    """Return a client's updates of a round, which nobody without its seed can work out again.

    Parameters
    ----------
    game, client
        The game, and the number of the client.
    models, server_round
        Float32 tensor (worlds, parameters), and the round, from 1.
    draws
        Its seed, and the worlds: draws are keyed by seed, world and round.
    is_in
        Whether the differing record is there, (worlds,); None where the client does not hold it.
    accountant
        State of its accountant before the round.
    canaries
        Records beside its shard; None is none.
    """
    examples, present = game.shard(client), None
    if is_in is not None:
        present = np.ones((len(models), examples.count), dtype=np.bool_)
        present[:, game.differs(client)] = is_in[:, None]
    sources = _draws(draws, server_round, 0)
    steps = private_steps(game.public.law)
    own = (examples.features, examples.labels)
    return private_updates(game.model, models, *own, steps, sources, present, accountant, canaries)


def canary_draws(draws: OwnDraws, server_round: int) -> list[np.random.Generator]:
    """Return from where a client draws in which steps its canary records are, one generator a world.

    Parameters
    ----------
    draws, server_round
        Its seed, and the worlds; the round, from 1.
    """
    return _draws(draws, server_round, 1)


def _draws(draws: OwnDraws, server_round: int, number: int) -> list[np.random.Generator]:
    return [
        generator(draws.seed, Purpose.CLIENT_TRAINING, world=world, round=server_round, client=number)
        for world in draws.worlds
    ]


def accountant_before(game: Game, client: int, server_round: int) -> str | None:
    """Return the state of a client's accountant before a round, as it follows from the public schedule.

    Parameters
    ----------
    game, client
        What every party knows, with clients who train privately, and the client's number.
    server_round
        The round, from 1; before the first there is no state.
    """
    if server_round == 1:
        return None
    return private_steps(game.public.law).accountant_after(server_round - 1, len(game.shards[client]))


def expected_update(game: Game, client: int, models: Tensor) -> tuple[Tensor, Tensor]:
    """Return the update of a client whose steps each take what they take on average, without noise.

    A step takes every record with the same probability and divides by the mean batch, so that on average it moves by
    the learning rate times the mean clipped gradient of the shard. The first of both, float32 (worlds, parameters), is
    the update on the records that it holds in every world; the second is what the differing record would add to it, to
    first order, zero for a client that does not hold it.

    Parameters
    ----------
    game, client, models
        The game, the number of the client, and float32 (worlds, parameters).
    """
    steps, records = private_steps(game.public.law), len(game.shards[client])
    rate, honest = steps.schedule.learning_rate / records, game.honest_shard(client)
    differing = game.differing if client == game.victim else None
    current, of_differing = models.clone(), torch.zeros_like(models)
    for _ in range(steps.count(records)):
        if differing is not None:
            of_differing.add_(_clipped_sum(game, current, differing), alpha=rate)
        current.sub_(_clipped_sum(game, current, honest), alpha=rate)
    return models - current, of_differing


def _clipped_sum(game: Game, models: Tensor, examples: Examples) -> Tensor:
    return game.model.clipped_sum(models, examples.features, examples.labels, game.public.law.clipping_norm)
