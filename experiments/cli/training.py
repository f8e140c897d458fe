"""The command that audits the claim of a private training function: `fl-audit training`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from fl_audit.adjacency import Adjacency
from fl_audit.errors import require_number
from fl_audit.experiments.black_box.training_process import TrainingWishes, training_apart
from fl_audit.experiments.cli.options import ResultOptions, argument, option, switch
from fl_audit.experiments.names import VIOLATED
from fl_audit.experiments.runs.progress import at_work
from fl_audit.privacy.ledger import LedgerLine, add_to_ledger
from fl_audit.privacy.terms import TrainingTerms
from fl_audit.user_modules import require_named


@dataclass(frozen=True)
class CallOptions:
    """The options on the calls of the function, and on the claim about it."""

    data: Annotated[str | None, option("PACKAGE.MODULE:FUNCTION", "Returns the data set that it takes.")] = None
    model: Annotated[str | None, option("PACKAGE.MODULE:FUNCTION", "Returns the model that it takes.")] = None
    rounds: Annotated[int, option("K", "Rounds of the whole training: it is called once in each.")] = 1
    calls: Annotated[int, option("N", "In how many of them it is called here.")] = 2
    claim_epsilon: Annotated[
        float | None, option("E", "Claimed over all rounds.  [default: what its accountant names]")
    ] = None
    claim_delta: Annotated[
        float | None, option("D", "delta of the claimed epsilon.  [default: what its accountant is asked for]")
    ] = None
    records_per_user: Annotated[int, option("N", "Most records of one person: epsilon is said for persons too.")] = 1
    minutes: Annotated[float, option("M", "Time limit.")] = 5.0

    def wishes(self, function: str) -> TrainingWishes:
        """Return the request to audit a function; raises `InputError` if a number is out of its range."""
        for named in (function, self.data, self.model):
            if named is not None:
                require_named(named)
        for flag, value in (
            ("rounds", self.rounds),
            ("calls", self.calls),
            ("records-per-user", self.records_per_user),
        ):
            require_number(f"--{flag}", value, "whole numbers from 1")
        require_number("--minutes", self.minutes, "numbers above 0")
        if self.claim_epsilon is not None:
            require_number("--claim-epsilon", self.claim_epsilon, "numbers above 0")
        if self.claim_delta is not None:
            require_number("--claim-delta", self.claim_delta, "numbers above 0 and below 1")
        return TrainingWishes(
            function,
            self.data,
            self.model,
            self.rounds,
            self.calls,
            self.claim_epsilon,
            self.claim_delta,
            self.records_per_user,
            60 * self.minutes,
        )


def training(
    function: Annotated[
        str, argument("PACKAGE.MODULE:FUNCTION", "Trains: train(model, dataset), train(dataset) or train().")
    ],
    *,
    called: CallOptions,
    ledger: Annotated[Path | None, option("FILE", "Add the steps of all rounds to this ledger.")] = None,
    shown: ResultOptions,
    fail_on_violation: Annotated[
        bool, switch("--fail-on-violation", f"Exit with status {VIOLATED} if the claim is violated.")
    ] = False,
) -> None:
    """Say whether a training with Opacus is the one that it claims to be."""
    wishes = called.wishes(function)
    with at_work(f"training by {function}"):
        found = training_apart(wishes, shown.out)
    if ledger is not None:
        _add_steps(ledger, function, found)
    shown.show_screen(found)
    if fail_on_violation and found["verdict"] == "violated":
        raise typer.Exit(VIOLATED)


def _add_steps(ledger: Path, name: str, found: dict[str, object]) -> None:
    """Add the real steps of a training to a ledger."""
    composed = found["composed"]
    for step in composed["steps"] if isinstance(composed, dict) else ():
        terms = TrainingTerms(
            Adjacency.ADD_REMOVE_RECORD, step["noise_multiplier"], step["steps"], step["sampling_rate"]
        )  # fmt: skip
        add_to_ledger(ledger, LedgerLine(name, terms))
