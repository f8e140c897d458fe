"""Hunt the animals of the zoo: `python -m experiments.zoo [--only NAME,...] [--quick] [--processes N] [--out DIR]`.

Every animal has to be called violated, and every honest mechanism must not be. Prints one table; with `--out` writes
zoo.csv and sharp-edges.md as they come, and a second call goes on after the rows of the same rule. The exit status is
1 where an animal got away or an honest mechanism was accused.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.status import Status
from rich.table import Table

from experiments.cli.main import guarded
from experiments.zoo.animal import Animal, Honest
from experiments.zoo.animals import ANIMALS
from experiments.zoo.honest import HONEST
from experiments.zoo.hunt import BUDGETS, TrialRow, hunt, problems, read_csv, rule_of, write_csv
from experiments.zoo.page import told, write_page
from fl_audit.errors import InputError, require


def chosen(names: str | None) -> list[Animal]:
    """Return the animals of some names, separated by commas; all of them for None.

    Raises
    ------
    InputError
        If there is no animal of a name.
    """
    if names is None:
        return list(ANIMALS)
    by_name = {animal.name: animal for animal in ANIMALS}
    for name in names.split(","):
        if name not in by_name:
            raise InputError(f"animal is {name!r}: accepted are {', '.join(by_name)}")
    return [by_name[name] for name in names.split(",")]


def table(rows: Sequence[tuple[Animal | Honest, TrialRow]]) -> Table:
    """Return the table of all that was played."""
    made = Table("mechanism", "claim", "verdict", "told by", "epsilon at least", "right", "s", "honest twin")
    verdicts = {what.name: row.verdict for what, row in rows if isinstance(what, Honest)}
    for what, row in rows:
        twin = f"{what.twin.name}: {verdicts.get(what.twin.name, 'not played')}" if isinstance(what, Animal) else ""
        right = f"{row.right:.1%} of {row.allowed_right:.1%}"
        seconds = f"{row.seconds:.0f} ({row.processor_seconds:.0f})"
        made.add_row(row.name, row.claim, row.verdict, f"{row.game}: {row.group}", told(row), right, seconds, twin)
    return made


def _show(status: Status, name: str, words: str) -> None:
    status.update(f"{name}: {words}")


def _write(done: Mapping[str, TrialRow], out: Path) -> None:
    """Write all rows, and the page of the animals among them."""
    write_csv(list(done.values()), out / "zoo.csv")
    caught = {animal: done[animal.name] for animal in ANIMALS if animal.name in done}
    write_page(caught, {one.name: done[one.name] for one in HONEST if one.name in done}, out / "sharp-edges.md")


def main() -> None:
    """Hunt, print the table, and write it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="NAME,...", help="these animals with their honest twins, instead of all")
    parser.add_argument("--quick", action="store_true", help="fewer games: some animals may get away")
    parser.add_argument("--processes", type=int, default=2, help="games played at the same time")
    parser.add_argument("--out", type=Path, help="where to write zoo.csv and sharp-edges.md")
    options = parser.parse_args()
    require(options.processes >= 1, f"processes are {options.processes}: accepted are whole numbers from 1")
    animals = chosen(options.only)
    twins = list({animal.twin.name: animal.twin for animal in animals}.values())
    console = Console(width=200)
    mechanisms: list[Animal | Honest] = [*animals, *twins]
    budgets = BUDGETS[:1] if options.quick else BUDGETS
    path = options.out / "zoo.csv" if options.out else None
    done = read_csv(path, rule_of(budgets)) if path else {}
    with console.status("starting") as status:
        for what in mechanisms:
            if what.name not in done:
                done[what.name] = hunt(what, budgets, options.processes, tell=partial(_show, status, what.name))
                console.print(f"{what.name}: {done[what.name].verdict} in {done[what.name].seconds:.0f} s", style="dim")
            if options.out:
                _write(done, options.out)
    rows = [(what, done[what.name]) for what in mechanisms]
    console.print(table(rows))
    console.print("Seconds in brackets are those of all processors together.")
    found = problems(rows)
    print("\n".join(found) or "every animal is caught, and no honest mechanism is")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    guarded(main)
