"""The tests of a verdict as a report shows them: the one place that puts what `judge` returns into words."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fl_audit.evidence.belief.family import OF_NOISE, TestName, TestResult, leading_first
from fl_audit.evidence.belief.verdict import Judgement
from fl_audit.evidence.findings.found import finite
from fl_audit.report.units import UnitWords
from fl_audit.report.wording import capital, number_text, one_in, percent, times
from fl_audit.report.words_of_tests import TEST_WORDS, TestWords

_SMALLEST_P = 1e-300


class _Number(float):
    """A number that a template formats by the name of a way to write it."""

    def __format__(self, way: str) -> str:
        value = float(self)
        match way:
            case "percent":
                return percent(value)
            case "times":
                return times(value)
            case "signed":
                return f"{value:+.3f}"
            case "count":
                return f"{value:,.0f}"
            case _:
                return number_text(value, 3)


@dataclass(frozen=True)
class ToldTest:
    """One test of a run in words."""

    test: TestResult  # what it found
    unit: UnitWords  # how the report speaks of what is protected

    @cached_property
    def words(self) -> TestWords:
        """The words of the test with its numbers filled in; of no limit where no size can be said."""
        test = self.test
        numbers = {"measured": test.measured, "promised": test.promised, "limit": test.limit, **test.more}
        names = vars(self.unit) | {name: _Number(value) for name, value in numbers.items()}
        names |= {"place": test.place, "at_place": f", on '{test.place}'" if test.place else ""}
        templates = vars(TEST_WORDS[test.name]) | ({"limit": ""} if math.isnan(test.limit) else {})
        return TestWords(**{part: template.format(**names) for part, template in templates.items()})

    @property
    def title(self) -> str:
        """What it looks at."""
        return title_of(self.test.name, self.unit)

    @property
    def sentence(self) -> str:
        """What a broken test has found, with its number and the promised one, as short as it can be said."""
        if self.test.name not in OF_NOISE:
            words = self.words
            return f"{words.breach}: we measured {words.measured}; the promise was {words.promised}."
        where = {
            TestName.NOISE_TOTAL: "",
            TestName.NOISE_ALONG_RECORD: f", just where it has to hide the {self.unit.one}",
            TestName.NOISE_TENSOR: f", on the tensor '{self.test.place}'",
        }
        share = "half" if abs(self.test.statistic - 0.5) < 0.005 else percent(self.test.statistic)
        return f"The noise is {share} of what was promised{where[self.test.name]}."

    @property
    def kind(self) -> str:
        """What kind of breach it finds: several tests may find the same one, which is then said once."""
        if self.test.name.is_about_secret:
            return "secret"
        return "noise" if self.test.name.startswith("noise") else self.words.remedy

    def to_json(self) -> dict[str, Any]:
        """Return what `summary.json` says of it."""
        test, words = self.test, self.words
        found = {"statistic": finite(test.statistic), "p_value": finite(test.p_value), "level": test.level}
        said = {"measured": words.measured, "promised": words.promised, "limit": words.limit}
        return {"name": str(test.name)} | found | said | {"where": test.place, "violated": test.violated}


def title_of(name: TestName, unit: UnitWords) -> str:
    """Return the name of a test in words.

    Parameters
    ----------
    name, unit
        Name of the test, and how the report names what is protected.
    """
    return capital(TEST_WORDS[name].title.format(**vars(unit)))


def broken_tests(found: Judgement | None, unit: UnitWords) -> list[ToldTest]:
    """Return the tests that refute the promise, the one to lead with first; none where nothing was judged.

    Parameters
    ----------
    found, unit
        What the tests say together, and how the report names what is protected.
    """
    return [] if found is None else [ToldTest(test, unit) for test in leading_first(found.broken)]


def p_text(p_value: float) -> str:
    """Return a p-value, which is never 0: only too small to be written."""
    return f"{p_value:.2g}" if p_value >= _SMALLEST_P else "under 1e-300"


def p_as_chance(p_value: float) -> str:
    """Return how rarely a kept promise shows so much, the way people say it."""
    return f"< {one_in(1e-9)}" if p_value < 1e-9 else one_in(float(f"{p_value:.1g}"))
