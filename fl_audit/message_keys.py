"""Name the queries, records and keys in the messages of a federation, and pack participation into bytes."""

from enum import StrEnum

import numpy as np

from fl_audit.array_types import Flags


class NonTrainingQuery(StrEnum):
    """Type of a query, other than a training query, that the server sends to a party."""

    IDENTIFY = "identify"
    OBSERVE = "observe"
    LOSS_RANGE = "loss_range"
    LOSS_MOMENTS = "loss_moments"


class MessageRecordName(StrEnum):
    """Name of a record in a Flower message or in a client's state."""

    ARRAYS = "arrays"
    CONFIG = "config"
    OWN_ACCOUNTANT = "own-accountant"
    """State of a client's Opacus accountant after its last round of private training; kept in the client's state."""


class Key(StrEnum):
    """Key of an entry in the records of a message."""

    FEDERATION = "federation"  # the public federation as JSON
    ROUND = "round"
    BATCH = "batch"
    TIME_LIMIT = "time-limit"  # seconds that one client call may take
    MEMBERSHIP = "membership"
    """Membership of a client's own targets in the trials of a trial batch; sent to that client alone."""
    PARTICIPATION = "participation"
    """Participation of a client's records in a round, sent to that client alone; see `pack_participation`."""
    PARTITION = "partition"
    MODELS = "models"  # stacked models (trials, parameters), float32
    RELEASE = "release"  # released noised sums (trials, parameters), float32
    SUM = "sum"  # a client's contribution (trials, parameters), float32: clipped, and summed over its units
    NORMS = "norms"  # clipping norms of a round where they are adaptive (trials,), float64
    WITHIN = "within"  # whether a client's contribution was within the clipping norm: 1 or 0 per trial, float64
    TRIALS = "trials"  # numbers of the trials that a message is about, where a client needs them for what it draws
    NOISE_SEED = "noise-seed"
    """Secret seed of a client's own noise and of its secret samples, sent to that client alone."""
    LOCAL_SENSITIVITY = "local-sensitivity"  # ||f(D) - f(D')|| per trial, float64
    LOG_ODDS = "log-odds"  # increments of the insider's log-odds per trial, float64
    NOISE_SCORES = "noise-scores"
    """Normal scores of the noise along the difference of D and D', under D and under D', float64 (trials, 2)."""
    SCORE = "score"  # score of a round for the differing record where there is no likelihood ratio, per trial, float64
    COINS = "coins"
    """Coins of canaries in a round, in the trials of a trial batch; sent only to the client that sends the canaries."""
    TIMES = "times"
    """Number of steps in a private round that used each of a client's canaries, float64 (trials, canaries)."""
    # Scores in a round, of canaries and then of decoys (directions that are never sent), float64 (trials, directions).
    CANARIES = "canaries"
    ACCOUNTANT = "accountant"  # state of a client's Opacus accountant as JSON, after the round
    RESIDUALS = "residuals"
    """The insider's statistics of the noise, float64 (trials, columns); see `NoiseStatistics.as_array`."""
    COUNT = "count"  # number of records in a summary of losses or scores, per trial, float64 like the whole summary
    LOW = "low"  # smallest loss per trial
    HIGH = "high"  # largest loss per trial
    MEAN = "mean"  # mean score per trial
    SQUARES = "squares"  # sum of squared deviations of scores from their mean per trial


def pack_participation(taking_part: Flags) -> bytes:
    """Return the participation of records, bool (trials, records), packed into bytes with one bit per record.

    The bits of each trial are padded to whole bytes.
    """
    return np.packbits(taking_part, axis=1).tobytes()


def unpack_participation(packed: bytes, trials: int, records: int) -> Flags:
    """Return the participation of records, bool (trials, records), from the bytes of `pack_participation`."""
    rows = np.frombuffer(packed, dtype=np.uint8).reshape(trials, -1)
    return np.unpackbits(rows, axis=1, count=records).astype(np.bool_)


def models_key(position: int) -> str:
    """Return the key of a model in a message; position 0 is the latest model, position 1 the one before it."""
    return f"{Key.MODELS}-{position}"


def earlier_key(key: str, back: int) -> str:
    """Return the key under which a message contains a value of an earlier round."""
    return f"earlier-{key}-{back}"
