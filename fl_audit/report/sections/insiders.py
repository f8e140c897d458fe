"""Several insiders at once: what the best of them achieved, and how far they lie apart."""

from matplotlib.figure import Figure

from fl_audit.evidence.findings.insiders import InsidersNumbers, measure_insiders
from fl_audit.report.finding import Picture, Row, RunContents, Section, Table
from fl_audit.report.style import IntervalRow, add_legend, draw_intervals, draw_limit, finish_axes, report_figure
from fl_audit.report.wording import number_text, percent, plural


def _sentence(numbers: InsidersNumbers, _: RunContents) -> str:
    best, worst = numbers.best.estimate, numbers.worst.estimate
    between = f"between {worst.wins:,} and {best.wins:,}" if worst.wins < best.wins else f"{best.wins:,}"
    return (
        f"{plural(len(numbers.each), 'participant')} played this insider, each by itself; they were right in {between} "
        f"of {best.worlds:,} trials. The verdict is about the first of them; the best is chosen by what it achieved, "
        "so its number is too high on average."
    )


def _console(numbers: InsidersNumbers, _: RunContents) -> list[tuple[str, str]]:
    best, worst = numbers.best, numbers.worst
    text = (
        f"{len(numbers.each)}; best right in {best.estimate.wins:,} of {best.estimate.worlds:,} (client "
        f"{best.client}), worst in {worst.estimate.wins:,}; all said the same in {percent(numbers.agreement)} of "
        "the worlds"
    )
    return [("Insiders", text)]


def _rows(numbers: InsidersNumbers, _: RunContents) -> list[Row]:
    return [
        Row("Best insider (number of the client)", numbers.best.client, "most right guesses"),
        Row(
            "Spread of their advantages", numbers.spread, "that of the best less that of the worst, in the same worlds"
        ),
        Row("Worlds in which all said the same", numbers.agreement, "counted", is_share=True),
    ]


def _tables(numbers: InsidersNumbers, contents: RunContents) -> list[Table]:
    columns = ("Client", "Right guesses", "Worlds", "Advantage", "Lower end", "Upper end", "Confidence",
               "Largest belief")  # fmt: skip
    rows = tuple(
        (f"{one.client}", found.wins, found.worlds, found.advantage, found.low, found.high, found.confidence,
         one.max_belief)
        for one in numbers.each
        for found in (one.estimate,)
    )  # fmt: skip
    return [Table(f"The insiders, each by itself (intervals at {percent(contents.facts.confidence)})", columns, rows)]


def _caption(_: InsidersNumbers, contents: RunContents) -> str:
    own = (
        "Each knows its own part of the noise and subtracts it, so they do not believe the same."
        if contents.facts.game.law.clients_add_noise
        else "All know the same here, so they agree up to the rounding of float32 numbers."
    )
    return f"Advantage of every insider with its {percent(contents.facts.confidence)} interval. {own}"


def insiders_figure(numbers: InsidersNumbers, contents: RunContents) -> Figure:
    """Draw the advantage of every insider with its interval, beside the bound."""
    figure, promise = report_figure(2.0 + 0.35 * len(numbers.each)), contents.facts.guarantee
    axes = figure.add_subplot()
    draw_intervals(axes, [
        IntervalRow(f"client {one.client}", found.advantage, found.low, found.high, number_text(found.advantage, 3))
        for one in reversed(numbers.each) for found in (one.estimate,)
    ])  # fmt: skip
    if promise is not None:
        bound = promise.advantage_bound_exact
        draw_limit(axes, bound, f"promised at most {number_text(bound, 3)}")
    finish_axes(axes, "What each insider achieved", "Advantage (twice the share of right guesses - 1)", "")
    add_legend(axes)
    return figure


INSIDERS = Section(
    name="insiders",
    title="Several insiders",
    numbers=InsidersNumbers,
    measure=measure_insiders,
    keys=("insiders",),
    trusts=True,
    sentence=_sentence,
    rows=_rows,
    tables=_tables,
    picture=Picture("Several insiders", insiders_figure, _caption),
    console=_console,
)
