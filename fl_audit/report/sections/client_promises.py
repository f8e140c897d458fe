"""What every client promises its own records where clients train privately, beside what its accountant has counted."""

from dataclasses import asdict

from fl_audit.evidence.findings.clients import ClientPromises, measure_client_promises
from fl_audit.report.finding import RunContents, Section, Table
from fl_audit.report.sections.promise import at_delta


def _tables(numbers: ClientPromises, contents: RunContents) -> list[Table]:
    promise = contents.promise
    columns = ("Client", "Records", "Sampling rate of a step", "Steps", f"Epsilon by {promise.accountant} (nats)",
               "Epsilon by rdp (nats)", "Epsilon of the Opacus accountant that it kept (nats)")  # fmt: skip
    rows = tuple(tuple(asdict(client).values()) for client in numbers.clients)
    title = f"What each client promises its own records over all rounds{at_delta(promise.delta)}"
    return [Table(title, columns, rows)]


CLIENT_PROMISES = Section(
    name="client-promises", title="What each client promises its own records", numbers=ClientPromises,
    keys=("client_promises",), measure=measure_client_promises, tables=_tables,
)  # fmt: skip
