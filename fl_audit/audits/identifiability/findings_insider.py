"""Findings on the insiders: their advantage and largest belief, and the test of the innovations.

A belief is the posterior belief in the data set that was used. Innovations are the standardised increments of the
insider's log-odds of D against D'.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
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
class InsiderAdvantage:
    """The advantage and the largest belief of one of several insiders in the same trials."""

    client: int  # number of the client that is the insider
    estimate: AdvantageFromWins  # number of right guesses, and the advantage that follows from it
    max_belief: float  # largest posterior belief over trials in the data set that was used


@dataclass(frozen=True)
class SeveralInsidersFinding:
    """The advantages of several insiders in the same trials, and the share of trials in which all agree."""

    each: tuple[InsiderAdvantage, ...]  # one entry for each insider, ordered by the client's number
    agreement: float  # share of the trials in which all insiders made the same guess

    @property
    def best(self) -> InsiderAdvantage:
        """The insider with the most right guesses; the first of them if several have equally many."""
        return max(self.each, key=lambda advantage: advantage.estimate.wins)

    @property
    def worst(self) -> InsiderAdvantage:
        """The insider with the fewest right guesses; the first of them if several have equally many."""
        return min(self.each, key=lambda advantage: advantage.estimate.wins)

    @property
    def spread(self) -> float:
        """The advantage of the best insider minus the advantage of the worst insider."""
        return self.best.estimate.advantage - self.worst.estimate.advantage

    def to_json(self) -> dict[str, Any]:
        """Return this finding as a dict with the one key `insiders`, for `summary.json`."""
        insiders = [
            {"client": advantage.client, **asdict(advantage.estimate), "max_belief": advantage.max_belief}
            for advantage in self.each
        ]
        best = {"best": self.best.client, "spread": self.spread, "agreement": self.agreement}
        return {"insiders": best | {"each": insiders}}


def measure_insiders(run: FinishedRun, _: Findings) -> SeveralInsidersFinding | None:
    """Return each insider's advantage, and the share of trials in which all insiders are right or all are wrong.

    None without a guarantee or with only one insider.
    """
    table = run.tables.insiders
    if table is None or "won" not in table or not run.plan.has_guarantee:
        return None
    insiders = []
    for client, rows in table.groupby("insider", sort=True):
        estimate = empirical_advantage(rows["won"].to_numpy(dtype=np.bool_), run.plan.confidence)
        insiders.append(InsiderAdvantage(int(str(client)), estimate, float(rows["belief"].max())))
    right = table.pivot(index="trial", columns="insider", values="won").to_numpy(dtype=np.bool_)
    return SeveralInsidersFinding(tuple(insiders), float((right == right[:, :1]).all(axis=1).mean()))


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
