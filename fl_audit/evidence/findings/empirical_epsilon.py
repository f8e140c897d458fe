"""Empirical epsilon: the paper's three estimates, and lower bounds that hold with a stated confidence."""

from dataclasses import dataclass
from typing import Any

from fl_audit.evidence.belief.empirical_epsilon import (
    EpsilonInterval,
    advantage_interval,
    belief_interval,
    claimed_sensitivity_interval,
)
from fl_audit.evidence.belief.verdict import Judgement
from fl_audit.evidence.bounds.lower_bounds import LowerBound, all_bounds, bound_json
from fl_audit.evidence.bounds.methods import ScoreLaw
from fl_audit.evidence.findings.found import Findings, finite
from fl_audit.evidence.findings.verdict import VerdictNumbers
from fl_audit.evidence.finished_run import FinishedRun
from fl_audit.privacy.guarantee import Guarantee


@dataclass(frozen=True)
class EmpiricalNumbers:
    """What the run shows of epsilon."""

    # `from_sensitivity`, `from_belief`, `from_advantage`: the three estimates of section 5.3 of Bernau et al. 2021,
    # with their intervals; the first is None where the insider cannot work out what it sees.
    from_sensitivity: EpsilonInterval | None
    from_belief: EpsilonInterval
    from_advantage: EpsilonInterval
    decisive: Judgement  # what the verdict rests on
    # The lower bound by every method that applies to the insider's log-odds; none where a group has no world.
    bounds: tuple[LowerBound, ...]

    @property
    def intervals(self) -> dict[str, EpsilonInterval]:
        """The three estimates by their names in the summary."""
        counted = {"from_belief": self.from_belief, "from_advantage": self.from_advantage}
        return counted if self.from_sensitivity is None else {"from_sensitivity": self.from_sensitivity} | counted

    def to_json(self) -> dict[str, Any]:
        """Return the entry `empirical_epsilon`."""
        decisive = self.decisive
        return {
            "empirical_epsilon": {
                "from_sensitivity": None,
                **{name: finite(interval.epsilon) for name, interval in self.intervals.items()},
                "lower_bound": finite(decisive.epsilon_lower_bound),
                "confidence": decisive.confidence,
                "method": decisive.method,
                "assumption": decisive.assumption,
                "limit_of_detection": finite(decisive.limit_of_detection),
                "lower_bound_at_violation_level": finite(decisive.epsilon_lower_bound_at_level),
                "violation_level": decisive.level,
                "intervals": {name: _interval_json(interval) for name, interval in self.intervals.items()},
                "bounds": [bound_json(bound) for bound in self.bounds],
            }
        }


def _interval_json(interval: EpsilonInterval) -> dict[str, Any]:
    return {
        "low": finite(interval.low),
        "high": finite(interval.high),
        "confidence": interval.confidence,
        "note": interval.note,
    }


def measure_empirical(run: FinishedRun, findings: Findings) -> EmpiricalNumbers | None:
    """Return what a run shows of epsilon; None without a promise or an insider.

    Parameters
    ----------
    run
        A finished run.
    findings
        What was found before; the noise and the verdict are read.
    """
    promise, verdict = run.facts.guarantee, findings.find(VerdictNumbers)
    if promise is None or verdict is None or verdict.judgement is None or not run.has_insider:
        return None
    confidence, wins = run.facts.confidence, int(run.tables.worlds["won"].sum())
    return EmpiricalNumbers(
        from_sensitivity=claimed_sensitivity_interval(run.accounted_signal, promise.claim)
        if run.facts.game.law.weighs_exactly
        else None,
        from_belief=belief_interval(run.towards_truth, confidence, promise.mu if run.has_normal_final_law else None),
        from_advantage=advantage_interval(wins, run.worlds, promise.delta, confidence),
        decisive=verdict.judgement,
        bounds=_bounds(run, promise),
    )


def _bounds(run: FinishedRun, promise: Guarantee) -> tuple[LowerBound, ...]:
    if run.bits.all() or not run.bits.any():
        return ()
    members, others = run.log_odds[run.bits], run.log_odds[~run.bits]
    law = ScoreLaw.NORMAL_EQUAL_SPREAD if run.has_normal_final_law else ScoreLaw.ANY
    return tuple(all_bounds(members, others, promise.delta, run.facts.confidence, law))
