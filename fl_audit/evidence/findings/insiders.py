"""Several insiders at once: what the best of them achieved, and how far they lie apart."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd

from fl_audit.evidence.belief.advantage import AdvantageEstimate, empirical_advantage
from fl_audit.evidence.findings.found import Findings
from fl_audit.evidence.finished_run import FinishedRun


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
    each = tuple(
        _one(int(str(client)), rows, run.facts.confidence) for client, rows in table.groupby("insider", sort=True)
    )
    right = table.pivot(index="world", columns="insider", values="won").to_numpy(dtype=np.bool_)
    return InsidersNumbers(each, float((right == right[:, :1]).all(axis=1).mean()))


def _one(client: int, rows: pd.DataFrame, confidence: float) -> OneInsider:
    won = rows["won"].to_numpy(dtype=np.bool_)
    return OneInsider(client, empirical_advantage(won, confidence), float(rows["belief"].max()))
