"""Several Gaussian releases of one round as one: adaptive clipping releases a sum and a noised share of small updates.

Andrew, Thakkar, McMahan & Ramaswamy 2021 ("Differentially private learning with adaptive clipping", theorem 1): a round
releases the clipped sum with noise multiplier z_sum and, to move the clipping norm, the number of units whose norm was
within it, with noise multiplier z_bit. Each unit adds a vector and a bit; scaled to unit noise, the pair moves by a
vector of squared length z_sum^-2 + z_bit^-2 between neighbours, so together they are one Gaussian release of noise
multiplier z = (z_sum^-2 + z_bit^-2)^(-1/2). That holds under Poisson sampling too, because one coin decides on both.
Numbers out of their range raise `InputError`.
"""

import math
from typing import assert_never

from fl_audit.adjacency import Relation
from fl_audit.errors import require
from fl_audit.privacy.gaussian import require_noise_multiplier


def bit_sensitivity(relation: Relation) -> float:
    """Return by how much a sum of bits, each counted as -1/2 or +1/2, changes between neighbours.

    A unit that comes or goes adds +-1/2 or nothing, one that is replaced can turn its bit: 1/2 or 1. Noise of standard
    deviation sigma_b on the sum has z_bit = sigma_b over this.
    """
    match relation:
        case Relation.ADD_REMOVE:
            return 0.5
        case Relation.REPLACE:
            return 1.0
        case _:
            assert_never(relation)


def combined_multiplier(*multipliers: float) -> float:
    """Return the noise multiplier of the one Gaussian release that equals several releases of the same round.

    z = (sum of z_i^-2)^(-1/2), which is under the smallest of them. The z_i, at least one and positive, are the noise
    standard deviations of the releases, each over its own sensitivity.
    """
    require(len(multipliers) > 0, "no noise multiplier is given: accepted is at least one")
    for multiplier in multipliers:
        require_noise_multiplier(multiplier)
    return 1 / math.hypot(*(1 / multiplier for multiplier in multipliers))


def sum_multiplier(noise_multiplier: float, bit_multiplier: float) -> float:
    """Return the noise multiplier that the sum needs so that sum and bit together have the given one.

    z_sum = (z^-2 - z_bit^-2)^(-1/2) (Andrew et al. 2021, theorem 1, where z_bit = 2 sigma_b), above z.

    Parameters
    ----------
    noise_multiplier, bit_multiplier
        z, what both releases together shall have, positive; z_bit, noise standard deviation of the sum of bits over its
        sensitivity, above z: a bit with as little noise as the promise leaves nothing for the sum.
    """
    require_noise_multiplier(noise_multiplier)
    require_noise_multiplier(bit_multiplier)
    require(
        bit_multiplier > noise_multiplier,
        f"noise multiplier of the bit is {bit_multiplier:g}: accepted are numbers above {noise_multiplier:g}, that of "
        "sum and bit together",
    )
    share = noise_multiplier / bit_multiplier
    return noise_multiplier / math.sqrt((1 - share) * (1 + share))
