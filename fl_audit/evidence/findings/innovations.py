"""The innovations: whether every step of the insider's log-odds obeys its exact law, N(0, 1) and independent."""

from dataclasses import dataclass
from typing import Any

from fl_audit.evidence.belief.innovations import InnovationCheck, InnovationGroup, check_scores
from fl_audit.evidence.findings.found import Findings
from fl_audit.evidence.finished_run import FinishedRun


@dataclass(frozen=True)
class InnovationNumbers:
    """How well the innovations follow their law."""

    check: InnovationCheck

    def to_json(self) -> dict[str, Any]:
        """Return the entry `innovations`."""
        groups = [_group_json(bit, group) for bit, group in self.groups]
        return {"innovations": {"holds": self.check.holds, "rounds_left_out": self.check.left_out, "groups": groups}}

    @property
    def groups(self) -> tuple[tuple[int, InnovationGroup], ...]:
        """The worlds of either bit."""
        return (1, self.check.members), (0, self.check.nonmembers)


def _group_json(bit: int, group: InnovationGroup) -> dict[str, Any]:
    return {
        "bit": bit,
        "count": group.count,
        "mean": group.mean,
        "variance": group.variance,
        "serial_correlation": group.serial_correlation,
        "ks_p": group.ks_p_value,
    }


def measure_innovations(run: FinishedRun, _: Findings) -> InnovationNumbers | None:
    """Return how well the innovations follow their law; None where they have none."""
    if not run.facts.has_promise or not run.has_insider or not run.facts.game.law.weighs_exactly:
        return None
    return InnovationNumbers(check_scores(run.measured.innovations, run.bits))
