"""Rarer settings of a command, which its option `--set NAME=VALUE` gives."""

from collections.abc import Sequence
from dataclasses import fields
from difflib import get_close_matches
from typing import Any, TypeVar, get_type_hints

from fl_audit.errors import InputError
from fl_audit.words import name_list

T = TypeVar("T")
_WORDS = {"true": True, "false": False}


def setting_names(group: type[Any]) -> list[str]:
    """Return the names of the settings in a dataclass, with hyphens, such as "clipping-norm"."""
    return [field.name.replace("_", "-") for field in fields(group)]


def settings_of(group: type[T], texts: Sequence[str]) -> T:
    """Return a dataclass of settings with the values that `--set` gives as "name=value"; others have their defaults.

    Raises
    ------
    InputError
        If a text has another form, a setting is unknown, or a value is of another type.
    """
    hints = get_type_hints(group)
    names = setting_names(group)
    values = dict[str, Any]()
    for text in texts:
        name, equals, word = text.partition("=")
        if not equals or name not in names:
            nearest = get_close_matches(name, names, n=1, cutoff=0.0)[0]
            raise InputError(f"--set {text!r}: nearest is {nearest}=VALUE, accepted are {name_list(names)}")
        key = name.replace("-", "_")
        values[key] = _value(text, word.strip(), hints[key])
    return group(**values)


def _value(text: str, word: str, hint: Any) -> bool | int | float | str:
    """Return the value of a word as the type of a setting: a truth value, a whole number, a number or text."""
    try:
        if hint is bool:
            return _WORDS[word]
        if hint in (int, int | None):
            return int(word)
        return word if hint is str else float(word)
    except (KeyError, ValueError):
        accepted = "true and false" if hint is bool else "whole numbers" if hint in (int, int | None) else "numbers"
        raise InputError(f"--set {text}: accepted are {accepted}") from None
