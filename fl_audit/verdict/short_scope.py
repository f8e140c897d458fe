"""Say in a few lines, for readers who know no statistics, what a verdict covers; `summary.json` has the whole scope."""

import math

from fl_audit.federation.finished_run import FinishedRun
from fl_audit.verdict.declared_tests import DETECTION_POWER
from fl_audit.verdict.findings_verdict import VerdictFinding
from fl_audit.verdict.scope import questions_in_short
from fl_audit.verdict.sections_verdict import looks_text
from fl_audit.words import number_text


def short_scope(finding: VerdictFinding, run: FinishedRun, covers: str) -> list[str]:
    """Return sentences on what a verdict covers, the smallest breach that it finds, and what was not tested.

    The list is empty if nothing was tested.
    """
    if (details := finding.judgement) is None:
        return []
    questions = questions_in_short(details) if details.words.lists_questions else []
    looks = looks_text(details, run).strip()
    where = 'The section "The tests of the guarantee" of report.html has every test with the breach that it would find.'
    return [covers, _smallest_breach(finding), *questions, *filter(None, [looks]), where]


def _smallest_breach(finding: VerdictFinding) -> str:
    limit = finding.judged.limit_of_detection
    claimed = number_text(finding.claimed, 3)
    runs = f"{round(10 * DETECTION_POWER)} of 10 such runs"
    if not math.isfinite(limit):
        return f"No breach is known that {runs} would find; an epsilon of {claimed} is claimed."
    return (
        f"{runs} would find noise so small that epsilon is {number_text(limit, 3)} or more, where {claimed} is "
        "claimed. A smaller breach, or one of another kind, may pass."
    )
