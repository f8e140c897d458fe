"""Records of campaigns that only grow: one line of JSON for each run, so that a campaign can stop and go on anywhere.

Every line says which code it belongs to, as by the number of tests in the family: other lines are refused rather than
mixed in.
"""

import json
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from fl_audit.errors import InputError

Row = dict[str, Any]


def read(path: Path | None, **same: Any) -> list[Row]:
    """Return the rows of a journal, none where there is no file; a line that was cut off while it was written is left.

    Every row has to say what `same` says, or `InputError` is raised, as for a row of an earlier version.
    """
    if path is None or not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").split("\n")
    rows: list[Row] = [json.loads(line) for line in lines[:-1] if line.endswith("}")]
    for row in rows:
        for name, value in same.items():
            if row.get(name) != value:
                raise InputError(
                    f"{path} has a run with {name} {row.get(name)!r}: accepted is {value!r}; begin another journal"
                )
    return rows


def append(path: Path | None, row: Row) -> None:
    """Add a row at the end.

    Without a path nothing is written.
    """
    if path is None:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b") as file:
        # What was cut off before stays a line of its own.
        is_cut = file.tell() > 0 and (file.seek(-1, 2), file.read(1))[1] != b"\n"
        file.write(("\n" if is_cut else "").encode() + json.dumps(row).encode() + b"\n")


def until(minutes: float | None) -> Callable[[], bool]:
    """Return a function that says whether so many minutes have passed since now; never for None."""
    end = None if minutes is None else time.monotonic() + 60 * minutes
    return lambda: end is not None and time.monotonic() >= end


def blocks(names: Iterable[str], count: int, block: int) -> Iterator[tuple[str, int]]:
    """Give every name with every number below a count, a block of numbers at a time: all names advance together."""
    every = list(names)
    for start in range(0, count, block):
        for name in every:
            yield from ((name, number) for number in range(start, min(start + block, count)))
