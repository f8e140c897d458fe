"""The challenger: draws the secret bits and the noise, and tells nobody."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fl_audit.randomness import Purpose, generator


class SeededChallenger:
    """A challenger whose coins are fair and whose noise is reproducible: for simulation, not for a secure release.

    Parameters
    ----------
    seed
        Secret seed of the run.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._bits: dict[int, bool] = {}

    def bits(self, worlds: Sequence[int]) -> NDArray[np.bool_]:
        """Return the bit of each world: True trains on D, False on D'. The coin is fair whatever the prior."""
        for world in worlds:
            if world not in self._bits:
                self._bits[world] = bool(generator(self._seed, Purpose.SECRET_BIT, world=world).integers(2) == 1)
        return np.array([self._bits[world] for world in worlds], dtype=np.bool_)

    def standard_normals(self, worlds: Sequence[int], server_round: int, size: int) -> Tensor:
        """Return float32 standard normal draws (worlds, size), keyed by seed, world and round."""
        draws = np.empty((len(worlds), size), dtype=np.float32)
        for row, world in enumerate(worlds):
            source = generator(self._seed, Purpose.RELEASE_NOISE, world=world, round=server_round)
            source.standard_normal(out=draws[row], dtype=np.float32)
        return torch.from_numpy(draws)
