"""Where a run comes from, how it is made again, and how long it took."""

from datetime import date
from typing import Any

from fl_audit.evidence.findings.released_model import OriginNumbers, measure_origin
from fl_audit.evidence.run_tables import Provenance, Session
from fl_audit.report.finding import RunContents, Section, Table, TableLook
from fl_audit.report.wording import SPACE

NOT_NOTED = "Where this run comes from was not noted."
_NO_COMMAND = "started by a program that is no command of fl-audit"
_NOT_TOLD = (
    "not told, for these records are not published: who knows all of them but one could test guesses of the last on it"
)
_SHOWN_OF_DIGEST = 12


def provenance_line(provenance: Provenance | None) -> str:
    """Return in a line where a run comes from."""
    if provenance is None:
        return NOT_NOTED
    first = provenance.sessions[0]
    versions = ", ".join(f"{name}{SPACE}{first.versions[name]}" for name in ("fl_audit", "flwr", "torch")
                         if name in first.versions)  # fmt: skip
    data = f"data{SPACE}{provenance.data[:_SHOWN_OF_DIGEST]}" if provenance.data else ""
    return " · ".join(part for part in (day_text(first.began), versions, data, first.command) if part)


def day_text(moment: str) -> str:
    """Return the day of a moment in ISO 8601 as people write it.

    Examples
    --------
    >>> day_text("2026-11-05T10:00:00+00:00").replace(SPACE, " ")
    '5 November 2026'
    """
    day = date.fromisoformat(moment[:10])
    return f"{day.day}{SPACE}{day:%B}{SPACE}{day.year}"


def _tables(numbers: OriginNumbers, _: RunContents) -> list[Table]:
    found, timing = numbers.provenance, numbers.timing
    rows = (("Origin", NOT_NOTED),) if found is None else _rows(found)
    times = (
        ("Setup (s)", timing.setup_seconds),
        ("Training (s)", timing.training_seconds),
        ("Speed (worlds per second)", timing.worlds_per_second),
        ("Engine", timing.engine),
    )
    return [Table("Where this run comes from", ("What", "Value"), (*rows, *times), TableLook.PAIRS)]


def _rows(found: Provenance) -> tuple[tuple[str, str], ...]:
    first, *later = found.sessions
    again = (
        "Not noted."
        if first.command is None
        else f"{first.command} with the same file and versions; or the settings below, written to a file. The secret "
        "coins and the noise are drawn anew, so counts differ as their intervals say. Whoever holds challenger/ of "
        "this run can have the same numbers."
    )
    return (
        ("Begun (UTC)", first.began),
        ("Command, without the seed", first.command or _NO_COMMAND),
        ("Commit of the sources", first.commit or "not under version control"),
        ("Versions", _pairs(first.versions)),
        ("Machine", _pairs(first.hardware)),
        *(("Gone on with", _gone_on(session)) for session in later),
        ("Fingerprint of the data (SHA-256)", found.data or _NOT_TOLD),
        ("To make it again", again),
    )


def _gone_on(session: Session) -> str:
    parts = (session.began, session.command or _NO_COMMAND, _pairs(session.versions), _pairs(session.hardware))
    return "; ".join(parts)


def _pairs(values: Any) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())


ORIGIN = Section(
    name="origin", title="Where this run comes from", numbers=OriginNumbers, measure=measure_origin, keys=("timing",),
    tables=_tables,
)  # fmt: skip
