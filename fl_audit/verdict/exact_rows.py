"""Rows of exact checks in the table of tallies: how far what was played is from what the challenger recomputed."""

from dataclasses import dataclass
from enum import IntEnum, StrEnum


class ExactRowKind(StrEnum):
    """Kind of a row of an exact check in the table of tallies."""

    SUM = "exact-sum"  # largest distance of a sum from the recomputed one, in clipping norms, with the client
    SUM_ALLOWED = "exact-sum-allowed"  # what rounding may make of it
    LENGTH = "exact-length"  # length of the longest contribution, in clipping norms, with the unit
    UNITS = "exact-units"  # number of units whose contributions were computed
    BITS = "exact-bits"  # distance of the sum of quantile bits from the recomputed one
    BITS_ALLOWED = "exact-bits-allowed"  # what rounding at the edge of the norm may make of it
    START = "exact-start"  # number of coordinates in which an initial model differs from the public one
    STARTS = "exact-starts"  # number of initial models that were compared
    MOVED = "exact-moved"  # distance of the releases of D and D' under the same noise, in clipping norms
    MOVED_ALLOWED = "exact-moved-allowed"  # the claimed sensitivity, with what rounding may add
    # Numbers of trials of a round whose release is not the sum with the claimed noise, or whose models are not those of
    # the optimizer's step: because of what is done to them afterwards, the same where all trials hold one data set,
    # because of the secret, by a rule that may depend on it, by noise of its own, and for unknown reasons.
    POST_PROCESSED = "exact-post-processed"
    ONE_SECRET = "exact-one-secret"
    FOLLOWS_SECRET = "exact-follows-secret"
    OWN_RULE = "exact-own-rule"
    UNKNOWN_STEP = "exact-unknown-step"
    NOT_A_SUM = "exact-not-a-sum"
    SECOND = "exact-second-seed"  # share of draws of a kind that are the same with another secret seed
    MODULES_WENT_ON = "exact-modules-went-on"  # 1 if generators in modules could not begin anew for it


class SecretDraw(IntEnum):
    """A kind of draws that follow the secret seed, by its number in the table of tallies."""

    NOISE = 0  # noise that the server adds
    SAMPLES = 1  # samples of units
    SHARES = 2  # seeds of the noise that clients add
    BITS = 3  # noise of the quantile bits of adaptive clipping


WHOLE = -1  # stands for all clients together in the place of a client's number
MODELS = -2
"""Stands for the models of all clients in the place of a client's number."""


@dataclass(frozen=True)
class ExactRow:
    """One value of an exact check."""

    kind: ExactRowKind
    trial: int  # number of the trial
    number: int  # number of the round; 0 for the initial models
    where: int  # number of the client or unit; -1 for all together, and `MODELS`
    value: float
