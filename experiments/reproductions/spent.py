"""What the runs behind a table or figure took: how many worlds, how many minutes, by which commits."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import isfinite, nan
from pathlib import Path

from experiments.runs.provenance import read_provenance
from experiments.runs.run_directory import RunDirectory
from experiments.runs.store import write_json
from fl_audit.errors import InputError
from fl_audit.stored_json import read_json


@dataclass(frozen=True)
class RunCosts:
    """The runs behind a table or figure."""

    worlds: int = 0  # worlds of all runs together
    minutes: float = 0.0  # of all runs, as if they had followed each other; NaN where one was not timed
    commits: tuple[str, ...] = ()  # of the software that played them, in the order of their names


def note_seconds(run: Path, seconds: float) -> None:
    """Note beside a run directory how long the run, or a part of it, took; parts add up.

    Parameters
    ----------
    run, seconds
        The run directory; how long this part took, in seconds.
    """
    file = _seconds_file(run)
    before = float(read_json(file)["seconds"]) if file.exists() else 0.0
    write_json(file, {"seconds": before + seconds})


def seconds_of(run: Path) -> float:
    """Return how many seconds a finished run took: as noted, else those of its training alone; NaN if none are known.

    Parameters
    ----------
    run
        The run directory.
    """
    file = _seconds_file(run)
    if file.exists():
        return float(read_json(file)["seconds"])
    try:
        timing = read_json(run / "timing.json")
    except InputError:
        return nan
    return float(timing["setup_seconds"]) + float(timing["training_seconds"])


def spent_on(runs: Mapping[Path, int]) -> RunCosts:
    """Return what runs took together.

    Parameters
    ----------
    runs
        Finished run directories, with their numbers of worlds.
    """
    commits: set[str] = set()
    for run in runs:
        origin = read_provenance(RunDirectory(run))
        commits |= {session.commit for session in origin.sessions if session.commit} if origin else set()
    seconds = sum(map(seconds_of, runs))
    return RunCosts(sum(runs.values()), seconds / 60 if isfinite(seconds) else nan, tuple(sorted(commits)))


def together(parts: Iterable[RunCosts]) -> RunCosts:
    """Return what several sets of runs without a common one took.

    Parameters
    ----------
    parts
        What each took.
    """
    own = list(parts)
    commits = sorted({commit for one in own for commit in one.commits})
    return RunCosts(sum(one.worlds for one in own), sum(one.minutes for one in own), tuple(commits))


def _seconds_file(run: Path) -> Path:
    return run.with_name(f"{run.name}.seconds.json")
