"""Describe in words the tests of a verdict that do not concern the amount of noise, with their limits of detection."""

import math
from collections.abc import Sequence

from fl_audit.report.unit_words import UnitWords
from fl_audit.verdict.declared_tests import DETECTION_POWER, NotTestedReason, TestName, TestResult
from fl_audit.verdict.verdict import VerdictDetails
from fl_audit.verdict.verdict_messages import message_of, reason_text, title_of
from fl_audit.words import uncapital

_PARTICIPATION = (
    TestName.TARGET_TURNS,
    TestName.UNIT_TURNS,
    TestName.SAMPLE_SIZES,
    TestName.EVEN_TURNS,
    TestName.SHARED_SAMPLES,
)
_RELEASED = (TestName.SHARE_PAIRS, TestName.BIT_NOISE, TestName.EXACT_STEPS)
_SECRET = (TestName.DISTINGUISHER,)
_QUESTIONS: tuple[tuple[str, tuple[TestName, ...]], ...] = (
    ("whether everybody takes part as was claimed", _PARTICIPATION),
    ("whether everything else that is released is what was claimed", _RELEASED),
    ("whether anything but the released sums tells the two data sets apart", _SECRET),
)


def questions_text(details: VerdictDetails, unit: UnitWords) -> str:
    """Return sentences on the tests of participation, other released values, and noise that depends on the secret.

    They state the limit of detection of each test that was made, and why the others were not made.
    """
    return " ".join(_asked(question, names, details, unit) for question, names in _QUESTIONS)


def questions_in_short(details: VerdictDetails) -> list[str]:
    """Return a sentence for each question beside the amount of noise: whether it was asked, and if not, why.

    Unlike `questions_text`, they name no limits of detection.
    """
    test_names = {test.name for test in details.tests}
    reasons = dict(details.not_offered)
    return [
        f"It was tested {question}."
        if test_names & {*names}
        else f"It was not tested {question}: {_why(names, reasons)}"
        for question, names in _QUESTIONS
    ]


def _asked(question: str, names: Sequence[TestName], details: VerdictDetails, unit: UnitWords) -> str:
    tests = [test for test in details.tests if test.name in names]
    reasons = dict(details.not_offered)
    if not tests:
        return f"It was not asked {question}: {_why(names, reasons)}"
    limits = "; ".join(_limit(test, unit) for test in tests)
    # A test is named if its values were not opened, but not if the mechanism does not have such values.
    unopened = [
        name for name in names if reasons.get(name) in (NotTestedReason.NOT_OPENED, NotTestedReason.UNOPENED_SHARES)
    ]
    untested = (
        f" It was not asked of {', '.join(uncapital(title_of(name, unit)) for name in unopened)}." if unopened else ""
    )
    return f"It was asked {question}; found with probability {DETECTION_POWER:g} would have been: {limits}.{untested}"


def _limit(test: TestResult, unit: UnitWords) -> str:
    message = message_of(test, unit)
    # The limit is NaN if there were too few trials, or if the test is not random.
    nothing = "any difference in any bit" if test.name is TestName.EXACT_STEPS else "nothing, with so few trials"
    size = nothing if math.isnan(test.limit) else message.limit
    return f"{size} ({uncapital(message.title)})"


def _why(names: Sequence[TestName], reasons: dict[TestName, NotTestedReason]) -> str:
    said = list(dict.fromkeys(reasons[name] for name in names if name in reasons))
    return uncapital(reason_text(said[0])) if said else "no test of it was made."
