"""The command that writes a configuration for one's own data: init."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from experiments.cli.options import DataDirOption
from fl_audit.errors import InputError

TARGETS = ("belief", "epsilon", "advantage", "noise-multiplier")
_ROUNDS = 30


FileArgument = Annotated[Path, typer.Argument(metavar="[FILE]", help="Configuration to write.")]
DataOption = Annotated[
    str | None,
    typer.Option(
        "--data", metavar="FILE|NAME", help="A CSV file, an archive .npz, a directory of pictures, or a data set."
    ),
]
LabelOption = Annotated[str | None, typer.Option("--label", metavar="COLUMN", help="Column to be learned (CSV).")]
OwnerOption = Annotated[
    str | None, typer.Option("--owner", metavar="COLUMN", help="Column that says whose each record is.")
]
DropOption = Annotated[
    list[str] | None, typer.Option("--drop", metavar="COLUMN", help="Column to leave out; may be repeated.")
]
MissingOption = Annotated[
    list[str] | None,
    typer.Option(
        "--missing", metavar="WORD", help="Word for a missing value, '' for empty cells alone; may be repeated."
    ),
]
SeparatorOption = Annotated[
    str | None, typer.Option("--separator", metavar="CHARACTER", help="Between cells.  [default: it is found]")
]
DecimalOption = Annotated[
    str | None, typer.Option("--decimal", metavar=".|,", help="Mark of decimals.  [default: it is found]")
]
EncodingOption = Annotated[
    str | None, typer.Option("--encoding", metavar="NAME", help="Such as cp1252.  [default: it is found]")
]
LevelsOption = Annotated[
    int | None, typer.Option("--max-levels", metavar="N", help="Most words in a column.  [default: 100]")
]
CaseOption = Annotated[
    bool, typer.Option("--ignore-case", help="Take words that differ by case or spaces only for one.")
]
UniqueOption = Annotated[
    bool, typer.Option("--unique", help="Leave out records that repeat another one in every column.")
]
ClientsOption = Annotated[
    int | None, typer.Option("--clients", metavar="N", help="Clients.  [default: 10, or the owners]")
]
RoundsOption = Annotated[int | None, typer.Option("--rounds", metavar="K", help="Rounds.  [default: 30]")]
BeliefOption = Annotated[float | None, typer.Option("--belief", metavar="P", help="Largest belief of an insider.")]
EpsilonOption = Annotated[float | None, typer.Option("--epsilon", metavar="E", help="Largest epsilon.")]
AdvantageOption = Annotated[float | None, typer.Option("--advantage", metavar="A", help="Largest advantage.")]
NoiseOption = Annotated[float | None, typer.Option("--noise-multiplier", metavar="Z", help="Noise over sensitivity.")]
DeltaOption = Annotated[
    float | None, typer.Option("--delta", metavar="D", help="delta.  [default: a tenth of 1 / records]")
]
WorldsOption = Annotated[int, typer.Option("--worlds", metavar="W", help="How often the game is played.")]
ForceOption = Annotated[bool, typer.Option("--force", help="Write over a file that is there.")]


def init(
    file: FileArgument = Path("audit.toml"),
    data: DataOption = None,
    label: LabelOption = None,
    owner: OwnerOption = None,
    drop: DropOption = None,
    missing: MissingOption = None,
    separator: SeparatorOption = None,
    decimal: DecimalOption = None,
    encoding: EncodingOption = None,
    max_levels: LevelsOption = None,
    ignore_case: CaseOption = False,
    unique: UniqueOption = False,
    clients: ClientsOption = None,
    rounds: RoundsOption = None,
    belief: BeliefOption = None,
    epsilon: EpsilonOption = None,
    advantage: AdvantageOption = None,
    noise_multiplier: NoiseOption = None,
    delta: DeltaOption = None,
    worlds: WorldsOption = 200,
    data_dir: DataDirOption = None,
    force: ForceOption = False,
) -> None:
    """Write a configuration for your own data, with a comment above every key.

    What no option says is asked for on a terminal; elsewhere --data and one of --belief, --epsilon, --advantage and
    --noise-multiplier are needed, and --label for a CSV file. The data are loaded and the promise is accounted before
    anything is written.
    """
    _require_place(file, force)
    target, value = _target(dict(zip(TARGETS, (belief, epsilon, advantage, noise_multiplier), strict=True)))
    words = _missing_words(missing or [])
    from experiments.cli.remedies import config_or_remedies, in_options
    from experiments.runs.new_config import Wishes
    from experiments.runs.progress import at_work
    from fl_audit.whole_files import whole_file

    data, label, clients, rounds = _asked_rest(data, label, clients, rounds, owner, encoding, separator)
    if target is None:
        target, value = _asked_target()
    place = None if data_dir is None else str(data_dir.absolute())
    table: dict[str, Any] = {
        "data-dir": place,
        "owner": owner,
        "drop": drop or None,
        "missing": words,
        "separator": separator,
    }
    table |= {"decimal": decimal, "encoding": encoding, "max-levels": max_levels}
    table |= {"ignore-case": ignore_case or None, "unique": unique or None}
    wishes = Wishes(data, target, value, label, clients, rounds, delta, worlds, table)
    with at_work("loading the data, accounting the promise"):
        made = config_or_remedies(wishes, file.absolute().parent)
    with whole_file(file) as written:
        written.write_text(made.text, encoding="utf-8")
    print(f"configuration: {file}")
    print(f"read: {made.description}")
    print(f"records: {_share(made.records, made.pool)}")
    for caution in made.cautions:
        print(f"look at: {in_options(caution.text, caution.remedies)}")
    print(f"next: fl-audit check {file}")


def _share(records: int, pool: int) -> str:
    """Say how many records train, and why not all."""
    why = (
        "half of them, so that the others can stand for the population"
        if 2 * records >= pool - 1
        else "no more unless records in [data] says so, for every world trains on all of them again"
    )
    return f"{records:,} of {pool:,} train, {why}"


def _require_place(file: Path, is_forced: bool) -> None:
    if file.exists() and not is_forced:
        raise InputError(f"{file} exists: accepted is a new file, or --force to write over it")
    if not file.absolute().parent.is_dir():
        raise InputError(f"{file.absolute().parent} is no directory: accepted is a file in one that is there")


def _asked_rest(
    data: str | None,
    label: str | None,
    clients: int | None,
    rounds: int | None,
    owner: str | None,
    encoding: str | None,
    separator: str | None,
) -> tuple[str, str | None, int | None, int]:
    """Return data, label, clients and rounds, with what no option says asked for, where somebody is there."""
    from experiments.runs.new_config import data_name
    from fl_audit.data.table_text import read_table_text

    data = data or _asked("--data", "Your data: a CSV file, an archive .npz, a directory of pictures, or a data set")
    if data_name(data) == "csv" and label is None and is_asking():
        header = read_table_text(Path(data).expanduser(), encoding, separator).header
        label = str(typer.prompt(f"Column to be learned ({', '.join(header)})", err=True))
    if clients is None and owner is None and is_asking():
        clients = int(typer.prompt("Clients", type=int, default=10, err=True))
    if rounds is None:
        rounds = int(typer.prompt("Rounds", type=int, default=_ROUNDS, err=True)) if is_asking() else _ROUNDS
    return data, label, clients, rounds


def is_asking() -> bool:
    """Return whether somebody is there to be asked."""
    return sys.stdin.isatty()


def _missing_words(given: list[str]) -> list[str] | None:
    """Return the words for a missing value: none are needed for empty cells, and None is that no record is left out."""
    for word in given:
        if word.startswith("[") and word.endswith("]"):
            raise InputError(f"--missing {word!r} is a list: accepted is a word, repeated for others, or ''")
    return [word for word in given if word] if given else None


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
