"""Audit of a training function for `fl-audit training`: the function runs in a subprocess, in a copy of its directory.

The subprocess calls the function of `isolated_training_audit`.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from fl_audit.app_audits.launchers.isolated_process import run_command_isolated
from fl_audit.errors import InputError
from fl_audit.runs.option_declarations import argument, option
from fl_audit.user_modules import require_named
from fl_audit.value_checks import require_number

_AUDIT = "fl_audit.app_audits.launchers.isolated_training_audit:audit_users_training"


@dataclass(frozen=True)
class TrainingFunctionOptions:
    """Options of the audit of a training function, as given on the command line."""

    function: Annotated[
        str, argument("PACKAGE.MODULE:FUNCTION", "Trains: train(model, dataset), train(dataset) or train().")
    ]
    data: Annotated[str | None, option("PACKAGE.MODULE:FUNCTION", "Returns the data set that it takes.")] = None
    model: Annotated[str | None, option("PACKAGE.MODULE:FUNCTION", "Returns the model that it takes.")] = None
    rounds: Annotated[int, option("K", "Rounds of the whole training: it is called once in each.")] = 1
    calls: Annotated[int, option("N", "Number of rounds in which it is called here.")] = 2
    claim_epsilon: Annotated[
        float | None, option("E", "Claimed over all rounds.  [default: what its accountant names]")
    ] = None
    claim_delta: Annotated[
        float | None, option("D", "delta of the claimed epsilon.  [default: what its accountant is asked for]")
    ] = None
    records_per_user: Annotated[int, option("N", "Most records of one person: epsilon is said for persons too.")] = 1
    minutes: Annotated[float, option("M", "Time limit.")] = 5.0

    def check(self) -> None:
        """Raise `InputError` if a name is not of the form `package.module:name`, or a number is out of its range."""
        for path in (self.function, self.data, self.model):
            if path is not None:
                require_named(path)
        for name in ("rounds", "calls", "records_per_user"):
            require_number(f"--{name.replace('_', '-')}", getattr(self, name), "whole numbers from 1")
        require_number("--minutes", self.minutes, "numbers above 0")
        if self.claim_epsilon is not None:
            require_number("--claim-epsilon", self.claim_epsilon, "numbers above 0")
        if self.claim_delta is not None:
            require_number("--claim-delta", self.claim_delta, "numbers above 0 and below 1")


def audit_training_in_subprocess(options: TrainingFunctionOptions, out: Path | None = None) -> dict[str, Any]:
    """Audit a training function in a subprocess, and return the assessment as JSON values, keyed by name."""
    answer_values, ended, is_late = run_command_isolated(_AUDIT, options, out, 60 * options.minutes, is_quiet=True)
    if answer_values is None:
        remedy = "; accepted is more --minutes, or fewer records or epochs" if is_late else ""
        raise InputError(f"the process that ran {options.function} {ended}{remedy}")
    return answer_values
