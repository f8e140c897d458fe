"""How long the run took."""

from dataclasses import asdict, dataclass
from typing import Any

from fl_audit.report.contents import Findings, RunContents
from fl_audit.report.finished_run import FinishedRun, Timing
from fl_audit.report.section import Section, Table


@dataclass(frozen=True)
class TimingNumbers:
    """How long the run took."""

    timing: Timing

    def to_json(self) -> dict[str, Any]:
        """Return the entry `timing`."""
        return {"timing": asdict(self.timing)}


def _measure(run: FinishedRun, _: Findings) -> TimingNumbers:
    return TimingNumbers(run.timing)


def _table(numbers: TimingNumbers, _: RunContents) -> list[Table]:
    timing = numbers.timing
    rows = (
        ("Setup (s)", timing.setup_seconds),
        ("Training (s)", timing.training_seconds),
        ("Speed (worlds per second)", timing.worlds_per_second),
        ("Engine", timing.engine),
    )
    return [Table("Time", ("What", "Value"), rows, look="short pairs")]


TIMING = Section(numbers=TimingNumbers, keys=("timing",), measure=_measure, tables=_table)
