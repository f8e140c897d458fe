"""Tools for the commands of studies and benchmarks: option parsing, tables, temporary runs, and exit status."""

import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from shutil import which
from statistics import median
from typing import Any, NoReturn, TypeVar

import numpy as np
from rich.table import Table

from fl_audit.errors import require
from fl_audit.experiments.runs.audit_plan import AuditPlan, resolve
from fl_audit.experiments.runs.config import parse_config
from fl_audit.experiments.runs.progress import Progress, no_progress
from fl_audit.experiments.runs.ray_engine import Engine
from fl_audit.experiments.runs.run import HONEST, ClientAppAndStrategy, run_audit
from fl_audit.report.report_elements import ReportContents

T = TypeVar("T")


def parser_of(doc: str | None, quick: str = "") -> ArgumentParser:
    """Return an argument parser whose help shows a command's docstring without reformatting.

    Parameters
    ----------
    doc
        The docstring; None for no text.
    quick
        Help of the option `--quick`; empty for a command without this option.
    """
    parser = ArgumentParser(description=doc, formatter_class=RawDescriptionHelpFormatter)
    if quick:
        parser.add_argument("--quick", action="store_true", help=quick)
    return parser


def table_of(
    columns: Sequence[str], title: str | None = None, words: Sequence[str] = (), rows: Iterable[Sequence[str]] = ()
) -> Table:
    """Return a table for printing on the console.

    Parameters
    ----------
    columns
        Names of the columns.
    title
        Title above the table, or None.
    words
        Names of the columns of text, which are left-aligned; all others are right-aligned.
    rows
        Rows of the table; more can be added later.
    """
    table = Table(title=title)
    for column in columns:
        table.add_column(column, justify="left" if column in words else "right")
    for row in rows:
        table.add_row(*row)
    return table


def end(problems: Sequence[str], fine: str) -> NoReturn:
    """Print `problems` and exit with status 1, or print `fine` and exit with status 0 if there are none.

    Parameters
    ----------
    problems
        Sentences on results that contradict the claims.
    fine
        Sentence for no problems.
    """
    print("\n".join(problems) or fine)
    sys.exit(1 if problems else 0)


def played(
    what: AuditPlan | dict[str, Any], parties: ClientAppAndStrategy = HONEST, progress: Progress = no_progress
) -> ReportContents:
    """Carry out a run on the local engine in a temporary directory, and return its results for a report.

    Parameters
    ----------
    what
        Plan of the run, or its configuration as nested dictionaries.
    parties
        The apps of clients and server.
    progress
        The progress display.
    """
    plan = what if isinstance(what, AuditPlan) else resolve(parse_config(what))
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "run"
        return run_audit(plan, path, Engine.LOCAL, progress=progress, parties=parties, with_report=False)


def at_each_round(note: Callable[[], None]) -> Progress:
    """Return a progress display that shows nothing, and calls a function whenever trial-rounds are finished.

    A trial-round is one round of one trial.
    """
    return lambda total: nullcontext(lambda done: note())


def asked(
    python: str, script: str, told: Mapping[str, Any], of_whom: str, environment: Mapping[str, str] | None = None
) -> dict[str, np.ndarray[Any, Any]]:
    """Run a script in another Python interpreter, and return the arrays that it writes, keyed by name.

    Parameters
    ----------
    python
        Path of the interpreter.
    script
        Source of the script; its two arguments are the paths of the .npz files to read and to write.
    told
        The arrays that the script reads, keyed by name.
    of_whom
        Name of the software that the script runs, for error messages.
    environment
        Environment variables; None for those of this process.

    Raises
    ------
    InputError
        If the interpreter does not exist or fails; the message includes the last line of its output.
    """
    require(which(python) is not None, f"{python} is no interpreter: accepted is the path of a Python")
    with tempfile.TemporaryDirectory() as scratch:
        read, written, path = (Path(scratch) / name for name in ("told.npz", "answered.npz", "attack.py"))
        np.savez(read, **told)
        path.write_text(script)
        done = subprocess.run([python, path, read, written], capture_output=True, text=True, env=environment)
        wrote = done.stderr.strip().splitlines()[-1:] or ["nothing"]
        require(done.returncode == 0, f"{python} failed with {of_whom}; it wrote: {wrote[0]}")
        with np.load(written) as arrays:
            return dict(arrays)


def turns(*ways: Callable[[], object], repeat: int) -> list[float]:
    """Time functions in turns, and return the median seconds of each function; a first turn is a warm-up.

    Parameters
    ----------
    ways
        Functions to time.
    repeat
        Number of turns after the warm-up.
    """
    seconds: list[list[float]] = [[] for _ in ways]
    for _ in range(repeat + 1):
        for work, taken in zip(ways, seconds, strict=True):
            began = time.perf_counter()
            work()
            taken.append(time.perf_counter() - began)
    return [median(taken[1:]) for taken in seconds]
