"""Where a run comes from: when, by which command, with which versions, on which data and machine it was made."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from fl_audit.report.wording import SPACE

_MONTHS = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
]
_SHOWN_OF_DIGEST = 12

NOT_NOTED = "Where this run comes from was not noted."


@dataclass(frozen=True)
class Session:
    """One stretch of work on a run: a run that was interrupted and gone on with has several.

    Parameters
    ----------
    began
        Date and time in UTC, as ISO 8601 writes them.
    command
        What was typed, without the challenger's seed; None where no command of this software started it.
    commit
        The version of the sources, where they are kept under version control; else None.
    versions
        Of Python and of the packages that decide what comes out, by name.
    hardware
        What it ran on, in words, by name.
    """

    began: str
    command: str | None
    commit: str | None
    versions: Mapping[str, str]
    hardware: Mapping[str, str]


@dataclass(frozen=True)
class Provenance:
    """Where a run comes from.

    Parameters
    ----------
    sessions
        The stretches of work, at least one, the first first.
    data
        SHA-256 digest of the records that the run trained and tested on, in hexadecimal digits; None where it is not
        told, for who knows all records but one could test guesses of the last on it.
    shards
        Numbers of records that the clients hold, in their order; None where they were not noted.
    """

    sessions: tuple[Session, ...]
    data: str | None
    shards: tuple[int, ...] | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the content of `provenance.json`."""
        sessions = [asdict(session) for session in self.sessions]
        return {"data": self.data, "shards": self.shards, "sessions": sessions}

    @classmethod
    def of_json(cls, stored: Mapping[str, Any]) -> "Provenance":
        """Return what was stored.

        Raises
        ------
        ValueError, KeyError, TypeError
            If something else was stored.
        """
        sessions = tuple(Session(**session) for session in stored["sessions"])
        if not sessions:
            raise ValueError("no session was noted")
        for session in sessions:
            datetime.fromisoformat(session.began)
        data, shards = stored["data"], stored.get("shards")
        return cls(sessions, data and str(data), shards and tuple(int(size) for size in shards))


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
    year, month, day = moment[:10].split("-")
    return f"{int(day)}{SPACE}{_MONTHS[int(month) - 1]}{SPACE}{year}"
