"""Tests of the guarantee by membership audits, in which coins decide which of many targets are in."""

from functools import partial

from fl_audit.audits.audit import GuaranteeTests
from fl_audit.audits.common.planned_detection_limits import limit_of_signal
from fl_audit.audits.common.targets_guarantee_tests import planned_noise_along_targets, require_supported_targets
from fl_audit.audits.identifiability.guarantee_tests import pairs_covered
from fl_audit.audits.membership.attack_results import can_compare_targets, target_scores
from fl_audit.federation.finished_run import FinishedRun
from fl_audit.verdict.judging import judge_scores, judged_with_opened
from fl_audit.verdict.stored_measurements import noise_along, opened_of_targets
from fl_audit.verdict.verdict import VerdictDetails


def _judge(run: FinishedRun) -> VerdictDetails | None:
    """Return the judgement of the guarantee from one randomly drawn target of each trial.

    It uses the insider's log-odds for the target, and the noise along the target's contribution. None without insiders.
    """
    scores = target_scores(run)
    if scores is None:
        return None
    guarantee = run.plan.stated_guarantee
    noise = noise_along(run, scores.targets)
    details = judge_scores(scores.members, scores.nonmembers, guarantee, run.plan.confidence, noise)
    return judged_with_opened(details, opened_of_targets(run))


def _why_not_compared(run: FinishedRun) -> str:
    """Return a sentence, with a leading space, on why no attack was measured; empty if attacks can be measured."""
    if can_compare_targets(run):
        return ""
    why = "one trial is too few" if run.trials < 2 else "the coins of the targets fell alike in every trial"
    return f" No attack was measured, for {why}: play more trials, or choose more targets."


MEMBERSHIP_TESTS = GuaranteeTests(
    require_supported=partial(require_supported_targets, kind="membership"),
    judge=_judge,
    covers=partial(pairs_covered, "these pairs"),
    why_not_compared=_why_not_compared,
    planned_noise=planned_noise_along_targets,
    planned_signal=partial(limit_of_signal, is_always_in=False),
)
"""Tests of the guarantee in the audit kind `membership`, in which a coin decides whether each target is in."""
