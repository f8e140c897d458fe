"""What the client of a canary says of it beside its reply, so that one which is not looked for is noticed."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from hashlib import pbkdf2_hmac
from math import inf

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
    said
        The entry of its reply; clients of earlier versions write the number alone.
    node
        Who sent it.
    """
    text = str(said)
    if len(text) > _LONGEST:
        return None
    try:
        values = json.loads(text)
        named = values if isinstance(values, dict) else {"number": values}
        return note_of_json(named | {"node": node, "weight": None})
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
        return None


def note_of_json(values: Mapping[str, object]) -> CanaryNote:
    """Return a note from its JSON values.

    Parameters
    ----------
    values
        As `CanaryNote` has them; all but the number may be missing.

    Raises
    ------
    ValueError
        If one of them cannot be; likewise `TypeError`, `KeyError` and `OverflowError`.
    """
    number, replaced = int(str(values["number"])), values.get("is_replaced")
    if not 0 <= number < 10**9 or (replaced is not None and not isinstance(replaced, bool)):
        raise ValueError(f"canary {number}")
    coins, directions = (None if values.get(one) is None else str(values[one]) for one in ("coins", "directions"))
    size, sender = None if values.get("size") is None else int(str(values["size"])), values.get("node")
    norm, weight = (None if values.get(one) is None else float(str(values[one])) for one in ("norm", "weight"))
    # What is not a number is neither below nor above another.
    fits = (size is None or size >= 1, norm is None or 0 < norm < inf, weight is None or 0 <= weight <= 1)
    if not all(fits):
        raise ValueError(f"size {size}, norm {norm} and weight {weight} of canary {number}")
    return CanaryNote(number, replaced, coins, directions, size, norm, None if sender is None else str(sender), weight)


@cache
def fingerprint(seed: int) -> str:
    """Return what tells two seeds apart and names neither, as long as they were drawn at random; 16 digits.

    Parameters
    ----------
    seed
        From 0 to 2**64 - 1.
    """
    return pbkdf2_hmac("sha256", str(seed).encode(), b"fl-audit", _WORK, 8).hex()
