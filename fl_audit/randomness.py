"""Make random generators, each of which depends only on seed, purpose, trial, round and client.

A generator is Philox-4x64 with the key (seed, purpose) and a counter that starts at (trial, round, client). Distinct
keys give independent streams. Distinct counters give disjoint parts of a stream, each 2**64 blocks long. So no draw
depends on which other trials run, on the trial batches, or on the number of workers (Salmon et al. 2011, "Parallel
random numbers: as easy as 1, 2, 3"). The streams are reproducible, which suits simulation, but they are no secure
source of noise.
"""

from enum import IntEnum

import numpy as np

from fl_audit.errors import require


class Purpose(IntEnum):
    """Purpose of a stream of random numbers; different purposes have independent streams."""

    SECRET_BIT = 1
    INITIAL_WEIGHTS = 2
    RELEASE_NOISE = 3
    RECORD_SELECTION = 4
    NEIGHBOUR_CHOICE = 5
    POPULATION_SAMPLE = 6
    PARTITION = 7
    RECORD_SAMPLING = 8
    PUBLIC_DIRECTIONS = 9
    LOCAL_ORDER = 10
    STAND_IN_SHARD = 11
    CLIENT_SAMPLING = 12
    COHORT_ORDER = 13
    NOISE_SHARE = 14
    CLIENT_SEED = 15
    QUANTILE_NOISE = 16
    CLIENT_TRAINING = 17
    LOCAL_RANDOMIZER = 18
    SYNTHETIC_RECORDS = 19
    TARGET_CHOICE = 20
    BLACK_BOX = 21
    CRAFTED_START = 23
    PRETRAINING = 24
    CANARY_DIRECTION = 25
    CANARY_COIN = 26
    DISTINGUISHER = 27
    DITHER = 28
    DRAWING = 29
    FIT_TEST = 30
    BOUND_CHOICE = 31
    EXACT_CHECKS = 32
    AGGREGATION = 33


def require_seed(name: str, seed: object, is_secret: bool = False) -> None:
    """Raise `InputError` unless a seed is a whole number from 0 to 2**64 - 1."""
    is_seed = isinstance(seed, (int, np.integer)) and not isinstance(seed, bool) and 0 <= int(seed) < 2**64
    problem = f"of type {type(seed).__name__} or out of range" if is_secret else repr(seed)
    require(is_seed, f"{name} is {problem}: accepted are whole numbers from 0 to 2**64 - 1")


def generator(seed: int, purpose: Purpose, *, trial: int = 0, round: int = 0, client: int = 0) -> np.random.Generator:
    """Return the random generator for one purpose in one trial, round and client; equal arguments give equal draws.

    Examples
    --------
    >>> generator(0, Purpose.SECRET_BIT, trial=7).random() == generator(0, Purpose.SECRET_BIT, trial=7).random()
    True
    """
    require_seed("seed", seed)
    key = np.array([seed, int(purpose)], dtype=np.uint64)
    counter = np.array([0, client, round, trial], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=counter))
