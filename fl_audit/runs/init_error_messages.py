"""Rewriting of error messages for users of `fl-audit init`: they name options of the command instead of settings."""

import re
import shlex
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from fl_audit.errors import InputError, Remedy, settings_text

TABLE_OPTIONS = (
    *(
        "owner",
        "user",
        "records-per-user",
        "user-across-clients",
        "drop",
        "missing",
        "separator",
        "decimal",
        "encoding",
        "skip-lines",
    ),
    *("sheet", "axes", "image-size", "grey", "max-levels", "ignore-case", "unique", "label"),
    *("text", "vocabulary", "tokenizer", "tokens"),
)
"""Settings of [data] that are options of `init`."""


_AS_CLIENTS = ("partition", "strategy", "adjacency")  # settings that options of `init` follow, or stand for
_SETTING = re.compile(rf"\b({'|'.join(TABLE_OPTIONS)})( out)? (?:in|of) \[data\]")


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
    remedies = [one for one in remedies if one.key in (*TABLE_OPTIONS, *_AS_CLIENTS)]
    together = " ".join(flag for one in remedies for flag in flags_of_setting(one.key, one.value))
    text = text.replace(settings_text(remedies), together) if remedies else text
    for remedy in remedies:
        text = text.replace(str(remedy), " ".join(flags_of_setting(remedy.key, remedy.value)))
    return _SETTING.sub(r"--\1\2", text)


def flags_of_setting(name: str, value: Any) -> list[str]:
    """Return the options of `fl-audit init` that give a setting of [data] a value, such as "--drop id"."""
    if name == "partition":
        return []  # `--owner` makes every owner a client
    if value is True:
        return [f"--{name}"]
    words = (list(value) or [""]) if isinstance(value, list | tuple) else [str(value)]
    return [f"--{name} {shlex.quote(word)}" for word in words]
