"""Where a run comes from, and the same training without privacy, beside which its accuracy is shown."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any


@dataclass(frozen=True)
class Unprotected:
    """What the same training without clipping and noise is worth."""

    run: str  # name of that run's directory
    worlds: int  # number of its worlds, at least 1
    rounds: tuple[int, ...]  # numbers of its releases that were evaluated, from 0, the initial model
    accuracy: tuple[float, ...]  # mean accuracy of each on test records, 0 to 1; as many

    @property
    def final(self) -> float:
        """Mean accuracy of the last release."""
        return self.accuracy[-1]

    def to_json(self) -> dict[str, Any]:
        """Return the value as JSON values."""
        return {"run": self.run, "worlds": self.worlds, "rounds": list(self.rounds), "accuracy": list(self.accuracy)}

    @classmethod
    def of_json(cls, values: Mapping[str, Any]) -> "Unprotected":
        """Return what `to_json` wrote.

        Raises
        ------
        KeyError, TypeError
            If it is something else.
        ValueError
            If it is something else.
        """
        rounds, accuracy = tuple(map(int, values["rounds"])), tuple(map(float, values["accuracy"]))
        if not rounds or len(rounds) != len(accuracy):
            raise ValueError("rounds and accuracy differ in number")
        return cls(str(values["run"]), int(values["worlds"]), rounds, accuracy)


@dataclass(frozen=True)
class Session:
    """One stretch of work on a run: a run that was interrupted and gone on with has several."""

    began: str  # date and time in UTC, as ISO 8601 writes them
    # What was typed, without the challenger's seed; None where no command of this software started it.
    command: str | None
    commit: str | None  # the version of the sources, where they are kept under version control; else None
    versions: Mapping[str, str]  # of Python and of the packages that decide what comes out, by name
    hardware: Mapping[str, str]  # what it ran on, in words, by name


@dataclass(frozen=True)
class Provenance:
    """Where a run comes from."""

    sessions: tuple[Session, ...]  # the stretches of work, at least one, the first first
    # SHA-256 digest of the records that the run trained and tested on, in hexadecimal digits; None where it is not
    # told, for who knows all records but one could test guesses of the last on it.
    data: str | None
    # Numbers of records that the clients hold, in their order; None where they were not noted.
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
        KeyError, TypeError
            If something else was stored.
        ValueError
            If something else was stored.
        """
        sessions = tuple(Session(**session) for session in stored["sessions"])
        if not sessions:
            raise ValueError("no session was noted")
        for session in sessions:
            datetime.fromisoformat(session.began)
        data, shards = stored["data"], stored.get("shards")
        return cls(sessions, data and str(data), shards and tuple(int(size) for size in shards))
