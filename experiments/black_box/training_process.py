"""The process of `fl-audit training`: the code of others runs in one of its own, in a copy of the working directory.

This module is the program of that process, too.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fl_audit.errors import InputError
from fl_audit.experiments.black_box.isolated_process import answer, wished_apart
from fl_audit.user_modules import search_last


@dataclass(frozen=True)
class TrainingWishes:
    """What a user asks of a training function; see the command."""

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
    wishes, out
        What is asked, and where `report.html` and `summary.json` are written; None for nowhere.

    Raises
    ------
    InputError
        If the input is wrong, or the process ended without a word.
    """
    found, ended, is_late = wished_apart(__name__, wishes, out, wishes.seconds, is_quiet=True)
    if found is None:
        more = "; accepted is more --minutes, or fewer records or epochs" if is_late else ""
        raise InputError(f"the process that ran {wishes.function} {ended}{more}")
    return found


def _audited(asked: dict[str, Any], _: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Audit a training function here, in a copy of the working directory that is removed afterwards."""
    from fl_audit.local_training.assessment import assessment_json
    from fl_audit.local_training.training_function import TrainingOptions, audit_training
    from fl_audit.strategies.black_box.working_copy import apart, own_copy
    from fl_audit.user_modules import import_function

    wishes = TrainingWishes(**asked["wishes"])
    options = TrainingOptions(
        wishes.rounds, wishes.calls, wishes.epsilon, wishes.delta, wishes.records_per_user
    )  # fmt: skip
    with apart(own_copy()):
        function = import_function(wishes.function, "training function")
        model, dataset = (
            None if name is None else import_function(name, what)()
            for name, what in ((wishes.model, "--model"), (wishes.data, "--data"))
        )
        done = audit_training(function, wishes.function, model, dataset, options)
    values = assessment_json(done)
    if asked["out"]:
        from fl_audit.experiments.black_box.page import write_assessment

        values["report"] = str(write_assessment(done, values, Path(asked["out"])))
    return values


if __name__ == "__main__":
    # A function of one's own is looked for where the user stands.
    search_last(Path.cwd())
    answer(_audited)
