"""Exact questions about a run: what the challenger recomputed is compared, without trials and without statistics.

An answer is not random: either two numbers agree up to the rounding of 32-bit numbers, or the claim is broken. So these
questions take no part of the level of the tests, and an honest run is never accused by them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
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
