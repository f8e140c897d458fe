"""Empirical epsilon: the paper's three estimates, and lower bounds that hold with a stated confidence."""

import math
from dataclasses import dataclass
from typing import Any

from fl_audit.evidence.belief.empirical_epsilon import (
    EpsilonInterval,
    advantage_interval,
    belief_interval,
    claimed_sensitivity_interval,
)
from fl_audit.evidence.belief.family import TestName
from fl_audit.evidence.belief.verdict import Judgement
from fl_audit.evidence.bounds.lower_bounds import LowerBound, all_bounds, bound_json
from fl_audit.evidence.bounds.methods import BoundMethod, ScoreLaw
from fl_audit.privacy.guarantee import Guarantee
from fl_audit.report.contents import Findings, RunContents
from fl_audit.report.finished_run import FinishedRun
from fl_audit.report.section import Entry, Section, Table, finite
from fl_audit.report.sections.promise import at_delta
from fl_audit.report.sections.verdict import VerdictNumbers
from fl_audit.report.test_words import title_of
from fl_audit.report.units import UnitWords
from fl_audit.report.wording import DASH, number_text, percent, uncapital


@dataclass(frozen=True)
class EmpiricalNumbers:
    """What the run shows of epsilon.

    Parameters
    ----------
    from_sensitivity, from_belief, from_advantage
        The three estimates of section 5.3 of Bernau et al. 2021, with their intervals; the first is None where the
        insider cannot work out what it sees.
    decisive
        What the verdict rests on.
    bounds
        The lower bound by every method that applies to the insider's log-odds; none where a group has no world.
    """

    from_sensitivity: EpsilonInterval | None
    from_belief: EpsilonInterval
    from_advantage: EpsilonInterval
    decisive: Judgement
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


def _measure(run: FinishedRun, findings: Findings) -> EmpiricalNumbers | None:
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


def _console(numbers: EmpiricalNumbers, contents: RunContents) -> list[tuple[str, str]]:
    decisive, promise, words = numbers.decisive, contents.facts.guarantee, contents.facts.words
    assert promise is not None, "what was not promised is not measured"
    text = (
        f"epsilon at least {number_text(decisive.epsilon_lower_bound, 3)} at {percent(decisive.confidence)} confidence "
        f"by {_method(decisive, words)}; {_detectable(decisive, words)}; promised {number_text(promise.epsilon, 3)}"
    )
    return [("Evidence", text)]


def _method(decisive: Judgement, words: UnitWords) -> str:
    """Return the name of the method in words, where it is that of a test."""
    is_test = decisive.method in set(TestName)
    return f"the {uncapital(title_of(TestName(decisive.method), words))}" if is_test else decisive.method


def _detectable(decisive: Judgement, words: UnitWords) -> str:
    """Return the limit of detection with the level that it belongs to, which is not that of the lower bound."""
    level = f"level {number_text(_level_of(decisive))}"
    if not math.isfinite(decisive.limit_of_detection):
        return f"along {words.direction} nothing could have been found at {level}, since D and D' hardly differed"
    found = number_text(decisive.limit_of_detection, 3)
    if _judges_scores(decisive):
        return f"so many scores could show up to {found} at {level}"
    return f"noise that leaves epsilon {found} would have been found in 9 of 10 runs at {level}"


def _level_of(decisive: Judgement) -> float:
    """Return the level of the test that the limit of detection is about."""
    return next((test.level for test in decisive.tests if test.name == decisive.method), decisive.level)


def _entries(numbers: EmpiricalNumbers, contents: RunContents) -> list[Entry]:
    promise, decisive = contents.facts.guarantee, numbers.decisive
    assert promise is not None, "what was not promised is not measured"
    delta, level = at_delta(promise.delta), decisive.level
    by, rests_on = f"{_method(decisive, contents.facts.words)}{delta}", decisive.assumption
    return [
        *_from_sensitivity(numbers, promise),
        Entry("From the largest belief (nats)", finite(numbers.from_belief.epsilon), DASH,
              "an extreme value that grows with the number of repetitions and does not converge to epsilon; "
              + _range(numbers.from_belief),
              "section 5.3 (ii): Eq. (5) turned round", "compare only at the same number of worlds"),
        Entry("From the advantage (nats)", finite(numbers.from_advantage.epsilon), DASH,
              _range(numbers.from_advantage), f"section 5.3 (iii): Eq. (6) turned round{delta}",
              "noise calibrated by the classic formula"),
        Entry("Lower bound (nats)", finite(decisive.epsilon_lower_bound), DASH,
              f"holds at {percent(decisive.confidence)} confidence", by, rests_on),
        Entry("Lower bound at the level of the verdict (nats)", finite(decisive.epsilon_lower_bound_at_level), DASH,
              f"holds at {percent(1 - level)} confidence", by, rests_on),
        Entry("Level of the verdict (probability)", level, DASH, DASH, "of all tests together, fixed before the run"),
        Entry("Limit of detection (nats)", finite(decisive.limit_of_detection), DASH,
              _limit_meaning(decisive), f"{by}; not determined where no breach could have shown", rests_on),
    ]  # fmt: skip


def _from_sensitivity(numbers: EmpiricalNumbers, promise: Guarantee) -> list[Entry]:
    found = numbers.from_sensitivity
    if found is None:
        return []
    method = (
        "section 5.3 (i): accounting of the local sensitivities over the noise that the law names"
        f"{at_delta(promise.delta)}"
    )
    if promise.claim.profile.gaussian_mu is None:
        method += "; sampling included, with the mean square of the sensitivities in all rounds of a world"
    basis = "the noise is what the law names; tests the bookkeeping"
    accountant = str(promise.accountant)
    return [Entry("From sensitivities (nats)", finite(found.epsilon), accountant, _range(found), method, basis)]


def _judges_scores(decisive: Judgement) -> bool:
    return any(test.name == TestName.SCORES for test in decisive.tests)


def _limit_meaning(decisive: Judgement) -> str:
    level = f"at level {_level_of(decisive):g}"
    if _judges_scores(decisive):
        return f"the most that so many scores could certify {level}"
    return f"found in 9 of 10 runs {level}; a smaller breach may pass"


def _range(interval: EpsilonInterval) -> str:
    """Return the interval of an estimate in words."""
    ends = f"{_end(interval.low)} to {_end(interval.high)}"
    return f"{ends} over the worlds" if interval.confidence == 1 else f"{ends} at {percent(interval.confidence)}"


def _end(value: float) -> str:
    return "no limit" if finite(value) is None else f"{value:.4g}"


def _tables(numbers: EmpiricalNumbers, _: RunContents) -> list[Table]:
    if not numbers.bounds:
        return []
    columns = ("Method", "Epsilon at least (nats)", "Confidence", "Would be found from (nats)",
               "Could be shown up to (nats)", "Assumption")  # fmt: skip
    rows = tuple(
        (
            str(bound.method),
            finite(bound.epsilon),
            f"{percent(bound.confidence) if bound.method.has_confidence else 'none'}, at delta = {bound.delta:g}",
            *_limits(bound),
            " ".join([bound.assumption, *bound.warnings]),
        )
        for bound in numbers.bounds
    )
    return [Table("Lower bounds on epsilon by every method that applies", columns, rows)]


def _limits(bound: LowerBound) -> tuple[float | str | None, float | str | None]:
    """Return from where a breach would be found, and up to where one could be shown: a method has one of the two."""
    limit = finite(bound.limit_of_detection)
    return (limit, DASH) if bound.method is BoundMethod.GAUSSIAN_SHIFT else (DASH, limit)


EMPIRICAL_EPSILON = Section(
    numbers=EmpiricalNumbers,
    keys=("empirical_epsilon",),
    measure=_measure,
    heading="Empirical epsilon",
    entries=_entries,
    tables=_tables,
    console=_console,
)
