"""The verdict: what became of the promise, which test broke it, and what a verdict covers."""

import math
from collections.abc import Callable, Mapping
from typing import Any, assert_never

from fl_audit.federation.finished_run import FinishedRun, RunFacts
from fl_audit.privacy.guarantee import Guarantee
from fl_audit.report import wording
from fl_audit.report.banner import Banner
from fl_audit.report.finding import RunContents, Section, Table, TableLook
from fl_audit.report.wording import Reading, UnitWords, capital, number_text, one_in, percent, plural
from fl_audit.verdict.banner import verdict_banner
from fl_audit.verdict.family import DETECTION_POWER, OF_SHAPE, TestName, TestResult
from fl_audit.verdict.findings_verdict import VerdictNumbers, verdict_numbers
from fl_audit.verdict.noise_estimate import BREACH, epsilon_at, law_in_words
from fl_audit.verdict.verdict import Judgement, Verdict
from fl_audit.verdict.words_of_tests import MISSING_WORDS, ToldTest, broken_tests, p_text, title_of

_BREACH_OF_SIZE = f"a breach of {BREACH:g} times the promise, if it lies in the size of the noise alone"
_MOST_NAMED = 2  # other kinds of breach that are named beside the first one


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
            line = _broken(contents)
        case Verdict.CONSISTENT:
            tests = len(numbers.judged.tests)
            none = "The one test does not contradict" if tests == 1 else f"None of {tests} tests contradicts"
            line = f"{none} the promise. {_limits(contents)}".strip()
        case Verdict.INCONCLUSIVE if numbers.contradicted_by:
            names = ", ".join(numbers.contradicted_by)
            line = f"No test contradicts the promise, but what was measured below does: {names}."
        case Verdict.INCONCLUSIVE:
            line = f"{_too_little(numbers, contents.words)} {worlds_needed_text(numbers)}"
        case Verdict.NO_PROMISE:
            line = "These models were trained without clipping and noise; there is nothing to hold them to."
        case Verdict.NOT_AUDITED:
            line = "No insider took part; nothing was held against the promise."
        case _:
            assert_never(numbers.verdict)
    return verdict_banner(numbers.verdict, line)


def _broken(contents: RunContents) -> str:
    """Return what broke, and each other kind of breach once: the list of failed tests names them all."""
    first, *others = broken_tests(verdict_of(contents).judgement, contents.words)
    # Noise of another size fails the tests of its shape too, which look at it in units of the promised one.
    follows = OF_SHAPE if first.test.name is TestName.NOISE_TOTAL else ()
    told_too = [told for told in reversed(others) if told.kind != first.kind and told.test.name not in follows]
    kinds = {told.kind: wording.uncapital(told.words.breach) for told in told_too}
    named = list(kinds.values())[::-1][:_MOST_NAMED]
    also = f" Also: {'; '.join(named)}." if named else ""
    return f"{first.sentence}{also}" + (f" {plural(len(others) + 1, 'test')} failed." if others else "")


def _too_little(numbers: VerdictNumbers, words: UnitWords) -> str:
    """Return what an inconclusive run could have found, in a sentence."""
    found = numbers.judged
    if numbers.judges_scores:
        return (
            "The attack cannot tell: how far its scores would separate under less noise is not known, so a breach "
            f"could have passed unseen. {_ceiling_text(found.tests[0], numbers.promised)}"
        )
    if not math.isfinite(found.limit_of_detection):
        if numbers.judges_canaries:
            return (
                "The canaries cannot tell: they are too few, or what other clients send could hide any breach from "
                "them, and they showed none."
            )
        return (
            f"The trials cannot tell: {words.differing} made hardly any difference in any round, so the noise that has "
            "to hide it could not be tested. The other tests found no breach."
        )
    return "Too few trials to tell: only a gross breach could have been found, and none was."


def _ceiling_text(of_scores: TestResult, promised: float) -> str:
    """Return what so many scores could show at most, in a sentence."""
    ceiling = of_scores.more["ceiling"]
    only = f"{number_text(promised, 3)} is promised" if ceiling <= promised else "only if they separated perfectly"
    most = f"so many scores could show an epsilon of {number_text(ceiling, 3)} at most"
    return f"At the level of the verdict, {most}, and {only}."


def worlds_needed_text(numbers: VerdictNumbers) -> str:
    """Return how many worlds, and how much time, would find noise that gives away 1.5 times the promise."""
    found = numbers.judgement
    if numbers.judges_canaries:
        return "More rounds or more canaries find smaller breaches (rounds in [training], canaries in [audit])."
    if numbers.judges_scores:
        return "More worlds can show a breach; no number of them shows by such scores alone that there is none."
    if found is None or found.worlds_needed is None:
        return "No number of worlds would find a breach here: choose another one to protect (neighbour in [audit])."
    time = "" if numbers.seconds_needed is None else f", {wording.duration(numbers.seconds_needed)} here,"
    worlds = plural(found.worlds_needed, "world")
    if numbers.promised > 0:
        return f"{worlds}{time} would find {_BREACH_OF_SIZE}."
    return f"{worlds}{time} would find it if only two thirds of the noise were there."


def _limits(contents: RunContents) -> str:
    """Return which share of the noise could not be missing without being found, in a sentence; or what scores show."""
    numbers, unit = verdict_of(contents), contents.words.one
    shares = (numbers.missing_anywhere, numbers.missing_at_unit)
    anywhere, at_unit = (None if share is None else percent(float(f"{share:.2g}")) for share in shares)
    if at_unit is None:
        return ""
    if anywhere is None:
        return f"Had {at_unit} of the noise been missing where it hides the {unit}, we would have found it."
    just = f"{at_unit} just where it hides the {unit}"
    return f"Had {anywhere} of the noise been missing we would have found it, or {just}."


def _sentence(numbers: VerdictNumbers, contents: RunContents) -> str:
    match numbers.verdict:
        case Verdict.VIOLATED:
            text = (
                f"The promise was broken. Where a promise is kept, so clear a sign comes up in at most "
                f"{_alarms(numbers.judged, contents.facts)}. That says nothing of how much more others could learn."
            )
        case Verdict.CONSISTENT:
            text = (
                "Nothing we saw contradicts the promise. That covers this one example and this run only; it is no "
                "proof for other people's data or other attacks."
            )
        case Verdict.INCONCLUSIVE if numbers.contradicted_by:
            text = "The verdict is open: no test of the promise failed, and something that was measured contradicts it."
        case Verdict.INCONCLUSIVE:
            text = (
                "The verdict is open: nothing we saw contradicts the promise, but a breach could hardly have been seen."
            )
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
    text += _looks_text(numbers.judgement, contents.facts)
    if not contents.facts.game.law.is_private_release:
        text += " The models of this run are test pieces and must not be handed out: their noise depends on the data."
    return text


def _alarms(found: Judgement, facts: RunFacts) -> str:
    """Return how often a kept promise fails the tests of one look."""
    return f"{one_in(found.level)} audits{' at one look' if len(facts.looks) > 1 else ''}"


def _looks_text(found: Judgement | None, facts: RunFacts) -> str:
    """Return what it costs to look several times at a run that grew, in sentences; empty after one look or no verdict.

    By Bonferroni, where numbers of worlds are fixed: chosen by what was seen, two looks fail up to 3.1 times as often
    as one (of a test whose statistic is a sum of normal numbers).
    """
    often = len(facts.looks)
    if found is None or often < 2:
        return ""
    earlier = ", ".join(f"{worlds:,}" for worlds in facts.looks[:-1])
    return (
        f" This run was judged before, after {earlier} worlds. A kept promise fails at any of the {often} looks in at "
        f"most {often} in {round(1 / found.level):,} audits if the numbers of worlds were fixed before the first look, "
        "and in more if they followed from what was seen. Intervals and bounds hold with their confidence at one look "
        "that was chosen beforehand."
    )


def _scope(numbers: VerdictNumbers, facts: RunFacts, covers: str) -> str:
    """Return what the verdict covers and what not, in plain English, as `summary.json` has it."""
    found, promise = numbers.judgement, facts.guarantee
    if found is None or promise is None:
        why = "No insider took part, so nothing was held against the promise."
        if promise is None:
            of_training = "" if facts.game.randomiser is None else " of the training"
            why = f"The models were trained without clipping and noise: nothing was promised{of_training}."
        seen = "What was measured of the released models, from their outputs and losses"
        return f"{why} {seen}, is no test of a promise."
    seen = _detection_text(found, promise, wording.unit_words(facts.relation))
    smaller = " A smaller breach may pass." if math.isfinite(found.limit_of_detection) else ""
    return f"{covers} {seen}{smaller}"


def _detection_text(found: Judgement, promise: Guarantee, unit: UnitWords) -> str:
    """Return how large a breach of epsilon would have been found, and with how many worlds, in sentences."""
    if found.tests and found.tests[0].name is TestName.SCORES:
        return (
            f"{_ceiling_text(found.tests[0], promise.epsilon)} How far they would separate under less noise is not "
            "known, so it is not known either which breach would have been found."
        )
    if found.tests and found.tests[0].name is TestName.CANARIES and not math.isfinite(found.limit_of_detection):
        return f"No breach of any size would have been found with probability {DETECTION_POWER:g}."
    if found.tests and found.tests[0].name is TestName.CANARIES:
        return (
            f"{capital(ToldTest(found.tests[0], unit).words.limit)} would have been found with probability "
            f"{DETECTION_POWER:g}; {promise.epsilon:.3g} is promised."
        )
    if found.worlds_needed is None:
        return "D and D' hardly differed in any round, so no breach of epsilon could have been found there."
    kept = epsilon_at(promise.claim, 1.0)
    said = (
        "Along the direction in which D and D' differ, noise so small that epsilon is "
        f"{found.limit_of_detection:.3g} would have been found with probability {DETECTION_POWER:g}, where the claimed "
        f"noise keeps {kept:.3g} ({law_in_words(promise.claim)}, delta {promise.delta:g}) and "
        f"{promise.epsilon:.3g} is promised."
    )
    worlds = plural(found.worlds_needed, "world")
    other = "Breaches of another kind, such as noise that repeats or follows the data, may take more worlds or pass."
    if found.conclusive:
        return f"{said} {worlds} would be enough to find {_BREACH_OF_SIZE}. {other}"
    return f"{said} That is too little to tell: {worlds} with as many rounds would find {_BREACH_OF_SIZE}. {other}"


def _finding_of(test: TestResult) -> str:
    """Return what a test says of the promise, in the word of a reading: that none fails is no proof that it is kept."""
    return str(Reading.BROKEN if test.violated else Reading.NO_CONTRADICTION)


def _tables(numbers: VerdictNumbers, contents: RunContents) -> list[Table]:
    found, words = numbers.judgement, contents.words
    scope = str(contents.summary["scope"])
    covers = Table("What a verdict covers", ("What", "Value"), (("Scope", scope),), TableLook.PAIRS)
    if found is None:
        return [covers]
    columns = ("Test of", "Finding", "Measured", "Promised", "Would have been found", "p-value", "Its level")
    rows = tuple(
        (told.title, _finding_of(told.test), told.words.measured, told.words.promised,
         told.words.limit or wording.DASH, p_text(told.test.p_value), f"{told.test.level:.3g}")
        for told in (ToldTest(test, words) for test in found.tests)
    )  # fmt: skip
    any_of = "any of them" if len(rows) > 1 else "it"
    title = f"{plural(len(rows), 'test')}, declared before the run; a kept promise fails {any_of} in at most "
    tables = [covers, Table(f"{title}{_alarms(found, contents.facts)}", columns, rows)]
    if missing := tuple((title_of(name, words), MISSING_WORDS[reason]) for name, reason in found.not_offered):
        tables.append(Table("Tests that this run could not make", ("Test", "Why not"), missing))
    return tables


def verdict_section(
    judge: Callable[[FinishedRun], Judgement | None],
    covers: Callable[[RunFacts], str],
    not_compared: Callable[[FinishedRun], str],
) -> Section[VerdictNumbers]:
    """Return the section of the verdict, which audits of every kind have.

    Parameters
    ----------
    judge, covers, not_compared
        What judges a run with a promise; what its verdict covers; and why nothing was compared: as
        `fl_audit.audits.audit.AuditKind` has them.
    """

    def said(numbers: VerdictNumbers, run: FinishedRun) -> Mapping[str, Any]:
        scope = _scope(numbers, run.facts, covers(run.facts))
        return {
            "scope": scope + not_compared(run) + _looks_text(numbers.judgement, run.facts),
            "looks": None if numbers.judgement is None else list(run.facts.looks),
        }

    return Section(
        "verdict", "The tests of the promise", VerdictNumbers, lambda run, _: verdict_numbers(run, judge),
        keys=("verdict", "scope", "looks"), on_page=True, sentence=_sentence, tables=_tables, said=said,
    )  # fmt: skip
