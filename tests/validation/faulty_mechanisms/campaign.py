"""Evaluation of the faulty mechanisms: `python -m tests.validation faulty_mechanisms [--only NAME,...] [--quick]
[--processes N] [--journal FILE] [--out FILE]`.

Every faulty mechanism has to be called violated, and every honest mechanism must not be. Prints one table; `--out`
writes the page sharp-edges.md. With `--journal` every row is kept in a file that only grows, and a second call goes on
after it. The exit status is 1 where a faulty mechanism got away or an honest mechanism was accused.
"""

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.status import Status
from rich.table import Table

from fl_audit.atomic_files import atomic_file
from fl_audit.experiments.studies.study_commands import exit_with, parser_of, table_of
from fl_audit.value_checks import require_number
from tests.validation.choices import selected_values
from tests.validation.faulty_mechanisms.catalogue import FAULTY_MECHANISMS
from tests.validation.faulty_mechanisms.evaluation import (
    BUDGETS,
    EvaluationRow,
    bound_text,
    evaluate,
    page,
    problems,
    rule_of,
)
from tests.validation.faulty_mechanisms.honest_twins import HONEST, FaultyMechanism, HonestMechanism
from tests.validation.journal import append, read


def _table(rows: Sequence[tuple[FaultyMechanism | HonestMechanism, EvaluationRow]]) -> Table:
    columns = ("mechanism", "claim", "verdict", "told by", "epsilon at least", "right", "s", "honest twin")
    table = table_of(columns, words=columns)
    verdicts = {mechanism.name: row.verdict for mechanism, row in rows}
    for mechanism, row in rows:
        twin = (
            f"{mechanism.twin.name}: {verdicts[mechanism.twin.name]}" if isinstance(mechanism, FaultyMechanism) else ""
        )
        right = f"{row.right:.1%} of {row.allowed_right:.1%}"
        seconds = f"{row.seconds:.0f} ({row.processor_seconds:.0f})"
        table.add_row(
            row.name, row.claim, row.verdict, f"{row.trial}: {row.group}", bound_text(row), right, seconds, twin
        )
    return table


def _show(status: Status, name: str, words: str) -> None:
    status.update(f"{name}: {words}")


def main() -> None:
    """Evaluate, print the table, and write it."""
    parser = parser_of(__doc__)
    parser.add_argument(
        "--only", metavar="NAME,...", help="these faulty mechanisms with their honest twins, instead of all"
    )
    parser.add_argument("--quick", action="store_true", help="fewer trials: some faulty mechanisms may get away")
    parser.add_argument("--processes", type=int, default=2, help="trials played at the same time")
    parser.add_argument("--journal", type=Path, help="file that keeps every row")
    parser.add_argument("--out", type=Path, help="file for the page of the faulty mechanisms, as Markdown")
    options = parser.parse_args()
    require_number("processes are", options.processes, "whole numbers from 1")
    faulty_mechanisms = selected_values(
        options.only, {entry.name: entry for entry in FAULTY_MECHANISMS}, "faulty mechanism"
    )
    mechanisms: list[FaultyMechanism | HonestMechanism] = [
        *faulty_mechanisms,
        *{entry.twin.name: entry.twin for entry in faulty_mechanisms}.values(),
    ]
    budgets = BUDGETS[:1] if options.quick else BUDGETS
    console = Console(width=200)
    done = {row["name"]: EvaluationRow(**row) for row in read(options.journal, rule=rule_of(budgets))}
    with console.status("starting") as status:
        for mechanism in mechanisms:
            if mechanism.name not in done:
                done[mechanism.name] = evaluate(
                    mechanism, budgets, options.processes, tell=partial(_show, status, mechanism.name)
                )
                append(options.journal, asdict(done[mechanism.name]))
                console.print(
                    f"{mechanism.name}: {done[mechanism.name].verdict} in {done[mechanism.name].seconds:.0f} s",
                    style="dim",
                )
    if options.out:
        caught = {faulty: done[faulty.name] for faulty in FAULTY_MECHANISMS if faulty.name in done}
        with atomic_file(options.out) as temporary:
            text = page(caught, {entry.name: done[entry.name] for entry in HONEST if entry.name in done})
            temporary.write_text(text, encoding="utf-8")
    rows = [(mechanism, done[mechanism.name]) for mechanism in mechanisms]
    console.print(_table(rows))
    console.print("Seconds in brackets are those of all processors together.")
    exit_with(problems(rows), "every faulty mechanism is caught, and no honest mechanism is")
