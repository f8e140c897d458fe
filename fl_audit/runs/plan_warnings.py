"""Warnings that are known before a run begins: about its guarantee and its data."""

from fl_audit.adjacency import Unit
from fl_audit.data.loaded_dataset import DataWarning
from fl_audit.federation.run_plan import RunPlan
from fl_audit.report.guarantee_warnings import delta_warning, weakness_warning
from fl_audit.runs.data_warnings import data_warnings_of
from fl_audit.words import plural


def plan_warnings_of(plan: RunPlan) -> tuple[DataWarning, ...]:
    """Return all warnings about a planned run: first of its data, then of its guarantee."""
    return (*data_warnings_of(plan), *_of_guarantee(plan))


def _of_guarantee(plan: RunPlan) -> tuple[DataWarning, ...]:
    guarantee = plan.guarantee
    if guarantee is None:
        return ()
    federation = plan.federation
    units = federation.records if federation.mechanism.unit is Unit.RECORD else federation.units
    warnings_found = (weakness_warning(guarantee), delta_warning(guarantee, units), _budget_text(plan))
    return tuple(DataWarning(text) for text in warnings_found if text is not None)


def _budget_text(plan: RunPlan) -> str | None:
    """Return a sentence on the rounds that a budget of epsilon allows; None without a budget."""
    budget = plan.config.privacy.stop_at_epsilon
    if budget is None or plan.guarantee is None:
        return None
    rounds = plural(plan.federation.rounds, "round")
    return f"stop-at-epsilon = {budget:g} allows {rounds}, which spend epsilon {plan.guarantee.epsilon:.4g}"
