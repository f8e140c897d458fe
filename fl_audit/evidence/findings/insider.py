"""The insider: how often it was right, and how sure it became."""

from dataclasses import dataclass
from typing import Any

from scipy.special import logit

from fl_audit.evidence.belief.advantage import AdvantageEstimate, empirical_advantage
from fl_audit.evidence.findings.found import Findings
from fl_audit.evidence.finished_run import FinishedRun


@dataclass(frozen=True)
class InsiderNumbers:
    """What the insider achieved."""

    estimate: AdvantageEstimate  # games won, and the advantage that follows
    max_belief: float  # its largest belief in the dataset that was really used
    belief_violations: int  # worlds in which that belief passed its bound

    def to_json(self) -> dict[str, Any]:
        """Return the entry `insider`."""
        estimate = self.estimate
        return {
            "insider": {
                "worlds": estimate.worlds,
                "wins": estimate.wins,
                "advantage": estimate.advantage,
                "advantage_low": estimate.low,
                "advantage_high": estimate.high,
                "max_belief": self.max_belief,
                "belief_violations": self.belief_violations,
            }
        }


def measure_insider(run: FinishedRun, _: Findings) -> InsiderNumbers | None:
    """Return what the insider achieved; None without a promise or an insider."""
    promise = run.facts.guarantee
    if promise is None or not run.has_insider:
        return None
    # The promise bounds the log-odds; at a prior of 1/2 this counts the beliefs beyond the bound.
    limit = logit(promise.belief_bound) - logit(promise.prior)
    return InsiderNumbers(
        estimate=empirical_advantage(run.tables.worlds["won"].to_numpy(), run.facts.confidence),
        max_belief=float(run.tables.worlds["belief"].max()),
        belief_violations=int((run.towards_truth > limit).sum()),
    )
