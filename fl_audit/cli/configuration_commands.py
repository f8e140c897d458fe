"""The commands about configurations: `init` writes one for the user's own data, and `settings` lists all settings."""

import json
import shutil
import sys
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from fl_audit.adjacency import Adjacency
from fl_audit.atomic_files import write_text
from fl_audit.cli.options import ADJACENCY_HELP, JsonOption, complete_setting, print_json
from fl_audit.data.data_setting_enums import IMPUTE
from fl_audit.errors import InputError, require
from fl_audit.privacy.targets import TARGETS as PRIVACY_TARGETS
from fl_audit.runs.config.settings_reference import settings as described
from fl_audit.runs.option_declarations import argument, option, switch
from fl_audit.runs.progress import at_work
from fl_audit.runs.run_directory_checks import require_writable
from fl_audit.value_checks import expanded_path
from fl_audit.words import name_list

if TYPE_CHECKING:
    from fl_audit.runs.config.settings_reference import Setting

TARGETS = ("belief", "epsilon", "advantage", "noise-multiplier")
"""Targets that a user on a terminal is asked for."""
_ROUNDS = 30
_HOW_TO_READ = ("separator", "encoding", "skip-lines", "sheet")
"""Settings without which the names of columns cannot be read."""
_PLACE = "A section, one of its keys, or a key alone.  [default: all]"


@dataclass(frozen=True)
class DataOptions:
    """Command-line options of the records, each of which gives the setting of the same name in section [data]."""

    HELP_GROUP: ClassVar[str] = "Records"

    data: Annotated[
        str | None, option("FILE|NAME", "A table (CSV, Excel, Parquet), .npz, a directory of pictures, or a data set.")
    ] = None
    label: Annotated[str | None, option("COLUMN", "Column to be learned (tables).")] = None
    owner: Annotated[str | None, option("COLUMN", "Column that says whose each record is.")] = None
    user: Annotated[
        str | None, option("COLUMN", "Column that says whom each record is about: each is protected with all of them.")
    ] = None
    drop: Annotated[list[str] | None, option("COLUMN", "Column to leave out, or several with commas.")] = None
    missing: Annotated[
        list[str] | None,
        option("WORD", "Word for a missing value, '' for empty cells alone; may be repeated; `impute` fills them."),
    ] = None

    def settings(self) -> dict[str, Any]:
        """Return the options but for data and label as settings of section [data]; None where one was not given.

        Raises `InputError` if a word for missing values is a list.
        """
        for word in self.missing or []:
            is_list = word.startswith("[") and word.endswith("]")
            require(not is_list, f"--missing {word!r} is a list: accepted is a word, repeated for others, or ''")
        # Without a list no record is left out, and no word is needed for empty cells.
        missing: list[str] | str | None = [word for word in self.missing if word] if self.missing else None
        if missing == [IMPUTE]:
            missing = IMPUTE
        return {"owner": self.owner, "user": self.user, "drop": self.drop or None, "missing": missing}


@dataclass(frozen=True)
class TrainingOptions:
    """Command-line options of the training."""

    HELP_GROUP: ClassVar[str] = "Training"

    model: Annotated[
        str | None, option("NAME", "Built-in model, or MODULE:NAME of your own.  [default: by the records]")
    ] = None
    clients: Annotated[int | None, option("N", "Clients.  [default: 10, or the owners]")] = None
    rounds: Annotated[int | None, option("K", "Rounds.  [default: 30]")] = None

    def completed_by_user(self, is_by_owners: bool) -> "TrainingOptions":
        """Return all options, after asking a user on a terminal for the numbers of clients and rounds that are missing.

        The number of clients is not asked for if every owner of records is a client. Without a terminal, nothing is
        asked: the number of rounds is 30, and the number of clients stays missing.

        Parameters
        ----------
        is_by_owners
            Whether every owner of records is a client.
        """
        clients = self.clients
        rounds = self.rounds
        if clients is None and not is_by_owners and can_ask_user():
            clients = int(typer.prompt("Clients", type=int, default=10, err=True))
        if rounds is None:
            rounds = int(typer.prompt("Rounds", type=int, default=_ROUNDS, err=True)) if can_ask_user() else _ROUNDS
        return replace(self, clients=clients, rounds=rounds)


@dataclass(frozen=True)
class GuaranteeOptions:
    """Command-line options of the guarantee. Exactly one of the first three, or another target by --set, is given."""

    HELP_GROUP: ClassVar[str] = "Guarantee"

    belief: Annotated[float | None, option("P", "Largest belief of an insider.")] = None
    epsilon: Annotated[float | None, option("E", "Largest epsilon.")] = None
    noise_multiplier: Annotated[float | None, option("Z", "Noise over sensitivity.")] = None
    delta: Annotated[float | None, option("D", "delta.  [default: a tenth of 1 / records, or users]")] = None
    adjacency: Annotated[
        str | None, option("NAME", f"{ADJACENCY_HELP}  [default: by the strategy]", among=Adjacency)
    ] = None

    def target(self, overrides: Mapping[str, Any]) -> tuple[str, float] | None:
        """Return the name and value of the target, or None if the user is to be asked for it.

        Parameters
        ----------
        overrides
            Settings of section [privacy] that `--set` gives, by key.

        Raises
        ------
        InputError
            If several targets are given, or if none is given and standard input is no terminal.
        """
        targets_given = {"belief": self.belief, "epsilon": self.epsilon, "noise-multiplier": self.noise_multiplier}
        named_targets = [(name, value) for name, value in targets_given.items() if value is not None]
        named_targets += [(name, overrides[name]) for name in PRIVACY_TARGETS if name in overrides]
        if len(named_targets) > 1 or (not named_targets and not can_ask_user()):
            listed = " and ".join(f"--{name}" for name, _ in named_targets) or "no target"
            accepted = name_list([f"--{name}" for name in targets_given])
            remedy = "or of the targets by --set, such as privacy.advantage=0.3"
            raise InputError(f"{listed} given: accepted is exactly one of {accepted}, {remedy}")
        return named_targets[0] if named_targets else None


InitSetOption = Annotated[
    list[str] | None,
    option(
        "SECTION.KEY=VALUE",
        "Any other setting (see fl-audit settings), such as audit.trials=500; may be repeated.",
        names=("--set",),
        autocompletion=complete_setting,
    ),
]


def init(
    file: Annotated[Path, argument("[FILE]", "Configuration to write.")] = Path("audit.toml"),
    *,
    options: DataOptions,
    training: TrainingOptions,
    guarantee: GuaranteeOptions,
    set_: InitSetOption = None,
    force: Annotated[bool, switch("--force", "Write over a file that is there.")] = False,
) -> None:
    """Write a configuration for your own data, with a comment above every key.

    On a terminal, the command asks for what no option gives. Elsewhere, --data and one of --belief, --epsilon and
    --noise-multiplier are required, and --label for a table. Before it writes the file, the command loads the data and
    accounts the guarantee.
    """

    parent = file.absolute().parent
    require(force or not file.exists(), f"{file} exists: accepted is a new file, or --force to write over it")
    require(parent.is_dir(), f"{parent} is no directory: accepted is a file in one that is there")
    require_writable(str(file), file)

    from fl_audit.runs.config_file import apply_overrides

    other_settings = dict[str, dict[str, Any]]()
    apply_overrides(other_settings, set_ or [])
    target = guarantee.target(other_settings.get("privacy", {}))
    table = {**options.settings(), **other_settings.pop("data", {})}
    if table.get("data-dir") is not None:
        table["data-dir"] = str(Path(table["data-dir"]).absolute())
    data, label = _data_and_label(options, {name: table.get(name) for name in _HOW_TO_READ})
    training = training.completed_by_user(is_by_owners=options.owner is not None)
    name, value = target or _asked_target()

    from fl_audit.runs.new_config import ConfigRequest, new_config

    request = ConfigRequest(
        data,
        name,
        value,
        label,
        table=table,
        others=other_settings,
        **vars(training),
        adjacency=guarantee.adjacency,
        delta=guarantee.delta,
        trials=other_settings.get("audit", {}).get("trials"),
        strategy=other_settings.get("training", {}).get("strategy"),
    )
    with at_work("loading the data, accounting the guarantee"):
        text, notes = new_config(request, parent)
    write_text(file, text)
    for line in (f"configuration: {file}", *notes, f"next: fl-audit check {file}"):
        print(line)


def _data_and_label(options: DataOptions, written: Mapping[str, Any]) -> tuple[str, str | None]:
    """Return the data and the label column, after asking on the terminal for whatever no option gives.

    `written` holds given settings about the format of a table, by key.
    """
    data = options.data
    label = options.label
    if not data:
        require(can_ask_user(), "--data is missing, and nobody is there to be asked: see fl-audit init --help")
        question = "Your data: a table (CSV, Excel, Parquet), .npz, a directory of pictures, or a data set"
        data = str(typer.prompt(question, err=True))

    from fl_audit.data.tables import column_names
    from fl_audit.runs.init_error_messages import in_options
    from fl_audit.runs.new_config import data_name

    if data_name(data) == "table" and label is None and can_ask_user():
        with in_options():
            header = column_names(expanded_path(data), written)
        label = str(typer.prompt(f"Column to be learned ({', '.join(header)})", err=True))
    return data, label


def can_ask_user() -> bool:
    """Return whether standard input is a terminal, so that the user can be asked."""
    return sys.stdin.isatty()


def _asked_target() -> tuple[str, float]:
    name = str(typer.prompt(f"What is claimed ({', '.join(TARGETS)})", default="belief", err=True))
    require(name in TARGETS, f"{name!r} is no guarantee: accepted are {name_list(TARGETS)}")
    value = typer.prompt(f"{name.capitalize()}", type=float, default=0.9 if name == "belief" else None, err=True)
    return name, float(value)


def _complete_place(incomplete: str) -> list[str]:
    """Return the sections and keys that begin with a text, for shell completion."""

    keys = [setting.key for setting in described()]
    completions = dict.fromkeys([key.partition(".")[0] for key in keys] + keys)
    return [completion for completion in completions if completion.startswith(incomplete)]


def settings(
    name: Annotated[str | None, argument("SECTION[.KEY]", _PLACE, autocompletion=_complete_place)] = None,
    as_json: JsonOption = False,
) -> None:
    """List the settings of a configuration: type, default, what each is for, and what it accepts.

    The settings that most runs use come first. The others follow under the heading "advanced".
    """
    settings = described(name)
    if as_json:
        print_json({"settings": [setting.to_json() for setting in settings]})
        return
    usual, advanced = (
        [setting for setting in settings if setting.advanced is is_advanced] for is_advanced in (False, True)
    )
    _print_all(usual)
    if advanced:
        print(f"{chr(10) if usual else ''}# advanced: what few runs need{chr(10)}")
    _print_all(advanced)


def _print_all(settings: "Sequence[Setting]") -> None:
    section = ""
    for setting in settings:
        of, _, name = setting.key.partition(".")
        if of != section:
            print(f"{'' if not section else chr(10)}[{of}]")
            section = of
        _print(name, setting)


def _print(name: str, setting: "Setting") -> None:
    default_text = "{ }" if setting.default == {} else json.dumps(setting.default)
    left_out = f"required {setting.required}" if setting.required else "left out"
    default = left_out if setting.default is None else f"default {default_text}"
    print(f"{name}  ({setting.type}; {default})")
    width = shutil.get_terminal_size().columns
    for line in (setting.explanation, f"Accepted: {setting.accepted}"):
        print(textwrap.fill(line, width, initial_indent="    ", subsequent_indent="    "))
