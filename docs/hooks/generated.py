"""What MkDocs fills in when it builds the site: the pages that the code itself can write."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from typer.main import get_command

MARKER = re.compile(r"<!-- generated: ([\w-]+) -->")
WIDTH = 100
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
    """Return a table for each section of a configuration, with every key that the models of pydantic know."""
    from experiments.runs.config import RunConfig

    schema = RunConfig.model_json_schema(by_alias=True)
    parts = []
    for name, section in schema["properties"].items():
        model = schema["$defs"][_reference(section)]
        rows = [_setting_row(key, value, schema["$defs"]) for key, value in model["properties"].items()]
        about = _paragraphs(model.get("description", ""))
        head = ["| key | accepted | default | meaning |", "| --- | --- | --- | --- |"]
        parts.append("\n".join([f"## [{name}]", "", about, "", *head, *rows]))
    return "\n\n".join(parts)


def _reference(value: dict[str, Any]) -> str:
    where = value.get("$ref") or value["allOf"][0]["$ref"]
    return str(where).rsplit("/", 1)[1]


def _paragraphs(text: str) -> str:
    """Undo the line breaks inside paragraphs, which Markdown would keep in tables."""
    return "\n\n".join(" ".join(one.split()) for one in text.split("\n\n"))


def _setting_row(key: str, value: dict[str, Any], known: dict[str, Any]) -> str:
    default = value.get("default")
    shown = "" if default is None else f"`{str(default).lower() if isinstance(default, bool) else default}`"
    cells = (f"`{key}`", _accepted(value, known), shown, _paragraphs(value.get("description", "")))
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _accepted(value: dict[str, Any], known: dict[str, Any]) -> str:
    """Say in words what a JSON schema accepts."""
    if "$ref" in value or "allOf" in value:
        return _accepted(known[_reference(value)], known)
    if "anyOf" in value:
        kinds = [_accepted(one, known) for one in value["anyOf"] if one.get("type") != "null"]
        return ", or ".join(dict.fromkeys(kinds))
    if "enum" in value:
        return ", ".join(f"`{one}`" for one in value["enum"])
    if "const" in value:
        return f"`{value['const']}`"
    names = {"integer": "whole number", "number": "number", "boolean": "`true`, `false`", "object": "table"}
    kind = str(value.get("type", "a value"))
    if kind == "array":
        return f"list of {_accepted(value['items'], known)}" if "items" in value else "list"
    return names.get(kind, kind) + _range(value)


def _range(value: dict[str, Any]) -> str:
    words = {"minimum": "from {}", "exclusiveMinimum": "above {}", "maximum": "to {}", "exclusiveMaximum": "below {}"}
    said = [text.format(f"{value[key]:g}") for key, text in words.items() if key in value]
    return f", {' '.join(said)}" if said else ""


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
