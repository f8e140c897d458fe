"""The family of tests on which a verdict rests: their names and their shares of the level, fixed before any data.

Every test is exact under the claimed law, or its p-value is never too small but for what its module says. By Bonferroni
the probability that an honest federation fails any of them is at most `FAMILY_LEVEL`.
"""

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

FAMILY_LEVEL = 0.001
"""Probability with which a federation that keeps its promise may be called violated."""

DETECTION_POWER = 0.9
"""Probability with which a breach as large as a limit of detection is found."""


class TestName(StrEnum):
    """What a test looks at."""

    __test__ = False  # it is no test of pytest's

    NOISE_TOTAL = "noise-total"
    NOISE_ALONG_RECORD = "noise-along-record"
    NOISE_TENSOR = "noise-tensor"
    DRIFT_ALONG_RECORD = "drift-along-record"
    DRIFT_ALONG_GRADIENTS = "drift-along-gradients"
    REPEATED_NOISE = "repeated-noise"
    SHARED_OVER_WORLDS = "shared-over-worlds"
    SHARED_OVER_ROUNDS = "shared-over-rounds"
    SERIAL_CORRELATION = "serial-correlation"
    LOW_BITS = "low-bits"
    SENSITIVITY = "sensitivity"
    SCORES = "scores"

    @property
    def level(self) -> float:
        """The test's share of `FAMILY_LEVEL`; all of it for SCORES, which stands where no other test can be made."""
        return FAMILY_LEVEL * _SHARES.get(self, 1.0)


_SHARES = {
    TestName.NOISE_ALONG_RECORD: 0.25,  # it decides how large an epsilon would be found
    TestName.NOISE_TOTAL: 0.15,
    TestName.NOISE_TENSOR: 0.1,
    TestName.DRIFT_ALONG_RECORD: 0.1,
    TestName.DRIFT_ALONG_GRADIENTS: 0.1,
    TestName.REPEATED_NOISE: 0.05,
    TestName.SHARED_OVER_WORLDS: 0.05,
    TestName.SHARED_OVER_ROUNDS: 0.05,
    TestName.SERIAL_CORRELATION: 0.05,
    TestName.LOW_BITS: 0.05,
    TestName.SENSITIVITY: 0.05,
}


@dataclass(frozen=True)
class TestResult:
    """What one test found.

    Parameters
    ----------
    name
        Which test, a `TestName`.
    statistic
        The number that it rests on; its module says which.
    p_value
        Probability, if the claim holds, of what was found or worse.
    level
        The test's share of the family's level.
    measured, promised
        Both in plain English, with the numbers.
    limit
        Which breach would have been found with probability `DETECTION_POWER`, in plain English.
    where
        Where in the run, such as the tensor or the pair of rounds; empty where the test concerns all of it.
    """

    __test__: ClassVar[bool] = False

    name: str
    statistic: float
    p_value: float
    level: float
    measured: str
    promised: str
    limit: str
    where: str = ""

    @property
    def violated(self) -> bool:
        """Whether the claim is refuted at the test's level."""
        return self.p_value < self.level


@dataclass(frozen=True)
class NotOffered:
    """Why a test has nothing to say about a run, in plain English."""

    reason: str


NOT_MEASURED = NotOffered(
    "The noise was not measured everywhere: the model or what clients see of a round does not let it."
)
NO_DIFFERENCE = NotOffered(
    "D and D' differed by less than a billionth of the noise in every round, so no direction tells them apart."
)


def percent(share: float) -> str:
    """Return a share as a percentage with two significant digits that never rounds to 0 or 100 unless it is that.

    Examples
    --------
    >>> percent(0.0021), percent(0.999996), percent(0.5)
    ('0.21 %', '99.9996 %', '50 %')
    """
    tail = 100 * min(abs(share), abs(1 - share))
    decimals = 0 if tail == 0 else max(0, 1 - math.floor(math.log10(tail)))
    text = f"{100 * share:.{min(decimals, 12)}f}"
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text} %"


def times(ratio: float) -> str:
    """Return a ratio near 1 with enough digits to tell it from 1.

    Examples
    --------
    >>> times(1.00036), times(0.5), times(3.14159)
    ('1.00036', '0.50', '3.1')
    """
    if ratio >= 2:
        return f"{ratio:.2g}" if ratio < 1e4 else f"{ratio:.2e}"
    gap = abs(ratio - 1)
    decimals = 4 if gap == 0 else min(8, max(2, 1 - math.floor(math.log10(gap))))
    text = f"{ratio:.{decimals}f}"
    return text[:-1] if decimals > 2 and text.endswith("0") else text
