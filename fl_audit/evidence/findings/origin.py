"""Where a run comes from, and how long it took."""

from dataclasses import asdict, dataclass
from typing import Any

from fl_audit.evidence.findings.found import Findings
from fl_audit.evidence.finished_run import FinishedRun
from fl_audit.evidence.origin import Provenance
from fl_audit.evidence.run_tables import Timing


@dataclass(frozen=True)
class OriginNumbers:
    """Where the run comes from, None where that was not noted, and how long it took."""

    provenance: Provenance | None
    timing: Timing

    def to_json(self) -> dict[str, Any]:
        """Return the entry `timing`: the same run has the same summary wherever it is made, but for that."""
        return {"timing": asdict(self.timing)}


def measure_origin(run: FinishedRun, _: Findings) -> OriginNumbers:
    """Return where a run comes from, and how long it took."""
    return OriginNumbers(run.provenance, run.timing)
