"""Hunt the animals: `python -m tests.validation.zoo [--only NAME,...] [--quick] [--processes N] [--out DIR]`.

Every animal has to be called violated, and every honest mechanism must not be. Prints one table; with `--out` writes
zoo.csv and sharp-edges.md as they come, and a second call goes on after the rows of the same rule. The exit status is
1 where an animal got away or an honest mechanism was accused.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.status import Status
from rich.table import Table

from fl_audit.errors import require_number
from fl_audit.experiments.cli.main import guarded
from fl_audit.experiments.studies.chores import end, named, parser_of, table_of
from fl_audit.whole_files import whole_file
from tests.validation.zoo.animals import ANIMALS
from tests.validation.zoo.honest import HONEST, Animal, Honest
from tests.validation.zoo.hunt import BUDGETS, TrialRow, hunt, page, problems, read_csv, rule_of, told, write_csv


def _table(rows: Sequence[tuple[Animal | Honest, TrialRow]]) -> Table:
    columns = ("mechanism", "claim", "verdict", "told by", "epsilon at least", "right", "s", "honest twin")
    made, verdicts = table_of(columns, words=columns), {what.name: row.verdict for what, row in rows}
    for what, row in rows:
        twin = f"{what.twin.name}: {verdicts[what.twin.name]}" if isinstance(what, Animal) else ""
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
    with whole_file(out / "sharp-edges.md") as temporary:
        text = page(caught, {one.name: done[one.name] for one in HONEST if one.name in done})
        temporary.write_text(text, encoding="utf-8")


def main() -> None:
    """Hunt, print the table, and write it."""
    parser = parser_of(__doc__)
    parser.add_argument("--only", metavar="NAME,...", help="these animals with their honest twins, instead of all")
    parser.add_argument("--quick", action="store_true", help="fewer games: some animals may get away")
    parser.add_argument("--processes", type=int, default=2, help="games played at the same time")
    parser.add_argument("--out", type=Path, help="where to write zoo.csv and sharp-edges.md")
    options = parser.parse_args()
    require_number("processes are", options.processes, "whole numbers from 1")
    animals = named(options.only, {one.name: one for one in ANIMALS}, "animal")
    mechanisms: list[Animal | Honest] = [*animals, *{one.twin.name: one.twin for one in animals}.values()]
    budgets, console = BUDGETS[:1] if options.quick else BUDGETS, Console(width=200)
    done = read_csv(options.out / "zoo.csv", rule_of(budgets)) if options.out else {}
    with console.status("starting") as status:
        for what in mechanisms:
            if what.name not in done:
                done[what.name] = hunt(what, budgets, options.processes, tell=partial(_show, status, what.name))
                console.print(f"{what.name}: {done[what.name].verdict} in {done[what.name].seconds:.0f} s", style="dim")
            if options.out:
                _write(done, options.out)
    rows = [(what, done[what.name]) for what in mechanisms]
    console.print(_table(rows))
    console.print("Seconds in brackets are those of all processors together.")
    end(problems(rows), "every animal is caught, and no honest mechanism is")


if __name__ == "__main__":
    guarded(main)
