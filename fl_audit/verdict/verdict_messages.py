"""Put the results of tests of a guarantee into words for a report."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fl_audit.array_types import finite
from fl_audit.mechanisms.noises.mechanism_noise import MechanismNoise
from fl_audit.privacy.accounting_enums import NoiseDistribution
from fl_audit.report.page import Banner, VerdictLook
from fl_audit.report.template_files import template_texts
from fl_audit.report.unit_words import UnitWords
from fl_audit.verdict.declared_tests import Look, NotTestedReason, TestName, TestResult, leading_first
from fl_audit.verdict.exact_questions import ExactAnswer, broken_answers
from fl_audit.verdict.verdict import Verdict, VerdictDetails
from fl_audit.words import capital, one_in


@dataclass(frozen=True)
class TestMessage:
    """The result of one test in words, for reports; the template `test_messages.md` explains the texts."""

    __test__ = False  # it is no test of pytest's

    test: TestResult  # the result of the test in numbers
    title: str  # title of the test, beginning with a capital letter
    breach: str
    measured: str
    claimed: str
    limit: str  # "nothing" if no breach is found for sure; empty if unknown
    remedy: str
    sentence: str  # the breach that a failed test found, with the measured and the claimed value

    @property
    def kind(self) -> str:
        """A string that is equal for tests that find the same kind of breach; a report names each kind once."""
        if self.test.name.is_about_secret:
            return "secret"
        return "noise" if self.test.name.startswith("noise") else self.remedy

    def to_json(self) -> dict[str, Any]:
        """Return the entry of this test in `summary.json` as a dictionary."""
        test = self.test
        values = {"statistic": finite(test.statistic), "p_value": finite(test.p_value), "level": test.level}
        sentences = {"measured": self.measured, "claimed": self.claimed, "limit": self.limit}
        return {"name": str(test.name)} | values | sentences | {"where": test.place, "violated": test.violated}


def message_of(test: TestResult, unit: UnitWords, noise: MechanismNoise) -> TestMessage:
    """Return the result of a test in words; of a test that asks several questions, with the values of the clearest."""
    texts = {"measured": "", "claimed": "", "limit": ""} | _texts(test.name, test, unit, noise)
    if looks := [_texts(look.question, look, unit, noise) for look in test.looks]:
        limits = [look["limit"] for look in looks if look["limit"]]
        texts |= looks[0] | {"limit": ", or ".join(limits)}
    texts.setdefault("sentence", "{breach}: we measured {measured}; the guarantee was {claimed}.".format(**texts))
    return TestMessage(test, title_of(test.name, unit), **texts)


def _texts(section: str, result: TestResult | Look, unit: UnitWords, noise: MechanismNoise) -> dict[str, str]:
    """Return the texts on a test, or on one of its questions, from its section in the template."""
    numbers = {**result.more, "measured": result.measured, "claimed": result.claimed, "limit": result.limit}
    is_gaussian = noise.distribution is NoiseDistribution.GAUSSIAN
    facts = {"test": section, "place": result.place, "is_gaussian": is_gaussian}
    texts = template_texts("test_messages.md", **vars(unit), **numbers, **facts)
    if not math.isfinite(result.limit):
        texts["limit"] = "" if math.isnan(result.limit) else "nothing"
    return texts


_LOOKS = {
    Verdict.VIOLATED: VerdictLook.BAD,
    Verdict.CONSISTENT: VerdictLook.GOOD,
    Verdict.INCONCLUSIVE: VerdictLook.OPEN,
    Verdict.NOT_AUDITED: VerdictLook.NONE,
    Verdict.NO_GUARANTEE: VerdictLook.NONE,
}
"""Look of the banner for each verdict. The look decides the colours."""


def verdict_banner(verdict: Verdict, line: str) -> Banner:
    """Return the banner at the top of a report: the verdict in its colours, and one line below it."""
    return Banner(capital(str(verdict)), line, _LOOKS[verdict])


def title_of(name: TestName, unit: UnitWords) -> str:
    """Return the title of a test, beginning with a capital letter."""
    return capital(template_texts("test_titles.md", **vars(unit))[name])


def reason_text(reason: NotTestedReason) -> str:
    """Return a sentence on the reason why a test was not made."""
    return template_texts("untested_reasons.md")[reason]


def broken_tests(details: VerdictDetails | None, unit: UnitWords, noise: MechanismNoise) -> list[TestMessage]:
    """Return the failed tests in words, the clearest failure first; the list is empty if nothing was tested."""
    return [] if details is None else [message_of(test, unit, noise) for test in leading_first(details.broken)]


def exact_sentences(answers: Sequence[ExactAnswer]) -> str:
    """Return one sentence for each exact question by which the claim is broken; empty if there is none."""
    return " ".join(f"{capital(answer.text)}." for answer in broken_answers(answers))


def p_text(p_value: float) -> str:
    """Return a p-value as text with two significant digits, or "under 1e-300" if it is smaller than that."""
    return f"{p_value:.2g}" if p_value >= 1e-300 else "under 1e-300"


def p_as_chance(p_value: float) -> str:
    """Return a p-value in words such as "1 in 2,000"; values under 1e-9 give an upper bound."""
    return f"< {one_in(1e-9)}" if p_value < 1e-9 else one_in(float(f"{p_value:.1g}"))
