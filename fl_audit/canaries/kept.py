"""What an observer of a running training keeps: one file a round, written whole, and what follows from the rounds."""

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fl_audit.arrays import Floats
from fl_audit.canaries.directions import DECOYS, canary_coins, canary_direction, canary_score
from fl_audit.errors import InputError, in_a_line, require
from fl_audit.privacy.terms import TrainingTerms, terms_of_json
from fl_audit.whole_files import whole_file

NOTE = "fl-audit-canary"
"""Entry of a reply that names its canary; its coin stays with the client."""

_PROMISE = "promise.json"


@dataclass(frozen=True)
class Watch:
    """Who watches a training, what for, and where it is kept."""

    directory: Path  # where rounds are kept, one file each, beside the promise
    directions: int  # seed of the directions, as the clients have it
    canaries: int  # how many canaries there are, at least 1
    terms: TrainingTerms | None = None  # what the training promises; None where it is said to who judges alone
    delta: float = 1e-5  # of the promise, above 0 and below 1
    # How many other clients answer in a round, at most; None where it is seen, or not known.
    others: int | None = None

    def __post_init__(self) -> None:
        require(self.canaries >= 1, f"canaries is {self.canaries}: accepted are 1 and more")
        require(0 < self.delta < 1, f"delta is {self.delta}: accepted are numbers above 0 and below 1")

    def note(
        self,
        server_round: int,
        before: Iterable[NDArray[Any]],
        after: Iterable[NDArray[Any]],
        present: Iterable[int],
        others: int | None = None,
    ) -> None:
        """Keep what a round released; what cannot be kept is said on the error stream, and ends no training.

        Rounds from this one on that lie there already belong to a training that ended early, and was started again:
        they are set aside in `earlier-1`, `earlier-2`, ..., and count no more.

        Parameters
        ----------
        server_round
            The round, from 1.
        before
            Tensors of the model before the round, in their order. They are read only here, where failing ends nothing.
        after
            Tensors of the model after it, read likewise.
        present
            The canaries whose clients answered.
        others
            How many other clients answered: their updates may hide noise that is missing. None where that is not seen,
            and `others` of the watch counts.
        """
        with ends_nothing(f"round {server_round}"):
            _set_aside(self.directory, server_round)
            if self.terms is not None:
                promise = self.terms.to_json() | {"delta": self.delta, "canaries": self.canaries}
                _write(self.directory / _PROMISE, promise)
            released = change(list(before), list(after))
            scores = read_along(released, self.directions, server_round, self.canaries)
            beside = self.others if others is None else others
            kept = KeptRound(server_round, tuple(sorted(present)), scores, beside, released.size)
            _write(self.directory / _file_of(server_round), asdict(kept))


@contextmanager
def ends_nothing(what: str) -> Iterator[None]:
    """Have a block of an observer end no training: what goes wrong in it is said on the error stream.

    Parameters
    ----------
    what
        What is not kept then.
    """
    try:
        yield
    except Exception as error:  # whatever it is
        with suppress(Exception):  # a process may have no error stream
            sys.stderr.write(f"fl_audit: {what} is not kept, and does not count: {in_a_line(error)}\n")
            sys.stderr.flush()


@dataclass(frozen=True)
class KeptPromise:
    """What the training of a directory promises."""

    # `terms`, `delta`, `canaries`: as for `Watch`.
    terms: TrainingTerms
    delta: float
    canaries: int


def kept_promise(directory: Path) -> KeptPromise:
    """Return what the training promises whose rounds are kept in a directory.

    Parameters
    ----------
    directory
        Where rounds are kept.

    Raises
    ------
    InputError
        If no promise lies there, or it is damaged.
    """
    path = directory / _PROMISE
    require(path.is_file(), f"{path} is missing: accepted are directories in which a `Watch` with terms keeps rounds")
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        return KeptPromise(terms_of_json(stored, str(path)), float(stored["delta"]), int(stored["canaries"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} holds no promise: {error}") from None


@dataclass(frozen=True)
class KeptRound:
    """What a round released along the directions."""

    number: int  # the round, from 1
    present: tuple[int, ...]  # the canaries whose clients answered
    scores: tuple[float, ...]  # of the canaries, then of decoys
    # `others`, `size`: how many other clients answered, None where it was not seen, and the number of parameters.
    others: int | None = None
    size: int | None = None

    def is_whole(self, canaries: int) -> bool:
        """Return whether so many canaries answered, each once, and nobody else named one."""
        return self.present == tuple(range(canaries)) and len(self.scores) == canaries + DECOYS


def seed_in(path: Path) -> int:
    """Return the seed that a file holds.

    Parameters
    ----------
    path
        Path of a text file with one whole number from 0 to 2**64 - 1.

    Raises
    ------
    InputError
        If there is none.
    """
    try:
        seed = int(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path} holds no seed: {error}; accepted is a file with one whole number") from None
    require(0 <= seed < 2**64, f"{path} holds another number: accepted are whole numbers from 0 to 2**64 - 1")
    return seed


def change(before: Sequence[NDArray[Any]], after: Sequence[NDArray[Any]]) -> Floats:
    """Return by how much the floating-point tensors of a model changed, as one vector in their order.

    Parameters
    ----------
    before
        The tensors that clients were sent, which decide what counts: an average turns counters into fractions.
    after
        The tensors of the next model.

    Raises
    ------
    InputError
        If tensors are missing or have other shapes.
    """
    shapes = [one.shape for one in before], [one.shape for one in after]
    require(shapes[0] == shapes[1], f"models have tensors of shapes {shapes[0]} and {shapes[1]}: accepted are the same")
    pairs = [(old, new) for old, new in zip(before, after, strict=True) if old.dtype.kind == "f"]
    return np.concatenate([np.zeros(0), *((new.astype(np.float64) - old).ravel() for old, new in pairs)])


def read_along(release: ArrayLike, seed: int, round: int, canaries: int) -> tuple[float, ...]:
    """Return the scores of a release along the directions of canaries, then of decoys.

    Parameters
    ----------
    release
        What the round released, or the difference of two successive models, shape (dimension,).
    seed
        The seed of the directions, which may be public.
    round
        The round, from 1.
    canaries
        How many canaries there are.
    """
    seen = np.asarray(release, dtype=np.float64)
    return tuple(canary_score(seen, canary_direction(seed, round, one, seen.size)) for one in range(canaries + DECOYS))


def named_canaries(notes: Iterable[object]) -> list[int]:
    """Return the numbers of the canaries whose clients answered; what a client writes there may be anything.

    Parameters
    ----------
    notes
        The entry of each reply that has one.
    """
    return [int(text) for text in map(str, notes) if text.isdecimal() and len(text) < 10]


def _file_of(server_round: int) -> str:
    return f"round-{server_round:06d}.json"


def _set_aside(directory: Path, server_round: int) -> None:
    """Move the rounds from one on out of the way, into a directory of their own."""
    later = [path for path in directory.glob("round-*.json") if path.name >= _file_of(server_round)]
    if later:
        earlier = [path.name.removeprefix("earlier-") for path in directory.glob("earlier-*")]
        aside = directory / f"earlier-{max((int(one) for one in earlier if one.isdecimal()), default=0) + 1}"
        aside.mkdir()
        for path in later:
            path.rename(aside / path.name)


def _write(path: Path, values: dict[str, Any]) -> None:
    """Write a file, in the place of an earlier one."""
    with whole_file(path) as file:
        file.write_text(json.dumps(values), encoding="utf-8")


def whole_rounds(directory: Path, canaries: int) -> tuple[list[KeptRound], list[KeptRound]]:
    """Return the rounds that count, in which every canary answered once, and all that were kept, in order.

    Where two clients send one canary, it weighs twice what one client may; and one that is not watched may stand out
    along the direction of a decoy.

    Parameters
    ----------
    directory
        Where rounds are kept.
    canaries
        How many canaries there are, at least 1.

    Returns
    -------
    tuple
        The rounds, at least one each.

    Raises
    ------
    InputError
        If a file cannot be read, or no round was whole.
    """
    found = []
    for path in sorted(directory.glob("round-*.json")):
        try:
            stored = json.loads(path.read_text(encoding="utf-8"))
            present, scores = tuple(map(int, stored["present"])), tuple(map(float, stored["scores"]))
            others, size = (None if stored.get(name) is None else int(stored[name]) for name in ("others", "size"))
            found.append(KeptRound(int(stored["number"]), present, scores, others, size))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(f"{path} is no round that canaries kept: {error}") from None
    whole = [one for one in found if one.is_whole(canaries)]
    wrong = misnamed(found, canaries)
    named = f" once each, since clients name {', '.join(map(str, wrong))} twice or beside them" if wrong else ""
    what = f"{directory} holds no round in which {canaries} canaries answered{named}"
    require(bool(whole), f"{what}: accepted is one or more")
    return whole, found


def misnamed(rounds: Iterable[KeptRound], canaries: int) -> tuple[int, ...]:
    """Return the numbers that two clients named in one round, and those of no canary that is watched.

    Parameters
    ----------
    rounds
        What was kept.
    canaries
        How many canaries are watched, numbered from 0.
    """
    named = (one for kept in rounds for one in set(kept.present) if one >= canaries or kept.present.count(one) > 1)
    return tuple(sorted(set(named)))


def opened(rounds: list[KeptRound], coin_seed: int, canaries: int) -> tuple[Floats, Floats, Floats]:
    """Return scores of canaries and their coins, (rounds, canaries), and scores of decoys, (rounds, decoys).

    Parameters
    ----------
    rounds
        Number of rounds of one training.
    coin_seed
        The secret of the clients that carry canaries.
    canaries
        How many there are.
    """
    scores = np.array([one.scores for one in rounds])
    coins = canary_coins(coin_seed, [one.number for one in rounds], canaries)
    return scores[:, :canaries], coins.astype(np.float64), scores[:, canaries:]
