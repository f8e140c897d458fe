"""The data owners: Epsilon* of each client's own shard at the last release, beside that of all members together."""

from typing import Any

from fl_audit.evidence.findings.clients import ClientNumbers, measure_clients
from fl_audit.evidence.findings.found import json_of
from fl_audit.report.finding import RunContents, Section, Table
from fl_audit.report.wording import plural


def _sentence(numbers: ClientNumbers, _: RunContents) -> str:
    alone = sum(client.worlds == 0 for client in numbers.clients)
    without = f" No value for {plural(alone, 'client')} with fewer than two records." if alone else ""
    return (
        "Each data owner holds the losses of its own records against those of the population sample. A shard of few "
        f"records reaches large values by chance alone, so compare clients of like size.{without}"
    )


def _tables(numbers: ClientNumbers, _: RunContents) -> list[Table]:
    columns: tuple[str, ...] = ("Client", "Worlds with 2 records or more", "5 %", "Median", "95 %", "Largest")
    rows: tuple[tuple[Any, ...], ...] = tuple(tuple(json_of(client).values()) for client in numbers.clients)
    if (shards := numbers.shards) is not None:
        columns = (columns[0], "Records", *columns[1:])
        rows = tuple((row[0], shards[row[0]], *row[1:]) for row in rows)
    return [Table("Epsilon* of each client's own shard at the last release (nats)", columns, rows)]


CLIENTS = Section(
    name="client-epsilon-star", title="What the models give away of each data owner", numbers=ClientNumbers,
    measure=measure_clients, keys=("client_epsilon_star",), sentence=_sentence, tables=_tables,
)  # fmt: skip
