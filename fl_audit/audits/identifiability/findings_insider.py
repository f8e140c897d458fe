"""Findings on the insider: its advantage and largest belief, and the test of the innovations.

A belief is the posterior belief in the data set that was used. Innovations are the standardised increments of the
insider's log-odds of D against D'.
"""

from dataclasses import dataclass
from typing import Any

from scipy.special import logit

from fl_audit.audits.identifiability.llr_distribution import LlrIncrementStatistics, LlrIncrementTest, check_scores
from fl_audit.federation.findings import Findings
from fl_audit.federation.finished_run import FinishedRun
from fl_audit.statistics.advantage import AdvantageFromWins, empirical_advantage
from fl_audit.verdict.stored_measurements import measured_in


@dataclass(frozen=True)
class InsiderFinding:
    """The insider's advantage over guessing, its largest belief, and how often its belief exceeded the bound."""

    estimate: AdvantageFromWins  # number of right guesses, and the advantage that follows from it
    max_belief: float  # largest posterior belief over trials in the data set that was used
    belief_violations: int  # number of trials in which this belief exceeded the belief bound of the guarantee

    def to_json(self) -> dict[str, Any]:
        """Return this finding as a dict with the one key `insider`, for `summary.json`."""
        estimate = self.estimate
        advantage = {"advantage": estimate.advantage, "advantage_low": estimate.low, "advantage_high": estimate.high}
        beliefs = {"max_belief": self.max_belief, "belief_violations": self.belief_violations}
        return {"insider": {"trials": estimate.trials, "wins": estimate.wins} | advantage | beliefs}


def measure_insider(run: FinishedRun, _: Findings) -> InsiderFinding | None:
    """Return the insider's advantage and largest belief over all trials; None without a guarantee or an insider."""
    if (guarantee := run.plan.guarantee) is None or not run.has_insider:
        return None
    # The guarantee bounds the log-odds; at a prior of 1/2 this counts the beliefs beyond the bound.
    limit = logit(guarantee.belief_bound) - logit(guarantee.prior)
    estimate = empirical_advantage(run.tables.trials["won"].to_numpy(), run.plan.confidence)
    largest = float(run.tables.trials["belief"].max())
    violations = int((run.llr_of_used_set > limit).sum())
    return InsiderFinding(estimate, largest, violations)


@dataclass(frozen=True)
class LlrIncrementTestFinding:
    """Result of testing whether the standardised increments of the insider's log-odds are independent N(0, 1)."""

    check: LlrIncrementTest

    def to_json(self) -> dict[str, Any]:
        """Return this finding as a dict with the one key `innovations`, for `summary.json`."""
        groups = []
        names = ("count", "mean", "variance", "serial_correlation")
        for bit, group in self.groups:
            groups.append({"bit": bit} | {name: getattr(group, name) for name in names} | {"ks_p": group.ks_p_value})
        return {"innovations": {"holds": self.check.holds, "rounds_left_out": self.check.left_out, "groups": groups}}

    @property
    def groups(self) -> tuple[tuple[int, LlrIncrementStatistics], ...]:
        """Pairs of a secret bit and the statistics of the trials with this bit: first bit 1 (D), then bit 0 (D')."""
        return (1, self.check.members), (0, self.check.nonmembers)


def measure_innovations(run: FinishedRun, _: Findings) -> LlrIncrementTestFinding | None:
    """Return the test of the innovations, which are the standardised increments of the insider's log-odds.

    None without a guarantee, an insider or an exact log-likelihood ratio.
    """
    if not run.plan.has_guarantee or not run.has_insider or not run.plan.federation.mechanism.knows_llr:
        return None
    return LlrIncrementTestFinding(check_scores(measured_in(run).innovations, run.bits))
