"""Report section on the guarantee of each client."""

from dataclasses import asdict

from fl_audit.audits.common.findings_client_guarantees import ClientGuarantees, measure_client_guarantees
from fl_audit.audits.common.sections_guarantee import at_delta
from fl_audit.report.report_elements import ReportContents, Section, Table


def _client_guarantees_tables(guarantees: ClientGuarantees, contents: ReportContents) -> list[Table]:
    guarantee = contents.guarantee
    columns = (
        "Client",
        "Records",
        "Sampling rate of a step",
        "Steps",
        f"Epsilon by {guarantee.accountant} (nats)",
        "Epsilon by rdp (nats)",
        "Epsilon of the Opacus accountant that it kept (nats)",
    )
    rows = tuple(tuple(asdict(client).values()) for client in guarantees.clients)
    title = f"What each client guarantees its own records over all rounds{at_delta(guarantee.delta)}"
    return [Table(title, columns, rows)]


CLIENT_GUARANTEES = Section(
    "client-guarantees",
    "What each client guarantees its own records",
    ClientGuarantees,
    measure_client_guarantees,
    keys=("client_guarantees",),
    tables=_client_guarantees_tables,
)
