"""The parts of pages that the code itself can write."""

import inspect
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from functools import cache
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pandas as pd
from typer.main import get_command

if TYPE_CHECKING:
    from fl_audit.runs.config.settings_reference import Setting

MARKER = re.compile(r"<!-- generated: ([\w-]+) -->(?:\n.*?<!-- end: \1 -->)?", re.DOTALL)
ROWS = re.compile(r"\[All rows\]\(([\w/]+\.csv)\)\.")
"""The link to the rows of a table or figure of a paper."""
TABLES = re.compile(r"\[Table\]\(([\w-]+\.csv)\)\.")
"""The link to a table of the reference that is a CSV file."""
COPIED = {
    "settings": "reference/settings",
    "overview": "reference/commands",
    "run-directory": "reference/run-directory",
    "attacks": "how-to/membership-attacks",
    "published-data": "reference/data-sets",
    "data-formats": "reference/data-sets",
}
"""Parts that stand in the repository too, so that they can be read there, each with its page."""
WIDTH = 84
"""Columns of the help of a command."""
SHARED_BY = 3
"""Commands that have an option before it is shown once for all of them."""
PLAIN = ("", "text in quotation marks", "true and false", "whole numbers from 1")
"""Accepted values that the explanation of a setting implies."""
UNBOUNDED = " to 1000000000"
"""An upper limit that no value comes near."""
ROOT = Path(__file__).parents[2]


def complete_page(markdown: str, directory: Path) -> str:
    """Return a page with what the code says in place of its markers, and tables under its links to rows.

    `directory` is where relative links of the page begin. A marker of a part that there is not raises `KeyError`.
    """
    return with_rows(MARKER.sub(lambda marker: PARTS[marker[1]](), markdown), directory)


def with_rows(markdown: str, directory: Path) -> str:
    """Return a page with a table under each link to all rows of a table or figure, or to a table of the reference."""
    from fl_audit.experiments.papers.published_page import rows_of

    text = ROWS.sub(lambda link: f"{link[0]}\n\n{rows_of(directory / link[1])}", markdown)
    return TABLES.sub(lambda link: f"{link[0]}\n\n{csv_table(directory / link[1])}", text)


def csv_table(path: Path) -> str:
    """Return a CSV file as a collapsible HTML table."""
    frame = pd.read_csv(path, dtype=str, keep_default_na=False).map(_in_html)
    table = frame.rename(columns=_in_html).to_html(index=False, escape=False, border=0)
    return f"<details><summary>Show the table</summary>\n{table}\n</details>\n"


def with_copies(markdown: str) -> str:
    """Return a page as it stands in the repository, with each copied part between its marker and an end."""
    return MARKER.sub(lambda marker: _with_copy(marker[1]) if marker[1] in COPIED else marker[0], markdown)


def _with_copy(part: str) -> str:
    return f"<!-- generated: {part} -->\n\n{PARTS[part]()}\n\n<!-- end: {part} -->"


def page_of(name: str) -> Path:
    """Return where a page is that holds what is generated."""
    return ROOT / "docs" / f"{name}.md"


def main() -> None:
    """Write what is generated into the pages of the repository that hold it."""
    for path in map(page_of, dict.fromkeys(COPIED.values())):
        path.write_text(with_copies(path.read_text(encoding="utf-8")), encoding="utf-8")


@cache
def settings() -> str:
    """Return a list for each section of a configuration, with every key that `fl-audit settings` lists.

    A list and no table: it fits a phone.
    """
    from fl_audit.runs.config import RunConfig
    from fl_audit.runs.config.settings_reference import settings as settings_of_section

    parts = []
    for section, field in RunConfig.model_fields.items():
        about = _paragraphs(inspect.getdoc(field.annotation) or "")
        settings = settings_of_section(section)
        usual, advanced = (
            _listed(setting for setting in settings if setting.advanced is is_advanced) for is_advanced in (False, True)
        )
        heading = f"### Advanced settings of [{section}]" if advanced else ""
        parts.append("\n\n".join(filter(None, [f"## [{section}]", about, usual, heading, advanced])))
    return "\n\n".join(parts)


@cache
def columns() -> str:
    """Return a table of the columns that the tables of every run have."""
    from fl_audit.federation.result_columns import RESULT_COLUMNS

    rows = [f"| `{column.table}` | `{column.name}` | {column.meaning} |" for column in RESULT_COLUMNS]
    return "\n".join(["| table | column | meaning |", "| --- | --- | --- |", *rows])


def _listed(settings: Iterable["Setting"]) -> str:
    rows = "".join(map(_setting_row, settings))
    return f"<dl class='settings'>\n{rows}</dl>" if rows else ""


def _paragraphs(text: str) -> str:
    """Undo the line breaks inside paragraphs."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


def _in_html(text: str) -> str:
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text, quote=False))


def _setting_row(setting: "Setting") -> str:
    default = "" if setting.default is None else f" = <code>{escape(json.dumps(setting.default))}</code>"
    default = f" (required {setting.required})" if setting.required else default
    key = setting.key.partition(".")[2]
    explanation = _in_html(setting.explanation)
    name = setting.key.replace(".", "-")
    values = _in_html(setting.accepted).replace(UNBOUNDED, "")
    accepted = f"<dd class='accepted'>{values}</dd>\n" if values not in PLAIN else ""
    return f"<dt id='{name}'><code>{escape(key)}</code>{default}</dt>\n<dd>{explanation}</dd>\n{accepted}"


def overview() -> str:
    """Return the help of `fl-audit`: its commands, and the status with which they end."""
    return _help(_program(), "fl-audit")


@cache
def commands() -> str:
    """Return the options that many commands have, and the help of each command without them."""
    program = _program()
    shared = shared_options(program.commands.values())
    common = copy(next(iter(program.commands.values())))
    common.params = list(map(_without_panel, shared))
    options = _help(common, "").partition("\nOptions:\n")[2]
    parts = ["## Options of several commands", f"```text\n{options}"]
    parts += [
        f"## {name}\n\n{_help(_without(command, shared), f'fl-audit {name}')}"
        for name, command in program.commands.items()
    ]
    return "\n\n".join(parts)


def _program() -> click.Group:
    from fl_audit.cli.main import app

    program = get_command(app)
    assert isinstance(program, click.Group), "fl-audit has commands"
    return program


def shared_options(commands: Iterable[click.Command]) -> list[click.Parameter]:
    """Return one of each option that several commands have with the same help."""
    options = [option for command in commands for option in command.params if isinstance(option, click.Option)]
    numbers = Counter(map(_name_and_help, options))
    return list(
        {_name_and_help(option): option for option in options if numbers[_name_and_help(option)] >= SHARED_BY}.values()
    )


def _name_and_help(parameter: click.Parameter) -> tuple[str, str | None]:
    context = click.Context(click.Command("any"), max_content_width=WIDTH, terminal_width=WIDTH)
    return parameter.get_help_record(context) or ("", None)


def _without(command: click.Command, shared: Sequence[click.Parameter]) -> click.Command:
    names = set(map(_name_and_help, shared))
    shorter = copy(command)
    shorter.add_help_option = False
    shorter.params = [parameter for parameter in command.params if _name_and_help(parameter) not in names]
    return shorter


def _without_panel(parameter: click.Parameter) -> click.Parameter:
    ungrouped = copy(parameter)
    vars(ungrouped)["rich_help_panel"] = None
    return ungrouped


def _help(command: click.Command, name: str) -> str:
    context = click.Context(command, info_name=name, max_content_width=WIDTH, terminal_width=WIDTH)
    return f"```text\n{command.get_help(context)}\n```"


def attacks() -> str:
    """Return a table of the registered membership attacks: name, what they see, whether at classes, and source."""
    from fl_audit.audits.membership.attacks.registry import ATTACKS

    rows = [
        f"| `{name}` | {attack.sees} | {'yes' if attack.needs_classes else 'no'} | {attack.source} |"
        for name, attack in ATTACKS.items()
    ]
    return "\n".join(["| attack | sees | looks at classes | source |", "| --- | --- | --- | --- |", *rows])


def published_data() -> str:
    """Return a table of the data sets that are built in or published: name, and what it is, with its files."""
    from fl_audit.data.catalogue import available_datasets

    entries = available_datasets().items()
    rows = [f"| `{name}` | {entry.description} |" for name, entry in entries if not entry.required]
    return "\n".join(["| `name` | what it is, and its files |", "| --- | --- |", *rows])


def data_formats() -> str:
    """Return a table of the formats of a user's own data: name, what it takes, and its settings."""
    from fl_audit.data.catalogue import available_datasets

    rows = [
        f"| `{name}` | {entry.description} | {_keys(entry.required)} | {_keys(entry.optional)} |"
        for name, entry in available_datasets().items()
        if entry.required
    ]
    return "\n".join(["| `name` | what it takes | needed | if need be |", "| --- | --- | --- | --- |", *rows])


def _keys(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def modules_of_noises() -> str:
    """Return the modules of the registered noises, which mkdocstrings fills in."""
    from fl_audit.mechanisms.noises.registry import NOISES

    return _modules_of(NOISES.values())


def modules_of_participations() -> str:
    """Return the modules of the registered rules of participation, which mkdocstrings fills in."""
    from fl_audit.mechanisms.participations.registry import PARTICIPATIONS

    return _modules_of(PARTICIPATIONS.values())


def modules_of_attacks() -> str:
    """Return the modules of the registered membership attacks, which mkdocstrings fills in."""
    from fl_audit.audits.membership.attacks.registry import ATTACKS

    return _modules_of(attack.scores for attack in ATTACKS.values())


def _modules_of(kinds: Iterable[Callable[..., object]]) -> str:
    """Return a line for each module in which kinds, or the functions of kinds, are defined."""
    return "\n".join(f"::: {module}" for module in dict.fromkeys(kind.__module__ for kind in kinds))


PARTS: dict[str, Callable[[], str]] = {
    "settings": settings,
    "overview": overview,
    "commands": commands,
    "run-directory": columns,
    "attacks": attacks,
    "published-data": published_data,
    "data-formats": data_formats,
    "noises": modules_of_noises,
    "participations": modules_of_participations,
    "attack-modules": modules_of_attacks,
}

if __name__ == "__main__":
    main()
