"""The verdict: what became of the promise, which test broke it, and what a verdict covers."""

import math
from dataclasses import dataclass
from typing import Any

from fl_audit.evidence.belief.family import TestName
from fl_audit.evidence.belief.noise_scale import detectable_ratio, record_squares, total_squares
from fl_audit.evidence.belief.verdict import Judgement, Verdict, judge, judge_scores, unjudged
from fl_audit.evidence.findings.found import Findings
from fl_audit.evidence.finished_run import FinishedRun

SECRET_SEED = "the challenger's secret"


_OF_MANY_TARGETS = (
    "In the game of membership the log-odds of one target a world are judged: all targets of a world share its noise."
)


@dataclass(frozen=True)
class VerdictNumbers:
    """The verdict.

    Parameters
    ----------
    verdict
        The verdict.
    judgement
        What it rests on; None where there was nothing to judge.
    seconds_needed
        How long the worlds that would find a breach of 1.5 times the promise take at the speed of this run; None where
        its speed was not noted or no number of worlds would do.
    promised
        The promised epsilon; infinite where nothing was promised.
    missing_anywhere, missing_at_unit
        Share of the noise that, if it were missing, would have been found in 9 of 10 runs: everywhere, or just where it
        hides the differing unit. None where that could not be measured.
    """

    verdict: Verdict
    judgement: Judgement | None
    seconds_needed: float | None = None
    promised: float = math.inf
    missing_anywhere: float | None = None
    missing_at_unit: float | None = None

    @property
    def judges_scores(self) -> bool:
        """Whether nothing but scores was judged, by a bound that assumes nothing: its limit is the most it can show."""
        return self.judgement is not None and any(test.name == TestName.SCORES for test in self.judgement.tests)

    def to_json(self) -> dict[str, Any]:
        """Return the entry `verdict`."""
        return {"verdict": str(self.verdict)}


def measure_verdict(run: FinishedRun, _: Findings) -> VerdictNumbers:
    """Return the verdict on a run, and what it rests on."""
    facts, promise = run.facts, run.facts.guarantee
    scores, targets = run.insider_scores, run.target_scores
    if promise is None or (scores is None and targets is None and not run.has_insider):
        return VerdictNumbers(unjudged(promise)[0], None)
    said = (promise, facts.confidence, facts.neighbour, SECRET_SEED)
    if targets is not None:
        found = judge_scores(targets.members, targets.nonmembers, *said, _OF_MANY_TARGETS)
    elif scores is not None:
        found = judge_scores(scores[run.bits], scores[~run.bits], *said)
    else:
        found = judge(run.measured, *said)
    needed = _seconds_needed(found, run)
    missing = (None, None) if targets is not None or scores is not None else _missing(run)
    return VerdictNumbers(found.verdict, found, needed, promise.epsilon, *missing)


def _missing(run: FinishedRun) -> tuple[float | None, float | None]:
    """Return which share of the noise could be missing and not be found less than 9 times in 10."""
    total, at_unit = total_squares(run.measured), record_squares(run.measured)
    return (
        None if total is None else 1 - detectable_ratio(total.freedom, TestName.NOISE_TOTAL.level),
        None if at_unit is None else 1 - detectable_ratio(at_unit.freedom, TestName.NOISE_ALONG_RECORD.level),
    )


def _seconds_needed(found: Judgement, run: FinishedRun) -> float | None:
    speed, setup = run.timing.worlds_per_second, run.timing.setup_seconds
    if found.worlds_needed is None or not speed:
        return None
    return found.worlds_needed / speed + (setup or 0.0)
