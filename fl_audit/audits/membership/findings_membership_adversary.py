"""Findings on the membership adversary, which attacks the losses of the final model."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from fl_audit.array_types import finite
from fl_audit.federation.findings import Findings
from fl_audit.federation.finished_run import FinishedRun
from fl_audit.privacy.guarantee import MembershipBounds, membership_bounds
from fl_audit.statistics.advantage import AdvantageFromWins, AdvantageInterval, empirical_advantage, mean_advantage
from fl_audit.statistics.lower_bound_methods import BoundMethod
from fl_audit.statistics.lower_bounds import LowerBound, bound_json, epsilon_lower_bound

_COLUMNS = ["membership_advantage", "record_membership_guess"]
_SCORE = "record_score"


def membership_ends(run: FinishedRun, confidence: float) -> tuple[float, float]:
    """Return the ends of the confidence interval of the membership adversary's mean advantage."""
    interval = mean_advantage(run.tables.trials[_COLUMNS[0]].to_numpy(dtype=np.float64), confidence)
    return interval.low, interval.high


def record_bound_end(run: FinishedRun, confidence: float) -> tuple[float, float]:
    """Return the lower bound on epsilon from the losses on the differing record, and infinity as the upper end."""
    return _record_bound(run, confidence).epsilon, math.inf


def _record_bound(run: FinishedRun, confidence: float) -> LowerBound:
    """Return a lower bound on epsilon from the final model's losses on the differing record alone."""
    assert run.plan.guarantee is not None, "only a guarantee names a delta"
    scores = run.tables.trials[_SCORE].to_numpy(dtype=np.float64)
    method = BoundMethod.ORDER_STATISTIC
    return epsilon_lower_bound(scores[run.bits], scores[~run.bits], run.plan.guarantee.delta, confidence, method)


@dataclass(frozen=True)
class FinalModelMembershipFinding:
    """The two advantages of the membership adversary, each with an upper bound that follows from the guarantee.

    One is the advantage in telling all members from nonmembers. The other is the advantage in deciding whether the one
    record in which D and D' differ is a member.
    """

    over_trials: AdvantageInterval  # advantage in telling members from nonmembers, mean over trials
    record: AdvantageFromWins  # advantage in guessing whether the differing record is a member
    bounds: MembershipBounds | None  # upper bounds on `over_trials` by the guarantee; None without a guarantee
    record_bound: float | None  # upper bound on the advantage in `record` by the guarantee; None without a guarantee
    # Lower bound on epsilon from the losses on the differing record, valid for any distribution of the losses; None
    # without a guarantee, or without trials with D or with D'.
    lower_bound: LowerBound | None = None

    def to_json(self) -> dict[str, Any]:
        """Return this finding as a dict with the one key `membership`, for `summary.json`."""
        bounds = self.bounds
        low = self.lower_bound
        mean = {name: getattr(self.over_trials, name) for name in ("advantage", "low", "high", "confidence")}
        record = {name: getattr(self.record, name) for name in ("wins", "advantage", "low", "high")}
        record |= {"bound": self.record_bound, "lower_bound": None if low is None else bound_json(low)}
        yeom, tradeoff, exact = (finite(bounds.yeom), bounds.tradeoff, bounds.exact) if bounds else (None, None, None)
        limits = {"yeom_bound": yeom, "tradeoff_bound": tradeoff, "bound": exact}
        return {"membership": mean | limits | {"record": record}}


def measure_membership(run: FinishedRun, _: Findings) -> FinalModelMembershipFinding | None:
    """Return the success of the membership adversary on the final models' losses; None if it was not evaluated."""
    trials = run.tables.trials
    plan = run.plan
    if not set(_COLUMNS) <= set(trials) or trials[_COLUMNS].isna().any(axis=None):
        return None
    guarantee = plan.guarantee
    mean = mean_advantage(trials[_COLUMNS[0]].to_numpy(dtype=np.float64), plan.confidence)
    record = empirical_advantage(trials[_COLUMNS[1]].to_numpy() == trials["bit"].to_numpy(), plan.confidence)
    bounds, limit = (
        (None, None) if guarantee is None else (membership_bounds(guarantee), guarantee.advantage_bound_exact)
    )
    has_bound = guarantee is not None and _SCORE in trials and run.has_both_bits
    proven = _record_bound(run, plan.confidence) if has_bound else None
    return FinalModelMembershipFinding(mean, record, bounds, limit, proven)
