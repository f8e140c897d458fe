"""Rewriting of error messages for users of `fl-audit init`: they name options of the command instead of settings."""

import json
import re
import shlex
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from fl_audit.errors import InputError, Remedy, settings_text
from fl_audit.runs.config_file import toml_value

OPTIONS = ("owner", "user", "drop", "missing", "label")
"""Settings of [data] that are options of `init`; it takes all other settings by `--set`."""
READING = (
    *OPTIONS,
    *("records-per-user", "user-across-clients", "separator", "decimal", "encoding", "skip-lines", "sheet", "axes"),
    *("image-size", "grey", "max-levels", "ignore-case", "unique", "text", "vocabulary", "tokenizer", "tokens", "task"),
)
"""Settings of [data] by which records are read."""


_AS_CLIENTS = ("partition", "strategy", "adjacency")  # settings that options of `init` follow, or stand for
_SETTING = re.compile(rf"\b({'|'.join(READING)})( out)? (?:in|of) \[data\]")


@contextmanager
def in_options() -> Iterator[None]:
    """Replace settings by options of `fl-audit init` in the message of an `InputError` that the `with` block raises."""
    try:
        yield
    except InputError as error:
        raise InputError(text_in_options(str(error), (*error.remedies, *error.choices))) from error


def text_in_options(text: str, remedies: Iterable[Remedy]) -> str:
    """Return a message in which settings are replaced by the options of `fl-audit init` that set them.

    Examples
    --------
    >>> text_in_options('fix it with drop = ["id"] in [data]', [Remedy("drop", ("id",))])
    'fix it with --drop id'
    """
    remedies = [remedy for remedy in remedies if remedy.key in (*READING, *_AS_CLIENTS)]
    together = " ".join(flag for remedy in remedies for flag in flags_of_setting(remedy.key, remedy.value))
    text = text.replace(settings_text(remedies), together) if remedies else text
    for remedy in remedies:
        text = text.replace(str(remedy), " ".join(flags_of_setting(remedy.key, remedy.value)))
    return _SETTING.sub(lambda result: f"{_option(result[1])}{result[2] or ''}", text)


def _option(name: str) -> str:
    return f"--{name}" if name in OPTIONS else f"--set data.{name}"


def flags_of_setting(name: str, value: Any) -> list[str]:
    """Return the options of `fl-audit init` that give a setting a value, such as "--drop id".

    Examples
    --------
    >>> flags_of_setting("drop", ("id", "visit")), flags_of_setting("sheet", "Ward 7")
    (['--drop id', '--drop visit'], ["--set 'data.sheet=Ward 7'"])
    """
    if name == "partition":
        return []  # `--owner` makes every owner a client
    if name in (*OPTIONS, "adjacency"):
        words = (list(value) or [""]) if isinstance(value, list | tuple) else [str(value)]
        return [f"--{name} {shlex.quote(word)}" for word in words]
    section = "training" if name == "strategy" else "data"
    # A value that ends with a comma or a point would be taken for one of the sentence.
    is_plain = isinstance(value, str) and value[-1:].isalnum() and toml_value(value) == value
    text = value if is_plain else json.dumps(value, ensure_ascii=False)
    return [f"--set {shlex.quote(f'{section}.{name}={text}')}"]
