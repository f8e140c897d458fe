"""The process of `fl-audit training`: other people's code runs in a process of its own, in a copy of the directory.

The program of that process is `training_program`.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fl_audit.errors import InputError
from fl_audit.experiments.black_box.isolated_process import wished_apart

_PROGRAM = "fl_audit.experiments.black_box.training_program"


@dataclass(frozen=True)
class TrainingWishes:
    """A user's request for the audit of a training function; see the command."""

    function: str  # trains, as `package.module:name`
    data: str | None = None  # makes its data set, as `package.module:name`
    model: str | None = None  # makes its model, as `package.module:name`
    rounds: int = 1  # rounds of the whole training
    calls: int = 2  # in how many of them it is called here
    epsilon: float | None = None  # the claimed epsilon
    delta: float | None = None  # its delta
    records_per_user: int = 1  # most records of one person
    seconds: float = 300.0  # time limit


def training_apart(wishes: TrainingWishes, out: Path | None = None) -> dict[str, Any]:
    """Audit a training function in a process of its own, and return the assessment as JSON values.

    Parameters
    ----------
    wishes
        The request of the user.
    out
        Directory of `report.html` and `summary.json`; None for no files.

    Raises
    ------
    InputError
        If the input is wrong, or the process ended without an answer.
    """
    found, ended, is_late = wished_apart(_PROGRAM, wishes, out, wishes.seconds, is_quiet=True)
    if found is None:
        more = "; accepted is more --minutes, or fewer records or epochs" if is_late else ""
        raise InputError(f"the process that ran {wishes.function} {ended}{more}")
    return found
