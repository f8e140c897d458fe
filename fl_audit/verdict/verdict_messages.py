"""Put the results of tests of a guarantee into words for a report."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fl_audit.array_types import finite
from fl_audit.report.unit_words import UnitWords
from fl_audit.verdict.declared_tests import OF_NOISE, Look, NotTestedReason, TestName, TestResult, leading_first
from fl_audit.verdict.noise_messages import LOOK_WORDS, NOISE_WORDS
from fl_audit.verdict.opened_secret_messages import MORE_WORDS
from fl_audit.verdict.signal_messages import SIGNAL_WORDS
from fl_audit.verdict.verdict import VerdictDetails
from fl_audit.words import capital, number_text, one_in, percent, ratio_text


@dataclass(frozen=True)
class TestMessageTemplates:
    """Message templates of one test, with fields such as "{measured:percent}" and "{one}", the word for the unit."""

    __test__ = False  # it is no test of pytest's

    title: str  # title of the test
    breach: str  # the breach that a failed test has found, for a reader who does not know the test
    measured: str  # the measured value
    claimed: str  # the claimed value
    limit: str  # the smallest breach that is found in 9 of 10 runs
    remedy: str  # where to look for the cause of a breach


TEST_WORDS = {name: TestMessageTemplates(*texts) for name, texts in (NOISE_WORDS | SIGNAL_WORDS | MORE_WORDS).items()}
"""Message templates by test."""

MISSING_WORDS = {
    NotTestedReason.NOT_MEASURED: (
        "The noise was not measured everywhere: the model or what clients see does not allow it."
    ),
    NotTestedReason.NO_DIFFERENCE: "D and D' differed by less than a billionth of the noise in every round.",
    NotTestedReason.NO_OTHER_DIRECTION: "No direction but that in which D and D' differ is left.",
    NotTestedReason.NO_DIRECTIONS: "The model has too few parameters to project the noise.",
    NotTestedReason.NO_NOISE: "There is no noise at the places looked at.",
    NotTestedReason.NO_SHARED_SUM: "The contributions that D and D' share are 0 in every round.",
    NotTestedReason.ONE_TRIAL: "There is one trial: no other can share its noise.",
    NotTestedReason.ONE_ROUND: "There is one round: none follows it.",
    NotTestedReason.ONE_SIDE: "All trials hold the same data set.",
    NotTestedReason.TOO_FEW: "There are too few trials, rounds or parameters to tell anything from chance.",
    NotTestedReason.ROUNDING: "The rounding of 32-bit numbers hides so fine a structure.",
    NotTestedReason.NOT_COMPUTED: "It could not be computed: some number of the run is missing or not finite.",
    NotTestedReason.SCORES_ALONE: "What the insider sees has no distribution that it could weigh exactly: its scores "
    "alone are judged.",
    NotTestedReason.TARGETS_ALONE: (
        "Of many targets the log-odds alone are kept, and in each trial the noise along one target."
    ),
    NotTestedReason.NOT_OPENED: "Nothing was kept that could be opened, or the challenger's directory was not read.",
    NotTestedReason.NOT_SAMPLED: "Everybody takes part in every round, or a public order says who does.",
    NotTestedReason.NO_SHARES: "No client adds a share of the noise.",
    NotTestedReason.UNOPENED_SHARES: "The clients' shares of the noise were not opened.",
    NotTestedReason.NO_BITS: "The clipping norm is fixed: there are no quantile bits.",
    NotTestedReason.NOT_A_SUM: "The release is not a sum with noise: tests of noise say nothing of it.",
    NotTestedReason.CANDIDATES_ALONE: (
        "Which of many candidates was in is guessed here: how often that is right is judged."
    ),
}
"""Sentence for each reason why a test was not made."""
_OF_LOOKS = ("measured", "claimed", "limit")  # templates that each question of a test has for itself


class _Number(float):
    """A float with named formats (percent, times, signed, count) for use in message templates.

    A number that is almost 1 or 0, such as a correlation of 0.99998, gets the digits that tell it from 1 or 0.
    """

    def __format__(self, format_spec: str) -> str:
        value = float(self)
        match format_spec:
            case "percent":
                return percent(value)
            case "times":
                return ratio_text(value)
            case "signed":
                return f"{value:+.3f}" if abs(value) >= 0.001 or value == 0 else f"{value:+.2g}"
            case "count":
                return f"{value:,.0f}"
            case _:
                text = number_text(value, 3)
                if abs(value) == 1 or text not in ("1", "-1"):
                    return text
                return f"{'-' * (value < 0)}{ratio_text(abs(value))}".rstrip("0").removesuffix(".")


@dataclass(frozen=True)
class TestMessage:
    """The result of one test in words, for reports."""

    test: TestResult  # the result of the test in numbers
    unit: UnitWords  # the report's words for the protected unit

    @cached_property
    def words(self) -> TestMessageTemplates:
        """Messages of the test with its numbers filled in.

        The limit of detection is "nothing" if it is infinite, and empty if it is unknown (NaN).
        """
        test = self.test
        templates = vars(TEST_WORDS[self.test.name])
        looks = [_filled(dict(zip(_OF_LOOKS, LOOK_WORDS[look.question], strict=True)), look, {}) for look in test.looks]
        filled = _filled(templates, test, vars(self.unit) | {"at_epsilon": _consequence(test)})
        if looks:
            filled |= looks[0] | {"limit": ", or ".join(look["limit"] for look in looks if look["limit"])}
        return TestMessageTemplates(**filled)

    @property
    def title(self) -> str:
        """Title of the test, beginning with a capital letter."""
        return title_of(self.test.name, self.unit)

    @property
    def sentence(self) -> str:
        """A sentence on the breach that a failed test found, with the measured and the claimed value."""
        if self.test.name not in OF_NOISE:
            words = self.words
            return f"{words.breach}: we measured {words.measured}; the guarantee was {words.claimed}."
        where = {
            TestName.NOISE_TOTAL: "",
            TestName.NOISE_ALONG_RECORD: f", just where it has to hide the {self.unit.one}",
            TestName.NOISE_TENSOR: f", on {self.test.place}",
        }
        share = "half" if abs(self.test.statistic - 0.5) < 0.005 else percent(self.test.statistic)
        return f"The noise is {share} of what was claimed{where[self.test.name]}."

    @property
    def kind(self) -> str:
        """A string that is equal for tests that find the same kind of breach; a report names each kind once."""
        if self.test.name.is_about_secret:
            return "secret"
        return "noise" if self.test.name.startswith("noise") else self.words.remedy

    def to_json(self) -> dict[str, Any]:
        """Return the entry of this test in `summary.json` as a dictionary."""
        test = self.test
        words = self.words
        values = {"statistic": finite(test.statistic), "p_value": finite(test.p_value), "level": test.level}
        sentences = {"measured": words.measured, "claimed": words.claimed, "limit": words.limit}
        return {"name": str(test.name)} | values | sentences | {"where": test.place, "violated": test.violated}


def _filled(templates: Mapping[str, str], result: TestResult | Look, names: Mapping[str, Any]) -> dict[str, str]:
    """Return message templates with the numbers of a test, or of one of its questions, and other names filled in."""
    place = result.place
    limit = result.limit
    values = {"measured": result.measured, "claimed": result.claimed, "limit": limit, **result.more}
    words = {**names, **{name: _Number(value) for name, value in values.items()}, "place": place}
    words |= {"at_place": f", on '{place}'" if place else "", "with_place": f" ({place})" if place else ""}
    unknown = {} if math.isfinite(limit) else {"limit": "" if math.isnan(limit) else "nothing"}
    return {name: template.format(**words) for name, template in {**templates, **unknown}.items()}


def _consequence(test: TestResult) -> str:
    """Return a clause such as ": epsilon is 3.2 then, where 2 is claimed with Poisson amplification".

    It is empty if the result has no such epsilon.
    """
    if "epsilon" not in test.more:
        return ""
    real, claimed = (number_text(test.more[name], 3) for name in ("epsilon", "claimed"))
    return f": epsilon is {real} then, where {claimed} is claimed with Poisson amplification"


def title_of(name: TestName, unit: UnitWords) -> str:
    """Return the title of a test, beginning with a capital letter."""
    return capital(TEST_WORDS[name].title.format(**vars(unit)))


def broken_tests(details: VerdictDetails | None, unit: UnitWords) -> list[TestMessage]:
    """Return the failed tests in words, the clearest failure first; the list is empty if nothing was tested."""
    return [] if details is None else [TestMessage(test, unit) for test in leading_first(details.broken)]


def p_text(p_value: float) -> str:
    """Return a p-value as text with two significant digits, or "under 1e-300" if it is smaller than that."""
    return f"{p_value:.2g}" if p_value >= 1e-300 else "under 1e-300"


def p_as_chance(p_value: float) -> str:
    """Return a p-value in words such as "1 in 2,000"; values under 1e-9 give an upper bound."""
    return f"< {one_in(1e-9)}" if p_value < 1e-9 else one_in(float(f"{p_value:.1g}"))
