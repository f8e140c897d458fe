"""Several insiders at once: what the best of them achieved, and how far they lie apart."""

from fl_audit.evidence.belief.advantage import AdvantageEstimate
from fl_audit.evidence.findings.insider import InsidersNumbers, measure_insiders
from fl_audit.report.finding import Row, RunContents, Section, Table
from fl_audit.report.wording import percent, plural


def _row(found: AdvantageEstimate, contents: RunContents) -> Row:
    limit = contents.promise.advantage_bound_exact
    return Row("Advantage", found.advantage, "", found.low, found.high, found.confidence, limit)


def _sentence(numbers: InsidersNumbers, contents: RunContents) -> str:
    best, worst = numbers.best.estimate, numbers.worst.estimate
    between = f"between {worst.wins:,} and {best.wins:,}" if worst.wins < best.wins else f"{best.wins:,}"
    return (
        f"{plural(len(numbers.each), 'participant')} played this insider, each by itself; they were right in {between} "
        f"of {best.worlds:,} trials{_row(best, contents).aside}. The verdict is about the first of them; the best is "
        "chosen by what it achieved, so its number is too high on average."
    )


def _rows(numbers: InsidersNumbers, _: RunContents) -> list[Row]:
    apart = "that of the best less that of the worst, in the same worlds"
    return [
        Row("Best insider (number of the client)", numbers.best.client, "most right guesses"),
        Row("Spread of their advantages", numbers.spread, apart),
        Row("Worlds in which all said the same", numbers.agreement, "counted", is_share=True),
    ]


def _tables(numbers: InsidersNumbers, contents: RunContents) -> list[Table]:
    columns = ("Client", "Right guesses", "Worlds", "Advantage", "Lower end", "Upper end", "Confidence",
               "Largest belief", "Reading")  # fmt: skip
    rows = tuple(
        (f"{one.client}", found.wins, found.worlds, found.advantage, found.low, found.high, found.confidence,
         one.max_belief, str(_row(found, contents).reading))
        for one in numbers.each
        for found in (one.estimate,)
    )  # fmt: skip
    return [Table(f"The insiders, each by itself (intervals at {percent(contents.facts.confidence)})", columns, rows)]


INSIDERS = Section(
    name="insiders", title="Several insiders", numbers=InsidersNumbers, measure=measure_insiders, keys=("insiders",),
    trusts=True, sentence=_sentence, rows=_rows, tables=_tables,
)  # fmt: skip
