"""Tests of the guarantee by reconstruction audits, in which an attacker guesses which candidate is in."""

from functools import partial

from fl_audit.audits.audit import GuaranteeTests
from fl_audit.audits.common.planned_detection_limits import limit_of_signal
from fl_audit.audits.common.targets_guarantee_tests import planned_noise_along_targets, require_supported_targets
from fl_audit.audits.reconstruction.candidate_hits import candidate_ranks, judge_hits, true_candidates
from fl_audit.federation.finished_run import FinishedRun
from fl_audit.federation.run_plan import RunPlan
from fl_audit.verdict.judging import judged_with_opened
from fl_audit.verdict.stored_measurements import noise_along, opened_of_targets
from fl_audit.verdict.verdict import VerdictDetails


def _judge(run: FinishedRun) -> VerdictDetails | None:
    """Judge the guarantee by the share of right first guesses, and by the noise along the true candidate.

    Values that the challenger revealed after the run, such as who took part, are tested too. None without an insider.
    """
    if (ranks := candidate_ranks(run)) is None:
        return None
    chance = float(run.plan.federation.prior_of_candidates.max())
    hits = int((ranks == 1).sum())
    noise = noise_along(run, true_candidates(run), includes_all=False)
    details = judge_hits(hits, len(ranks), chance, run.plan.stated_guarantee, run.plan.confidence, noise)
    return judged_with_opened(details, opened_of_targets(run))


def _covers(plan: RunPlan) -> str:
    """Return a sentence which says that a verdict covers only the run's candidates and its seed."""
    return (
        "A verdict covers these candidates and this seed (the challenger's secret) only; other candidates, other data "
        "and other seeds were not tried."
    )


RECONSTRUCTION_TESTS = GuaranteeTests(
    require_supported=partial(require_supported_targets, kind="reconstruction"),
    judge=_judge,
    covers=_covers,
    planned_noise=planned_noise_along_targets,
    planned_signal=partial(limit_of_signal, is_always_in=True),
)
"""Tests of the guarantee in the audit kind `reconstruction`, in which exactly one of the candidates is in."""
