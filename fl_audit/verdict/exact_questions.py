"""Exact questions about a run: what the challenger recomputed is compared, without trials and without statistics.

An answer is not random: either two numbers agree up to the rounding of 32-bit numbers, or the claim is broken. So these
questions take no part of the level of the tests, and an honest run is never accused by them. While a run is played, the
checks leave rows in its table of tallies, from which the answers are computed afterwards.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Any


class ExactQuestion(StrEnum):
    """A question about a run that is answered by computing it again."""

    SUM = "sum-before-noise"
    LENGTH = "contribution-length"
    BITS = "quantile-bits"
    START = "initial-model"
    STEP = "server-step"
    MOVED = "sensitivity-of-release"
    EPSILON = "epsilon"
    SECOND_SEED = "second-seed"
    MODELS = "changed-models"
    CONTRIBUTIONS = "changed-contributions"


@dataclass(frozen=True)
class ExactAnswer:
    """The answer to one exact question; where it was not asked, `reason` says why and the numbers are NaN."""

    question: ExactQuestion
    measured: float = math.nan  # the measured value, in the unit that the text names
    allowed: float = math.nan  # the largest value, or for epsilon the smallest claim, that keeps the claim
    is_kept: bool = True  # whether the claim is kept; True where the question was not asked
    text: str = ""  # what was found, in one line
    checked: str = ""  # what was checked, such as "60 units in trial 3 round 1"
    reason: str = ""  # why it was not asked; empty where it was
    is_open: bool = False  # whether no verdict is consistent without an answer, as to whether a rule follows the secret
    hides_noise: bool = False  # whether no test of the noise says anything, since releases are not sums with noise

    @property
    def is_asked(self) -> bool:
        """Whether the question was asked."""
        return not self.reason

    def to_json(self) -> dict[str, Any]:
        """Return the entry of this answer in `summary.json`."""
        numbers = {"measured": self.measured, "allowed": self.allowed}
        values = {"found": self.text, "checked": self.checked, "not_asked": self.reason or None}
        numbers_told = {name: value if math.isfinite(value) else None for name, value in numbers.items()}
        return {"name": str(self.question), "violated": not self.is_kept} | numbers_told | values


def open_answers(answers: Sequence[ExactAnswer]) -> tuple[ExactAnswer, ...]:
    """Return the questions without whose answer no verdict is consistent."""
    return tuple(answer for answer in answers if answer.is_open)


def broken_answers(answers: Sequence[ExactAnswer]) -> tuple[ExactAnswer, ...]:
    """Return the answers by which the claim is broken."""
    return tuple(answer for answer in answers if not answer.is_kept)


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
