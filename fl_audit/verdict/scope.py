"""State what a verdict covers: the whole scope for `summary.json`, and a short one for readers who know no statistics.

The sentences stand in the templates `scope.md` and `short_scope.md`.
"""

from collections.abc import Sequence
from typing import Any

from fl_audit.federation.finished_run import FinishedRun
from fl_audit.federation.run_plan import RunPlan
from fl_audit.privacy.guarantee import Guarantee
from fl_audit.report.template_files import template_lines, template_texts
from fl_audit.report.unit_words import unit_words
from fl_audit.verdict.declared_tests import DETECTION_POWER, NotTestedReason, TestName
from fl_audit.verdict.exact_questions import ExactAnswer
from fl_audit.verdict.findings_verdict import VerdictFinding
from fl_audit.verdict.noise_estimate import BREACH, epsilon_at, mechanism_in_words
from fl_audit.verdict.signal_detection_limit import RARE_SHARE, RARE_TIMES
from fl_audit.verdict.verdict import VerdictDetails
from fl_audit.verdict.verdict_messages import message_of, reason_text, title_of
from fl_audit.words import uncapital

_QUESTIONS = {
    "participation": (
        TestName.TARGET_TURNS,
        TestName.UNIT_TURNS,
        TestName.SAMPLE_SIZES,
        TestName.EVEN_TURNS,
        TestName.SHARED_SAMPLES,
    ),
    "other releases": (TestName.SHARE_PAIRS, TestName.BIT_NOISE, TestName.EXACT_STEPS),
    "secret": (TestName.DISTINGUISHER,),
}
"""Tests that do not concern the amount of noise, by the question that they ask."""
_UNOPENED = (NotTestedReason.NOT_OPENED, NotTestedReason.UNOPENED_SHARES)


def scope_text(finding: VerdictFinding, run: FinishedRun, covers: str, not_compared: str) -> str:
    """Return the text for the key `scope` of `summary.json`: what the verdict covers, and its limits.

    `covers` says what a verdict of this kind of audit covers, and `not_compared` why no attack was measured, if so.
    """
    plan = run.plan
    details = finding.judgement
    facts: dict[str, Any] = {
        "is_audited": details is not None and plan.guarantee is not None,
        "has_guarantee": plan.guarantee is not None,
        "is_randomised": plan.federation.local_randomizer is not None,
        "not_compared": not_compared,
        "judged_before": looks_text(details, run),
    }
    if details is not None and plan.guarantee is not None:
        facts |= _detection_facts(details, plan.guarantee, plan)
        facts |= _exact_facts(details.exact) | {"questions": _question_facts(details, plan), "covers": covers}
    return " ".join(template_lines("scope.md", **facts))


def short_scope(finding: VerdictFinding, run: FinishedRun, covers: str) -> list[str]:
    """Return sentences on what a verdict covers, the smallest breach that it finds, and what was not tested.

    The list is empty if nothing was tested.
    """
    if (details := finding.judgement) is None:
        return []
    return template_lines(
        "short_scope.md",
        covers=covers,
        runs_of_ten=round(10 * DETECTION_POWER),
        limit=details.limit_of_detection,
        claimed=finding.claimed,
        questions=_question_facts(details, run.plan),
        judged_before=looks_text(details, run),
    )


def looks_text(details: VerdictDetails | None, run: FinishedRun) -> str:
    """Return sentences on the false-positive rate of a run that was judged more than once; empty if judged once."""
    # If the numbers of trials depend on earlier results, the rate of two looks is up to 3.1 times that of one (for a
    # test whose statistic is a sum of normal numbers).
    if details is None or len(run.looks) < 2:
        return ""
    earlier = [f"{trials:,}" for trials in run.looks[:-1]]
    audits = round(1 / details.level)
    return " ".join(template_lines("judged_before.md", earlier=earlier, looks=len(run.looks), audits=audits))


def _detection_facts(details: VerdictDetails, guarantee: Guarantee, plan: RunPlan) -> dict[str, Any]:
    """Return facts on the smallest breach that would have been found, and on the number of trials needed."""
    unit = unit_words(plan.adjacency)
    noise = plan.federation.mechanism.noise
    first_test = details.tests[0] if details.tests else None
    along_difference = dict[str, object]()
    if details.trials_needed is not None:
        epsilon_once = epsilon_at(guarantee.claim, 1.0)
        along_difference = {"epsilon_once": epsilon_once, "mechanism": mechanism_in_words(guarantee.claim)}
    return along_difference | {
        "first_test": "" if first_test is None else first_test.name,
        "power": DETECTION_POWER,
        "epsilon": guarantee.epsilon,
        "delta": guarantee.delta,
        "limit": details.limit_of_detection,
        "canary_limit": "" if first_test is None else message_of(first_test, unit, noise).limit,
        "ceiling": None if first_test is None else first_test.more.get("ceiling"),
        "trials_needed": details.trials_needed,
        "is_conclusive": details.conclusive,
        "breach": BREACH,
        "unit": unit.one,
        "signal": details.signal,
        "rare_times": RARE_TIMES,
        "rare_share": RARE_SHARE,
    }


def _exact_facts(answers: Sequence[ExactAnswer]) -> dict[str, list[str]]:
    """Return the exact questions that were asked, with what was checked, and those that were not, with the reason."""
    titles = template_texts("exact_questions.md")
    return {
        "exact": [f"{titles[answer.question]} ({answer.checked})" for answer in answers if answer.is_asked],
        "not_exact": [f"{titles[answer.question]} ({answer.reason})" for answer in answers if not answer.is_asked],
    }


def _question_facts(details: VerdictDetails, plan: RunPlan) -> list[dict[str, Any]]:
    """Return the questions of tests that do not concern the amount of noise, and what was tested; [] if not listed."""
    unit = unit_words(plan.adjacency)
    noise = plan.federation.mechanism.noise
    reasons = dict(details.not_offered)
    if not details.words.lists_questions:
        return []
    return [
        {
            "name": question,
            "tests": [message_of(test, unit, noise) for test in details.tests if test.name in names],
            # A test is named if its values were not opened, but not if the mechanism does not have such values.
            "unopened": [uncapital(title_of(name, unit)) for name in names if reasons.get(name) in _UNOPENED],
            "reason": next((uncapital(reason_text(reasons[name])) for name in names if name in reasons), ""),
        }
        for question, names in _QUESTIONS.items()
    ]
