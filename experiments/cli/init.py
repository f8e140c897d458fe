"""The command that writes a configuration for one's own data: init."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from fl_audit.errors import InputError

TARGETS = ("belief", "epsilon", "advantage", "noise-multiplier")


def init(
    file: Annotated[Path, typer.Argument(metavar="[FILE]", help="Configuration to write.")] = Path("audit.toml"),
    data: Annotated[
        str | None,
        typer.Option(
            "--data", metavar="FILE|NAME", help="A CSV file, an archive .npz, a directory of pictures, or a data set."
        ),
    ] = None,
    label: Annotated[str | None, typer.Option("--label", metavar="COLUMN", help="Column to be learned (CSV).")] = None,
    owner: Annotated[
        str | None, typer.Option("--owner", metavar="COLUMN", help="Column that says whose each record is.")
    ] = None,
    drop: Annotated[
        list[str] | None, typer.Option("--drop", metavar="COLUMN", help="Column to leave out; may be repeated.")
    ] = None,
    missing: Annotated[
        list[str] | None, typer.Option("--missing", metavar="WORD", help="Word for a missing value; may be repeated.")
    ] = None,
    separator: Annotated[
        str | None, typer.Option("--separator", metavar="CHARACTER", help="Between cells.  [default: a comma]")
    ] = None,
    clients: Annotated[
        int | None, typer.Option("--clients", metavar="N", help="Clients.  [default: 10, or the owners]")
    ] = None,
    rounds: Annotated[int | None, typer.Option("--rounds", metavar="K", help="Rounds.  [default: 30]")] = None,
    belief: Annotated[float | None, typer.Option("--belief", metavar="P", help="Largest belief of an insider.")] = None,
    epsilon: Annotated[float | None, typer.Option("--epsilon", metavar="E", help="Largest epsilon.")] = None,
    advantage: Annotated[float | None, typer.Option("--advantage", metavar="A", help="Largest advantage.")] = None,
    noise_multiplier: Annotated[
        float | None, typer.Option("--noise-multiplier", metavar="Z", help="Noise over sensitivity.")
    ] = None,
    delta: Annotated[
        float | None, typer.Option("--delta", metavar="D", help="delta.  [default: a tenth of 1 / records]")
    ] = None,
    worlds: Annotated[int, typer.Option("--worlds", metavar="W", help="How often the game is played.")] = 200,
    data_dir: Annotated[
        Path | None, typer.Option("--data-dir", metavar="DIR", help="Data directory.  [default: FL_AUDIT_DATA]")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over a file that is there.")] = False,
) -> None:
    """Write a configuration for your own data, with a comment above every key.

    What no option says is asked for on a terminal; elsewhere --data and one of --belief, --epsilon, --advantage and
    --noise-multiplier are needed, and --label for a CSV file. The data are loaded and the promise is accounted before
    anything is written.
    """
    if file.exists() and not force:
        raise InputError(f"{file} exists: accepted is a new file, or --force to write over it")
    if file.absolute().parent.is_dir() is False:
        raise InputError(f"{file.absolute().parent} is no directory: accepted is a file in one that is there")
    target, value = _target(dict(zip(TARGETS, (belief, epsilon, advantage, noise_multiplier), strict=True)))
    from experiments.runs.new_config import Wishes, column_names, data_name, new_config
    from experiments.runs.progress import at_work
    from fl_audit.whole_files import whole_file

    data = data or _asked("--data", "Your data: a CSV file, an archive .npz, a directory of pictures, or a data set")
    if data_name(data) == "csv" and label is None and is_asking():
        label = str(typer.prompt(f"Column to be learned ({', '.join(column_names(data, separator))})", err=True))
    if clients is None and owner is None and is_asking():
        clients = int(typer.prompt("Clients", type=int, default=10, err=True))
    if rounds is None:
        rounds = int(typer.prompt("Rounds", type=int, default=30, err=True)) if is_asking() else 30
    if target is None:
        target, value = _asked_target()
    place = None if data_dir is None else str(data_dir.absolute())
    table = {"data-dir": place, "owner": owner, "drop": drop, "missing": missing, "separator": separator}
    wishes = Wishes(data, target, value, label, clients, rounds, delta, worlds, table)
    with at_work("loading the data, accounting the promise"):
        text = new_config(wishes, file.absolute().parent)
    with whole_file(file) as written:
        written.write_text(text, encoding="utf-8")
    print(f"configuration: {file}")
    print(f"next: fl-audit check {file}")


def is_asking() -> bool:
    """Return whether somebody is there to be asked."""
    return sys.stdin.isatty()


def _target(given: dict[str, float | None]) -> tuple[str | None, float]:
    named = {name: value for name, value in given.items() if value is not None}
    if len(named) > 1 or (not named and not is_asking()):
        listed = " and ".join(f"--{name}" for name in named) or "no target"
        raise InputError(f"{listed} given: accepted is exactly one of {', '.join(f'--{name}' for name in given)}")
    return next(iter(named.items()), (None, 0.0))


def _asked(option: str, question: str) -> str:
    if not is_asking():
        raise InputError(f"{option} is missing, and nobody is there to be asked: see fl-audit init --help")
    return str(typer.prompt(question, err=True))


def _asked_target() -> tuple[str, float]:
    name = str(typer.prompt(f"What is promised ({', '.join(TARGETS)})", default="belief", err=True))
    if name not in TARGETS:
        raise InputError(f"{name!r} is no promise: accepted are {', '.join(TARGETS)}")
    value = typer.prompt(f"{name.capitalize()}", type=float, default=0.9 if name == "belief" else None, err=True)
    return name, float(value)
