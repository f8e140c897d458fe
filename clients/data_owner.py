"""Data owners: what a client does with its own records, in every world at once."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fl_audit.game import Game, local_sensitivity


def contribute(game: Game, client: int, models: Tensor) -> Tensor:
    """Return the clipped gradient sums (worlds, parameters) over the records that the client holds in every world."""
    return game.clipped_sum(models, game.honest_shard(client))


def contribute_as_victim(game: Game, models: Tensor, bits: NDArray[np.bool_]) -> tuple[Tensor, NDArray[np.float64]]:
    """Return the victim's sums, with x where the bit says D and its stand-in where it says D', and Delta_i."""
    present, absent = game.differing_gradients(models)
    chosen = torch.where(torch.from_numpy(bits).to(present.device).unsqueeze(1), present, absent)
    return contribute(game, game.victim, models) + chosen, local_sensitivity(present, absent)
