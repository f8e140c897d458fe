"""Finding and report section on the provenance of a run: its data, versions, commands and times."""

from typing import Any

from fl_audit.federation.run_tables import Provenance, Timing
from fl_audit.report.report_elements import ReportContents, Section, Table, TableKind
from fl_audit.words import SPACE, day_text

NOT_NOTED = "Where this run comes from was not noted."
_NO_COMMAND = "started by a program that is no command of fl-audit"
_NOT_TOLD = (
    "not told, for these records are not published: who knows all of them but one could test guesses of the last on it"
)
_KEYED = (
    "made with the key in challenger/, since these records are not published: who knows all of them but one could test "
    "guesses of the last on a plain one"
)
_SHOWN_OF_DIGEST = 12


def provenance_line(provenance: Provenance | None, records: int) -> str:
    """Return one line on the provenance of a run: date, versions, data and command."""
    if provenance is None:
        return NOT_NOTED
    first = provenance.sessions[0]
    names = [name for name in ("fl_audit", "flwr", "torch") if name in first.versions]
    versions = ", ".join(f"{name}{SPACE}{first.versions[name]}" for name in names)
    data = f"data{SPACE}{provenance.data[:_SHOWN_OF_DIGEST]}" if provenance.data else ""
    drawn_text = "" if provenance.pool is None else _drawn_text(records, provenance.pool)
    return " · ".join(phrase for phrase in (day_text(first.began), versions, data, drawn_text, first.command) if phrase)


def _origin_tables(timing: Timing, contents: ReportContents) -> list[Table]:
    provenance = contents.run.provenance
    rows = (
        (("Origin", NOT_NOTED),) if provenance is None else _origin_rows(provenance, contents.plan.federation.records)
    )
    times = (
        ("Setup (s)", timing.setup_seconds),
        ("Training (s)", timing.training_seconds),
        ("Speed (trials per second)", timing.trials_per_second),
        ("Engine", timing.engine),
    )
    return [Table("Where this run comes from", ("What", "Value"), (*rows, *times), TableKind.PAIRS)]


def _origin_rows(provenance: Provenance, records: int) -> tuple[tuple[str, str], ...]:
    first, *later = provenance.sessions
    gone_on = [
        (session.began, session.command or _NO_COMMAND, _pairs(session.versions), _pairs(session.hardware))
        for session in later
    ]
    again = (
        f"{first.command} with the same file and versions; or the settings below, written to a file. The secret coins "
        "and the noise are drawn anew, so counts differ as their intervals say. Whoever holds challenger/ of this run "
        "can have the same numbers."
    )
    return (
        ("Begun (UTC)", first.began),
        ("Command, without the seed", first.command or _NO_COMMAND),
        ("Commit of the sources", first.commit or "not under version control"),
        ("Versions", _pairs(first.versions)),
        ("Machine", _pairs(first.hardware)),
        *(("Gone on with", "; ".join(parts_of_line)) for parts_of_line in gone_on),
        _fingerprint(provenance),
        *(() if provenance.pool is None else (("Records that train", _drawn_text(records, provenance.pool)),)),
        ("To make it again", "Not noted." if first.command is None else again),
    )


def _fingerprint(provenance: Provenance) -> tuple[str, str]:
    if provenance.is_keyed:
        return "Fingerprint of the data (HMAC-SHA-256)", f"{provenance.data}, {_KEYED}"
    return "Fingerprint of the data (SHA-256)", provenance.data or _NOT_TOLD


def _drawn_text(records: int, pool: int) -> str:
    """Return a phrase such as "300 of 600 records drawn"."""
    return f"{records:,} of {pool:,} records drawn" if records < pool else f"all {pool:,} records"


def _pairs(values: Any) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())


ORIGIN = Section(
    "origin", "Where this run comes from", Timing, lambda run, _: run.timing, keys=("timing",), tables=_origin_tables
)
