"""The game of reconstruction: how often an attacker names the right one of many candidates."""

import numpy as np
from matplotlib.figure import Figure

from fl_audit.evidence.findings.reconstruction import ReconstructionNumbers, Success, measure_reconstruction
from fl_audit.report.finding import Picture, Row, RunContents, Section, Table
from fl_audit.report.style import INK, MUTED, finish_axes
from fl_audit.report.wording import percent

_HOW = (
    "share of worlds; the attacker orders the candidates by the exact likelihood of all releases; the bound is "
    "1 - f(chance), f the trade-off curve against the release without the candidate (Hayes et al. 2023)"
)


def _row(one: Success, numbers: ReconstructionNumbers) -> Row:
    name = "Right one named in the first guess" if one.guesses == 1 else f"Right one in the first {one.guesses} guesses"
    return Row(name, one.share, _HOW, one.low, one.high, numbers.confidence, one.bound, is_share=True,
               on_page=one.guesses == 1)  # fmt: skip


def _sentence(numbers: ReconstructionNumbers, contents: RunContents) -> str:
    first, column = numbers.first, contents.facts.game.candidate_column
    one = contents.words.one if column is None else f"value of {column}"
    likely = "equally likely " if numbers.are_even else ""
    return (
        f"Of {numbers.candidates:,} {likely}candidates an attacker who knew everything else named the right {one} "
        f"in {percent(first.share)} of the trials ({percent(first.low)} to {percent(first.high)} at "
        f"{percent(numbers.confidence)} confidence), where guessing has {percent(first.chance)} and the promise allows "
        f"{percent(first.bound)}{_row(first, numbers).aside}."
    )


def _rows(numbers: ReconstructionNumbers, _: RunContents) -> list[Row]:
    return [
        *(_row(one, numbers) for one in numbers.successes),
        Row("Signal of the candidates, median mu", numbers.median, "length of a contribution over the noise"),
        Row("Signal of the candidates, largest mu", numbers.longest, "likewise"),
    ]


def _tables(numbers: ReconstructionNumbers, _: RunContents) -> list[Table]:
    columns = ("Guesses", "Right one among them", "By chance", "Allowed")
    rows = tuple(
        (one.guesses, _row(one, numbers).text, percent(one.chance), percent(one.bound)) for one in numbers.successes
    )
    title = f"Naming the right one of {numbers.candidates:,} candidates, intervals at {percent(numbers.confidence)}"
    return [Table(f"{title} confidence each", columns, rows)]


def _draw(figure: Figure, numbers: ReconstructionNumbers, contents: RunContents) -> None:
    axes = figure.add_subplot()
    guesses = np.unique(np.geomspace(1, numbers.candidates, 200).astype(int))
    found = np.array([np.mean(numbers.ranks <= count) for count in guesses])
    few = np.unique(np.geomspace(1, numbers.candidates, 40).astype(int))
    allowed = [contents.promise.reconstruction_bound(float(numbers.chances[count - 1])) or 1.0 for count in few]
    axes.step(guesses, found, where="post", color=INK, label="named in this run")
    axes.plot(few, allowed, "--", color=INK, label="the promise allows")
    axes.plot(guesses, numbers.chances[guesses - 1], ":", color=MUTED, label="by chance")
    axes.set_xscale("log")
    axes.set_ylim(0, 1.02)
    finish_axes(axes, "Right one among the first guesses", "Guesses", "Share of worlds")


def _caption(numbers: ReconstructionNumbers, _: RunContents) -> str:
    return (
        f"How often the right one of {numbers.candidates:,} candidates was among the attacker's first guesses, beside "
        "what the promise allows and what guessing has."
    )


RECONSTRUCTION = Section(
    name="reconstruction", title="What could be reconstructed", numbers=ReconstructionNumbers,
    measure=measure_reconstruction, keys=("reconstruction",), on_page=True, sentence=_sentence, rows=_rows,
    tables=_tables, picture=Picture("Right one among the first guesses", _draw, _caption),
)  # fmt: skip
