"""Findings on how good the final models are for each client, from the clients' training records."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fl_audit.array_types import finite
from fl_audit.federation.findings import Findings
from fl_audit.federation.finished_run import FinishedRun
from fl_audit.learning.metric_names import CLIENT_CLASSES, is_smaller_better, training_column


@dataclass(frozen=True)
class ClientMetric:
    """Metrics of the final models on the training records of one client."""

    client: int  # number of the client
    records: int | None  # number of its records; None if unknown
    classes: int  # number of classes among its records
    metrics: Mapping[str, float]  # each metric, mean over trials; NaN where it is not defined

    def to_json(self) -> dict[str, Any]:
        """Return the values for `summary.json`."""
        metrics = {str(metric): finite(value) for metric, value in self.metrics.items()}
        return {"client": self.client, "records": self.records, "classes": self.classes, "metrics": metrics}


@dataclass(frozen=True)
class ClientMetricsFinding:
    """Metrics of the final models on the training records, of all clients together and of each client."""

    headline: str  # the metric by which clients are compared
    pooled: Mapping[str, float]  # each metric on all training records together, mean over trials
    clients: tuple[ClientMetric, ...]  # all clients, by number

    @property
    def known(self) -> list[ClientMetric]:
        """The clients for which the headline is defined, the worst first."""
        clients = [client for client in self.clients if math.isfinite(client.metrics[self.headline])]
        return sorted(
            clients, key=lambda client: client.metrics[self.headline], reverse=is_smaller_better(self.headline)
        )

    @property
    def of_one_class(self) -> list[int]:
        """Numbers of the clients without a value because all of their records are of one class."""
        undefined = [client for client in self.clients if math.isnan(client.metrics[self.headline])]
        return [client.client for client in undefined if client.classes == 1]

    @property
    def spread(self) -> float:
        """Standard deviation of the headline over the clients; NaN for fewer than two."""
        values = [client.metrics[self.headline] for client in self.known]
        return float(np.std(values, ddof=1)) if len(values) > 1 else math.nan

    def to_json(self) -> dict[str, Any]:
        """Return this finding as a dict with the one key `client_metrics`, for `summary.json`."""
        metrics = self.known
        ends = {"worst": metrics[0].client, "best": metrics[-1].client} if metrics else {"worst": None, "best": None}
        values = {
            "headline": self.headline,
            "is_private": False,
            "pooled": {str(metric): finite(value) for metric, value in self.pooled.items()},
            **ends,
            "standard_deviation": finite(self.spread),
            "of_one_class": self.of_one_class,
            "clients": [client.to_json() for client in self.clients],
        }
        return {"client_metrics": values}


def measure_client_metrics(run: FinishedRun, _: Findings) -> ClientMetricsFinding | None:
    """Return the metrics of the final models on training records; None if the run did not compute them."""
    table = run.tables.clients
    metrics = run.plan.metrics
    if table is None or not metrics or training_column(metrics[0]) not in table:
        return None
    last = table[table["round"] == table["round"].max()]
    columns = {str(metric): training_column(metric) for metric in metrics if training_column(metric) in table}
    means = last.groupby("client")[[*columns.values(), CLIENT_CLASSES]].mean()
    shards = None if run.provenance is None else run.provenance.shards
    is_known = shards is not None and len(shards) == len(means)
    clients = tuple(
        ClientMetric(
            int(str(client)),
            shards[int(str(client))] if is_known and shards is not None else None,
            int(row[CLIENT_CLASSES]),
            {metric: float(row[column]) for metric, column in columns.items()},
        )
        for client, row in means.iterrows()
    )
    trials = run.tables.trials
    pooled = {metric: float(trials[column].mean()) for metric, column in columns.items()}
    return ClientMetricsFinding(str(metrics[0]), pooled, clients)
