"""Say the answers to exact questions in words: in the banner, in the scope and in a table of the report."""

from collections.abc import Sequence

from fl_audit.report.report_elements import Table
from fl_audit.statistics.claim_comparisons import Reading
from fl_audit.verdict.exact_questions import TITLES, ExactAnswer, broken_answers
from fl_audit.words import DASH, capital


def exact_sentences(answers: Sequence[ExactAnswer]) -> str:
    """Return one sentence for each exact question by which the claim is broken; empty if there is none."""
    return " ".join(f"{capital(answer.text)}." for answer in broken_answers(answers))


def exact_scope(answers: Sequence[ExactAnswer]) -> str:
    """Return sentences on the exact questions that were asked, where, and on those that were not asked, and why."""
    asked_questions = [f"{TITLES[answer.question]} ({answer.checked})" for answer in answers if answer.is_asked]
    unasked = [f"{TITLES[answer.question]} ({answer.reason})" for answer in answers if not answer.is_asked]
    text = f" Asked exactly, without statistics: {'; '.join(asked_questions)}." if asked_questions else ""
    return text + (f" Not asked exactly: {'; '.join(unasked)}." if unasked else "")


def exact_table(answers: Sequence[ExactAnswer]) -> Table:
    """Return the table of exact questions, with what was found and what was checked."""
    rows = tuple(
        (capital(TITLES[answer.question]), _standing(answer), answer.text or answer.reason, answer.checked or DASH)
        for answer in answers
    )
    return Table("Exact questions, which need no statistics", ("Question", "Finding", "Found", "Checked"), rows)


def _standing(answer: ExactAnswer) -> str:
    if not answer.is_asked:
        return "not asked"
    return str(Reading.NO_CONTRADICTION if answer.is_kept else Reading.BROKEN)
