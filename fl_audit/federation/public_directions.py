"""Public directions along which the noise of releases is looked at: everybody can draw them."""

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from fl_audit.randomness import Purpose, generator


def number_of_directions(parameters: int) -> int:
    """Return along how many public directions the noise of a model is looked at: at most half of its parameters."""
    return min(16, parameters // 2)


@lru_cache(maxsize=4)
def orthonormal_directions(data_seed: int, size: int, count: int) -> Tensor:
    """Return orthonormal directions; they are kept, since federations that differ elsewhere look along the same ones.

    Parameters
    ----------
    data_seed
        Seed of the data.
    size
        Number of coordinates of a direction.
    count
        Number of directions.
    """
    drawn = generator(data_seed, Purpose.PUBLIC_DIRECTIONS).standard_normal((size, count))
    return torch.from_numpy(np.linalg.qr(drawn)[0]).float()
