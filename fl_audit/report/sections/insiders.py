"""Several insiders at once: what the best of them achieved, and how far they lie apart."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from fl_audit.evidence.belief.advantage import AdvantageEstimate, empirical_advantage
from fl_audit.report.contents import Findings, RunContents
from fl_audit.report.finished_run import FinishedRun
from fl_audit.report.section import Caption, Entry, Picture, Section, Table
from fl_audit.report.sections.insider import EXACT, INDEPENDENT, POINT
from fl_audit.report.style import BIT_STYLES, INK, SMALL_TEXT_SIZE, add_legend, finish_axes, report_figure
from fl_audit.report.wording import DASH, number_text, percent, plural


@dataclass(frozen=True)
class OneInsider:
    """What one of several insiders achieved.

    Parameters
    ----------
    client
        Number of the client that it is.
    estimate
        Games won, and the advantage that follows.
    max_belief
        Its largest belief in the dataset that was really used.
    """

    client: int
    estimate: AdvantageEstimate
    max_belief: float


@dataclass(frozen=True)
class InsidersNumbers:
    """What several insiders achieved, who watched the same worlds.

    Parameters
    ----------
    each
        Every insider, in the order of the clients.
    agreement
        Share of the worlds in which all of them said the same.
    """

    each: tuple[OneInsider, ...]
    agreement: float

    @property
    def best(self) -> OneInsider:
        """The insider that was right most often; the first one of equals."""
        return max(self.each, key=lambda one: one.estimate.wins)

    @property
    def worst(self) -> OneInsider:
        """The insider that was right least often."""
        return min(self.each, key=lambda one: one.estimate.wins)

    @property
    def spread(self) -> float:
        """Advantage of the best less that of the worst."""
        return self.best.estimate.advantage - self.worst.estimate.advantage

    def to_json(self) -> dict[str, Any]:
        """Return the entry `insiders`."""
        each = [{"client": one.client, **asdict(one.estimate), "max_belief": one.max_belief} for one in self.each]
        best = {"best": self.best.client, "spread": self.spread, "agreement": self.agreement}
        return {"insiders": best | {"each": each}}


def _measure(run: FinishedRun, _: Findings) -> InsidersNumbers | None:
    table = run.tables.insiders
    if table is None or "won" not in table or not run.facts.has_promise:
        return None
    each = tuple(
        _one(int(str(client)), rows, run.facts.confidence) for client, rows in table.groupby("insider", sort=True)
    )
    right = table.pivot(index="world", columns="insider", values="won").to_numpy(dtype=np.bool_)
    return InsidersNumbers(each, float((right == right[:, :1]).all(axis=1).mean()))


def _one(client: int, rows: pd.DataFrame, confidence: float) -> OneInsider:
    won = rows["won"].to_numpy(dtype=np.bool_)
    return OneInsider(client, empirical_advantage(won, confidence), float(rows["belief"].max()))


def _sentence(numbers: InsidersNumbers, _: RunContents) -> str:
    best, worst = numbers.best.estimate, numbers.worst.estimate
    between = f"between {worst.wins:,} and {best.wins:,}" if worst.wins < best.wins else f"{best.wins:,}"
    return (
        f"{plural(len(numbers.each), 'participant')} played this insider, each by itself; they were right in {between} "
        f"of {best.worlds:,} trials. What is said above is about the first of them."
    )


def _console(numbers: InsidersNumbers, _: RunContents) -> list[tuple[str, str]]:
    best, worst = numbers.best, numbers.worst
    text = (
        f"{len(numbers.each)}; best right in {best.estimate.wins:,} of {best.estimate.worlds:,} (client "
        f"{best.client}), worst in {worst.estimate.wins:,}; all said the same in {percent(numbers.agreement)} of "
        "the worlds"
    )
    return [("Insiders", text)]


def _entries(numbers: InsidersNumbers, _: RunContents) -> list[Entry]:
    chosen = "the best of several is chosen by what it achieved, so it is too large on average"
    return [
        Entry("Best insider (number of the client)", numbers.best.client, DASH, EXACT, "most right guesses", chosen),
        Entry("Spread of their advantages", numbers.spread, DASH, POINT, "that of the best less that of the worst",
              "they watch the same worlds"),
        Entry("Worlds in which all said the same", numbers.agreement, DASH, EXACT, "counted", INDEPENDENT, True),
    ]  # fmt: skip


def _tables(numbers: InsidersNumbers, contents: RunContents) -> list[Table]:
    columns = ("Client", "Right guesses", "Worlds", "Advantage", "Lower end", "Upper end", "Confidence",
               "Largest belief")  # fmt: skip
    rows = tuple(
        (f"{one.client}", found.wins, found.worlds, found.advantage, found.low, found.high, found.confidence,
         one.max_belief)
        for one in numbers.each
        for found in (one.estimate,)
    )  # fmt: skip
    title = f"The insiders, each by itself (intervals at {percent(contents.facts.confidence)} confidence)"
    return [Table(title, columns, rows)]


def _caption(numbers: InsidersNumbers, contents: RunContents) -> Caption:
    best, worst = numbers.best, numbers.worst
    own = (
        " Each knows its own part of the noise and subtracts it, so they do not believe the same."
        if contents.facts.game.law.clients_add_noise
        else " All know the same here, so they agree up to the rounding of float32 numbers."
    )
    text = (
        f"{plural(len(numbers.each), 'client')} watched the same worlds, each with its own knowledge.{own} The best "
        f"(client {best.client}) was right in {best.estimate.wins:,} of {best.estimate.worlds:,}, the worst in "
        f"{worst.estimate.wins:,}. The best of several is chosen by what it achieved, so its interval is too high on "
        f"average; the verdict is about the first one. Intervals at {percent(contents.facts.confidence)} confidence."
    )
    alternative = f"Advantages of {plural(len(numbers.each), 'insider')} with their intervals, beside the bound."
    return Caption("Several insiders", text, alternative)


def insiders_figure(numbers: InsidersNumbers, contents: RunContents) -> Figure:
    """Draw the advantage of every insider with its interval, beside the bound."""
    figure = report_figure(2.2 + 0.35 * len(numbers.each))
    axes, style = figure.add_subplot(), BIT_STYLES[1]
    for height, one in enumerate(reversed(numbers.each)):
        found = one.estimate
        axes.plot([found.low, found.high], [height, height], "-", color=style.colour, linewidth=2.4)
        axes.plot([found.advantage], [height], style.marker, color=style.colour, markersize=7)
        axes.annotate(number_text(found.advantage, 3), (found.advantage, height), (0, 9), textcoords="offset points",
                      ha="center", fontsize=SMALL_TEXT_SIZE, color=INK)  # fmt: skip
    promise = contents.facts.guarantee
    if promise is not None:
        bound = promise.advantage_bound_exact
        axes.axvline(bound, color=INK, linestyle="-.", linewidth=1.8, label=f"exact bound: {number_text(bound, 3)}")
    axes.set_yticks(range(len(numbers.each)), [f"client {one.client}" for one in reversed(numbers.each)])
    axes.set_ylim(-0.6, len(numbers.each) - 0.3)
    finish_axes(axes, "What each insider achieved", "Advantage (twice the share of right guesses - 1)", "Insider")
    add_legend(axes)
    return figure


INSIDERS = Section(
    numbers=InsidersNumbers,
    keys=("insiders",),
    measure=_measure,
    heading="Several insiders",
    entries=_entries,
    tables=_tables,
    pictures=(Picture("insiders", insiders_figure, _caption),),
    sentence=_sentence,
    console=_console,
)
