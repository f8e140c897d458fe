"""Public directions along which the noise of releases is measured; every party can draw them."""

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from fl_audit.randomness import Purpose, generator


def number_of_directions(parameters: int) -> int:
    """Return the number of public directions for a model: 16, but at most half of its parameters."""
    return min(16, parameters // 2)


@lru_cache(maxsize=4)
def orthonormal_directions(data_seed: int, size: int, count: int) -> Tensor:
    """Return orthonormal directions, float32 (size, count); cached, because many federations share them.

    Parameters
    ----------
    data_seed
        Public seed of the data.
    size
        Number of coordinates of a direction.
    count
        Number of directions.
    """
    drawn = generator(data_seed, Purpose.PUBLIC_DIRECTIONS).standard_normal((size, count))
    return torch.from_numpy(np.linalg.qr(drawn)[0]).float()
