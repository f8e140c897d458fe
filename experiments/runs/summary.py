"""From a plan and the tables of its run to what the report says: the facts that the sections of a report start from."""

from typing import Any

from experiments.runs.plan import AuditPlan
from fl_audit.evidence.star.epsilon_star import StarSettings
from fl_audit.report import FinishedRun, RunContents, RunFacts, RunTables, report_contents
from fl_audit.report.finished_run import Timing


def summarise(plan: AuditPlan, tables: RunTables, timing: dict[str, Any]) -> RunContents:
    """Return what a finished run found: the numbers of every finding, and the content of `summary.json` among them.

    Parameters
    ----------
    plan
        What was promised and played.
    tables
        What came out.
    timing
        Seconds, and the engine.
    """
    return report_contents(FinishedRun(run_facts(plan), tables, Timing.of_json(timing)))


def run_facts(plan: AuditPlan) -> RunFacts:
    """Return what a report says about a plan, without the challenger's seed."""
    audit, privacy = plan.config.audit, plan.config.privacy
    configuration = plan.config.as_dict()
    configuration["run"].pop("seed", None)
    return RunFacts(
        game=plan.public,
        guarantee=plan.guarantee,
        prior=privacy.prior,
        confidence=audit.confidence,
        neighbour=_neighbour_text(plan),
        star=StarSettings(privacy.delta, audit.epsilon_star_cut) if audit.epsilon_star else None,
        configuration=configuration,
    )


def _neighbour_text(plan: AuditPlan) -> str:
    audit = plan.config.audit
    rank = "" if audit.neighbour_rank is None else f" (rank {audit.neighbour_rank})"
    return f"{plan.public.law.adjacency}, neighbour {audit.neighbour}{rank}, data seed {plan.public.data_seed}"
