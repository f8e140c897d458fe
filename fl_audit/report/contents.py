"""What a report is made of: a finished run, and the typed numbers of every finding about it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import pandas as pd

from fl_audit.report.finished_run import FinishedRun, RunFacts

Numbers = TypeVar("Numbers")


@dataclass(frozen=True)
class Findings:
    """The numbers of the findings about a run, by their type."""

    by_type: Mapping[type, object]

    def find(self, kind: type[Numbers]) -> Numbers | None:
        """Return the numbers of a finding, None where the run has none."""
        found = self.by_type.get(kind)
        assert found is None or isinstance(found, kind)
        return found


@dataclass(frozen=True)
class RunContents:
    """Everything that the report of one run is drawn from.

    Parameters
    ----------
    run
        The finished run.
    findings
        The numbers of each finding.
    summary
        The content of `summary.json`, schema 1.
    """

    run: FinishedRun
    findings: Findings
    summary: dict[str, Any]

    def find(self, kind: type[Numbers]) -> Numbers | None:
        """Return the numbers of a finding, None where the run has none."""
        return self.findings.find(kind)

    @property
    def facts(self) -> RunFacts:
        """What was promised and played."""
        return self.run.facts

    @property
    def worlds(self) -> pd.DataFrame:
        """The table of worlds."""
        return self.run.tables.worlds

    @property
    def rounds(self) -> pd.DataFrame:
        """The table of rounds."""
        return self.run.tables.rounds

    @property
    def releases(self) -> pd.DataFrame:
        """The table of releases."""
        return self.run.tables.releases
