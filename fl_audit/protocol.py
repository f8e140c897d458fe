"""Names in the messages of a federation, which are all that its parties share."""

from enum import StrEnum

import numpy as np

from fl_audit.array_types import Flags


class NonTrainingQuery(StrEnum):
    """Questions that a server asks besides training."""

    IDENTIFY = "identify"
    OBSERVE = "observe"
    LOSS_RANGE = "loss_range"
    LOSS_MOMENTS = "loss_moments"


class MessageRecord(StrEnum):
    """Names of the records in a message, and of those in a client's own state."""

    ARRAYS = "arrays"
    CONFIG = "config"
    OWN_EPSILON_STAR = "own-epsilon-star"
    """Epsilon* of a client's shard at the last release that was evaluated, in its own state and not in messages."""
    OWN_ACCOUNTANT = "own-accountant"
    """State of Opacus' accountant after the last round in which a client trained privately, in its own state."""


class Key(StrEnum):
    """Entries of the records."""

    FEDERATION = "federation"  # the public federation as JSON
    ROUND = "round"
    BATCH = "batch"
    TIME_LIMIT = "time-limit"  # seconds that one client call may take
    MEMBERSHIP = "membership"
    """The membership of a client's own targets in the trials of a batch; sent to that client alone."""
    PARTICIPATION = "participation"
    """The participation of a client's records in a round, sent to that client alone; see `pack_participation`."""
    PARTITION = "partition"
    MODELS = "models"  # stacked models (trials, parameters), float32
    RELEASE = "release"  # released noised sums (trials, parameters), float32
    SUM = "sum"  # a client's contribution (trials, parameters), float32: clipped, and summed over its units
    NORMS = "norms"  # clipping norms of a round where they are adaptive (trials,), float64
    WITHIN = "within"  # whether a client's contribution was within the clipping norm: 1 or 0 per trial, float64
    TRIALS = "trials"  # numbers of the trials that a message is about, where a client needs them for what it draws
    NOISE_SEED = "noise-seed"
    """Secret seed of a client's own noise and of the use of its records, sent to that client alone."""
    LOCAL_SENSITIVITY = "local-sensitivity"  # ||f(D) - f(D')|| per trial, float64
    LOG_ODDS = "log-odds"  # increments of the insider's log-odds per trial, float64
    SCORES = "scores"
    """Noise along the difference of D and D' as normal scores, under D and under D' (trials, 2), float64."""
    SCORE = "score"  # score of a round for the differing record where there is no likelihood ratio, per trial, float64
    COINS = "coins"
    """The coins of canaries in a round, in the trials of a batch; sent only to the client that sends them."""
    TIMES = "times"
    """Number of steps of a private round that used each of a client's canaries (trials, canaries), float64."""
    CANARIES = "canaries"  # scores of canaries, then of decoys, in a round (trials, directions), float64
    ACCOUNTANT = "accountant"  # state of a client's Opacus accountant as JSON, after the round
    RESIDUALS = "residuals"
    """The insider's measurements of the noise (trials, columns), float64; see `NoiseStatistics.as_array`."""
    COUNT = "count"  # number of records that a summary of losses is of, per trial, float64 as all of a summary
    LOW = "low"  # smallest loss per trial
    HIGH = "high"  # largest loss per trial
    MEAN = "mean"  # mean score per trial
    SQUARES = "squares"  # sum of squared deviations of scores from their mean per trial
    POPULATION_COUNT = "population-count"
    POPULATION_MEAN = "population-mean"
    POPULATION_SQUARES = "population-squares"
    DELTA = "delta"  # delta of Epsilon*
    CUT = "cut"  # cut of the error rates of Epsilon*
    REPORT = "report"  # whether a client tells the server its own Epsilon*
    EPSILON_STAR = "epsilon-star"
    """Epsilon* of a client's own shard per trial, float64; NaN where it holds fewer than two records."""


def pack_participation(taking_part: Flags) -> bytes:
    """Return the participation of records (trials, records) as bytes, eight records of a trial in each."""
    return np.packbits(taking_part, axis=1).tobytes()


def unpack_participation(packed: bytes, trials: int, records: int) -> Flags:
    """Return the participation that `pack_participation` packed, (trials, records).

    Parameters
    ----------
    packed
        Bits, with the row of each trial filled up to whole bytes.
    trials
        Number of trials.
    records
        Number of records.
    """
    rows = np.frombuffer(packed, dtype=np.uint8).reshape(trials, -1)
    return np.unpackbits(rows, axis=1, count=records).astype(np.bool_)


def models_key(position: int) -> str:
    """Return the key under which a message holds the model of `position` rounds before its newest model."""
    return f"{Key.MODELS}-{position}"


def earlier_key(key: str, back: int) -> str:
    """Return the entry for a value of a round that lies some rounds before the round of the message.

    Parameters
    ----------
    key
        Name of the entry for the value of the message's own round.
    back
        Number of rounds between the two, from 0.
    """
    return f"earlier-{key}-{back}"
