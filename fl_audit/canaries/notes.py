"""What the client of a canary says of it beside its reply, so that one which is not looked for is noticed."""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from hashlib import pbkdf2_hmac
from math import inf
from typing import TypeVar

Value = TypeVar("Value")

NOTE = "fl-audit-canary"
"""Entry of a reply that names its canary; its coin stays with the client."""

_LONGEST = 1000  # characters of a note
_WORK = 10_000  # hashes that who tries a seed has to take


@dataclass(frozen=True)
class CanaryNote:
    """What is known of a canary whose client answered; None where nobody said it, as to who sees models alone."""

    number: int  # which canary, from 0
    is_replaced: bool | None = None  # whether its opposite is sent where it is out, and not nothing
    # `coins`, `directions`: fingerprints of the seeds that it has.
    coins: str | None = None
    directions: str | None = None
    # `size`, `norm`: number of parameters that it is spread over, and its norm in this round.
    size: int | None = None
    norm: float | None = None
    # `node`, `weight`: as the server knows them, who sent it, and what its reply weighs in the average over what the
    # heaviest of the round does, from 0 to 1.
    node: str | None = None
    weight: float | None = None

    def __str__(self) -> str:
        """Return what the note says, as it travels; what the server knows is known without it."""
        return json.dumps({name: value for name, value in asdict(self).items() if name not in ("node", "weight")})


def read_note(said: object, node: str | None = None) -> CanaryNote | None:
    """Return what a client says of its canary, None where it says nothing of the kind: it may be anything.

    Parameters
    ----------
    said, node
        The entry of its reply, and who sent it.
    """
    text = str(said)
    if len(text) > _LONGEST:
        return None
    try:
        return note_of_json(json.loads(text) | {"node": node, "weight": None})
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
        return None


def note_of_json(values: Mapping[str, object]) -> CanaryNote:
    """Return a note from its JSON values, as `CanaryNote` has them; all but the number may be missing.

    Raises
    ------
    ValueError
        If one of them cannot be; likewise `TypeError`, `KeyError` and `OverflowError`.
    """
    number, replaced = int(str(values["number"])), values.get("is_replaced")
    coins, directions, node = (told(str, values.get(name)) for name in ("coins", "directions", "node"))
    norm, weight = (told(float, values.get(name)) for name in ("norm", "weight"))
    size = told(int, values.get("size"))
    # What is not a number is neither below nor above another.
    fits = (size is None or size >= 1, norm is None or 0 < norm < inf, weight is None or 0 <= weight <= 1)
    if not (0 <= number < 10**9 and (replaced is None or isinstance(replaced, bool)) and all(fits)):
        raise ValueError(f"size {size}, norm {norm} and weight {weight} of canary {number}")
    return CanaryNote(number, replaced, coins, directions, size, norm, node, weight)


def told(kind: Callable[[str], Value], value: object) -> Value | None:
    """Return a value of a kind, None where it was not told.

    Parameters
    ----------
    kind, value
        What makes the value of a text, and what stands in a file or a message.
    """
    return None if value is None else kind(str(value))


@cache
def fingerprint(seed: int) -> str:
    """Return what tells two seeds apart and names neither, as long as they were drawn at random; 16 digits."""
    return pbkdf2_hmac("sha256", str(seed).encode(), b"fl-audit", _WORK, 8).hex()
