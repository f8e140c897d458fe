"""The tests of a verdict as a report shows them: the one place that reads what `judge` returns about each of them."""

import math
from dataclasses import dataclass
from typing import Any

from fl_audit.evidence.belief.family import TestName, TestResult
from fl_audit.evidence.belief.verdict import Judgement
from fl_audit.evidence.findings.found import finite
from fl_audit.report.test_words import (
    OF_NOISE,
    breach,
    breach_in_short,
    limit_text,
    measured_text,
    promised_text,
    remedy,
    strongest,
    title_of,
    why_missing,
)
from fl_audit.report.units import UnitWords
from fl_audit.report.wording import DASH, MISSING, one_in

_SMALLEST_P = 1e-300
_COLUMNS = ("Test of", "Finding", "Measured", "Promised", "Would have been found", "p-value", "Its level")


@dataclass(frozen=True)
class TestRow:
    """One test in words.

    Parameters
    ----------
    title
        What it looks at.
    is_broken
        Whether it refutes the promise.
    sentence
        What was found, with its number and the promised one.
    phrase
        The same without numbers.
    measured, promised, limit
        What was measured, what was promised, and which breach would have been found.
    p_value, level
        How rarely a kept promise shows so much, and from where on that breaks it.
    remedy
        Where to look for the cause, in a sentence.
    noise
        The measured over the promised noise; None where the test is about something else.
    epsilon
        The epsilon that scores certify; None where the test is about something else.
    where
        Where in the run; empty where the test concerns all of it.
    """

    __test__ = False  # it is no test of pytest's

    title: str
    is_broken: bool
    sentence: str
    phrase: str
    measured: str
    promised: str
    limit: str
    p_value: float
    level: float
    remedy: str
    noise: float | None
    epsilon: float | None
    where: str


def rows_of(found: Judgement | None, words: UnitWords) -> tuple[TestRow, ...]:
    """Return every test that was made, in the order of their declaration; none where nothing was judged."""
    return tuple(
        TestRow(
            title=title_of(test.name, words),
            is_broken=test.violated,
            sentence=breach_in_short(test, words),
            phrase=breach(test, words),
            measured=measured_text(test, words),
            promised=promised_text(test, words),
            limit=limit_text(test, words) or DASH,
            p_value=test.p_value,
            level=test.level,
            remedy=remedy(test),
            noise=test.statistic if test.name in OF_NOISE else None,
            epsilon=test.statistic if test.name == TestName.SCORES else None,
            where=f"the tensor '{test.place}'" if test.name == TestName.NOISE_TENSOR else "",
        )
        for test in (() if found is None else found.tests)
    )


def broken_rows(found: Judgement | None, words: UnitWords) -> tuple[TestRow, ...]:
    """Return the tests that refute the promise, the one to lead with first, then as a kept promise explains them."""
    if found is None or not found.broken:
        return ()
    first = title_of(strongest(found).name, words)
    broken = [row for row in rows_of(found, words) if row.is_broken]
    return tuple(sorted(broken, key=lambda row: (row.title != first, row.p_value / row.level)))


def missing_rows(found: Judgement | None, words: UnitWords) -> tuple[tuple[str, str], ...]:
    """Return the tests that this run could not make, each with the reason."""
    return (
        ()
        if found is None
        else tuple((title_of(name, words), why_missing(reason)) for name, reason in found.not_offered)
    )


def json_of(test: TestResult, words: UnitWords) -> dict[str, Any]:
    """Return what `summary.json` says of a test."""
    return {
        "name": str(test.name),
        "statistic": finite(test.statistic),
        "p_value": finite(test.p_value),
        "level": test.level,
        "measured": measured_text(test, words),
        "promised": promised_text(test, words),
        "limit": limit_text(test, words),
        "where": test.place,
        "violated": test.violated,
    }


def p_text(p_value: float) -> str:
    """Return a p-value, which is never 0: only too small to be written."""
    if math.isnan(p_value):
        return MISSING
    return f"{p_value:.2g}" if p_value >= _SMALLEST_P else "under 1e-300"


def p_as_chance(p_value: float) -> str:
    """Return how rarely a kept promise shows so much, the way people say it."""
    return f"< {one_in(1e-9)}" if p_value < 1e-9 else one_in(float(f"{p_value:.1g}"))


def cells_of(found: Judgement | None, words: UnitWords) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """Return columns and rows of the table of all tests."""
    return _COLUMNS, tuple(
        (row.title, "BROKEN" if row.is_broken else "kept", row.measured, row.promised, row.limit, p_text(row.p_value),
         f"{row.level:.3g}")
        for row in rows_of(found, words)
    )  # fmt: skip
