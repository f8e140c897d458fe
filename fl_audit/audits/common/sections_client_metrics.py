"""Report section on how good the model is for each client: the worst client, the spread, and a table."""

import math

from matplotlib.figure import Figure

from fl_audit.array_types import finite
from fl_audit.audits.common import findings_client_metrics as evidence
from fl_audit.learning.metric_names import is_share, metric_text, metric_title
from fl_audit.report.figure_style import INK, MUTED, finish_axes
from fl_audit.report.report_elements import FindingFigure, ReportContents, ReportNumber, Section, Table
from fl_audit.words import capital, number_text

NOT_PRIVATE = "computed from training records without noise, so the guarantee does not cover it"
_MOST_ROWS = 50  # clients in the table of the report; `summary.json` has all
_MOST_NAMED = 10


def _sentence(finding: evidence.ClientMetricsFinding, _: ReportContents) -> str:
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


def one_class_text(finding: evidence.ClientMetricsFinding) -> str:
    """Return a sentence that names the clients whose records are of one class, or an empty text."""
    alone = finding.of_one_class
    if not alone:
        return ""
    names_text = ", ".join(map(str, alone[:_MOST_NAMED])) + (", ..." if len(alone) > _MOST_NAMED else "")
    clients = f"Client {names_text} has" if len(alone) == 1 else f"Clients {names_text} have"
    return f"{clients} records of one class only, for which the {metric_title(finding.headline)} is not defined. "


def client_rows(finding: evidence.ClientMetricsFinding) -> list[ReportNumber]:
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


def _tables(finding: evidence.ClientMetricsFinding, _: ReportContents) -> list[Table]:
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


def _figure(figure: Figure, finding: evidence.ClientMetricsFinding, _: ReportContents) -> None:
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


def _caption(finding: evidence.ClientMetricsFinding, _: ReportContents) -> str:
    spread = f", standard deviation {number_text(finding.spread, 3)}" if math.isfinite(finding.spread) else ""
    return f"The final model on the training records of each client, mean over trials{spread}. Not private."


CLIENT_METRICS = Section(
    name="client-metrics",
    title="How good the model is for each client",
    numbers=evidence.ClientMetricsFinding,
    measure=evidence.measure_client_metrics,
    keys=("client_metrics",),
    sentence=_sentence,
    rows=lambda numbers, _: client_rows(numbers),
    tables=_tables,
    picture=FindingFigure("Clients", _figure, _caption, applies=lambda numbers, _: len(numbers.known) > 1),
)
