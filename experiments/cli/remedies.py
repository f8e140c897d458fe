"""What `fl-audit init` says of data that are refused: every option that is needed, at once."""

import json
import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

from experiments.runs.new_config import Wishes, new_config
from fl_audit.errors import InputError

_SETTING = re.compile(r"\b(drop|missing|separator|owner) = (\[.*?\]|\".*?\") in \[data\]")
"""A setting of [data] as messages name it; `init` has an option for each of these."""
_MOST = 30


def config_or_remedies(wishes: Wishes, directory: Path) -> str:
    """Return a configuration; what is refused is told with all the options that mend it and what would come next.

    Parameters
    ----------
    wishes
        What is wanted.
    directory
        Where the file is to stand.

    Raises
    ------
    InputError
        If the data or the promise cannot be used as they are.
    """
    try:
        return new_config(wishes, directory)
    except InputError as error:
        first = error
    options = _needed(wishes, directory, first)
    beside = f". With all that is needed: {' '.join(options)}" if len(options) > 1 else ""
    raise InputError(f"{_in_options(str(first))}{beside}") from first


def _in_options(text: str) -> str:
    """Return a message about a configuration as one about the options of `init`."""
    said = _SETTING.sub(lambda found: _option(found[1], json.loads(found[2])), text).replace("set --", "use --")
    return re.sub(r"\b(drop|missing|separator|owner) in \[data\]", r"--\1", said)


def _needed(wishes: Wishes, directory: Path, error: InputError) -> list[str]:
    """Return the options that mend one refusal after the other, none where something else is refused at last."""
    options: list[str] = []
    while len(options) < _MOST:
        found = _SETTING.search(str(error))
        if found is None:
            return []
        value = json.loads(found[2])
        table = dict(wishes.table or {})
        table[found[1]] = [*(table.get(found[1]) or []), *value] if isinstance(value, list) else value
        option = _option(found[1], value)
        if option in options:
            return []  # it was given, and did not help
        options.append(option)
        wishes = replace(wishes, table=table)
        try:
            new_config(wishes, directory)
        except InputError as next_error:
            error = next_error
        else:
            return options
    return []


def _option(name: str, value: Any) -> str:
    only = value[0] if isinstance(value, list) and value else value or ""
    return f"--{name} {shlex.quote(only)}"
