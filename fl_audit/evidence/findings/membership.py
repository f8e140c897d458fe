"""The membership adversary, who sees the final model alone: its advantages, what bounds them, the insider beside it."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from fl_audit.evidence.belief.advantage import AdvantageEstimate, MeanAdvantage, empirical_advantage, mean_advantage
from fl_audit.evidence.bounds.lower_bounds import LowerBound, bound_json, epsilon_lower_bound
from fl_audit.evidence.bounds.methods import BoundMethod
from fl_audit.evidence.findings.found import Findings, finite
from fl_audit.evidence.finished_run import FinishedRun
from fl_audit.privacy.membership_bounds import MembershipBounds, membership_bounds

_COLUMNS = ["membership_advantage", "record_membership_guess"]


_SCORE = "record_score"


@dataclass(frozen=True)
class MembershipNumbers:
    """What the membership adversary achieved."""

    over_worlds: MeanAdvantage  # mean over worlds of its advantage about members and others
    record: AdvantageEstimate  # its guesses about the record in which D and D' differ
    bounds: MembershipBounds | None  # what the promise leaves to it; None where nothing was promised
    record_bound: float | None  # what the promise leaves to anybody who is asked about that record; None likewise
    # The epsilon that the losses of that record under the final models prove, without any assumption about their law;
    # None where nothing was promised or one kind of world is missing.
    lower_bound: LowerBound | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the entry `membership`."""
        mean, record, bounds = self.over_worlds, self.record, self.bounds
        return {
            "membership": {
                "advantage": mean.advantage,
                "low": mean.low,
                "high": mean.high,
                "confidence": mean.confidence,
                "yeom_bound": None if bounds is None else finite(bounds.yeom),
                "tradeoff_bound": None if bounds is None else bounds.tradeoff,
                "bound": None if bounds is None else bounds.exact,
                "record": {
                    "wins": record.wins,
                    "advantage": record.advantage,
                    "low": record.low,
                    "high": record.high,
                    "bound": self.record_bound,
                    "lower_bound": None if self.lower_bound is None else bound_json(self.lower_bound),
                },
            }
        }


def measure_membership(run: FinishedRun, _: Findings) -> MembershipNumbers | None:
    """Return what the membership adversary achieved; None where it did not play."""
    worlds, facts = run.tables.worlds, run.facts
    if not set(_COLUMNS) <= set(worlds) or worlds[_COLUMNS].isna().any(axis=None):
        return None
    promise = facts.guarantee
    return MembershipNumbers(
        over_worlds=mean_advantage(worlds[_COLUMNS[0]].to_numpy(dtype=np.float64), facts.confidence),
        record=empirical_advantage(worlds[_COLUMNS[1]].to_numpy() == worlds["bit"].to_numpy(), facts.confidence),
        bounds=None if promise is None else membership_bounds(promise),
        record_bound=None if promise is None else promise.advantage_bound_exact,
        lower_bound=_lower_bound(run),
    )


def _lower_bound(run: FinishedRun) -> LowerBound | None:
    """Return what the losses of the differing record prove: an audit of the final model alone."""
    promise, worlds = run.facts.guarantee, run.tables.worlds
    if promise is None or _SCORE not in worlds or run.bits.all() or not run.bits.any():
        return None
    scores = worlds[_SCORE].to_numpy(dtype=np.float64)
    members, others = scores[run.bits], scores[~run.bits]
    return epsilon_lower_bound(members, others, promise.delta, run.facts.confidence, BoundMethod.ORDER_STATISTIC)
