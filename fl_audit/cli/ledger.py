"""The command `account --ledger`: the privacy that all trainings on the same data spend together."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer

from fl_audit.adjacency import Adjacency
from fl_audit.array_types import finite
from fl_audit.cli.options import print_json
from fl_audit.errors import InputError
from fl_audit.privacy.accounting_enums import Accountant, TrainingCount
from fl_audit.privacy.ledger import LedgerTraining, SpentPrivacy, add_to_ledger, composed_epsilon, read_ledger
from fl_audit.privacy.stated_releases import StatedReleases
from fl_audit.runs.expected_errors import OVER_BUDGET
from fl_audit.runs.option_declarations import option
from fl_audit.runs.terminal import print_table
from fl_audit.value_checks import choice, require_number
from fl_audit.words import plural

_LEDGER = (
    "Say what all trainings of this file spend together; one that is named by noise, rounds and adjacency is added "
    "first."
)
_BUDGET = (
    f"With --ledger: largest epsilon of all together; a training that passes it is not added (status {OVER_BUDGET})."
)


@dataclass(frozen=True)
class LedgerOptions:
    """Command-line options of the ledger, a file that lists trainings on the same data."""

    HELP_GROUP: ClassVar[str] = "Ledger"

    ledger: Annotated[Path | None, option("FILE", _LEDGER)] = None
    name: Annotated[str | None, option("NAME", "With --ledger: what the training is called.")] = None
    trainings: Annotated[
        int, option("N", "With --ledger: trainings alike that the line counts: points of a sweep, restarts.")
    ] = 1
    selection: Annotated[
        str | None,
        option(
            "NAME",
            "With --trainings as the mean of a number that was drawn in secret, and the best published alone: its "
            f"distribution, one of {', '.join(TrainingCount)}.",
            among=TrainingCount,
        ),
    ] = None
    budget: Annotated[float | None, option("E", _BUDGET)] = None


def account_ledger(
    path: Path, options: LedgerOptions, releases: StatedReleases | None, delta: float, as_json: bool
) -> None:
    """Add a training to a ledger if one is given and the budget allows it, and print what all trainings spend together.

    Raises `typer.Exit` with an error status if the budget is exceeded.

    Parameters
    ----------
    path
        Path of the ledger's file, which is created with its first training.
    options
        The options about the ledger.
    releases
        Releases of the training to add; None adds no training.
    delta
        Delta at which epsilon is computed, above 0 and below 1.
    as_json
        Whether to print one JSON object.
    """

    selection = None if options.selection is None else choice(TrainingCount, "--selection", options.selection)
    if releases is None and options.name is not None:
        raise InputError("--name without a training: accepted with its noise")
    require_number("--trainings", options.trainings, "whole numbers from 1")
    if releases is None and (options.trainings != 1 or selection is not None):
        raise InputError("--trainings and --selection without a training: accepted with its noise")
    budget = options.budget
    refused = None
    if releases is not None:
        line = LedgerTraining(options.name or "", releases, trainings=options.trainings, selection=selection)
        refused = None if add_to_ledger(path, line, budget, delta) else line
    elif not path.exists():
        raise InputError(f"{path} is missing: accepted is a ledger, or the first training of one")
    lines = read_ledger(path)
    total = composed_epsilon(lines, delta)
    over = refused is not None or (budget is not None and total.epsilon > budget)
    warnings = _weakness(total.epsilon, delta, lines[0].terms.adjacency) if lines else []
    warnings += [
        warning for line in (*lines, *([refused] if refused else [])) if (warning := real_noise(line, delta)[1])
    ]

    from fl_audit.privacy.guarantee_line import GUARANTEE_NAMES, guarantee_line

    if as_json:
        unknown = dict.fromkeys(GUARANTEE_NAMES) | {"epsilon": finite(total.epsilon), "delta": delta}
        values = (
            unknown
            | _guarantee_values(total, lines, delta)
            | {
                "trainings": [line.to_json() | {"noise_multiplier_real": line.noise_multiplier} for line in lines],
                "budget": budget,
                "over_budget": over,
                "added": releases is not None and refused is None,
                "digest": lines[-1].digest if lines else None,
                "warnings": warnings,
            }
        )
        print_json(values)
    else:
        _print_trainings(path, lines)
        if refused is not None:
            would = composed_epsilon((*lines, refused), delta).epsilon
            print(f"not added: with this training epsilon would be {would:.6g}, the budget is {budget:g}")
        within = "" if budget is None else f" of a budget of {budget:g}"
        count = sum(line.trainings for line in lines)
        verb = "spends" if count == 1 else "spend"
        on_average = " on average" if any(line.selection for line in lines) else ""
        print(f"{plural(count, 'training')}{on_average} {verb} epsilon {total.epsilon:.6g}{within} at delta {delta:g}")
        if together := _guarantee_values(total, lines, delta):
            print(f"Guarantee: {guarantee_line(together)}.")
        for warning in warnings:
            print(f"warning: {warning}")
        if lines:
            print(f"digest {lines[-1].digest}: note it elsewhere, and lines that are cut off at the end are found too")
    if over:
        raise typer.Exit(OVER_BUDGET)


def _weakness(epsilon: float, delta: float, adjacency: Adjacency) -> list[str]:
    """Return a warning, alone in a list, if all trainings together exclude nothing that a person could object to."""
    from fl_audit.report.guarantee_warnings import weak_claim_warning

    warning = weak_claim_warning(epsilon, delta, adjacency)
    return [] if warning is None else [warning]


def _guarantee_values(spent: SpentPrivacy, lines: Sequence[LedgerTraining], delta: float) -> dict[str, Any]:
    """Return the guarantee of all trainings together as values by name, as far as it is known.

    It is empty if there are none. Where the best of several was published, epsilon is known at this delta alone.
    """

    if not lines:
        return {}
    if spent.claim is None:
        adjacency = lines[0].terms.adjacency
        return {
            "epsilon": finite(spent.epsilon),
            "delta": delta,
            "accountant": str(Accountant.RDP),
            "adjacency": str(adjacency),
            "unit": str(adjacency.unit),
        }

    from fl_audit.privacy.guarantee_line import guarantee_values

    return guarantee_values(spent.epsilon, (spent.claim,))


def _print_trainings(path: Path, lines: Sequence[LedgerTraining]) -> None:
    columns, rows = ("training", "neighbours", "rounds", "sampling rate", "noise multiplier"), []
    for line in lines:
        releases = line.terms
        noise = f"{line.noise_multiplier:.6g}"
        called = f"{line.name}{_several_text(line)}".strip()
        rows.append((called, str(releases.adjacency), str(releases.rounds), f"{releases.sampling_rate:g}", noise))
    print_table(columns, rows, str(path), numbers=range(2, 5))
    if lines:
        print(f"Noise multipliers are over the sensitivity: {lines[0].terms.adjacency.sensitivity_words}.")


def _several_text(line: LedgerTraining) -> str:
    """Return how many trainings an entry counts, in brackets; empty for a single training."""
    if line.selection is not None:
        return f" (the best of {line.trainings:,} on average, {line.selection})"
    return "" if line.trainings == 1 else f" (each of {line.trainings:,})"


def real_noise(ledger_training: LedgerTraining, delta: float) -> tuple[float, str]:
    """Return the real noise multiplier of a training, and a warning if the stated sensitivity is too small, else "".

    The real noise multiplier is relative to the largest change of the sum that the clipping norm permits.

    Parameters
    ----------
    ledger_training
        The training, as an entry of a ledger.
    delta
        Delta at which the warning compares the real epsilon with the stated one, above 0 and below 1.
    """
    if ledger_training.sensitivity_ratio == 1:
        return ledger_training.noise_multiplier, ""
    real_epsilon, stated_epsilon = (
        composed_epsilon((training,), delta).epsilon
        for training in (ledger_training, LedgerTraining(ledger_training.name, ledger_training.terms))
    )
    moves = ledger_training.sensitivity_ratio * (ledger_training.sensitivity or 0.0)
    called = f"{ledger_training.name}: " if ledger_training.name else ""
    return ledger_training.noise_multiplier, (
        f"{called}sensitivity {ledger_training.sensitivity:g} is stated, but clipped to "
        f"{ledger_training.clipping_norm:g} a contribution can "
        f"move the sum by {moves:g}: the noise multiplier is really {ledger_training.noise_multiplier:.3g}, and "
        "epsilon "
        f"{real_epsilon:.3g}, not {stated_epsilon:.3g}"
    )
