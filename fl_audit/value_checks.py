"""Check and convert values of user input: numbers, arrays, enumerations and paths; invalid ones raise `InputError`."""

import re
from collections.abc import Callable
from enum import StrEnum
from functools import lru_cache, partial
from math import inf
from numbers import Real
from operator import ge, gt, le, lt
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fl_audit.errors import InputError, require
from fl_audit.words import name_list

Choice = TypeVar("Choice", bound=StrEnum)

_ENDS = {"above": gt, "from": ge, "below": lt, "to": le}
_KINDS: dict[str, Callable[[Any], bool]] = {
    "numbers": lambda value: bool(value == value),
    "finite": lambda value: abs(value) < inf,
    "positive": lambda value: bool(value > 0),
    "whole": lambda value: bool(value % 1 == 0),
}


_END = re.compile(rf",? (?:and )?(?:(?:up|to) )?({'|'.join(_ENDS)}) (-?[\d.]+(?:e[-+]?\d+)?)")
_ACCEPTED = re.compile(
    rf"(?P<kinds>(?:(?:{'|'.join(_KINDS)}) )*)numbers(?: of \w+)?(?P<ends>(?:{_END.pattern})*)(?:, (?:or|the) .+)?"
)


@lru_cache(256)
def _checks(accepted: str) -> tuple[Callable[[Any], bool], ...]:
    """Return the checks that a description of numbers stands for; raise `ValueError` if it has other words."""
    interval_match = _ACCEPTED.fullmatch(accepted)
    if interval_match is None:
        raise ValueError(f"no description of numbers: {accepted!r}")
    ends = [(word, float(end)) for word, end in _END.findall(interval_match["ends"])]
    ranges = [partial(lambda holds, end, value: bool(holds(value, end)), _ENDS[word], end) for word, end in ends]
    return (*(_KINDS[word] for word in (*interval_match["kinds"].split(), "numbers")), *ranges)


def require_number(subject: str, value: object, accepted: str = "numbers") -> None:
    """Raise `InputError` unless a value is a number of the described kind.

    `accepted`: A remark may follow that begins with ", or" or ", the"; it is not checked.

    Examples
    --------
    >>> require_number("confidence is", 0.95, "numbers above 0.5 and below 1")
    >>> require_number("rounds are", None, "whole numbers from 1")
    Traceback (most recent call last):
    fl_audit.errors.InputError: rounds are None: accepted are whole numbers from 1
    """
    fits = isinstance(value, Real) and not isinstance(value, bool) and all(is_in(value) for is_in in _checks(accepted))
    require(fits, f"{subject} {_written(value)}: accepted are {accepted}")


_LARGEST_WRITTEN = 10**20


def _written(value: object) -> str:
    """Return a value as text; an integer from 10^20 on is replaced by its number of digits."""
    if isinstance(value, int) and abs(value) >= _LARGEST_WRITTEN:
        return f"a whole number of about {int(value.bit_length() * 0.30103) + 1} digits"
    return str(value) if isinstance(value, Real) else repr(value)


def require_switch(name: str, value: object) -> None:
    """Raise `InputError` unless a value is a bool; the string "no", for example, would count as true."""
    require(isinstance(value, (bool, np.bool_)), f"{name} is {value!r}: accepted are True and False")


def on_the_cpu(values: Any) -> Any:
    """Return a tensor without its gradient and in the memory of the processor; other values are unchanged."""
    # `detach` and `cpu` are methods of tensors of torch, which clients need not have.
    return values.detach().cpu() if hasattr(values, "detach") else values


def as_floats(name: str, values: ArrayLike) -> NDArray[np.float64]:
    """Return numbers as a float64 array of the same shape; a tensor may have a gradient, or be on a graphics card.

    Raises `InputError` if the values are no real numbers, or some are masked.
    """
    accepted = "accepted are numbers"
    require(not isinstance(values, np.ma.MaskedArray), f"{name} are masked in part: {accepted}")
    try:
        array = np.asarray(on_the_cpu(values))
        if array.dtype.kind in "cmM":  # what NumPy would cut to real numbers
            raise TypeError
        return np.asarray(array, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} are {str(values)[:40]!r}: {accepted}") from error


def as_whole(name: str, values: ArrayLike) -> NDArray[np.int64]:
    """Return integers as an int64 array of the same shape; raise `InputError` if a value is not an integer."""
    with np.errstate(invalid="ignore"):
        numbers = as_floats(name, values)
        broken = numbers[numbers % 1 != 0]
    require(broken.size == 0, f"{name} have {', '.join(map(str, broken[:1]))}: accepted are whole numbers")
    # Integers are not converted by way of float64, which would round those above 2^53. Other values are.
    return np.ascontiguousarray(values if np.asarray(values).dtype.kind in "iu" else numbers, dtype=np.int64)


def in_percent(number: float) -> str:
    """Return a hint such as "; 5 % is 0.05" if a share seems to be given in percent, otherwise an empty string."""
    return f"; {number:g} % is {number / 100:g}" if 1 < number < 100 and number == int(number) else ""


def choice(choices: type[Choice], noun: str, name: object) -> Choice:
    """Return the member of an enumeration that has a given value; raise `InputError` if there is none."""
    require(name in list(choices), f"{noun} is {name!r}: accepted are {name_list(choices)}")
    return choices(str(name))


def as_directory(value: object) -> Path:
    """Return a string or a path as a `Path`; raise `InputError` for any other type."""
    require(isinstance(value, (str, Path)), f"directory is {value!r}: accepted are paths")
    return Path(str(value))


def expanded_path(value: str | Path) -> Path:
    """Return a path with a leading `~` replaced by the home directory."""
    try:
        return Path(value).expanduser()
    except RuntimeError as error:
        raise InputError(f"{value} begins with the home of nobody here: accepted is a path without '~'") from error
