"""Digests of every number that fixed seeds give, which show that a change of structure changes no result.

    python -m tests.validation equality record before.json
    python -m tests.validation equality record after.json
    python -m tests.validation equality compare before.json after.json

`record` plays small audits of all kinds, engines and mechanisms, one black-box audit of made-up trials, one of a Flower
strategy, a review of an app and a running federation with canaries. It writes a digest of each column of their tables
and of each number of their summaries. `compare` lists what differs and ends with status 1 where anything does.
"""

import argparse
import hashlib
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from fl_audit.device import Device
from tests.validation.equality_cases import AUDITS, ON_RAY, OTHERS

_NOT_COMPARED = ("timing", "versions", "provenance", "looks", "seconds", "memory")
"""Parts of a key for values that depend on how a run was carried out, and not on its results."""

Digests = dict[str, str]


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record", help="play everything and write the digests")
    recording.add_argument("file", type=Path)
    recording.add_argument("--only", default="", help="cases whose name contains this text")
    recording.add_argument("--without-ray", action="store_true", help="leave out the cases that start Ray")
    comparing = commands.add_parser("compare", help="list what differs between two files")
    comparing.add_argument("old", type=Path)
    comparing.add_argument("new", type=Path)
    chosen = parser.parse_args()
    if chosen.command == "record":
        record(chosen.file, chosen.only, with_ray=not chosen.without_ray)
        return
    difference_lines = differences(json.loads(chosen.old.read_text()), json.loads(chosen.new.read_text()))
    print("\n".join(difference_lines) or "All digests are equal.")
    sys.exit(1 if difference_lines else 0)


def record(file: Path, only: str = "", *, with_ray: bool = True) -> None:
    """Play all cases and write their digests to a file, by the name of the case.

    The names of the cases contain `only`.
    """
    torch.set_num_threads(1)
    audits = {name: partial(play, device=Device.CPU) for name, play in AUDITS.items()}
    cases: dict[str, Callable[[Path], Any]] = {**audits, **OTHERS, **(ON_RAY if with_ray else {})}
    digests: dict[str, Digests] = {}
    for name, play in cases.items():
        if only not in name:
            continue
        print(f"{name} ...", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory() as temporary_name:
            directory = Path(temporary_name) / "run"
            numbers = play(directory)
            tables = dict(_tables(directory))
            digests[name] = {**tables, **_numbers(numbers)}
        file.write_text(json.dumps(digests, indent=1, sort_keys=True) + "\n")
    count = sum(map(len, digests.values()))
    print(f"{count} digests of {len(digests)} cases: {file}")


def _tables(directory: Path) -> Iterator[tuple[str, str]]:
    """Yield name and digest of each column of each table at the top of a run directory."""
    for path in sorted(directory.glob("*.parquet")):
        frame = pd.read_parquet(path)
        for column in frame.columns:
            yield f"{path.stem}.{column}", _digest(frame[column])


def _digest(column: "pd.Series[Any]") -> str:
    values = column.to_numpy()
    content = json.dumps(values.tolist()).encode() if values.dtype == object else np.ascontiguousarray(values).tobytes()
    return hashlib.sha256(f"{values.dtype}{values.shape}".encode() + content).hexdigest()[:20]


def _numbers(values: Any) -> Digests:
    """Return each number and verdict of nested values by its path, as the text that reproduces it to the last bit."""
    return {
        path: repr(value)
        for path, value in _flat(values)
        if isinstance(value, int | float) or path.endswith("verdict")
        if not any(fragment in path for fragment in _NOT_COMPARED)
    }


def _flat(values: Any, path: str = "summary") -> Iterator[tuple[str, Any]]:
    match values:
        case Mapping():
            for key, value in values.items():
                yield from _flat(value, f"{path}.{key}")
        case list() | tuple():
            for number, value in enumerate(values):
                key_name = value.get("name", number) if isinstance(value, Mapping) else number
                yield from _flat(value, f"{path}[{key_name}]")
        case _:
            yield path, values


def differences(old: Mapping[str, Digests], new: Mapping[str, Digests]) -> list[str]:
    """Return a line for each digest that differs or is in only one of two records, by case and key.

    Examples
    --------
    >>> differences({"a": {"mu": "1"}}, {"a": {"mu": "2"}})
    ['a: mu is 2 and was 1']
    """
    difference_lines: list[str] = []
    for case in dict.fromkeys([*old, *new]):
        before = old.get(case, {})
        after = new.get(case, {})
        changed = (key for key in dict.fromkeys([*before, *after]) if before.get(key) != after.get(key))
        difference_lines.extend(
            f"{case}: {key} is {after.get(key, 'missing')} and was {before.get(key, 'missing')}" for key in changed
        )
    return difference_lines
