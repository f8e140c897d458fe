"""Define the family of tests behind a verdict: their names, their shares of the significance level, their results.

Each test's share of the significance level is fixed before any data are seen. Every test is exact or conservative under
the claimed distribution, or its docstring states the approximations. By Bonferroni, an honest federation fails one or
more of the tests with probability at most `FAMILY_LEVEL`.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from typing import ClassVar, TypeVar

import numpy as np

from fl_audit.errors import require
from fl_audit.statistics.claim_comparisons import FAMILY_LEVEL as FAMILY_LEVEL

Known = TypeVar("Known")
DETECTION_POWER = 0.9
"""Power at the limit of detection: the probability with which a breach of that size is found."""


class TestName(StrEnum):
    """Name of a statistical test of the guarantee, with a weight that decides its share of the significance level.

    The shares of `FAMILY_LEVEL` are proportional to the weights, so a new test takes a little from all others. Most
    tests ask whether the noise is as claimed. SENSITIVITY asks whether D and D' differ by no more than was claimed. The
    SIGNAL and DRIFT tests ask whether the target, the unit in which D and D' differ, contributes once to the released
    sum, and nothing else differs. The test DISTINGUISHER asks whether the noise depends on the secret. The tests from
    TARGET_TURNS to EXACT_STEPS concern values that are opened after a run, such as who took part.

    The last three tests have the weight 0. The test SCORES is for attack scores of unknown distribution, and the test
    CANDIDATES for the guesses of a reconstruction attack. Each of these two gets the share that the tests in
    `BESIDE_SCORES` do not use. The test CANARIES is the only one of the canary audit and gets all of `FAMILY_LEVEL`.
    """

    __test__ = False  # it is no test of pytest's

    weight: float

    def __new__(cls, name: str, weight: float = 0.0) -> "TestName":  # noqa: D102
        member = str.__new__(cls, name)
        member._value_ = name
        member.weight = weight
        return member

    NOISE_TOTAL = "noise-total", 0.05
    NOISE_ALONG_RECORD = "noise-along-record", 0.25  # it decides how large an epsilon would be found
    NOISE_TENSOR = "noise-tensor", 0.04
    NOISE_ROUND = "noise-round", 0.03
    SHAPE = "shape", 0.03
    NOISE_TRIAL = "noise-along-record-trial", 0.03
    SIGNAL = "signal", 0.25  # it decides how often the record may count without being found
    SIGNAL_ROUND = "signal-round", 0.03
    SIGNAL_TRIAL = "signal-trial", 0.06
    DRIFT_PLACE = "drift-place", 0.03
    DRIFT_ALONG_RECORD = "drift-along-record", 0.05
    DRIFT_ALONG_GRADIENTS = "drift-along-gradients", 0.05
    REPEATED_NOISE = "repeated-noise", 0.06
    CORRELATED_NOISE = "correlated-noise", 0.05
    SENSITIVITY = "sensitivity", 0.01  # not random, so it raises no false alarm
    DISTINGUISHER = "distinguisher", 0.02
    # Values that the challenger opens: participation, shares of the noise, quantile bits, and steps that are not
    # random.
    TARGET_TURNS = "target-turns", 0.02
    UNIT_TURNS = "unit-turns", 0.02
    SAMPLE_SIZES = "sample-sizes", 0.02
    EVEN_TURNS = "even-turns", 0.02
    SHARED_SAMPLES = "shared-samples", 0.02
    SHARE_PAIRS = "share-pairs", 0.02
    BIT_NOISE = "bit-noise", 0.03
    EXACT_STEPS = "exact-steps", 0.01  # not random, so it raises no false alarm
    SCORES = "scores"
    CANDIDATES = "candidates"
    CANARIES = "canaries"

    @property
    def share(self) -> float:
        """Share of this test in `FAMILY_LEVEL`, the significance level of all tests together, from 0 to 1."""
        if self is TestName.CANARIES:
            return 1.0
        if self in (TestName.SCORES, TestName.CANDIDATES):
            return 1.0 - math.fsum(test.share for test in BESIDE_SCORES)
        return self.weight / _weight_in_all()

    @property
    def level(self) -> float:
        """Significance level of this test: its `share` times `FAMILY_LEVEL`, the level of all tests together."""
        return FAMILY_LEVEL * self.share

    @property
    def is_about_secret(self) -> bool:
        """True for tests of whether the noise depends on the secret, False for tests of whether it is as claimed."""
        return self is TestName.DISTINGUISHER


@cache
def _weight_in_all() -> float:
    return math.fsum(test.weight for test in TestName)


OF_OPENED = (
    TestName.TARGET_TURNS,
    TestName.UNIT_TURNS,
    TestName.SAMPLE_SIZES,
    TestName.EVEN_TURNS,
    TestName.SHARED_SAMPLES,
    TestName.SHARE_PAIRS,
    TestName.BIT_NOISE,
    TestName.EXACT_STEPS,
)
"""The tests of values that the challenger opens besides the noise of the sum; they need no likelihood ratio."""
ALONG_TARGETS = (TestName.NOISE_ALONG_RECORD, TestName.NOISE_TRIAL, TestName.SIGNAL, TestName.SIGNAL_TRIAL)
"""The tests of the noise along targets, which the membership and reconstruction audits make too."""
BESIDE_SCORES = (*ALONG_TARGETS, *OF_OPENED)
"""The tests that can be made together with a test of scores or guesses, whose likelihood ratio is unknown."""


def bonferroni(looks: int, p_value: float) -> float:
    """Return the Bonferroni correction of the smallest of several p-values: `looks` times `p_value`, at most 1.

    If `p_value` is NaN, the result is NaN.

    Parameters
    ----------
    looks
        Number of p-values, at least 1 (2 for a two-sided test).
    p_value
        Smallest of the p-values, at least 0.
    """
    return float(np.minimum(1.0, looks * p_value))


OF_NOISE = (TestName.NOISE_TOTAL, TestName.NOISE_ALONG_RECORD, TestName.NOISE_TENSOR)
"""The tests whose statistic is the ratio of measured to claimed noise."""
OF_SHAPE = (TestName.SHAPE, TestName.REPEATED_NOISE)
"""The tests whose statistics are computed from the noise in units of the claimed noise."""


@dataclass(frozen=True)
class Look:
    """One of several questions that a test asks, with the numbers of `TestResult` for this question alone."""

    question: str  # key of its message templates
    statistic: float
    p_value: float
    measured: float
    claimed: float
    limit: float
    place: str = ""
    more: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class TestResult:
    """The result of one statistical test in numbers, such as its p-value and the smallest breach that it would find.

    Raises
    ------
    InputError
        If the p-value is NaN or not from 0 to 1, so that no run passes because a test could not be computed.
    """

    __test__: ClassVar[bool] = False

    name: TestName  # name of the test
    statistic: float  # value of the test statistic, which the test's docstring defines
    p_value: float  # probability, if the claim holds, of a result at least as extreme as this one
    measured: float  # the measured value, which the test's docstring defines
    claimed: float  # the claimed value, in the same unit
    # Limit of detection: the smallest breach that would have been found with probability `DETECTION_POWER`, in the unit
    # of `measured` or of the test's own message; NaN where it is unknown.
    limit: float = math.nan
    place: str = ""  # where the breach was found, such as a tensor or two rounds; empty for the whole run
    more: Mapping[str, float] = field(default_factory=dict)  # other numbers of this test, by name
    # Questions that the test asks, the clearest answer first; empty if it asks one. The numbers are those of the first.
    looks: tuple[Look, ...] = ()

    def __post_init__(self) -> None:
        problem = f"the test {self.name} has the p-value {self.p_value}"
        require(0 <= self.p_value <= 1, f"{problem}: accepted are numbers from 0 to 1; is one of the run not finite?")

    @property
    def level(self) -> float:
        """Significance level of the test: its declared part of the level of the whole family."""
        return self.name.level

    @property
    def violated(self) -> bool:
        """True if the p-value is under the significance level, so the test refutes the claim."""
        return self.p_value < self.level


class NotTestedReason(StrEnum):
    """Reason why a test could not be made on a run, such as too few rounds."""

    NOT_MEASURED = "not-measured"
    NO_DIFFERENCE = "no-difference"
    NO_OTHER_DIRECTION = "no-other-direction"
    NO_DIRECTIONS = "no-directions"
    NO_NOISE = "no-noise"
    NO_SHARED_SUM = "no-shared-sum"
    ONE_TRIAL = "one-trial"
    ONE_ROUND = "one-round"
    ONE_SIDE = "one-side"
    TOO_FEW = "too-few"
    ROUNDING = "rounding"
    NOT_COMPUTED = "not-computed"
    SCORES_ALONE = "scores-alone"
    CANDIDATES_ALONE = "candidates-alone"
    TARGETS_ALONE = "targets-alone"
    NOT_OPENED = "not-opened"
    NOT_SAMPLED = "not-sampled"
    NO_SHARES = "no-shares"
    UNOPENED_SHARES = "unopened-shares"
    NO_BITS = "no-bits"
    NOT_A_SUM = "not-a-sum"


class TestNotApplicableError(Exception):
    """Raised by a test that cannot be made on a run; `reason` says why."""

    __test__ = False  # it is no test of pytest's

    def __init__(self, reason: NotTestedReason) -> None:
        super().__init__(reason)
        self.reason = reason


def only_if(holds: bool, reason: NotTestedReason) -> None:
    """Raise `TestNotApplicableError` unless the condition of a test holds.

    Parameters
    ----------
    holds
        Whether the test can be made.
    reason
        Reason that the exception has.

    Raises
    ------
    TestNotApplicableError
        If the condition does not hold.
    """
    if not holds:
        raise TestNotApplicableError(reason)


def if_known(value: Known | None, reason: NotTestedReason) -> Known:
    """Return a value that a test needs; raise an exception if the value is None.

    Parameters
    ----------
    value
        The value, or None if it is not known.
    reason
        Reason why the test cannot be made without the value, for the exception.

    Raises
    ------
    TestNotApplicableError
        If the value is None.
    """
    if value is None:
        raise TestNotApplicableError(reason)
    return value


def clearest_of(name: TestName, questions: Sequence[Callable[[float], Look]]) -> TestResult:
    """Return the result of a test that asks several questions: the smallest p-value, with Bonferroni's correction.

    Parameters
    ----------
    name
        Name of the test.
    questions
        Functions that answer a question, given its significance level: an equal part of that of the test.

    Raises
    ------
    TestNotApplicableError
        If no question can be asked; the reason is that of the first.
    """
    looks = list[Look]()
    reasons = list[NotTestedReason]()
    for question in questions:
        try:
            looks.append(question(name.level / len(questions)))
        except TestNotApplicableError as why:
            reasons.append(why.reason)
    if not looks:
        raise TestNotApplicableError(reasons[0])
    looks.sort(key=lambda look: look.p_value)
    first = looks[0]
    p_value = bonferroni(len(questions), looks[0].p_value)
    return TestResult(
        name,
        first.statistic,
        p_value,
        first.measured,
        first.claimed,
        first.limit,
        first.place,
        first.more,
        tuple(looks),
    )


def leading_first(broken: Iterable[TestResult]) -> tuple[TestResult, ...]:
    """Return failed tests in the order in which a report names them, the clearest failure first.

    The clearest failure has the smallest ratio of p-value to significance level. There is one exception: if some test
    found that the noise depends on the secret, and no test found too little noise, the clearest test of this dependence
    comes first.
    """
    ordered = sorted(broken, key=lambda test: test.p_value / test.level)
    about_secret = [test for test in ordered if test.name.is_about_secret]
    missing = any(test.name in OF_NOISE for test in ordered)
    first = (about_secret if about_secret and not missing else ordered)[:1]
    return (*first, *(test for test in ordered if test not in first))
