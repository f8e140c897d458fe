"""What `fl-audit init` says of data that are refused: every option that is needed, at once."""

import shlex
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from experiments.runs.new_config import NewConfig, Wishes, new_config
from fl_audit.errors import InputError, Remedy

_MOST = 30  # refusals, one after the other, that are mended on trial


def config_or_remedies(wishes: Wishes, directory: Path) -> NewConfig:
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
    needed = _needed(wishes, directory, first)
    said = [option for remedy in first.remedies for option in _options(remedy.key, remedy.value)]
    beside = f". With all that is needed: {' '.join(needed)}" if set(needed) - set(said) else ""
    raise InputError(f"{in_options(str(first), (*first.remedies, *first.choices))}{beside}") from first


def in_options(text: str, remedies: Iterable[Remedy]) -> str:
    """Return a message about settings as one about the options of `init`.

    Parameters
    ----------
    text
        A message that names settings.
    remedies
        The remedies that are named in it.

    Examples
    --------
    >>> in_options('mend it with drop = ["id"] in [data]', [Remedy("drop", ("id",))])
    'mend it with --drop id'
    """
    for remedy in remedies:
        text = text.replace(str(remedy), " ".join(_options(remedy.key, remedy.value)))
    return text


def _needed(wishes: Wishes, directory: Path, error: InputError) -> list[str]:
    """Return the options that mend one refusal after the other; none where one is met that no setting mends."""
    needed: dict[str, Any] = {}
    for _ in range(_MOST):
        before = dict(needed)
        for key, value in ((remedy.key, remedy.value) for remedy in error.remedies):
            needed[key] = [*dict.fromkeys((*needed.get(key, ()), *value))] if isinstance(value, tuple) else value
        if needed == before:
            return []
        table = dict(wishes.table or {})
        for key, value in needed.items():
            table[key] = [*(table.get(key) or ()), *value] if isinstance(value, list) else value
        try:
            new_config(replace(wishes, table=table), directory)
        except InputError as next_error:
            error = next_error
        else:
            return [option for key, value in needed.items() for option in _options(key, value)]
    return []


def _options(name: str, value: Any) -> list[str]:
    if value is True:
        return [f"--{name}"]
    words = (list(value) or [""]) if isinstance(value, list | tuple) else [str(value)]
    return [f"--{name} {shlex.quote(word)}" for word in words]
