"""Define the report's section on the verdict: the tests of the guarantee, their results and what they cover."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fl_audit.federation.finished_run import FinishedRun
from fl_audit.federation.run_plan import RunPlan
from fl_audit.report.guarantee_warnings import is_weak_guarantee, weakness_warning
from fl_audit.report.page import Banner
from fl_audit.report.report_elements import ReportContents, Section, Table, TableKind
from fl_audit.report.template_files import template_texts
from fl_audit.report.unit_words import UnitWords
from fl_audit.statistics.claim_comparisons import Reading
from fl_audit.verdict.audit_result import AuditScope, scope_json
from fl_audit.verdict.declared_tests import DETECTION_POWER, OF_SHAPE, TestName, TestResult
from fl_audit.verdict.exact_questions import ExactAnswer, open_answers
from fl_audit.verdict.findings_verdict import VerdictFinding, verdict_numbers
from fl_audit.verdict.noise_estimate import BREACH
from fl_audit.verdict.scope import looks_text, scope_text
from fl_audit.verdict.signal_detection_limit import RARE_SHARE, RARE_TIMES, SignalDetectionLimit
from fl_audit.verdict.verdict import VerdictDetails
from fl_audit.verdict.verdict_messages import (
    broken_tests,
    exact_sentences,
    message_of,
    p_text,
    reason_text,
    title_of,
    verdict_banner,
)
from fl_audit.words import DASH, capital, duration, one_in, percent, plural, uncapital

WEAK = "But the guarantee itself assures next to nothing."
"""Sentence in the banner of a consistent run whose guarantee excludes no belief."""
_MOST_NAMED = 2  # other kinds of breach that are named beside the first one


def verdict_of(contents: ReportContents) -> VerdictFinding:
    """Return the verdict among the findings of a report."""
    numbers = contents.find(VerdictFinding)
    assert numbers is not None, "every run has a verdict"
    return numbers


def banner(contents: ReportContents) -> Banner:
    """Return the report's banner, which shows the verdict and one line with the reasons for it."""
    return verdict_banner(verdict_of(contents).verdict, verdict_texts(contents)["banner"])


def verdict_texts(contents: ReportContents) -> dict[str, str]:
    """Return the texts on the verdict of a run by name; the template `verdict.md` explains them."""
    finding = verdict_of(contents)
    mechanism = contents.plan.federation.mechanism
    shares = {"missing_anywhere": finding.missing_anywhere, "missing_at_unit": finding.missing_at_unit}
    needed = finding.seconds_needed
    return template_texts(
        "verdict.md",
        verdict=finding.verdict,
        unit=contents.words.one,
        differing=contents.words.differing,
        is_randomised=contents.plan.federation.local_randomizer is not None,
        is_private_release=mechanism.is_private_release,
        is_weak=contents.plan.guarantee is not None and is_weak_guarantee(contents.plan.guarantee),
        weak=WEAK,
        contradicted_by=finding.contradicted_by,
        errors=[uncapital(error.part) for error in finding.errors],
        claimed=finding.claimed,
        breach=BREACH,
        blind=finding.words.blind,
        to_find_more=finding.words.to_find_more,
        judges_scores=finding.judges_scores,
        time_needed=None if needed is None else duration(needed),
        runs_of_ten=round(10 * DETECTION_POWER),
        looks=len(contents.run.looks),
        judged_before=looks_text(finding.judgement, contents.run),
        **{name: None if share is None else float(f"{share:.2g}") for name, share in shares.items()},
        **_judged_facts(finding.judgement, contents.words),
        **_broken_facts(finding.judgement, contents),
    )


def _judged_facts(details: VerdictDetails | None, words: UnitWords) -> dict[str, Any]:
    """Return what the texts on a verdict name of the tests, and of their limits of detection."""
    tests = () if details is None else details.tests
    open_questions = () if details is None else open_answers(details.exact)
    return {
        "tests": len(tests),
        "ceiling": tests[0].more.get("ceiling") if tests else None,
        "not_computed": () if details is None else [uncapital(title_of(name, words)) for name in details.not_computed],
        "open_reason": open_questions[0].reason if open_questions else "",
        "limit": math.inf if details is None else details.limit_of_detection,
        "is_conclusive": details is not None and details.conclusive,
        "signal": None if details is None else details.signal,
        "trials_needed": None if details is None else details.trials_for_conclusive_verdict,
        "level": None if details is None else details.level,
    }


def _broken_facts(details: VerdictDetails | None, contents: ReportContents) -> dict[str, Any]:
    """Return what the texts on a verdict name of failed tests: the clearest one, and two other kinds of breach."""
    broken = broken_tests(details, contents.words, contents.noise)
    clearest = broken[0] if broken else None
    # If the noise has another size, the tests of its shape fail too, because they take it in units of the claimed
    # noise.
    follows = OF_SHAPE if clearest is not None and clearest.test.name is TestName.NOISE_TOTAL else ()
    kinds = {
        message.kind: uncapital(message.breach)
        for message in reversed(broken[1:])
        if message.kind != broken[0].kind and message.test.name not in follows
    }
    return {
        "exact": "" if details is None else exact_sentences(details.exact),
        "clearest": "" if clearest is None else clearest.sentence,
        "also": list(kinds.values())[::-1][:_MOST_NAMED],
        "failed": len(broken),
    }


def _sentence(_: VerdictFinding, contents: ReportContents) -> str:
    return verdict_texts(contents)["sentence"]


def _alarms(details: VerdictDetails, run: FinishedRun) -> str:
    """Return a phrase such as "1 in 1,000 audits" for the false-positive rate of the tests."""
    return f"{one_in(details.level)} audits{' at one look' if len(run.looks) > 1 else ''}"


def _finding_of(test: TestResult) -> Reading:
    return Reading.BROKEN if test.violated else Reading.NO_CONTRADICTION


def _tables(finding: VerdictFinding, contents: ReportContents) -> list[Table]:
    details = finding.judgement
    words = contents.words
    scope = str(contents.summary["scope"])
    covers = Table("What a verdict covers", ("What", "Value"), (("Scope", scope),), TableKind.PAIRS)
    if details is None:
        return [covers]
    columns = ("Test of", "Finding", "Measured", "Claimed", "Would have been found", "p-value", "Its level")
    rows = tuple(
        (
            message.title,
            str(_finding_of(message.test)),
            message.measured,
            message.claimed,
            message.limit or DASH,
            p_text(message.test.p_value),
            f"{message.test.level:.3g}",
        )
        for message in (message_of(test, words, contents.noise) for test in details.tests)
    )
    any_of = "any of them" if len(rows) > 1 else "it"
    title = f"{plural(len(rows), 'test')}, declared before the run; a kept guarantee fails {any_of} in at most "
    tables = [
        covers,
        *_signal_tables(details.signal, words),
        Table(f"{title}{_alarms(details, contents.run)}", columns, rows, TableKind.TESTS),
    ]
    if details.exact:
        tables.append(_exact_table(details.exact))
    if missing := tuple((title_of(name, words), reason_text(reason)) for name, reason in details.not_offered):
        tables.append(Table("Tests that this run could not make", ("Test", "Why not"), missing))
    return tables


def _exact_table(answers: Sequence[ExactAnswer]) -> Table:
    """Return the table of exact questions, with what was found and what was checked."""
    titles = template_texts("exact_questions.md")
    rows = tuple(
        (capital(titles[answer.question]), _standing(answer), answer.text or answer.reason, answer.checked or DASH)
        for answer in answers
    )
    return Table("Exact questions, which need no statistics", ("Question", "Finding", "Found", "Checked"), rows)


def _standing(answer: ExactAnswer) -> str:
    if not answer.is_asked:
        return "not asked"
    return str(Reading.NO_CONTRADICTION if answer.is_kept else Reading.BROKEN)


def _signal_tables(signal: SignalDetectionLimit | None, unit: UnitWords) -> list[Table]:
    """Return a table on how many times released sums contain the target's contribution; [] if this was not measured.

    The table has the measured number of times, and the smallest numbers of times that the tests would have found.
    """
    if signal is None or signal.trials_needed is None:
        return []
    rare = f"Trials that find one that counts {RARE_TIMES:g} times in {percent(RARE_SHARE)} of the trainings"
    rows = (
        ("Times that it counts, by what was measured", signal.counted),
        (f"Times that would have been found, with probability {DETECTION_POWER:g}", signal.times),
        ("The same of one as long as the clipping norm", signal.limit),
        (f"Trials that find one of that length that counts {BREACH:g} times", signal.trials_needed),
        (rare, signal.rare_trials),
        ("Times that it counts in those trainings", RARE_TIMES),
        ("Share of those trainings", RARE_SHARE),
    )
    return [Table(f"How often the {unit.one} counts in the released sums", ("What", "Value"), rows)]


def _checks(finding: VerdictFinding, plan: RunPlan) -> AuditScope:
    """Return which tests and exact questions were asked of a run, and which were not, and why."""
    rounds = plan.federation.rounds
    judgement = finding.judgement
    if judgement is None:
        return AuditScope(rounds, rounds, (), {}, (_NOT_JUDGED,))
    answers = judgement.exact
    not_offered = judgement.not_offered
    asked_questions = [str(answer.question) for answer in answers if answer.is_asked]
    reasons = {str(name): reason_text(reason) for name, reason in not_offered}
    reasons |= {str(answer.question): answer.reason for answer in answers if not answer.is_asked}
    questions_made = (*(str(test.name) for test in judgement.tests), *asked_questions)
    return AuditScope(rounds, rounds, questions_made, reasons, (_OTHER_RUNS,))


_NOT_JUDGED = "nothing was held against the guarantee"
_OTHER_RUNS = "other neighbours, other data and other seeds than those of this run"


def verdict_section(
    judge: Callable[[FinishedRun], VerdictDetails | None],
    covers: Callable[[RunPlan], str],
    why_not_compared: Callable[[FinishedRun], str],
) -> Section[VerdictFinding]:
    """Return the report section on the verdict, for one kind of audit.

    `judge`: It returns None if the run has nothing that can be tested.
    """

    def said(finding: VerdictFinding, run: FinishedRun) -> Mapping[str, Any]:
        return {
            "scope": scope_text(finding, run, covers(run.plan), why_not_compared(run)),
            "looks": None if finding.judgement is None else list(run.looks),
            "checks": scope_json(_checks(finding, run.plan)),
            "warning": None if run.plan.guarantee is None else weakness_warning(run.plan.guarantee),
        }

    return Section(
        "verdict",
        "The tests of the guarantee",
        VerdictFinding,
        lambda run, _: verdict_numbers(run, judge),
        keys=("verdict", "signal", "exact", "scope", "looks", "checks", "warning"),
        on_page=True,
        sentence=_sentence,
        tables=_tables,
        said=said,
    )
