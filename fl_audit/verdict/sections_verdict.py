"""Define the report's section on the verdict: the tests of the guarantee, their results and what they cover."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, assert_never

from fl_audit.federation.finished_run import FinishedRun
from fl_audit.federation.run_plan import RunPlan
from fl_audit.report.banner import Banner
from fl_audit.report.guarantee_warnings import is_weak_guarantee, weakness_warning
from fl_audit.report.report_elements import ReportContents, Section, Table, TableKind
from fl_audit.report.template_files import template_texts
from fl_audit.report.unit_words import UnitWords
from fl_audit.statistics.claim_comparisons import Reading
from fl_audit.verdict.audit_result import AuditScope, scope_json
from fl_audit.verdict.banner import verdict_banner
from fl_audit.verdict.declared_tests import DETECTION_POWER, OF_SHAPE, TestName, TestResult
from fl_audit.verdict.exact_questions import ExactAnswer, open_answers
from fl_audit.verdict.findings_verdict import VerdictFinding, verdict_numbers
from fl_audit.verdict.noise_estimate import BREACH
from fl_audit.verdict.scope import looks_text, scope_text
from fl_audit.verdict.signal_detection_limit import RARE_SHARE, RARE_TIMES, SignalDetectionLimit
from fl_audit.verdict.verdict import Verdict, VerdictDetails
from fl_audit.verdict.verdict_messages import broken_tests, exact_sentences, message_of, p_text, reason_text, title_of
from fl_audit.words import DASH, capital, duration, number_text, one_in, percent, plural, uncapital

_BREACH_OF_SIZE = f"a breach of {BREACH:g} times the guarantee, if it lies in the size of the noise alone"
WEAK = "But the guarantee itself assures next to nothing."
"""Sentence in the banner of a consistent run whose guarantee excludes no belief."""
_FOUND = f"{round(10 * DETECTION_POWER)} of 10 such runs would have found it"
_MOST_NAMED = 2  # other kinds of breach that are named beside the first one


def verdict_of(contents: ReportContents) -> VerdictFinding:
    """Return the verdict among the findings of a report."""
    numbers = contents.find(VerdictFinding)
    assert numbers is not None, "every run has a verdict"
    return numbers


def banner(contents: ReportContents) -> Banner:
    """Return the report's banner, which shows the verdict and one line with the reasons for it."""
    numbers = verdict_of(contents)
    match numbers.verdict:
        case Verdict.VIOLATED:
            line = _broken(contents)
        case Verdict.CONSISTENT:
            tests = len(numbers.judged.tests)
            none = "The one test does not contradict" if tests == 1 else f"None of {tests} tests contradicts"
            # A green banner must not pass for an assurance that the guarantee does not give.
            weak = f" {WEAK}" * is_weak_guarantee(contents.guarantee)
            line = f"{none} the guarantee.{weak} {_limits(contents)}".strip()
        case Verdict.INCONCLUSIVE if numbers.contradicted_by:
            names = ", ".join(numbers.contradicted_by)
            line = f"No test contradicts the guarantee, but what was measured below does: {names}."
        case Verdict.INCONCLUSIVE if line := unanswered_text(numbers, contents.words):
            pass
        case Verdict.INCONCLUSIVE:
            line = f"{_too_little(numbers, contents.words)} {trials_needed_text(numbers, contents.words)}"
        case Verdict.NO_GUARANTEE:
            line = "These models were trained without clipping and noise; there is nothing to hold them to."
        case Verdict.NOT_AUDITED:
            line = "No insider took part; nothing was held against the guarantee."
        case _:
            assert_never(numbers.verdict)
    return verdict_banner(numbers.verdict, line)


def _broken(contents: ReportContents) -> str:
    """Return sentences on the clearest breach, up to two other kinds of breach, and the number of failed tests."""
    exact = exact_sentences(verdict_of(contents).judged.exact)
    if not (broken := broken_tests(verdict_of(contents).judgement, contents.words)):
        return exact
    first, *messages = broken
    # If the noise has another size, the tests of its shape fail too, because they take it in units of the claimed
    # noise.
    follows = OF_SHAPE if first.test.name is TestName.NOISE_TOTAL else ()
    told_too = [
        message for message in reversed(messages) if message.kind != first.kind and message.test.name not in follows
    ]
    kinds = {message.kind: uncapital(message.breach) for message in told_too}
    kinds_named = list(kinds.values())[::-1][:_MOST_NAMED]
    also = f" Also: {'; '.join(kinds_named)}." if kinds_named else ""
    sentence = f"{exact} {first.sentence}".strip()
    return f"{sentence}{also}" + (f" {plural(len(messages) + 1, 'test')} failed." if messages else "")


def unanswered_text(finding: VerdictFinding, words: UnitWords) -> str:
    """Return a sentence on what could not be computed, or on an open exact question; empty if there is none."""
    judged = finding.judged
    if finding.errors:
        parts_text = ", ".join(uncapital(error.part) for error in finding.errors)
        return (
            f"A part of the report could not be computed, and what could be found nothing. Not computed: {parts_text}."
        )
    if judged.not_computed:
        names = ", ".join(uncapital(title_of(name, words)) for name in judged.not_computed)
        return f"Not every test could be computed, and the others found nothing. Not computed: {names}."
    if unanswered := open_answers(judged.exact):
        return f"No test failed, and a question is open: {unanswered[0].reason}."
    return ""


def _too_little(finding: VerdictFinding, words: UnitWords) -> str:
    """Return a sentence on why the run is inconclusive: the breaches that it could not have found."""
    judged = finding.judged
    if finding.judges_scores:
        return (
            "The attack cannot tell: how far its scores would separate under less noise is not known, so a breach "
            f"could have passed unseen. {_largest_detectable_epsilon_text(judged.tests[0], finding.claimed)}"
        )
    if not math.isfinite(judged.limit_of_detection):
        return finding.words.blind or (
            f"The trials cannot tell: {words.differing} made hardly any difference in any round, so the noise that has "
            "to hide it could not be tested. The other tests found no breach."
        )
    if judged.conclusive and judged.signal is not None:
        return (
            f"Too few trials to tell whether the {words.one} counts once: {_counted(judged.signal.limit)} what the "
            "clipping norm allows could have passed, and nothing was found."
        )
    return "Too few trials to tell: only a gross breach could have been found, and none was."


def _counted(number: float) -> str:
    """Return "2 times" or the like for a number, and "any number of times" if it is not finite."""
    return f"{number_text(number, 3)} times" if math.isfinite(number) else "any number of times"


def _largest_detectable_epsilon_text(result: TestResult, claimed: float) -> str:
    """Return a sentence on the largest epsilon that a test of as many attack scores as the run has could show."""
    ceiling = result.more["ceiling"]
    only = f"{number_text(claimed, 3)} is claimed" if ceiling <= claimed else "only if they separated perfectly"
    ceiling_text = f"so many scores could show an epsilon of {number_text(ceiling, 3)} at most"
    return f"At the level of the verdict, {ceiling_text}, and {only}."


def trials_needed_text(finding: VerdictFinding, words: UnitWords) -> str:
    """Return a sentence on the trials, and the time, that a run needs to find a breach of 1.5 times the guarantee."""
    judgement = finding.judgement
    if finding.words.to_find_more is not None:
        return finding.words.to_find_more
    if finding.judges_scores:
        return "More trials can show a breach; no number of them shows by such scores alone that there is none."
    if judgement is None or judgement.trials_for_conclusive_verdict is None:
        of_signal = judgement is not None and judgement.conclusive
        breach = f"a {words.one} that counts {BREACH:g} times" if of_signal else "a breach"
        return f"No number of trials would find {breach} here: choose another one to protect (neighbour in [audit])."
    time = "" if finding.seconds_needed is None else f", {duration(finding.seconds_needed)} here,"
    trials = plural(judgement.trials_for_conclusive_verdict, "trial")
    breach = _BREACH_OF_SIZE if finding.claimed > 0 else "it if only two thirds of the noise were there"
    if judgement.signal is None:
        return f"{trials}{time} would find {breach}."
    breach_text = f"a {words.one} that counts {BREACH:g} times"
    if judgement.conclusive:
        return f"{trials}{time} would find {breach_text}."
    return f"{trials}{time} would find {breach}, and {breach_text}."


def _limits(contents: ReportContents) -> str:
    """Return a sentence on the smallest shares of missing noise that the run would have found; empty if unknown."""
    numbers = verdict_of(contents)
    unit = contents.words.one
    shares = (numbers.missing_anywhere, numbers.missing_at_unit)
    anywhere, at_unit = (None if share is None else percent(float(f"{share:.2g}")) for share in shares)
    if at_unit is None:
        return ""
    signal = numbers.judged.signal
    breach_text = ""
    if signal is not None:
        is_shorter = signal.times - 1 > 1.1 * (signal.limit - 1)
        longest = f" ({number_text(signal.limit, 3)} if as long as the clipping norm)" if is_shorter else ""
        breach_text = f", and a {unit} that counts {_counted(signal.times)}{longest}"
    if anywhere is None:
        return f"Had {at_unit} of the noise been missing where it hides the {unit}, {_FOUND}{breach_text}."
    just = f"{at_unit} just where it hides the {unit}"
    return f"Had {anywhere} of the noise been missing, {_FOUND}, or {just}{breach_text}."


def _sentence(finding: VerdictFinding, contents: ReportContents) -> str:
    match finding.verdict:
        case Verdict.VIOLATED:
            if exact := exact_sentences(finding.judged.exact):
                return f"The guarantee was broken, which no chance explains. {exact}"
            text = (
                f"The guarantee was broken. Where a guarantee is kept, so clear a sign comes up in at most "
                f"{_alarms(finding.judged, contents.run)}. That says nothing of how much more others could learn."
            )
        case Verdict.CONSISTENT:
            text = (
                "Nothing we saw contradicts the guarantee. That covers this one example and this run only; it is no "
                "proof for other people's data or other attacks."
            )
        case Verdict.INCONCLUSIVE if finding.contradicted_by:
            text = (
                "The verdict is open: no test of the guarantee failed, and something that was measured contradicts it."
            )
        case Verdict.INCONCLUSIVE if why := unanswered_text(finding, contents.words):
            text = f"The verdict is open. {why}"
        case Verdict.INCONCLUSIVE:
            unseen = f"{_unseen(finding, contents.words)} could hardly have been seen"
            text = f"The verdict is open: nothing we saw contradicts the guarantee, but {unseen}."
        case Verdict.NO_GUARANTEE if contents.plan.federation.local_randomizer is not None:
            return (
                "There was no guarantee of the training to test, so there is no verdict. What protects the records in "
                "these models is what their owners did to them, and no more."
            )
        case Verdict.NO_GUARANTEE:
            return "There was no guarantee to test. These models must not pass for protected ones."
        case Verdict.NOT_AUDITED:
            text = "We came to no verdict: no insider took part, so nothing was held against the guarantee."
        case _:
            assert_never(finding.verdict)
    if judged_before := looks_text(finding.judgement, contents.run):
        text += f" {judged_before}"
    if not contents.plan.federation.mechanism.is_private_release:
        text += " The models of this run are test pieces and must not be handed out: their noise depends on the data."
    return text


def _unseen(finding: VerdictFinding, words: UnitWords) -> str:
    """Return a noun phrase for a breach of the claim that an inconclusive run would probably have missed."""
    return f"a {words.one} that counts {BREACH:g} times" if finding.judged.conclusive else "a breach"


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
        for message in (message_of(test, words) for test in details.tests)
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
