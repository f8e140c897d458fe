"""Data owners: what a client does with its own records, in every world at once."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from fl_audit.game.contributing import Contributed, Moment, contributed, differing_contributions
from fl_audit.game.game import Game
from fl_audit.game.membership import Membership
from fl_audit.game.private_training import OwnDraws, trained_privately
from fl_audit.learning.private_training import PrivateUpdates
from fl_audit.mechanisms.noise import noise_share
from fl_audit.mechanisms.weighing import local_sensitivity


@dataclass(frozen=True)
class Task:
    """What a client is asked for in a round.

    Parameters
    ----------
    models
        Float32 tensor (worlds, parameters).
    moment
        The round.
    taking_part
        Which records of its shard take part, (worlds, records); None is all of them.
    """

    models: torch.Tensor
    moment: Moment
    taking_part: NDArray[np.bool_] | None = None


def contribute(game: Game, client: int, task: Task) -> Contributed:
    """Return what the records contribute that the client holds in every world.

    Parameters
    ----------
    game
        The game.
    client
        Which client.
    task
        What it is asked for.
    """
    honest = None
    if task.taking_part is not None:
        honest = torch.from_numpy(task.taking_part[:, ~game.differs(client)]).to(task.models.device)
    return contributed(game, client, game.honest_shard(client), task.models, task.moment, honest)


def contribute_as_victim(game: Game, task: Task, membership: Membership) -> tuple[Contributed, NDArray[np.float64]]:
    """Return the victim's contribution, with the differing unit where its membership says so, and Delta_i.

    Where records are sampled, x and its stand-in take part in the same rounds: they have one place in the shard.
    """
    present, absent = differing_contributions(game, task.models, task.moment)
    bits = torch.from_numpy(membership.bits).to(present.total.device)
    chosen = torch.where(bits.unsqueeze(1), present.total, absent.total)
    if task.taking_part is not None:
        chosen = chosen * torch.from_numpy(task.taking_part[:, game.differs(game.victim)]).to(chosen.device)
    sensitivity = local_sensitivity(present.total, absent.total)
    if len(game.honest_shard(game.victim).labels) == 0:
        within = (
            None
            if present.within is None or absent.within is None
            else torch.where(bits, present.within, absent.within)
        )
        return Contributed(chosen, within), sensitivity
    return Contributed(contribute(game, game.victim, task).total + chosen), sensitivity


def train_privately(
    game: Game, client: int, task: Task, draws: OwnDraws, membership: Membership | None, accountant: str | None
) -> PrivateUpdates:
    """Return a client's updates after DP-SGD on its own records, and the state of its accountant.

    Parameters
    ----------
    game, client, task
        As for `contribute`.
    draws
        The client's secret seed, and the worlds.
    membership
        Which of its own targets are in, None where it has none: x is trained on where it is in.
    accountant
        State of its accountant before the round; None is a new one.
    """
    is_in = None if membership is None else membership.bits
    return trained_privately(game, client, task.models, task.moment.number, draws, is_in, accountant)


def with_noise(game: Game, total: torch.Tensor, seed: int, worlds: list[int], server_round: int) -> torch.Tensor:
    """Return a contribution with the client's own share of the noise.

    Parameters
    ----------
    game
        The game, whose law says how large the share is.
    total
        The contribution, float32 (worlds, parameters).
    seed
        The client's secret seed.
    worlds
        Numbers of the worlds.
    server_round
        The round.
    """
    share = noise_share(seed, worlds, server_round, total.shape[1]).to(total.device)
    return total + game.public.law.share_scale * share
