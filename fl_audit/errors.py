"""Define the exceptions for invalid user input and for a failed federation, and errors as text in one line."""

import json
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Remedy:
    """A setting of the configuration that solves the problem of an error or warning.

    Examples
    --------
    >>> str(Remedy("drop", ("id",)))
    'drop = ["id"] in [data]'
    """

    key: str  # name of the setting
    value: str | bool | int | tuple[str, ...]  # value to set; words are added to the existing ones
    section: str = "data"  # section of the configuration file that contains the setting

    def __str__(self) -> str:
        return f"{self.setting} in [{self.section}]"

    @property
    def setting(self) -> str:
        """The setting as a line of the configuration file, such as 'drop = ["id"]'."""
        return f"{self.key} = {json.dumps(self.value, ensure_ascii=False)}"


def settings_text(remedies: Sequence[Remedy]) -> str:
    """Return several settings as text for a message; consecutive settings of one section share its name.

    Examples
    --------
    >>> settings_text([Remedy("owner", "who"), Remedy("partition", "natural"), Remedy("strategy", "x", "training")])
    'owner = "who" and partition = "natural" in [data] and strategy = "x" in [training]'
    """
    following = [remedy.section for remedy in remedies[1:]] + [""]
    return " and ".join(
        remedy.setting if remedy.section == after else str(remedy)
        for remedy, after in zip(remedies, following, strict=True)
    )


class InputError(ValueError):
    """Invalid user input, described in one line: the fault, the value and the accepted values.

    Parameters
    ----------
    message
        Text of the error in one line, which contains `str(remedy)` for each remedy.
    remedies
        Settings that together correct the fault.
    choices
        Alternative settings in the message, of which only the user knows the right one.
    """

    def __init__(self, message: str = "", remedies: tuple[Remedy, ...] = (), choices: tuple[Remedy, ...] = ()) -> None:
        super().__init__(message)
        self.remedies = remedies
        self.choices = choices


class FederationError(RuntimeError):
    """Raised, with a one-line message, if a contribution is missing, late or unusable; its round releases nothing."""


def require(condition: bool, message: str, *remedies: Remedy) -> None:
    """Raise `InputError` unless a condition holds.

    `remedies`: The message names them too.
    """
    if not condition:
        raise InputError(message, remedies)


def first_line(error: BaseException) -> str:
    """Return the first line of an exception's message, or the name of its type if the message is empty."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def in_a_line(error: BaseException) -> str:
    """Return an exception as one line: its type and its message.

    Examples
    --------
    >>> in_a_line(ValueError("no noise\\nnamed"))
    'ValueError: no noise named'
    """
    try:
        text = " ".join(str(error).split())
    except Exception:  # an error of other people's code may not know its own words
        text = ""
    return f"{type(error).__name__}: {text or 'no message'}"
