"""Tests of the guarantee by identifiability audits, in which an insider distinguishes D from D'."""

from functools import partial

from fl_audit.adjacency import Relation
from fl_audit.audits.audit import GuaranteeTests
from fl_audit.audits.common.federation_requirements import require_clients, require_computable_llr
from fl_audit.audits.common.pair_audit import neighbour_text
from fl_audit.audits.common.planned_detection_limits import limit_of_signal, limits_of_noise
from fl_audit.federation.federation import Federation
from fl_audit.federation.finished_run import FinishedRun
from fl_audit.federation.run_plan import RunPlan
from fl_audit.verdict.judging import judge, judge_scores, judged_with_opened
from fl_audit.verdict.signal_detection_limit import SignalDetectionLimit
from fl_audit.verdict.stored_measurements import measured_in, opened_of_pair
from fl_audit.verdict.verdict import VerdictDetails


def _require_supported(federation: Federation) -> None:
    """Raise `InputError` if an insider could not compute likelihood ratios or scores in this federation."""
    require_clients(federation, 2 if federation.with_insider else 1)
    require_computable_llr(federation)


def _judge(run: FinishedRun) -> VerdictDetails | None:
    """Return the result of testing the guarantee; None without an insider.

    The tests use the insider's log-likelihood ratios and its measurements of the noise. If the insider has no
    log-likelihood ratios, they use its scores.
    """
    guarantee = run.plan.stated_guarantee
    scores = run.insider_scores
    confidence = run.plan.confidence
    if scores is not None:
        details = judge_scores(scores[run.bits], scores[~run.bits], guarantee, confidence)
        return judged_with_opened(details, opened_of_pair(run))
    return judge(measured_in(run), guarantee, confidence) if run.has_insider else None


def _planned_signal(plan: RunPlan) -> SignalDetectionLimit | None:
    """Return the limit of detection: the smallest multiple of the target's claimed influence that a run would find.

    The result is None if the run has no insider, or if its mechanism has no exact log-likelihood ratio.
    """
    is_replaced = plan.federation.mechanism.adjacency.relation is Relation.REPLACE
    return limit_of_signal(plan, is_replaced)


def pairs_covered(these: str, plan: RunPlan) -> str:
    """Return a sentence on what a verdict about pairs of neighbouring training sets covers."""
    return (
        f"A verdict covers {these} of neighbouring training sets ({_neighbour_text(plan)}) and this seed (the "
        "challenger's secret) only; other neighbours, other data and other seeds were not tried."
        f"{_cohort_text(plan)}"
    )


def _neighbour_text(plan: RunPlan) -> str:
    """Return the adjacency, the way in which D and D' were chosen, and the seed of that choice."""
    audit = plan.config.audit
    federation = plan.federation
    rank = "" if audit.neighbour_rank is None else f" (rank {audit.neighbour_rank})"
    difference = neighbour_text(federation, f"{audit.neighbour}{rank}")
    return f"{plan.adjacency}, {difference}, data seed {federation.data_seed}"


def _cohort_text(plan: RunPlan) -> str:
    """Return a sentence on how often the differing unit takes part; "" unless the rule of participation favours it."""
    return plan.federation.mechanism.participation.favoured_unit_words(plan.federation.rounds)


IDENTIFIABILITY_TESTS = GuaranteeTests(
    require_supported=_require_supported,
    judge=_judge,
    covers=partial(pairs_covered, "this pair"),
    planned_noise=limits_of_noise,
    planned_signal=_planned_signal,
)
"""Tests of the guarantee in the audit kind `identifiability`, by log-likelihood ratios or scores."""
