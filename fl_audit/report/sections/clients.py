"""The data owners: Epsilon* of each client's own shard at the last release, beside that of all members together."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from fl_audit.evidence.findings.clients import ClientNumbers, measure_clients
from fl_audit.report.finding import Picture, RunContents, Section, Table
from fl_audit.report.style import BIT_STYLES, INK, MUTED, add_legend, finish_axes, report_figure, whole_number_axis
from fl_audit.report.wording import number_text, plural


def _sentence(numbers: ClientNumbers, _: RunContents) -> str:
    alone = sum(client.worlds == 0 for client in numbers.clients)
    without = f" No value for {plural(alone, 'client')} with fewer than two records." if alone else ""
    return (
        "Each data owner holds the losses of its own records against those of the population sample. A shard of few "
        f"records reaches large values by chance alone, so compare clients of like size.{without}"
    )


def _tables(numbers: ClientNumbers, _: RunContents) -> list[Table]:
    columns: tuple[str, ...] = ("Client", "Worlds with 2 records or more", "5 %", "Median", "95 %", "Largest")
    rows: tuple[tuple[Any, ...], ...] = tuple(tuple(client.to_json().values()) for client in numbers.clients)
    if (shards := numbers.shards) is not None:
        columns = (columns[0], "Records", *columns[1:])
        rows = tuple((row[0], shards[row[0]], *row[1:]) for row in rows)
    return [Table("Epsilon* of each client's own shard at the last release (nats)", columns, rows)]


def _caption(numbers: ClientNumbers, contents: RunContents) -> str:
    star = contents.facts.star
    at = "" if star is None else f" at δ = {number_text(star.delta)}"
    return f"Epsilon* of the shards of {plural(len(numbers.clients), 'client')}{at}, on one common scale of losses."


def client_figure(numbers: ClientNumbers, contents: RunContents) -> Figure:
    """Draw median and middle 90 % over worlds of every client's Epsilon*, and that of all members as a line."""
    figure = report_figure(3.8)
    axes = figure.add_subplot()
    told = [client for client in numbers.clients if client.worlds]
    clients = np.array([client.client for client in told], dtype=np.int64)
    low, median, high = (np.array([getattr(client, key) for client in told]) for key in ("low", "median", "high"))
    shown = np.isfinite(median)
    colour = BIT_STYLES[1].colour
    # An unbounded value has no place on the axis: its bar ends above the largest finite one, in an arrow.
    ends = [values[np.isfinite(values)] for values in (low, median, high)]
    top = max((float(values.max()) for values in ends if values.size), default=1.0)
    reach = np.where(np.isinf(high), 1.05 * top, high)
    axes.vlines(clients[shown], low[shown], reach[shown], color=colour, linewidth=2.4, label="middle 90 % of worlds")
    axes.plot(clients[shown], median[shown], "o", color=colour, markersize=7, label="median over worlds")
    if (unbounded := np.isinf(high)).any():
        axes.plot(
            clients[unbounded], np.full(unbounded.sum(), 1.05 * top), "^", color=INK, markersize=8, label="unbounded"
        )
    together = contents.worlds["epsilon_star"].to_numpy(dtype=np.float64)
    whole = float(np.quantile(together, 0.5, method="inverted_cdf"))
    if np.isfinite(whole):
        axes.axhline(whole, color=MUTED, linestyle="--", linewidth=1.8,
                     label=f"all members together, median: {number_text(whole, 3)}")  # fmt: skip
    whole_number_axis(axes, 0, len(numbers.clients) - 1)
    below = "Client"
    if (shards := numbers.shards) is not None:
        ticks, below = [int(tick) for tick in axes.get_xticks()], "Client, and below it its number of records"
        axes.set_xticks(ticks, [f"{tick}\n{shards[tick]:,}" for tick in ticks])
    axes.set_ylim(bottom=0)
    finish_axes(axes, "Each data owner against the population, last release", below, "Epsilon* of its shard (nats)")
    add_legend(axes, columns=2)
    return figure


CLIENTS = Section(
    name="client-epsilon-star",
    title="What the models give away of each data owner",
    numbers=ClientNumbers,
    measure=measure_clients,
    keys=("client_epsilon_star",),
    sentence=_sentence,
    tables=_tables,
    picture=Picture("Epsilon* of each data owner", client_figure, _caption, lambda numbers, _: bool(numbers.clients)),
)
