"""Finding and report section on how good the model is for each client: the worst client, the spread, and a table."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from fl_audit.array_types import finite
from fl_audit.federation.findings import Findings
from fl_audit.federation.finished_run import FinishedRun
from fl_audit.learning.metric_names import (
    CLIENT_CLASSES,
    is_share,
    is_smaller_better,
    metric_text,
    metric_title,
    training_column,
)
from fl_audit.report.figure_style import INK, MUTED, finish_axes
from fl_audit.report.report_elements import FindingFigure, ReportContents, ReportNumber, Section, Table
from fl_audit.words import capital, number_text


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


NOT_PRIVATE = "computed from training records without noise, so the guarantee does not cover it"
_MOST_ROWS = 50  # clients in the table of the report; `summary.json` has all
_MOST_NAMED = 10


def _sentence(finding: ClientMetricsFinding, _: ReportContents) -> str:
    metric = finding.headline
    metrics = finding.known
    title = metric_title(metric)
    text = f"On all training records together the {title} is {metric_text(metric, finding.pooled[metric])}. "
    if metrics:
        ends = [
            f"{metric_text(metric, end.metrics[metric])} (client {end.client})" for end in (metrics[0], metrics[-1])
        ]
        text += f"By client it goes from {ends[0]} to {ends[1]}. "
    return f"{text}{one_class_text(finding)}All of this is {NOT_PRIVATE}: keep it inside."


def one_class_text(finding: ClientMetricsFinding) -> str:
    """Return a sentence that names the clients whose records are of one class, or an empty text."""
    alone = finding.of_one_class
    if not alone:
        return ""
    names_text = ", ".join(map(str, alone[:_MOST_NAMED])) + (", ..." if len(alone) > _MOST_NAMED else "")
    clients = f"Client {names_text} has" if len(alone) == 1 else f"Clients {names_text} have"
    return f"{clients} records of one class only, for which the {metric_title(finding.headline)} is not defined. "


def client_rows(finding: ClientMetricsFinding) -> list[ReportNumber]:
    """Return the rows of the section: the worst client, each metric on all training records, and the spread."""
    metric = finding.headline
    metrics = finding.known
    title = metric_title(metric)
    share = is_share(metric)
    final = f"of the final release, mean over trials; {NOT_PRIVATE}"
    rows = list[ReportNumber]()
    if metrics:
        worst = finite(metrics[0].metrics[metric])
        rows.append(ReportNumber(f"Training {title}, worst client", worst, final, is_share=share, on_page=True))
    for name, value in finding.pooled.items():
        basis = f"all training records together, {final}"
        rows.append(
            ReportNumber(
                f"Training {metric_title(name)}", finite(value), basis, is_share=is_share(name), on_page=name == metric
            )
        )
    if math.isfinite(finding.spread):
        spread = f"standard deviation over {len(metrics)} clients, {final}"
        rows.append(ReportNumber(f"Training {title}, spread of clients", finding.spread, spread))
    return rows


def _tables(finding: ClientMetricsFinding, _: ReportContents) -> list[Table]:
    pooled_names = list(finding.pooled)
    undefined = [client for client in finding.clients if math.isnan(client.metrics[finding.headline])]
    metrics = [*finding.known, *undefined][:_MOST_ROWS]
    rows = tuple(
        (client.client, client.records, client.classes, *(finite(client.metrics[metric]) for metric in pooled_names))
        for client in metrics
    )
    columns = ("Client", "Records", "Classes", *(capital(metric_title(metric)) for metric in pooled_names))
    left_out = len(finding.clients) - len(metrics)
    remark = f"; {left_out:,} further clients are in summary.json" if left_out else ""
    return [Table(f"The final model on each client's training records, the worst first{remark}", columns, rows)]


def _figure(figure: Figure, finding: ClientMetricsFinding, _: ReportContents) -> None:
    axes = figure.add_subplot()
    metric = finding.headline
    factor = 100.0 if is_share(metric) else 1.0
    values = [factor * client.metrics[metric] for client in finding.known]
    axes.plot(range(1, len(values) + 1), values, "o", color=INK, markersize=5, label="one client")
    pooled = factor * finding.pooled[metric]
    axes.axhline(pooled, color=MUTED, linestyle="--", label="all training records together")
    title = metric_title(metric)
    unit = " (%)" if is_share(metric) else ""
    finish_axes(axes, f"{capital(title)} of each client", "Clients, the worst first", f"Training {title}{unit}")


def _caption(finding: ClientMetricsFinding, _: ReportContents) -> str:
    spread = f", standard deviation {number_text(finding.spread, 3)}" if math.isfinite(finding.spread) else ""
    return f"The final model on the training records of each client, mean over trials{spread}. Not private."


CLIENT_METRICS = Section(
    name="client-metrics",
    title="How good the model is for each client",
    numbers=ClientMetricsFinding,
    measure=measure_client_metrics,
    keys=("client_metrics",),
    sentence=_sentence,
    rows=lambda numbers, _: client_rows(numbers),
    tables=_tables,
    picture=FindingFigure("Clients", _figure, _caption, applies=lambda numbers, _: len(numbers.known) > 1),
)
