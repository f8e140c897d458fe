"""Finding on the provenance and timing of a run."""

from dataclasses import dataclass
from typing import Any

from fl_audit.federation.findings import Findings, json_of
from fl_audit.federation.finished_run import FinishedRun
from fl_audit.federation.run_tables import Provenance, Timing


@dataclass(frozen=True)
class RunProvenanceFinding:
    """The recorded provenance of a run (its data, versions and sessions), and its timing."""

    provenance: Provenance | None
    timing: Timing

    def to_json(self) -> dict[str, Any]:
        """Return the timing as a dict with the one key `timing`, for `summary.json`.

        This key is the only one that differs when the same run is repeated.
        """
        return {"timing": json_of(self.timing)}


def measure_origin(run: FinishedRun, _: Findings) -> RunProvenanceFinding:
    """Return the recorded provenance of a run and its timing."""
    return RunProvenanceFinding(run.provenance, run.timing)
