"""An estimate of the disk space of a run, made before the run begins."""

from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from fl_audit.audits.audit import ReleaseQueryKind
from fl_audit.audits.registry import audit_of
from fl_audit.errors import require
from fl_audit.federation.loaded_federation import load_federation
from fl_audit.federation.run_plan import RunPlan
from fl_audit.runs.run_directory_checks import nearest_existing
from fl_audit.runs.stored_models import are_final_models_kept
from fl_audit.server.run_queries import measured_layout

GIGABYTE = 10**9
_NUMBER = 4
"""Bytes of a parameter, and of most columns of a table."""
_COLUMNS_A_ROUND = 16
"""Columns of the tables of every run, with a row for a trial and round, compressed."""


@dataclass(frozen=True)
class DiskUsageByContent:
    """The estimated disk space of a run in bytes, separately for releases, models and tables."""

    releases: int  # the releases of the trials whose releases are kept
    models: int  # the final models that are kept, and the checkpoints
    tables: int  # the tables of measured values: of each batch, and joined

    @property
    def total(self) -> int:
        return self.releases + self.models + self.tables

    @property
    def caution(self) -> str:
        """A warning if the run writes a gigabyte or more, with the setting that saves the most; otherwise empty."""
        if self.total < GIGABYTE:
            return ""
        largest, remedy = max(
            (self.releases, "releases: run.keep-releases = 0 keeps none"),
            (self.models, "models: fewer checkpoints or trials leave less"),
            (self.tables, "tables of what was measured in every round: fewer trials or rounds leave less"),
        )
        sentence = f"the run writes about {self.total / GIGABYTE:,.1f} GB, {largest / GIGABYTE:,.1f} GB of it {remedy}"
        if self.memory <= psutil.virtual_memory().total:
            return sentence
        memory = f"{self.memory / GIGABYTE:,.1f} GB of memory"
        return f"{sentence}; its tables take {memory} at the end, more than this machine has"

    @property
    def memory(self) -> int:
        """Estimated memory in bytes for joining the result tables: 1.2 times their estimated size on disk."""
        return self.tables * 6 // 5


def footprint(plan: RunPlan) -> DiskUsageByContent:
    """Return an estimate of the disk space of a planned run; a run with membership attacks needs slightly more."""
    public = plan.federation
    run = plan.config.run
    trials = plan.config.audit.trials
    federation = load_federation(public)
    model = federation.model.layout.size * _NUMBER
    audit = audit_of(public)
    measures = audit.query(public) is ReleaseQueryKind.LOG_ODDS
    stored_trials = 0 if audit.why_not_recomputed(public) else min(run.keep_releases or 0, trials)
    columns = _COLUMNS_A_ROUND + (len(replace(measured_layout(federation), sides=1).names) if measures else 0)
    return DiskUsageByContent(
        releases=stored_trials * (public.rounds + 1) * model,
        models=_kept_models(plan, federation.model.layout.size) * model,
        tables=2 * trials * public.rounds * columns * _NUMBER,
    )


def _kept_models(plan: RunPlan, parameters: int) -> int:
    """Return the number of models that a run stores: final models, that of trial 0 once more, and checkpoints."""
    run = plan.config.run
    rounds = plan.federation.rounds
    checkpoints = 0 if run.checkpoint_every is None else rounds // run.checkpoint_every
    trials = plan.config.audit.trials
    return (trials if are_final_models_kept(trials, parameters) else 1) + 1 + checkpoints


def require_room(plan: RunPlan, directory: Path) -> None:
    """Raise `InputError` if a run needs more disk space than is free at its run directory.

    Runs of less than a gigabyte are always accepted.
    """
    content = footprint(plan)
    free = psutil.disk_usage(str(nearest_existing(directory))).free
    problem = f"run directory {directory}: {content.caution}, and {free / GIGABYTE:,.1f} GB are free there"
    accepted = "accepted is a place with more room, or a run that writes less"
    require(content.total < max(free, GIGABYTE), f"{problem}: {accepted}")
