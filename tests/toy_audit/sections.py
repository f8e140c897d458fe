"""The success rate of the first target's insider."""

from dataclasses import dataclass
from typing import Any

from fl_audit.federation.findings import Findings
from fl_audit.federation.finished_run import FinishedRun
from fl_audit.report.report_elements import ReportNumber, Section
from tests.toy_audit.guarantee_tests import first_target


@dataclass(frozen=True)
class FirstTargetFinding:
    """The success rate of the insider."""

    right: float  # share of the trials

    def to_json(self) -> dict[str, Any]:
        """Return the entry `first_target`."""
        return {"first_target": {"right": self.right}}


def measure_first_target(run: FinishedRun, findings: Findings) -> FirstTargetFinding:
    """Return how often the sign of the log-odds named the coin."""
    log_odds, is_in = first_target(run)
    return FirstTargetFinding(float(((log_odds > 0) == is_in).mean()))


FIRST_TARGET = Section(
    "first-target",
    "The first target",
    FirstTargetFinding,
    measure_first_target,
    keys=("first_target",),
    rows=lambda numbers, contents: [
        ReportNumber("Right guesses about the first target", numbers.right, "share of trials")
    ],
)
