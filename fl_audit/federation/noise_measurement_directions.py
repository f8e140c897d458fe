"""Draw the public directions along which the noise of releases is measured; every party can draw them."""

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from fl_audit.randomness import Purpose, generator


def number_of_directions(parameters: int) -> int:
    """Return the number of directions along which a model's noise is measured: 16, or half its parameters if fewer."""
    return min(16, parameters // 2)


@lru_cache(maxsize=4)
def orthonormal_directions(data_seed: int, size: int, count: int) -> Tensor:
    """Return random orthonormal directions as the columns of a matrix, float32 (size, count); cached."""
    draws = generator(data_seed, Purpose.PUBLIC_DIRECTIONS).standard_normal((size, count))
    return torch.from_numpy(np.linalg.qr(draws)[0]).float()
