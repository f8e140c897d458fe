"""Report section on the guarantee against colluding clients."""

from dataclasses import asdict

from fl_audit.array_types import finite
from fl_audit.audits.common import findings_guarantee as evidence
from fl_audit.report.report_elements import ReportContents, Section, Table
from fl_audit.words import number_text


def _colluders_sentence(finding: evidence.ColludersFinding, _: ReportContents) -> str:
    effective = (finding.groups[0], finding.groups[-1], finding.server)
    alone, with_most, server = (
        f"{number_text(adversary.noise_multiplier, 3)} (epsilon {number_text(finite(adversary.epsilon), 3)})"
        for adversary in effective
    )
    return (
        "Every client knows the noise that it added itself, and clients who trust each other can put theirs together "
        f"and subtract it. A client alone faces a noise multiplier of {alone}, all clients but one {with_most}; the "
        f"honest-but-curious server, which sees every contribution by itself, {server}."
    )


def _colluders_tables(finding: evidence.ColludersFinding, contents: ReportContents) -> list[Table]:
    guarantee = contents.guarantee
    epsilon = f"Epsilon at delta {guarantee.delta:g} ({guarantee.accountant}, nats)"
    columns = ("Who knows a part of the noise", "Noise multiplier faced", epsilon)
    names = {1: "a client alone, its own"}
    rows = [
        (names.get(group.clients, f"{group.clients:,} clients together"), group.noise_multiplier, finite(group.epsilon))
        for group in finding.groups
    ]
    server = ("the server, which sees every contribution by itself", *list(asdict(finding.server).values())[1:])
    title = "What is left of noise that clients add, where clients tell each other theirs"
    return [Table(title, columns, (*rows, server))]


COLLUDERS = Section(
    "colluders",
    "What clients who collude take off the guarantee",
    evidence.ColludersFinding,
    evidence.measure_colluders,
    keys=("colluders",),
    sentence=_colluders_sentence,
    tables=_colluders_tables,
)
