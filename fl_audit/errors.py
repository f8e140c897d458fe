"""The one exception that means: the user's input, not the program, is wrong; and the checks that raise it."""

from enum import StrEnum
from typing import TypeVar

Choice = TypeVar("Choice", bound=StrEnum)


class InputError(ValueError):
    """Input that cannot be used, said in one line: what was wrong, the value, what is accepted.

    The command line prints its message without a traceback and exits with status 2.
    """


def require(condition: bool, message: str) -> None:
    """Raise `InputError` with `message` unless `condition` holds."""
    if not condition:
        raise InputError(message)


def in_percent(number: float) -> str:
    """Return what a share should have been, as the end of a message, where it seems to have been given in percent."""
    return f"; {number:g} % is {number / 100:g}" if 1 < number < 100 and number == int(number) else ""


def choice(choices: type[Choice], what: str, name: object) -> Choice:
    """Return the member of an enumeration that has a name.

    Raises
    ------
    InputError
        If none has.
    """
    if not isinstance(name, str) or name not in list(choices):
        raise InputError(f"{what} is {name!r}: accepted are {', '.join(choices)}")
    return choices(name)
