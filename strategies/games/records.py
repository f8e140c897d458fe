"""Claims about records: the app asks which of its records it holds in a game."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from strategies.games.notes import Deed

DIFFERING = 0  # place of the differing record in the shard of the target's client


@dataclass
class Shard:
    """What a client does with its records while it answers a message."""

    deed: Deed | None = None  # what it sends; None where everything is as ever
    records: int | None = None  # how many records the app holds, None if it did not ask which


_shard: ContextVar[Shard | None] = ContextVar("shard", default=None)


@contextmanager
def shard_of(deed: Deed | None) -> Iterator[Shard]:
    """Let the app ask which records it holds, and note whether it does."""
    shard = Shard(deed)
    token = _shard.set(shard)
    try:
        yield shard
    finally:
        _shard.reset(token)


def held(*parts: Any) -> Any:
    """Return the records that a client holds: all of them, but for the target's client in some games.

    An app whose claim is about records calls this where it has loaded the records of a client.

    Parameters
    ----------
    parts
        Data sets, arrays or tensors with records along their first axis, in the same order, such as inputs and labels.

    Returns
    -------
    object
        The same part, or the tuple of them; or what is left of them without the first record; or with another record
        in its place.
    """
    shard = _shard.get()
    if shard is None:
        return parts[0] if len(parts) == 1 else parts
    places = list(range(len(parts[0])))
    shard.records = len(places)
    match shard.deed:
        case Deed.WITHOUT_RECORD:
            del places[DIFFERING]
        case Deed.OTHER_RECORD:
            places[DIFFERING] = places[-1]
        case _:
            return parts[0] if len(parts) == 1 else parts
    chosen = tuple(_chosen(part, places) for part in parts)
    return chosen[0] if len(chosen) == 1 else chosen


class _Chosen:
    """Some records of a data set, as a data set."""

    def __init__(self, records: Any, places: list[int]) -> None:
        self._records, self._places = records, places

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, place: int) -> Any:
        return self._records[self._places[place]]

    def __iter__(self) -> Iterator[Any]:
        return (self._records[place] for place in self._places)


def _chosen(part: Any, places: list[int]) -> Any:
    """Return some records of a part: of a table by rows, of an array or tensor by its first axis."""
    if hasattr(part, "iloc"):
        return part.iloc[places]
    return part[places] if hasattr(part, "shape") else _Chosen(part, places)
