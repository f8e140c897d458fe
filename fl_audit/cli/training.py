"""The command `training`, which audits the claim of a private training function."""

from pathlib import Path
from typing import Annotated, Any

from fl_audit.adjacency import Adjacency
from fl_audit.app_audits.launchers.training_audit_launcher import TrainingFunctionOptions, audit_training_in_subprocess
from fl_audit.cli.options import FailOption, ResultOptions, end_if_violated
from fl_audit.errors import InputError
from fl_audit.privacy.ledger import LedgerTraining, add_to_ledger
from fl_audit.privacy.stated_releases import StatedReleases
from fl_audit.runs.option_declarations import option
from fl_audit.runs.progress import at_work


def training(
    *,
    options: TrainingFunctionOptions,
    ledger: Annotated[Path | None, option("FILE", "Add the steps of all rounds to this ledger.")] = None,
    result_options: ResultOptions,
    fail_on_violation: FailOption = False,
) -> None:
    """Audit a private training, with Opacus or without, against the privacy that it claims.

    The command runs a training function of the user's own, and compares the noise, clipping and sampling that it really
    uses with its claim.
    """
    options.check()
    with at_work(f"training by {options.function}"):
        answer = audit_training_in_subprocess(options, result_options.out)
    if ledger is not None and (composed := answer["composed"]) is not None and composed["epsilon"] is not None:
        _add_steps(ledger, options.function, composed)
        if composed["is_least"]:
            answer["lines"].append(["Ledger", "what was added is the least that these steps may spend."])
    result_options.show(answer)
    if ledger is not None and composed is not None and composed["epsilon"] is None:
        raise InputError(
            f"{ledger} got no line, since the training has no finite epsilon: accepted is a training whose output is "
            "noised; release nothing of this one, or count its records as spent"
        )
    end_if_violated(answer["verdict"], fail_on_violation)


def _add_steps(ledger: Path, name: str, composed: dict[str, Any]) -> None:
    """Add to a ledger the DP-SGD steps of a training. A ledger is a file that lists all trainings on the same data."""
    for step in composed["steps"]:
        terms = StatedReleases(
            Adjacency.ADD_REMOVE_RECORD, step["noise_multiplier"], step["steps"], step["sampling_rate"]
        )
        add_to_ledger(ledger, LedgerTraining(name, terms))
