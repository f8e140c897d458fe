"""What MkDocs fills in when it builds the site: the pages that the code itself can write."""

import inspect
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from typer.main import get_command

if TYPE_CHECKING:
    from experiments.runs.config.described import Setting

MARKER = re.compile(r"<!-- generated: ([\w-]+) -->")
WIDTH = 84
"""Columns of the help of a command."""


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace every marker of a page by what the code says; called by MkDocs.

    Parameters
    ----------
    markdown
        The text of a page.

    Returns
    -------
    str
        The text with its generated parts.

    Raises
    ------
    KeyError
        If a marker names a part that there is not.
    """
    return MARKER.sub(lambda found: PARTS[found[1]](), markdown)


def settings() -> str:
    """Return a table for each section of a configuration, with every key that `fl-audit settings` lists."""
    from experiments.runs.config import RunConfig
    from experiments.runs.config.described import settings as described

    parts = []
    for section, field in RunConfig.model_fields.items():
        about = _paragraphs(inspect.getdoc(field.annotation) or "")
        rows = [_setting_row(one) for one in described(section)]
        head = ["| key | default | what it is for | accepted |", "| --- | --- | --- | --- |"]
        parts.append("\n".join([f"## [{section}]", "", about, "", *head, *rows]))
    return "\n\n".join(parts)


def _paragraphs(text: str) -> str:
    """Undo the line breaks inside paragraphs."""
    return "\n\n".join(" ".join(one.split()) for one in text.split("\n\n"))


def _setting_row(setting: "Setting") -> str:
    default = "" if setting.default is None else f"`{json.dumps(setting.default)}`"
    cells = (f"`{setting.key.partition('.')[2]}`", default, setting.explanation, setting.accepted)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def commands() -> str:
    """Return the help of `fl-audit` and of each of its commands."""
    from experiments.cli.main import app

    program = get_command(app)
    assert isinstance(program, click.Group), "fl-audit has commands"
    parts = [_help(program, "fl-audit")]
    parts += [f"## {name}\n\n{_help(one, f'fl-audit {name}')}" for name, one in program.commands.items()]
    return "\n\n".join(parts)


def _help(command: click.Command, name: str) -> str:
    context = click.Context(command, info_name=name, max_content_width=WIDTH, terminal_width=WIDTH)
    return f"```text\n{command.get_help(context)}\n```"


def contributing() -> str:
    """Return CONTRIBUTING.md, whose links lead from the root of the repository, as it stands on the site."""
    text = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    return text.replace("](docs/contributing/", "](")


PARTS: dict[str, Callable[[], str]] = {"settings": settings, "commands": commands, "contributing": contributing}
