"""The scores of an insider who has no beliefs, because the law of what it sees cannot be written down."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from fl_audit.evidence.bounds.area import AreaUnderCurve, area_under_curve
from fl_audit.evidence.bounds.lower_bounds import LowerBound, bound_json, epsilon_lower_bound
from fl_audit.evidence.bounds.methods import BoundMethod
from fl_audit.evidence.findings.found import Findings
from fl_audit.evidence.finished_run import FinishedRun


@dataclass(frozen=True)
class ScoreNumbers:
    """What the scores show."""

    # `members`, `nonmembers`: numbers of worlds in which the record was in, and in which it was not.
    members: int
    nonmembers: int
    area: AreaUnderCurve  # how well the scores separate them
    bound: LowerBound  # the epsilon that they prove, without any assumption about their law
    # Area of every insider's scores, by client, where several attack; empty where one does.
    of_each: Mapping[int, AreaUnderCurve] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the entry `scores`."""
        return {
            "scores": {
                "worlds": self.members + self.nonmembers,
                **asdict(self.area),
                "lower_bound": bound_json(self.bound),
                "is_likelihood_ratio": False,
                "area_of_each": {str(client): area.area for client, area in self.of_each.items()},
            }
        }


def measure_scores(run: FinishedRun, _: Findings) -> ScoreNumbers | None:
    """Return what scores without a law show; None where there are none."""
    promise, scores = run.facts.guarantee, run.insider_scores
    if promise is None or scores is None or run.bits.all() or not run.bits.any():
        return None
    members, others = scores[run.bits], scores[~run.bits]
    confidence = run.facts.confidence
    return ScoreNumbers(
        members=len(members),
        nonmembers=len(others),
        area=area_under_curve(members, others, confidence),
        bound=epsilon_lower_bound(members, others, promise.delta, confidence, BoundMethod.ORDER_STATISTIC),
        of_each=_of_each(run),
    )


def _of_each(run: FinishedRun) -> dict[int, AreaUnderCurve]:
    table = run.tables.insiders
    if table is None:
        return {}
    by_client = table.pivot(index="world", columns="insider", values="score").loc[run.tables.worlds["world"]]
    scores = {int(str(client)): column.to_numpy(dtype=np.float64) for client, column in by_client.items()}
    return {
        client: area_under_curve(found[run.bits], found[~run.bits], run.facts.confidence)
        for client, found in scores.items()
    }
