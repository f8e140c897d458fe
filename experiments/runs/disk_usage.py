"""How many bytes a run leaves on disk, before it is played."""

from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from fl_audit.audits.audit import ReleaseQuery
from fl_audit.audits.registry import audit_of
from fl_audit.errors import require
from fl_audit.experiments.runs.plan import AuditPlan
from fl_audit.experiments.runs.run_paths import nearest_existing
from fl_audit.federation.loaded_federation import load_federation
from fl_audit.server.app import measured_layout

GIGABYTE = 10**9
_NUMBER = 4
"""Bytes of a parameter, and of most columns of a table."""
_COLUMNS_A_ROUND = 16
"""Of the tables that every run has, with a row for a trial and round, as they are compressed."""


@dataclass(frozen=True)
class Footprint:
    """Bytes that a run leaves, by what they are."""

    releases: int  # all that clients saw of some trials
    final_models: int  # of all trials
    tables: int  # batch by batch, and joined

    @property
    def total(self) -> int:
        """All of them."""
        return self.releases + self.final_models + self.tables

    @property
    def caution(self) -> str:
        """What the user should know before gigabytes are written, and what leaves most of them out; empty of fewer."""
        if self.total < GIGABYTE:
            return ""
        most, way = max(
            (self.releases, "releases: run.keep-releases = 0 keeps none"),
            (self.final_models, "final models of all trials: run.keep-final-models = false leaves them out"),
            (self.tables, "tables of what was measured in every round: fewer trials or rounds leave less"),
        )
        said = f"the run writes about {self.total / GIGABYTE:,.1f} GB, {most / GIGABYTE:,.1f} GB of it {way}"
        if self.memory <= psutil.virtual_memory().total:
            return said
        memory = f"{self.memory / GIGABYTE:,.1f} GB of memory"
        return f"{said}; its tables take {memory} at the end, more than this machine has"

    @property
    def memory(self) -> int:
        """Bytes of memory that the tables take when they are joined: 1.2 times what all are on disk, as measured."""
        return self.tables * 6 // 5


def footprint(plan: AuditPlan) -> Footprint:
    """Return how many bytes the run of a plan leaves; of a run with attacks by membership a little more."""
    public, run, trials = plan.public, plan.config.run, plan.config.audit.trials
    federation = load_federation(public)
    model = federation.model.layout.size * _NUMBER
    audit = audit_of(public)
    measures = audit.query(public) is ReleaseQuery.LOG_ODDS
    kept = 0 if audit.not_weighed_again(public) else min(run.keep_releases or 0, trials)
    columns = _COLUMNS_A_ROUND + (len(replace(measured_layout(federation), sides=1).names) if measures else 0)
    return Footprint(
        releases=kept * (public.rounds + 1) * model,
        final_models=trials * model if run.keep_final_models else 0,
        tables=2 * trials * public.rounds * columns * _NUMBER,
    )


def require_room(plan: AuditPlan, directory: Path) -> None:
    """Refuse a run that its disk has no room for, before it is begun.

    Raises `InputError` if there is not enough room.

    Parameters
    ----------
    plan, directory
        What is to be done, and the run directory, which need not be there.
    """
    wanted = footprint(plan)
    free = psutil.disk_usage(str(nearest_existing(directory))).free
    said = f"run directory {directory}: {wanted.caution}, and {free / GIGABYTE:,.1f} GB are free there"
    accepted = "accepted is a place with more room, or a run that writes less"
    require(wanted.total < max(free, GIGABYTE), f"{said}: {accepted}")
