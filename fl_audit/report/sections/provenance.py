"""Where a run comes from, and how it is made again."""

from dataclasses import dataclass
from typing import Any

from fl_audit.report.contents import Findings, RunContents
from fl_audit.report.finished_run import FinishedRun
from fl_audit.report.provenance import NOT_NOTED, Provenance, Session
from fl_audit.report.section import Place, Section, Table

_NO_COMMAND = "started by a program that is no command of fl-audit"
_NOT_TOLD = (
    "not told, for these records are not published: who knows all of them but one could test guesses of the last on it"
)


@dataclass(frozen=True)
class ProvenanceNumbers:
    """Where the run comes from; None where that was not noted."""

    provenance: Provenance | None

    def to_json(self) -> dict[str, Any]:
        """Return no entry: the same run has the same summary wherever it is made."""
        return {}


def _measure(run: FinishedRun, _: Findings) -> ProvenanceNumbers:
    return ProvenanceNumbers(run.provenance)


def _tables(numbers: ProvenanceNumbers, _: RunContents) -> list[Table]:
    found = numbers.provenance
    rows = (("Origin", NOT_NOTED),) if found is None else _rows(found)
    return [Table("Where this run comes from", ("What", "Value"), rows, Place.CONFIGURATION, look="short pairs")]


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
        *_session_rows(first),
        *(("Gone on with", _gone_on(session)) for session in later),
        ("Fingerprint of the data (SHA-256)", found.data or _NOT_TOLD),
        ("To make it again", again),
    )


def _session_rows(session: Session) -> list[tuple[str, str]]:
    return [
        ("Begun (UTC)", session.began),
        ("Command, without the seed", session.command or _NO_COMMAND),
        ("Commit of the sources", session.commit or "not under version control"),
        ("Versions", _pairs(session.versions)),
        ("Machine", _pairs(session.hardware)),
    ]


def _gone_on(session: Session) -> str:
    parts = (session.began, session.command or _NO_COMMAND, _pairs(session.versions), _pairs(session.hardware))
    return "; ".join(parts)


def _pairs(values: Any) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())


PROVENANCE = Section(numbers=ProvenanceNumbers, keys=(), measure=_measure, tables=_tables)
