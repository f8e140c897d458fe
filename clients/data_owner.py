"""Data owners: what a client does with its own records, in every world at once."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fl_audit.game.game import Game
from fl_audit.game.membership import Membership
from fl_audit.mechanisms.weighing import local_sensitivity


def contribute(game: Game, client: int, models: Tensor, taking_part: NDArray[np.bool_] | None = None) -> Tensor:
    """Return what the records contribute that the client holds in every world.

    Parameters
    ----------
    game
        The game.
    client
        Which client.
    models
        Float32 tensor (worlds, parameters).
    taking_part
        Which records of its shard take part, (worlds, records); None is all of them.

    Returns
    -------
    Tensor
        Float32 tensor (worlds, parameters).
    """
    honest = None
    if taking_part is not None:
        honest = torch.from_numpy(taking_part[:, ~game.differs(client)]).to(models.device)
    return game.contributions(models, game.honest_shard(client), taking_part=honest)


def contribute_as_victim(
    game: Game, models: Tensor, membership: Membership, taking_part: NDArray[np.bool_] | None = None
) -> tuple[Tensor, NDArray[np.float64]]:
    """Return the victim's sums, with x where its membership says so and the stand-in elsewhere, and Delta_i.

    Where records are sampled, x and its stand-in take part in the same rounds: they have one place in the shard.
    """
    present, absent = game.differing_contributions(models)
    chosen = torch.where(torch.from_numpy(membership.bits).to(present.device).unsqueeze(1), present, absent)
    if taking_part is not None:
        chosen = chosen * torch.from_numpy(taking_part[:, game.differs(game.victim)]).to(present.device)
    return contribute(game, game.victim, models, taking_part) + chosen, local_sensitivity(present, absent)
