"""The data owners: Epsilon* of each client's own shard at the last release, beside that of all members together."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fl_audit.report.contents import Findings, RunContents
from fl_audit.report.finished_run import FinishedRun
from fl_audit.report.section import Caption, Picture, Section, Table, finite
from fl_audit.report.style import BIT_STYLES, INK, MUTED, add_legend, finish_axes, report_figure, whole_number_axis
from fl_audit.report.wording import number_text, plural


@dataclass(frozen=True)
class ClientStar:
    """Epsilon* of one client's shard over the worlds, in nats: order statistics, infinite where unbounded.

    Parameters
    ----------
    client
        Number of the client.
    worlds
        Worlds in which its shard had two records or more; without any the rest is NaN.
    low, median, high, largest
        5 %, 50 %, 95 % and the largest.
    """

    client: int
    worlds: int
    low: float
    median: float
    high: float
    largest: float

    def to_json(self) -> dict[str, Any]:
        """Return an entry of the list `client_epsilon_star`."""
        return {
            "client": self.client,
            "worlds": self.worlds,
            "low": finite(self.low),
            "median": finite(self.median),
            "high": finite(self.high),
            "max": finite(self.largest),
        }


@dataclass(frozen=True)
class ClientNumbers:
    """Epsilon* of every client's shard at the last release, and how many records each holds, where that is known."""

    clients: tuple[ClientStar, ...]
    shards: tuple[int, ...] | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the entry `client_epsilon_star`."""
        return {"client_epsilon_star": [client.to_json() for client in self.clients]}


def _measure(run: FinishedRun, _: Findings) -> ClientNumbers | None:
    table = run.tables.clients
    if table is None or "epsilon_star" not in table:
        return None
    last = table[table["round"] == table["round"].max()]
    return ClientNumbers(
        tuple(
            _client(int(str(client)), values.dropna().to_numpy(dtype=np.float64))
            for client, values in last.groupby("client")["epsilon_star"]
        ),
        _shards(run),
    )


def _shards(run: FinishedRun) -> tuple[int, ...] | None:
    noted = None if run.provenance is None else run.provenance.shards
    return noted if noted is not None and len(noted) == run.facts.game.clients else None


def _client(client: int, known: np.ndarray[Any, np.dtype[np.float64]]) -> ClientStar:
    if not known.size:
        return ClientStar(client, 0, math.nan, math.nan, math.nan, math.nan)
    # Order statistics, for an unbounded value has no mean and no neighbour to interpolate to.
    low, median, high = (float(np.quantile(known, level, method="inverted_cdf")) for level in (0.05, 0.5, 0.95))
    return ClientStar(client, int(known.size), low, median, high, float(known.max()))


def _table(numbers: ClientNumbers, _: RunContents) -> list[Table]:
    columns: tuple[str, ...] = ("Client", "Worlds with 2 records or more", "5 %", "Median", "95 %", "Largest")
    rows: tuple[tuple[Any, ...], ...] = tuple(tuple(client.to_json().values()) for client in numbers.clients)
    if (shards := numbers.shards) is not None:
        columns = (columns[0], "Records", *columns[1:])
        rows = tuple((row[0], shards[row[0]], *row[1:]) for row in rows)
    title = "Epsilon* of each client's own shard at the last release (nats); where unbounded, not determined"
    return [Table(title, columns, rows)]


def _caption(numbers: ClientNumbers, contents: RunContents) -> Caption:
    star = contents.facts.star
    alone = sum(client.worlds == 0 for client in numbers.clients)
    without = f" No value for {plural(alone, 'client')} with fewer than two records." if alone else ""
    at = "" if star is None else f", at the same δ = {number_text(star.delta)}"
    text = (
        "Each data owner holds the losses of its own records against those of the population sample, on one common "
        f"scale of losses{at}. A shard of few records reaches large values by chance alone, so compare clients of like "
        f"size, and worlds more than clients.{without}"
    )
    count = plural(len(numbers.clients), "client")
    alternative = f"Epsilon* of the shards of {count}: medians with the middle 90 % of worlds."
    return Caption("Epsilon* of each data owner", text, alternative)


def client_figure(numbers: ClientNumbers, contents: RunContents) -> Figure:
    """Draw median and middle 90 % over worlds of every client's Epsilon*, and that of all members as a line."""
    figure = report_figure()
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
    _name_clients(axes, numbers.shards)
    axes.set_ylim(bottom=0)
    below = "Client" if numbers.shards is None else "Client, and below it its number of records"
    finish_axes(axes, "Each data owner against the population, last release", below, "Epsilon* of its shard (nats)")
    add_legend(axes, columns=2)
    return figure


def _name_clients(axes: Axes, shards: tuple[int, ...] | None) -> None:
    """Write under every client that is named on the axis how many records it holds."""
    if shards is not None:
        ticks = [int(tick) for tick in axes.get_xticks()]
        axes.set_xticks(ticks, [f"{tick}\n{shards[tick]:,}" for tick in ticks])


CLIENTS = Section(
    numbers=ClientNumbers,
    keys=("client_epsilon_star",),
    measure=_measure,
    tables=_table,
    pictures=(Picture("client-epsilon-star", client_figure, _caption, lambda numbers, _: bool(numbers.clients)),),
)
