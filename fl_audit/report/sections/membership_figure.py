"""The insider beside the membership adversary: advantages with their intervals, and what bounds them."""

from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fl_audit.report.contents import RunContents
from fl_audit.report.page.style import BIT_STYLES, INK, MUTED, SMALL_TEXT_SIZE, add_legend, finish_axes, new_figure
from fl_audit.report.wording import number_text, percent


@dataclass(frozen=True)
class _Row:
    """One adversary: where its advantage stands in the summary, and how it is drawn."""

    name: str
    keys: tuple[str, ...]
    ends: tuple[str, str]
    colour: str
    marker: str


_ROWS = (
    _Row("Insider\n(knows all but one record)", ("insider",), ("advantage_low", "advantage_high"),
         BIT_STYLES[1].colour, "o"),
    _Row("Membership,\nabout the differing record", ("membership", "record"), ("low", "high"),
         BIT_STYLES[0].colour, "v"),
    _Row("Membership,\nabout members and others", ("membership",), ("low", "high"), BIT_STYLES[0].colour, "s"),
)  # fmt: skip


def membership_figure(contents: RunContents) -> Figure:
    """Draw the advantages of insider and membership adversary with their intervals, and the bounds as lines."""
    figure = new_figure()
    axes = figure.add_subplot()
    rows = [row for row in reversed(_ROWS) if contents.number(*row.keys, "advantage") is not None]
    for height, row in enumerate(rows):
        _draw_row(axes, contents, row, height)
    axes.axvline(0, color=MUTED, linewidth=1.2)
    _draw_bounds(axes, contents)
    axes.set_yticks(range(len(rows)), [row.name for row in rows])
    axes.set_ylim(-0.6, len(rows) - 0.4)
    axes.set_xlim(*_window(contents))
    confidence = percent(contents.number("membership", "confidence"))
    title = f"What each adversary achieved (intervals at {confidence} confidence)"
    finish_axes(axes, title, "Advantage (twice the share of right guesses - 1; 0 = coin-flipping)", "Adversary")
    if contents.law.has_noise:
        add_legend(axes)  # of the bounds; without a promise there are none
    return figure


def yeom_bound_fits(contents: RunContents) -> bool:
    """Whether the bound of Yeom et al. says anything, that is, lies below 1."""
    bound = contents.number("membership", "yeom_bound")
    return bound is not None and bound < 1


def _draw_row(axes: Axes, contents: RunContents, row: _Row, height: int) -> None:
    value = contents.number(*row.keys, "advantage")
    low, high = (contents.number(*row.keys, end) for end in row.ends)
    if value is None:
        return
    if low is not None and high is not None:
        axes.plot([low, high], [height, height], "-", color=row.colour, linewidth=2.4)
        axes.plot([low, high], [height, height], "|", color=row.colour, markersize=18, markeredgewidth=2)
    axes.plot([value], [height], row.marker, color=row.colour, markersize=7)
    axes.annotate(
        number_text(value, 3), (value, height), (0, 13), textcoords="offset points", ha="center",
        fontsize=SMALL_TEXT_SIZE, color=INK, bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.5}, zorder=5,
    )  # fmt: skip


def _draw_bounds(axes: Axes, contents: RunContents) -> None:
    """Draw each bound that lies below 1 as a line of its own kind; equal ones share one."""
    insider, members = contents.number("guarantee", "advantage_bound_exact"), contents.number("membership", "bound")
    tradeoff, yeom = (contents.number("membership", key) for key in ("tradeoff_bound", "yeom_bound"))
    epsilon = f"epsilon {number_text(contents.number('guarantee', 'epsilon'), 3)}"
    lines: list[tuple[float | None, str, Any]] = [(insider, "exact bound, one record", "-.")]
    if members is not None and members != insider:
        lines.append((members, "exact bound, members and others", (0, (8, 2))))
    lines.append((tradeoff, f"bound by {epsilon} and δ alone (Kairouz et al. 2015)", "--"))
    if yeom_bound_fits(contents):
        lines.append((yeom, f"bound of Yeom et al. 2018, exp({epsilon}) - 1", ":"))
    for value, name, line in lines:
        if value is not None:
            label = f"{name}: {number_text(value, 3)}"
            axes.axvline(value, color=INK, linestyle=line, linewidth=1.8, label=label)


def _window(contents: RunContents) -> tuple[float, float]:
    """Return the advantages worth showing: up to 1, and down to the lowest end of an interval."""
    lows = [contents.number(*row.keys, row.ends[0]) for row in _ROWS]
    return min(-0.1, *(low - 0.04 for low in lows if low is not None)), 1.04
