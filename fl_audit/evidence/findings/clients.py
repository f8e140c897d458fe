"""The data owners: Epsilon* of each client's own shard at the last release, beside that of all members together."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from fl_audit.evidence.findings.found import Findings, finite
from fl_audit.evidence.finished_run import FinishedRun


@dataclass(frozen=True)
class ClientStar:
    """Epsilon* of one client's shard over the worlds, in nats: order statistics, infinite where unbounded."""

    client: int  # number of the client
    worlds: int  # worlds in which its shard had two records or more; without any the rest is NaN
    # `low`, `median`, `high`, `largest`: 5 %, 50 %, 95 % and the largest.
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


def measure_clients(run: FinishedRun, _: Findings) -> ClientNumbers | None:
    """Return Epsilon* of every shard; None where it was not computed."""
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
