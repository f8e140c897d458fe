"""Draw the directions and coins of the canaries of one training, and score a release against a direction.

In each round a coin is tossed for each canary. If the canary is in, its client sends a fresh random direction at the
largest norm that clipping leaves unchanged. Otherwise the client sends nothing or, under the replacement relation, the
opposite vector. An observer scores the release by its inner product with the direction.

All draws are pure functions of (seed, round, canary), so the client and the later evaluation get the same draws without
exchanging messages. The seed must stay secret, because it determines the coins. The module needs only numpy, so that
clients can import it.
"""

import numpy as np
from numpy.typing import ArrayLike

from fl_audit.array_types import Flags, Floats, Floats32
from fl_audit.errors import require
from fl_audit.randomness import Purpose, generator
from fl_audit.value_checks import require_number

DECOYS = 20
"""Number of decoys, directions that nobody sends; their scores show the distribution of scores without a canary."""
_PASSES = 1 - 2.0**-20  # norm of a canary over the clipping norm: below 1, so that float32 rounding causes no clipping


def canary_direction(seed: int, round: int, canary: int, dimension: int, trial: int = 0) -> Floats:
    """Return the direction of a canary in a round, uniformly distributed on the unit sphere, shape (dimension,).

    Parameters
    ----------
    seed
        Secret seed of the canaries, from 0 to 2**64 - 1.
    round
        Number of the round, at least 0.
    canary
        Number of the canary, at least 0.
    dimension
        Number of parameters of the model, at least 1.
    trial
        Number of the simulated training, from 0.
    """
    require_number("dimension is", dimension, "whole numbers from 1")
    key = generator(seed, Purpose.CANARY_DIRECTION, trial=trial, round=round, client=canary)
    normal = key.standard_normal(dimension)
    return normal / np.linalg.norm(normal)


def canary_coin(seed: int, round: int, canary: int, trial: int = 0) -> bool:
    """Return whether a canary takes part in a round ("is in"): a fair coin, independent of all other coins.

    Parameters
    ----------
    seed
        Secret seed of the canaries, from 0 to 2**64 - 1.
    round
        Number of the round, at least 0.
    canary
        Number of the canary, at least 0.
    trial
        Number of the simulated training, from 0.
    """
    return bool(generator(seed, Purpose.CANARY_COIN, trial=trial, round=round, client=canary).random() < 0.5)


def canary_coins(seed: int, rounds: ArrayLike, canaries: int) -> Flags:
    """Return the coins of all canaries in the given rounds, true if the canary is in, shape (rounds, canaries).

    Parameters
    ----------
    seed
        Secret seed of the canaries, from 0 to 2**64 - 1.
    rounds
        Numbers of the rounds, shape (rounds,).
    canaries
        Number of canaries.
    """
    tossed = [[canary_coin(seed, int(number), index) for index in range(canaries)] for number in np.asarray(rounds)]
    return np.array(tossed, dtype=np.bool_).reshape(len(tossed), canaries)


def canary_update(direction: Floats, clipping_norm: float) -> Floats32:
    """Return the longest update along a direction that clipping leaves unchanged, as float32, shape (dimension,).

    Its norm is between (1 - 2e-6) times the clipping norm and the clipping norm.

    Parameters
    ----------
    direction
        Direction of the canary with norm 1, shape (dimension,).
    clipping_norm
        Clipping norm of this round, above 0: the configured norm, or the announced norm if clipping is adaptive.
    """
    require_number("clipping norm is", clipping_norm, "positive finite numbers")
    return (direction * (clipping_norm * _PASSES)).astype(np.float32)


def canary_score(release: ArrayLike, direction: Floats) -> float:
    """Return the inner product of a release and a canary's direction; it tends to be higher if the canary took part.

    Parameters
    ----------
    release
        Release of the round, or the difference of two successive models, finite, in any unit, shape (dimension,).
    direction
        Direction of the canary, shape (dimension,).
    """
    values = np.asarray(release, dtype=np.float64)
    require(values.shape == direction.shape, f"release has shape {values.shape}: accepted is {direction.shape}")
    require(bool(np.isfinite(values).all()), "release is not finite: accepted are finite numbers")
    return float(values @ direction)
