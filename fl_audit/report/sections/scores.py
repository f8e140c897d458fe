"""The scores of an insider who has no beliefs, because the law of what it sees cannot be written down."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from fl_audit.evidence.bounds.area import AreaUnderCurve, area_under_curve
from fl_audit.evidence.bounds.lower_bounds import LowerBound, bound_json, epsilon_lower_bound
from fl_audit.evidence.bounds.methods import BoundMethod
from fl_audit.report.contents import Findings, RunContents
from fl_audit.report.finished_run import FinishedRun
from fl_audit.report.section import Entry, Section, finite
from fl_audit.report.sections.insider import INDEPENDENT
from fl_audit.report.sections.promise import at_delta
from fl_audit.report.wording import DASH, number_text, percent

NO_LIKELIHOOD_RATIO = (
    "the score is no likelihood ratio, so that a small number is no sign of safety: a cleverer insider may find more"
)


@dataclass(frozen=True)
class ScoreNumbers:
    """What the scores show.

    Parameters
    ----------
    members, nonmembers
        Numbers of worlds in which the record was in, and in which it was not.
    area
        How well the scores separate them.
    bound
        The epsilon that they prove, without any assumption about their law.
    of_each
        Area of every insider's scores, by client, where several attack; empty where one does.
    """

    members: int
    nonmembers: int
    area: AreaUnderCurve
    bound: LowerBound
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


def _measure(run: FinishedRun, _: Findings) -> ScoreNumbers | None:
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


def _sentence(numbers: ScoreNumbers, _: RunContents) -> str:
    area = numbers.area
    return (
        "We put an insider to the test: a participant who already knows everything except that one answer. It sees "
        "only averages of models that every participant had protected by itself, so it cannot say how sure it is; it "
        "can only give each trial a score. Of a trial with the record and one without, the former had the higher score "
        f"in {percent(area.area)} of cases, where coin-flipping has 50 % ({percent(area.low)} to {percent(area.high)} "
        f"at {percent(area.confidence)} confidence). A cleverer insider may do better."
    )


def _console(numbers: ScoreNumbers, _: RunContents) -> list[tuple[str, str]]:
    area, bound = numbers.area, numbers.bound
    text = (
        f"AUC {number_text(area.area, 3)} ({number_text(area.low, 3)} to {number_text(area.high, 3)}); epsilon at "
        f"least {number_text(bound.epsilon, 3)} at {percent(bound.confidence)} confidence; no likelihood ratio"
    )
    return [("Insider's scores", text)]


def _entries(numbers: ScoreNumbers, contents: RunContents) -> list[Entry]:
    area, bound, promise = numbers.area, numbers.bound, contents.facts.guarantee
    assert promise is not None, "what was not promised is not measured"
    how = "share of pairs of worlds, one with the record and one without, that the score puts in order"
    at = f"{percent(area.confidence)} confidence"
    return [
        Entry("Worlds with the record", numbers.members, DASH, "none: exact count", "counted", INDEPENDENT),
        Entry("Worlds without the record", numbers.nonmembers, DASH, "none: exact count", "counted", INDEPENDENT),
        Entry("AUC of the scores (probability)", area.area, DASH, "none: a point estimate", how, NO_LIKELIHOOD_RATIO),
        Entry("AUC, lower end", area.low, DASH, at, "Hoeffding 1963, section 5b", INDEPENDENT),
        Entry("AUC, upper end", area.high, DASH, at, "Hoeffding 1963, section 5b", INDEPENDENT),
        *_entries_of_each(numbers, at),
        Entry("Lower bound from the scores (nats)", finite(bound.epsilon), DASH,
              f"holds at {percent(bound.confidence)} confidence", f"{bound.method}{at_delta(promise.delta)}",
              f"{bound.assumption} {NO_LIKELIHOOD_RATIO}"),
        Entry("Largest bound that so many scores could prove (nats)", finite(bound.limit_of_detection), DASH, DASH,
              str(bound.method), bound.limit_meaning),
    ]  # fmt: skip


def _entries_of_each(numbers: ScoreNumbers, at: str) -> list[Entry]:
    return [
        Entry(f"AUC of the scores of client {client} (probability)", area.area, DASH,
              f"{number_text(area.low, 3)} to {number_text(area.high, 3)} at {at}", "the same, of every insider",
              NO_LIKELIHOOD_RATIO)
        for client, area in numbers.of_each.items()
    ]  # fmt: skip


SCORES = Section(
    numbers=ScoreNumbers,
    keys=("scores",),
    measure=_measure,
    heading="Scores of the insider",
    entries=_entries,
    sentence=_sentence,
    console=_console,
)
