"""Data owners: what a client does with its own records, in every world at once."""

from dataclasses import dataclass
from typing import assert_never

import numpy as np
import torch

from fl_audit.adjacency import Unit
from fl_audit.arrays import Flags, Floats
from fl_audit.federation.contributing import Contributed, Moment, OwnDraws, contributed, differing_contributions
from fl_audit.federation.game import Game
from fl_audit.federation.membership import Membership
from fl_audit.federation.randomised import ToldRecords
from fl_audit.mechanisms.noise import noise_share
from fl_audit.mechanisms.weighing import local_sensitivity


@dataclass(frozen=True)
class Task:
    """What a client is asked for in a round."""

    models: torch.Tensor  # float32 tensor (worlds, parameters)
    moment: Moment  # the round
    taking_part: Flags | None = None  # which records of its shard take part, (worlds, records); None is all of them
    told: ToldRecords | None = None  # what became of its records where it randomised them; None where it did not


def contribute(game: Game, client: int, task: Task) -> Contributed:
    """Return what the records contribute that the client holds in every world.

    Parameters
    ----------
    game, client, task
        The game, which client, and what it is asked for.
    """
    differs, honest = game.differs(client), None
    if task.taking_part is not None:
        honest = torch.from_numpy(task.taking_part[:, ~differs]).to(task.models.device)
    shard = game.honest_shard(client) if task.told is None else task.told.shard
    if task.told is not None and differs.any():
        shard = shard.take(np.flatnonzero(~differs))
    return contributed(game, client, shard, task.models, task.moment, honest)


def contribute_members(game: Game, client: int, task: Task, membership: Membership) -> Contributed:
    """Return what a client contributes in the game of membership: in every world its units that are in.

    Parameters
    ----------
    game, client, task, membership
        As for `contribute`, and which of its own targets are in.
    """
    whole = game.shard(client) if task.told is None else task.told.shard
    match game.unit:
        case Unit.RECORD | Unit.USER:
            present = game.present(client, membership)
            if task.taking_part is not None:
                present &= task.taking_part
            # Where all records are in, in all worlds, nothing needs to be left out.
            rows = None if present.all() else torch.from_numpy(present).to(task.models.device)
            return contributed(game, client, whole, task.models, task.moment, rows)
        case Unit.CLIENT:
            found = contributed(game, client, whole, task.models, task.moment)
            bits = membership.is_in[:, 0] if membership.targets else np.ones(len(task.models), dtype=np.bool_)
            return found.times(torch.from_numpy(bits).to(found.total.device))
        case _:
            assert_never(game.unit)


def contribute_as_victim(game: Game, task: Task, membership: Membership) -> tuple[Contributed, Floats]:
    """Return the victim's contribution, with the differing unit where its membership says so, and Delta_i.

    Where units are sampled, x and its stand-in take part in the same rounds: they have one place in the shard.

    Parameters
    ----------
    game, task, membership
        As for `contribute`, and whether the differing unit is in, world by world.
    """
    own = np.flatnonzero(game.differs(game.victim))
    told = None if task.told is None else (task.told.shard.take(own), task.told.replacement)
    present, absent = differing_contributions(game, task.models, task.moment, told)
    bits = torch.from_numpy(membership.bits).to(present.total.device)
    chosen = torch.where(bits.unsqueeze(1), present.total, absent.total)
    ours, other, within = present.within, absent.within, None
    if ours is not None and other is not None:
        within = torch.where(bits, ours, other)
    if task.taking_part is not None:
        chosen = chosen * torch.from_numpy(task.taking_part[:, own[:1]]).to(chosen.device)
        if within is not None:
            within = torch.where(torch.from_numpy(task.taking_part[:, own[0]]).to(within.device), within, 0.5)
    sensitivity = local_sensitivity(present.total, absent.total)
    if len(game.honest_shard(game.victim).labels) == 0:
        return Contributed(chosen, within), sensitivity
    others = contribute(game, game.victim, task)
    if within is not None and others.within is not None:
        within = within + others.within - 0.5  # one half stands for no bit
    return Contributed(others.total + chosen, within), sensitivity


def with_noise(game: Game, total: torch.Tensor, draws: OwnDraws, server_round: int) -> torch.Tensor:
    """Return a contribution with the client's own share of the noise.

    Parameters
    ----------
    game, total
        The game, whose law says how large the share is, and the contribution, float32 (worlds, parameters).
    draws, server_round
        The client's secret seed and the worlds, and the round.
    """
    share = noise_share(draws.seed, draws.worlds, server_round, total.shape[1]).to(total.device)
    return total + game.public.law.share_scale * share
