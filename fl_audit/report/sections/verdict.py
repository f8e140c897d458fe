"""The verdict: what became of the promise, which test broke it, and what a verdict covers."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, assert_never

from fl_audit.evidence.belief.noise_estimate import BREACH
from fl_audit.evidence.belief.verdict import Verdict
from fl_audit.evidence.findings.verdict import VerdictNumbers, measure_verdict
from fl_audit.evidence.finished_run import FinishedRun, RunFacts
from fl_audit.report.finding import Look, Place, RunContents, Section, Table
from fl_audit.report.test_words import scope_text, unjudged_scope
from fl_audit.report.tests_table import broken_rows, cells_of, missing_rows
from fl_audit.report.units import unit_words
from fl_audit.report.wording import duration, number_text, one_in, percent, plural, uncapital

SECRET_SEED = "the challenger's secret"


_MOST_NAMED = 2
"""Failed tests that are named beside the first one."""


@dataclass(frozen=True)
class Banner:
    """The verdict in a word, and a line below it."""

    word: str
    line: str


def verdict_of(contents: RunContents) -> VerdictNumbers:
    """Return the verdict, which every run has."""
    numbers = contents.find(VerdictNumbers)
    assert numbers is not None, "every run has a verdict"
    return numbers


def banner(contents: RunContents) -> Banner:
    """Return the large line of the verdict and the smaller line below it."""
    numbers = verdict_of(contents)
    match numbers.verdict:
        case Verdict.VIOLATED:
            return Banner("Violated", _broken(contents))
        case Verdict.CONSISTENT:
            assert numbers.judgement is not None, "only what was judged is consistent"
            tests = plural(len(numbers.judgement.tests), "test")
            return Banner("Consistent", f"None of {tests} contradicts the promise. {_limits(contents)}".strip())
        case Verdict.INCONCLUSIVE:
            return Banner("Inconclusive", f"{_too_little(numbers)} {worlds_needed_text(numbers)}")
        case Verdict.NO_PROMISE:
            line = "These models were trained without clipping and noise; there is nothing to hold them to."
            return Banner("No promise", line)
        case Verdict.NOT_AUDITED:
            return Banner("Not audited", "No insider took part; nothing was held against the promise.")
        case _:
            assert_never(numbers.verdict)


def _broken(contents: RunContents) -> str:
    first, *others = broken_rows(verdict_of(contents).judgement, contents.words)
    named = [uncapital(row.phrase) for row in others[:_MOST_NAMED]]
    if len(others) > _MOST_NAMED:
        named.append(f"{plural(len(others) - _MOST_NAMED, 'more test')} failed")
    also = f" Also: {'; '.join(named)}." if named else ""
    return f"{first.sentence}{also}"


def _too_little(numbers: VerdictNumbers) -> str:
    """Return what an inconclusive run could have found, in a sentence."""
    found = numbers.judgement
    assert found is not None, "only what was judged is inconclusive"
    if numbers.judges_scores and found.limit_of_detection <= numbers.promised:
        most, promised = number_text(found.limit_of_detection, 3), number_text(numbers.promised, 3)
        return (
            f"Too few trials to tell: so few could show an epsilon of {most} at most, and {promised} is promised, so "
            "no breach can be seen."
        )
    if not math.isfinite(found.limit_of_detection):
        return "The trials cannot tell: no breach could have been found where it matters most, and none was elsewhere."
    return "Too few trials to tell: only a gross breach could have been found, and none was."


def worlds_needed_text(numbers: VerdictNumbers) -> str:
    """Return how many worlds, and how much time, would find a breach of 1.5 times the promise, in a sentence."""
    found = numbers.judgement
    if found is None or found.worlds_needed is None:
        return "No number of worlds would find a breach here: choose another neighbour in [audit]."
    time = "" if numbers.seconds_needed is None else f", about {duration(numbers.seconds_needed)} here,"
    worlds = plural(found.worlds_needed, "world")
    if numbers.judges_scores:
        return f"It takes {worlds} at least{time} to show one of {BREACH:g} times the promise."
    return f"{worlds}{time} would find one of {BREACH:g} times the promise."


def _limits(contents: RunContents) -> str:
    """Return which share of the noise could not be missing without being found, in a sentence; or what scores show."""
    numbers, unit = verdict_of(contents), contents.words.one
    anywhere, at_unit = numbers.missing_anywhere, numbers.missing_at_unit
    if numbers.judges_scores and numbers.judgement is not None:
        most = number_text(numbers.judgement.limit_of_detection, 3)
        return f"So many trials could show an epsilon of {most} at most, if their scores separated perfectly."
    if anywhere is not None and at_unit is not None:
        return (
            f"Had {percent(_short(anywhere))} of the noise been missing we would have found it, or "
            f"{percent(_short(at_unit))} just where it hides the {unit}."
        )
    if at_unit is not None:
        missing = percent(_short(at_unit))
        return f"Had {missing} of the noise been missing where it hides the {unit}, we would have found it."
    return ""


def _short(share: float) -> float:
    return float(f"{share:.2g}")


def _sentence(numbers: VerdictNumbers, contents: RunContents) -> str:
    """Return the verdict and what it does not cover."""
    found = numbers.judgement
    match numbers.verdict:
        case Verdict.VIOLATED:
            assert found is not None, "only what was judged is violated"
            text = (
                f"The promise was broken. Where a promise is kept, so clear a sign comes up in at most "
                f"{one_in(found.level)} audits. It says nothing of how much more others could learn."
            )
        case Verdict.CONSISTENT:
            text = (
                "Nothing we saw contradicts the promise. That covers this one example and this run only; it is no "
                "proof for other people's data or other attacks."
            )
        case Verdict.INCONCLUSIVE:
            text = "The verdict is open: nothing we saw contradicts the promise, and we could hardly have seen it."
        case Verdict.NO_PROMISE if contents.facts.game.randomiser is not None:
            return (
                "There was no promise of the training to test, so there is no verdict. What protects the records in "
                "these models is what their owners did to them, and no more."
            )
        case Verdict.NO_PROMISE:
            return "There was no promise to test. These models must not pass for protected ones."
        case Verdict.NOT_AUDITED:
            text = "We came to no verdict: no insider took part, so nothing was held against the promise."
        case _:
            assert_never(numbers.verdict)
    if contents.facts.is_private_release:
        return text
    return f"{text} The models of this run are test pieces and must not be handed out: their noise depends on the data."


def scope_of(numbers: VerdictNumbers, facts: RunFacts) -> str:
    """Return what the verdict covers, in plain English, as `summary.json` has it."""
    found, promise = numbers.judgement, facts.guarantee
    if found is None or promise is None:
        return unjudged_scope(promise)
    return scope_text(found, promise, facts.neighbour, SECRET_SEED, unit_words(facts.relation))


def _said(numbers: VerdictNumbers, run: FinishedRun) -> Mapping[str, Any]:
    return {"scope": scope_of(numbers, run.facts)}


def _tables(numbers: VerdictNumbers, contents: RunContents) -> list[Table]:
    found, words = numbers.judgement, contents.words
    scope = scope_of(numbers, contents.facts)
    covers = Table("What a verdict covers", ("What", "Value"), (("Scope", scope),), Look.PAIRS)
    if found is None:
        return [covers]
    columns, rows = cells_of(found, words)
    any_of = "any of them" if len(rows) > 1 else "it"
    title = f"{plural(len(rows), 'test')}, declared before the run; a kept promise fails {any_of} in at most "
    tables = [covers, Table(f"{title}{one_in(found.level)} audits", columns, rows)]
    if missing := missing_rows(found, words):
        tables.append(Table("Tests that this run could not make", ("Test", "Why not"), missing))
    return tables


VERDICT = Section(
    name="verdict",
    title="The tests of the promise",
    numbers=VerdictNumbers,
    measure=measure_verdict,
    keys=("verdict", "scope"),
    place=Place.PAGE,
    sentence=_sentence,
    tables=_tables,
    said=_said,
)
