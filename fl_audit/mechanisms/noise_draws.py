"""Draw the shares of the noise that clients add, and the public directions along which noise is measured."""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from fl_audit.array_types import Floats
from fl_audit.randomness import Purpose, generator


def noise_share(seed: int, trials: Sequence[int], server_round: int, size: int) -> Tensor:
    """Draw the noise that one client adds, as standard normal numbers, float32 (trials, size).

    Equal arguments give equal draws.

    Parameters
    ----------
    seed
        Secret seed of the client.
    trials
        Numbers of the trials, from 0.
    server_round
        Number of the round, from 1.
    size
        Number of parameters.
    """
    draws = np.empty((len(trials), size), dtype=np.float32)
    for row, trial in enumerate(trials):
        source = generator(seed, Purpose.NOISE_SHARE, trial=trial, round=server_round)
        source.standard_normal(out=draws[row], dtype=np.float32)
    return torch.from_numpy(draws)


def add_noise(total: Tensor, standard_normals: Tensor, sigma: Floats) -> Tensor:
    """Add `standard_normals` times `sigma` to the sums `total`, in place, and return the sums.

    Parameters
    ----------
    total
        Sums, float32 (trials, parameters); they are overwritten.
    standard_normals
        Standard normal draws, float32 (trials, parameters).
    sigma
        Standard deviation of the noise of each trial, shape (trials,).
    """
    return total.addcmul_(standard_normals, torch.from_numpy(sigma).float().unsqueeze(1))


def number_of_directions(parameters: int) -> int:
    """Return the number of directions along which a model's noise is measured: 16, or half its parameters if fewer."""
    return min(16, parameters // 2)


@lru_cache(maxsize=4)
def orthonormal_directions(data_seed: int, size: int, count: int) -> Tensor:
    """Return random orthonormal directions as the columns of a matrix, float32 (size, count); cached.

    Parameters
    ----------
    data_seed
        Public seed of the data.
    size
        Length of each direction.
    count
        Number of directions, at most `size`.
    """
    draws = generator(data_seed, Purpose.PUBLIC_DIRECTIONS).standard_normal((size, count))
    return torch.from_numpy(np.linalg.qr(draws)[0]).float()
