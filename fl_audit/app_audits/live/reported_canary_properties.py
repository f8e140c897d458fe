"""Notes on canaries, which clients add to their replies and observers store.

A canary is a test contribution that secret coins include in a round or leave out. The note states its properties, so
that a later evaluation can check them.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from hashlib import pbkdf2_hmac
from math import inf
from typing import TypeVar

Value = TypeVar("Value")
NOTE = "fl-audit-canary"
"""Name of the entry of a client's reply that contains the note on its canary; the note does not reveal the coin."""
_LONGEST = 1000  # largest number of characters of a note
_WORK = 10_000  # number of hash iterations of a fingerprint, which make it costly to try seeds


@dataclass(frozen=True)
class ReportedCanaryProperties:
    """The properties of a canary whose client answered.

    Every property except the canary's number may be None, which means unknown, e.g. to an observer that sees only
    models.
    """

    number: int  # number of the canary, from 0
    is_replaced: bool | None = None  # whether its client sends the opposite vector, not nothing, if the canary is out
    coins: str | None = None  # fingerprint of the seed of its coins
    directions: str | None = None  # fingerprint of the seed of its directions
    size: int | None = None  # number of parameters of its direction
    norm: float | None = None  # its norm in this round, above 0
    node: str | None = None  # identifier of the node that sent the reply, from the server
    # Weight of the reply in the average, from the server, relative to the largest weight of the round; from 0 to 1.
    weight: float | None = None

    def __str__(self) -> str:
        """Return the JSON text that a client adds to its reply, without `node` and `weight`, which it does not know."""
        return json.dumps({name: value for name, value in asdict(self).items() if name not in ("node", "weight")})


def read_note(note: object, node: str | None = None) -> ReportedCanaryProperties | None:
    """Return the note on a canary that a client's reply contains; None if the value is not a valid note.

    Parameters
    ----------
    note
        Value of the reply's entry `NOTE`, which is untrusted input.
    node
        Identifier of the node that sent the reply; None if unknown.
    """
    text = str(note)
    if len(text) > _LONGEST:
        return None
    try:
        return note_of_json(json.loads(text) | {"node": node, "weight": None})
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
        return None


def note_of_json(values: Mapping[str, object]) -> ReportedCanaryProperties:
    """Return a canary's note from JSON values, keyed by the fields of `ReportedCanaryProperties`.

    Only the key `number`, the number of the canary, is required.

    Raises
    ------
    KeyError
        If the number is missing.
    ValueError
        If a value is out of its range.
    """
    number = int(str(values["number"]))
    replaced = values.get("is_replaced")
    coins, directions, node = (converted(str, values.get(name)) for name in ("coins", "directions", "node"))
    norm, weight = (converted(float, values.get(name)) for name in ("norm", "weight"))
    size = converted(int, values.get("size"))
    # These comparisons are false for NaN.
    fits = (size is None or size >= 1, norm is None or 0 < norm < inf, weight is None or 0 <= weight <= 1)
    if not (0 <= number < 10**9 and (replaced is None or isinstance(replaced, bool)) and all(fits)):
        raise ValueError(f"size {size}, norm {norm} and weight {weight} of canary {number}")
    return ReportedCanaryProperties(number, replaced, coins, directions, size, norm, node, weight)


def converted(kind: Callable[[str], Value], value: object) -> Value | None:
    """Return a JSON value as another type; None if the value is None.

    Parameters
    ----------
    kind
        Type such as `int`, or a function; it converts the value's text.
    value
        The JSON value.
    """
    return None if value is None else kind(str(value))


@cache
def fingerprint(seed: int) -> str:
    """Return a hash of 16 hexadecimal digits that identifies a randomly drawn seed without revealing it."""
    return pbkdf2_hmac("sha256", str(seed).encode(), b"fl-audit", _WORK, 8).hex()
