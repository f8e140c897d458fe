"""The command that audits the claim of a private training function: `fl-audit training`."""

from pathlib import Path
from typing import Annotated

import typer

from fl_audit.adjacency import Adjacency
from fl_audit.errors import require_number
from fl_audit.experiments.black_box.training_process import TrainingWishes, training_apart
from fl_audit.experiments.cli.options import JsonOption, argument, option, print_json, switch
from fl_audit.experiments.names import VIOLATED
from fl_audit.experiments.runs.progress import at_work
from fl_audit.privacy.ledger import LedgerLine, add_to_ledger
from fl_audit.privacy.terms import TrainingTerms
from fl_audit.user_modules import require_named


def training(
    function: Annotated[
        str, argument("PACKAGE.MODULE:FUNCTION", "Trains: train(model, dataset), train(dataset) or train().")
    ],
    data: Annotated[str | None, option("PACKAGE.MODULE:FUNCTION", "Returns the data set that it takes.")] = None,
    model: Annotated[str | None, option("PACKAGE.MODULE:FUNCTION", "Returns the model that it takes.")] = None,
    rounds: Annotated[int, option("K", "Rounds of the whole training: it is called once in each.")] = 1,
    calls: Annotated[int, option("N", "In how many of them it is called here.")] = 2,
    claim_epsilon: Annotated[
        float | None, option("E", "Claimed over all rounds.  [default: what its accountant names]")
    ] = None,
    claim_delta: Annotated[
        float | None, option("D", "delta of the claimed epsilon.  [default: what its accountant is asked for]")
    ] = None,
    records_per_user: Annotated[int, option("N", "Most records of one person: epsilon is said for persons too.")] = 1,
    ledger: Annotated[Path | None, option("FILE", "Add the steps of all rounds to this ledger.")] = None,
    minutes: Annotated[float, option("M", "Time limit.")] = 5.0,
    out: Annotated[Path | None, option("DIR", "Write report.html and summary.json there.")] = None,
    fail_on_violation: Annotated[
        bool, switch("--fail-on-violation", f"Exit with status {VIOLATED} if the claim is violated.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Say whether a training with Opacus is the one that it claims to be."""
    for named in (function, data, model):
        if named is not None:
            require_named(named)
    for flag, value in (("--rounds", rounds), ("--calls", calls), ("--records-per-user", records_per_user)):
        require_number(flag, value, "whole numbers from 1")
    require_number("--minutes", minutes, "numbers above 0")
    if claim_epsilon is not None:
        require_number("--claim-epsilon", claim_epsilon, "numbers above 0")
    if claim_delta is not None:
        require_number("--claim-delta", claim_delta, "numbers above 0 and below 1")
    wishes = TrainingWishes(
        function, data, model, rounds, calls, claim_epsilon, claim_delta, records_per_user, 60 * minutes
    )  # fmt: skip
    with at_work(f"training by {function}"):
        found = training_apart(wishes, out)
    if ledger is not None:
        _add_steps(ledger, function, found)
    if as_json:
        print_json(found)
    else:
        print(found["headline"])
        for about, said in found["screen"]:
            print(f"* {about}: {said}")
        if "report" in found:
            print(f"report: {found['report']}")
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
