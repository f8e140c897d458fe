"""The scores of an insider who has no beliefs, because the law of what it sees cannot be written down."""

from fl_audit.evidence.findings.empirical_epsilon import ScoreNumbers, measure_scores
from fl_audit.evidence.findings.found import finite
from fl_audit.report.finding import Row, RunContents, Section
from fl_audit.report.sections.promise import at_delta
from fl_audit.report.wording import percent

NO_LIKELIHOOD_RATIO = (
    "the score is no likelihood ratio, so that a small number is no sign of safety: a cleverer insider may find more"
)


def _sentence(numbers: ScoreNumbers, _: RunContents) -> str:
    area = numbers.area
    return (
        "We put an insider to the test: a participant who already knows everything except that one answer. It sees "
        "only averages of models that every participant had protected by itself, so it cannot say how sure it is; it "
        "can only give each trial a score. Of a trial with the record and one without, the former had the higher score "
        f"in {percent(area.area)} of cases, where coin-flipping has 50 % ({percent(area.low)} to {percent(area.high)} "
        f"at {percent(area.confidence)} confidence). A cleverer insider may do better."
    )


def _rows(numbers: ScoreNumbers, contents: RunContents) -> list[Row]:
    area, bound, promise = numbers.area, numbers.bound, contents.promise
    how = f"share of pairs of worlds that the score puts in order (interval: Hoeffding 1963); {NO_LIKELIHOOD_RATIO}"
    return [
        Row("Worlds with the record", numbers.members, "counted"),
        Row("Worlds without the record", numbers.nonmembers, "counted"),
        Row("AUC of the scores", area.area, how, area.low, area.high, area.confidence, on_page=True),
        *(
            Row(f"AUC of the scores of client {client}", one.area, "likewise", one.low, one.high, one.confidence)
            for client, one in numbers.of_each.items()
        ),
        Row("Lower bound from the scores (nats)", finite(bound.epsilon),
            f"holds at {percent(bound.confidence)} confidence; {bound.method}{at_delta(promise.delta)}; "
            f"{bound.assumption} {NO_LIKELIHOOD_RATIO}", limit=promise.epsilon, on_page=True),
        Row("Largest bound that so many scores could prove (nats)", finite(bound.limit_of_detection),
            f"{bound.method}; {bound.limit_meaning}"),
    ]  # fmt: skip


SCORES = Section(
    name="scores", title="Scores of the insider", numbers=ScoreNumbers, measure=measure_scores, keys=("scores",),
    on_page=True, sentence=_sentence, rows=_rows,
)  # fmt: skip
