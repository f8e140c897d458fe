"""One record and another that it could be taken for: what whoever sees a randomised record tells apart."""

from dataclasses import dataclass

import numpy as np

from fl_audit.arrays import Floats32
from fl_audit.data.randomisers import LaplacePixelation, RandomisedEdges, RecordRandomiser
from fl_audit.game.game import Game
from fl_audit.privacy.events import ReleaseEvent

_STEPS = 64
"""Different releases that tell two images apart, at most: with 250 their composition takes a quarter of a minute."""


@dataclass(frozen=True, eq=False)
class PlacedRecord:
    """A record, and who randomises it."""

    client: int  # its owner
    # Position among the records that the owner randomises: those of its shard, then those that stand in D' in the place
    # of its differing unit.
    place: int
    features: Floats32  # shape (*shape), as the owner holds them


@dataclass(frozen=True, eq=False)
class RecordPair:
    """A record of the first target, and another of the same shape."""

    first: PlacedRecord  # the first record of the first target
    # What stands in its place in D', or else the record of D that is farthest from it; of several the first one.
    second: PlacedRecord
    differing: int  # number of features in which they differ: bits, pairs of nodes, or pixels


@dataclass(frozen=True)
class RecordClaim:
    """What randomising promises a record by itself, as releases."""

    randomiser: RecordRandomiser  # what owners do to their records
    shape: tuple[int, ...]  # shape of what it works on: features, (nodes, nodes), or an image
    # What tells the two records of `record_pair` apart at most; None where there is no such pair.
    pair: tuple[ReleaseEvent, ...] | None
    differing: int | None  # number of features in which they differ


def record_claim(game: Game) -> RecordClaim | None:
    """Return what a game promises each record by itself; None where records are not randomised."""
    randomiser = game.public.randomiser
    if randomiser is None or game.raw is None:
        return None
    records, pair = game.raw.inside, record_pair(game)
    shape = (records.shape[0], records.shape[0]) if records.graphs else records.shape
    if pair is None:
        return RecordClaim(randomiser, shape, None, None)
    first, second = pair.first.features, pair.second.features
    if isinstance(randomiser, LaplacePixelation):
        return RecordClaim(randomiser, shape, randomiser.pair_events(first, second, _STEPS), pair.differing)
    return RecordClaim(randomiser, shape, randomiser.pair_events(first, second), pair.differing)


def record_pair(game: Game) -> RecordPair | None:
    """Return the pair of records of a game with a randomiser that a report is about; it is public.

    None where no other record has as many nodes, which are not randomised and tell graphs apart for sure.
    """
    assert game.raw is not None, "a game with a randomiser keeps the records"
    number = int(game.target_records[0])
    first = _placed(game, number)
    seconds = [] if game.raw.replacement is None else [_stand_in(game, game.raw.replacement.features[0])]
    farthest = _farthest(game, number)
    if farthest is not None:
        seconds.append(_placed(game, farthest))
    for second in seconds:
        found = _differing(game, first.features, second.features)
        if found is not None:
            return RecordPair(first, second, found)
    return None


def _placed(game: Game, number: int) -> PlacedRecord:
    """Return the record of D at a position, with its owner."""
    assert game.raw is not None, "a game with a randomiser keeps the records"
    client = next(owner for owner, shard in enumerate(game.shards) if number in shard)
    place = int(np.flatnonzero(game.shards[client] == number)[0])
    return PlacedRecord(client, place, game.raw.inside.features[number])


def _stand_in(game: Game, features: Floats32) -> PlacedRecord:
    return PlacedRecord(game.victim, len(game.shards[game.victim]), features)


def _farthest(game: Game, number: int) -> int | None:
    """Return the position in D of the record that is farthest from one of them, of those it can be compared with."""
    assert game.raw is not None, "a game with a randomiser keeps the records"
    records = game.raw.inside
    one = records.features[number]
    if records.graphs:
        counts = (_differing(game, one, other) for other in records.features)
        distances = np.array([-1.0 if count is None else float(count) for count in counts])
    else:
        distances = np.array([float(np.square(other - one).sum()) for other in records.features])
    distances[number] = -1.0
    farthest = int(distances.argmax())
    return farthest if distances[farthest] >= 0 else None


def _differing(game: Game, first: Floats32, second: Floats32) -> int | None:
    assert game.public.randomiser is not None, "asked only where records are randomised"
    if isinstance(game.public.randomiser, RandomisedEdges):
        return game.public.randomiser.differing(first, second)
    return int(np.count_nonzero(first != second))
