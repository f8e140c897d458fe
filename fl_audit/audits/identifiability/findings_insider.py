"""The insider: how often it was right and how sure it became, several at once, and the law of its log-odds' steps."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.special import logit

from fl_audit.audits.identifiability.laws import InnovationCheck, InnovationGroup, check_scores
from fl_audit.federation.findings import Findings
from fl_audit.federation.finished_run import FinishedRun
from fl_audit.statistics.advantage import AdvantageEstimate, empirical_advantage
from fl_audit.verdict.of_run import measured_in


@dataclass(frozen=True)
class InsiderNumbers:
    """What the insider achieved."""

    estimate: AdvantageEstimate  # games won, and the advantage that follows
    max_belief: float  # its largest belief in the dataset that was really used
    belief_violations: int  # worlds in which that belief passed its bound

    def to_json(self) -> dict[str, Any]:
        """Return the entry `insider`."""
        counted = self.estimate
        advantage = {"advantage": counted.advantage, "advantage_low": counted.low, "advantage_high": counted.high}
        beliefs = {"max_belief": self.max_belief, "belief_violations": self.belief_violations}
        return {"insider": {"worlds": counted.worlds, "wins": counted.wins} | advantage | beliefs}


def measure_insider(run: FinishedRun, _: Findings) -> InsiderNumbers | None:
    """Return what the insider achieved; None without a promise or an insider."""
    if (promise := run.facts.guarantee) is None or not run.has_insider:
        return None
    # The promise bounds the log-odds; at a prior of 1/2 this counts the beliefs beyond the bound.
    limit = logit(promise.belief_bound) - logit(promise.prior)
    estimate = empirical_advantage(run.tables.worlds["won"].to_numpy(), run.facts.confidence)
    largest, violations = float(run.tables.worlds["belief"].max()), int((run.towards_truth > limit).sum())
    return InsiderNumbers(estimate, largest, violations)


@dataclass(frozen=True)
class OneInsider:
    """What one of several insiders achieved."""

    client: int  # number of the client that it is
    estimate: AdvantageEstimate  # games won, and the advantage that follows
    max_belief: float  # its largest belief in the dataset that was really used


@dataclass(frozen=True)
class InsidersNumbers:
    """What several insiders achieved, who watched the same worlds."""

    each: tuple[OneInsider, ...]  # every insider, in the order of the clients
    agreement: float  # share of the worlds in which all of them said the same

    @property
    def best(self) -> OneInsider:
        """The insider that was right most often; the first one of equals."""
        return max(self.each, key=lambda one: one.estimate.wins)

    @property
    def worst(self) -> OneInsider:
        """The insider that was right least often."""
        return min(self.each, key=lambda one: one.estimate.wins)

    @property
    def spread(self) -> float:
        """Advantage of the best less that of the worst."""
        return self.best.estimate.advantage - self.worst.estimate.advantage

    def to_json(self) -> dict[str, Any]:
        """Return the entry `insiders`."""
        each = [{"client": one.client, **asdict(one.estimate), "max_belief": one.max_belief} for one in self.each]
        best = {"best": self.best.client, "spread": self.spread, "agreement": self.agreement}
        return {"insiders": best | {"each": each}}


def measure_insiders(run: FinishedRun, _: Findings) -> InsidersNumbers | None:
    """Return what several insiders achieved; None where one played alone."""
    table = run.tables.insiders
    if table is None or "won" not in table or not run.facts.has_promise:
        return None
    each = []
    for client, rows in table.groupby("insider", sort=True):
        estimate = empirical_advantage(rows["won"].to_numpy(dtype=np.bool_), run.facts.confidence)
        each.append(OneInsider(int(str(client)), estimate, float(rows["belief"].max())))
    right = table.pivot(index="world", columns="insider", values="won").to_numpy(dtype=np.bool_)
    return InsidersNumbers(tuple(each), float((right == right[:, :1]).all(axis=1).mean()))


@dataclass(frozen=True)
class InnovationNumbers:
    """How well the innovations follow their law."""

    check: InnovationCheck

    def to_json(self) -> dict[str, Any]:
        """Return the entry `innovations`."""
        groups, names = [], ("count", "mean", "variance", "serial_correlation")
        for bit, group in self.groups:
            groups.append({"bit": bit} | {name: getattr(group, name) for name in names} | {"ks_p": group.ks_p_value})
        return {"innovations": {"holds": self.check.holds, "rounds_left_out": self.check.left_out, "groups": groups}}

    @property
    def groups(self) -> tuple[tuple[int, InnovationGroup], ...]:
        """The worlds of either bit."""
        return (1, self.check.members), (0, self.check.nonmembers)


def measure_innovations(run: FinishedRun, _: Findings) -> InnovationNumbers | None:
    """Return how well the innovations follow their law; None where they have none."""
    if not run.facts.has_promise or not run.has_insider or not run.facts.game.law.weighs_exactly:
        return None
    return InnovationNumbers(check_scores(measured_in(run).innovations, run.bits))
