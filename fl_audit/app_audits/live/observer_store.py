"""Store the rounds that an observer of a running training records, one JSON file for each round, written atomically."""

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fl_audit.app_audits.live.reported_canary_properties import ReportedCanaryProperties, fingerprint
from fl_audit.app_audits.live.stored_rounds import MOST_CANARIES, StoredRound, kept_round, stored_in
from fl_audit.array_types import Floats
from fl_audit.atomic_files import write_text
from fl_audit.audits.canaries.canary_draws import DECOYS, canary_direction, canary_score
from fl_audit.errors import InputError, in_a_line, require
from fl_audit.ordinary_files import read_text_file
from fl_audit.privacy.stated_releases import StatedReleases, terms_of_json
from fl_audit.randomness import require_seed
from fl_audit.value_checks import as_directory, require_number

_GUARANTEE = "guarantee.json"
_DIGITS_OF_A_SEED = 20
_CANARIES = f"whole numbers from 1 to {MOST_CANARIES}"
_PATIENCE = 60.0  # seconds to wait for the lock while another process stores its round


@dataclass(frozen=True)
class TrainingObserver:
    """An observer of a running training, which scores releases along the canaries' directions and stores the scores."""

    directory: Path  # directory for one file for each round, and for a file with the guarantee
    directions: int  # seed of the canaries' directions, from 0 to 2**64 - 1, equal to that of the clients
    canaries: int  # number of canaries, from 1 to 10,000
    terms: StatedReleases | None = None  # the claimed guarantee of the training; None if the observer does not know it
    delta: float = 1e-5  # the delta of the guarantee, above 0 and below 1
    # Largest number of clients without a canary that answer in a round; None if unknown, or passed to `store_scores`.
    others: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "directory", as_directory(self.directory))
        require_seed("directions", self.directions)
        require_number("canaries is", self.canaries, _CANARIES)
        if self.others is not None:
            require_number("others is", self.others, "whole numbers from 0")
        is_guarantee = self.terms is None or isinstance(self.terms, StatedReleases)
        require(is_guarantee, f"terms is {self.terms!r}: accepted are StatedReleases, or None")
        require_number("delta is", self.delta, "numbers above 0 and below 1")

    def store_scores(
        self,
        server_round: int,
        before: Iterable[NDArray[Any]],
        after: Iterable[NDArray[Any]],
        present: Iterable[ReportedCanaryProperties],
        other_clients: int | None = None,
        norm: float | None = None,
        run: int | None = None,
        models_only: bool = False,
    ) -> None:
        """Score the release of a round along the directions of canaries and decoys, and store the scores.

        A failure is printed on standard error and does not stop the training. A round that does not change the model is
        not stored.

        The directory may already have rounds of another Flower run, or the same or later rounds of this run. Then the
        training was restarted: these rounds are moved to a subdirectory `earlier-1`, `earlier-2`, ..., and are no
        longer evidence. Clients that observe the same run may use one directory together; each round is stored once.

        Parameters
        ----------
        server_round
            Number of the round, from 1.
        before
            Arrays of the model before the round.
        after
            Arrays of the model after the round, in the order of `before`.
        present
            One reply for each canary whose client answered in the round.
        other_clients
            Number of clients without a canary that answered; None uses the observer's field `other_clients`.
        norm
            Clipping norm of the strategy in this round; None if unknown.
        run
            Identifier of the Flower run; None if unknown.
        models_only
            Whether the observer is a client, which sees only the models.
        """
        with printing_errors(f"round {server_round}"):
            models = list(before), list(after)
            released = _change(*models)
            if not released.any():
                return
            numbers = range(self.canaries + DECOYS)
            directions = (canary_direction(self.directions, server_round, number, released.size) for number in numbers)
            scores = tuple(canary_score(released, direction) for direction in directions)
            round = StoredRound(
                server_round,
                tuple(sorted(present, key=lambda properties: properties.number)),
                scores,
                self.others if other_clients is None else other_clients,
                released.size,
                norm,
                fingerprint(self.directions),
                run,
                models_only,
                *map(_digest, models),
            )
            from filelock import FileLock  # clients import this module, and only an observer keeps rounds  # noqa: PLC0415

            self.directory.mkdir(parents=True, exist_ok=True)
            with FileLock(self.directory / ".lock", timeout=_PATIENCE):
                self._keep(round)

    def _keep(self, stored_round: StoredRound) -> None:
        if stored_round.models_only and self._is_there(stored_round):
            return
        _set_aside(self.directory, stored_round)
        path = self.directory / _GUARANTEE
        if self.terms is not None:
            ours = self.terms.to_json() | {"delta": self.delta, "canaries": self.canaries}
            is_ours = path.is_file() and json.loads(read_text_file(path)) == ours
            is_first = not path.is_file() or not any(self.directory.glob("round-*.json"))
            require(
                is_ours or is_first, f"{path} states another guarantee than that of this watch: accepted is the same"
            )
            if not is_ours:
                write_text(path, json.dumps(ours))
        write_text(self.directory / _file_of(stored_round.number), json.dumps(asdict(stored_round)))

    def _is_there(self, stored_round: StoredRound) -> bool:
        """Return whether another client that observes the same run has already stored the same round.

        Raises `InputError` if the stored rounds of this run have other canaries or other models.
        """
        near = [self.directory / _file_of(number) for number in (stored_round.number - 1, stored_round.number)]
        last, same = (kept_round(path) if path.is_file() else None for path in near)
        for known_round in (last, same):
            if known_round is None or known_round.run != stored_round.run or stored_round.number == 1:
                continue
            is_alike = (known_round.directions, len(known_round.scores), known_round.models_only) == (
                stored_round.directions,
                len(stored_round.scores),
                True,
            )
            follows = known_round.after == (stored_round.before if known_round is last else stored_round.after)
            problem = f"{self.directory} keeps what another observer has seen of this run, which is not the same"
            require(is_alike and follows, f"{problem}: accepted is a directory for each")
        return same is not None and (same.run, same.after) == (stored_round.run, stored_round.after)


@contextmanager
def printing_errors(subject: str) -> Iterator[None]:
    """Print an exception of the `with` block on standard error instead of raising it.

    `subject` names the thing that is not stored because of the exception, such as "round 3".
    """
    try:
        yield
    except Exception as error:  # any error
        with suppress(Exception):  # a process may have no error stream
            sys.stderr.write(f"fl_audit: {subject} is not kept, and does not count: {in_a_line(error)}\n")
            sys.stderr.flush()


@dataclass(frozen=True)
class StoredGuarantee:
    """The stored guarantee that a training claims, with its delta and the number of canaries.

    A `Guarantee` follows from it by accounting, which an observer in a client does not load.
    """

    terms: StatedReleases
    delta: float
    canaries: int


def stored_guarantee(directory: Path) -> StoredGuarantee:
    """Return the claimed guarantee of the training whose rounds are stored in a directory.

    Raises `InputError` if the file of the guarantee is missing or damaged.
    """
    path = directory / _GUARANTEE
    require(
        path.is_file(),
        f"{path} is missing: accepted are directories in which a `TrainingObserver` with terms keeps rounds",
    )
    with stored_in(path, "guarantee of a training that canaries watch") as stored:
        delta = float(stored["delta"])
        canaries = stored["canaries"]
        require_number("delta is", delta, "numbers above 0 and below 1")
        require_number("canaries is", canaries, _CANARIES)
        return StoredGuarantee(terms_of_json(stored, str(path)), delta, canaries)


def seed_in(path: Path) -> int:
    """Return the seed, an integer from 0 to 2**64 - 1, that a text file contains.

    Raises
    ------
    InputError
        If the file contains no seed. The message does not quote the content, which is secret: Flower sends the error
        messages of a client to the server.
    """
    accepted = "accepted is a text file with one whole number from 0 to 2**64 - 1 and nothing else"
    try:
        text = read_text_file(path).strip()
    except OSError as error:
        raise InputError(f"{path} holds no seed: {error.strerror}; {accepted}") from None
    except ValueError:
        raise InputError(f"{path} holds no seed: it is no text; {accepted}") from None
    is_seed = text.isascii() and text.isdecimal() and len(text) <= _DIGITS_OF_A_SEED and int(text) < 2**64
    require(is_seed, f"{path} holds no seed: {_why_no_seed(text)}; {accepted}")
    return int(text)


def _why_no_seed(text: str) -> str:
    """Return the reason why a text is no seed, for an error message that must not quote the text."""
    lines = len(text.splitlines())
    return "it is empty" if not text else f"it has {lines} lines" if lines > 1 else "its line is no such number"


def _change(before: Sequence[NDArray[Any]], after: Sequence[NDArray[Any]]) -> Floats:
    """Return the change of all arrays that had a floating-point type before, as one vector."""
    # The types before the round decide, because an average turns integer counters into fractions.
    shapes = [array.shape for array in before], [array.shape for array in after]
    require(shapes[0] == shapes[1], f"models have tensors of shapes {shapes[0]} and {shapes[1]}: accepted are the same")
    pairs = [(old, new) for old, new in zip(before, after, strict=True) if old.dtype.kind == "f"]
    return np.concatenate([np.zeros(0), *((new.astype(np.float64) - old).ravel() for old, new in pairs)])


def _file_of(server_round: int) -> str:
    return f"round-{server_round:06d}.json"


def _digest(tensors: Iterable[NDArray[Any]]) -> str:
    digest = sha256()
    for tensor in tensors:
        digest.update(f"{tensor.dtype}{tensor.shape}".encode())
        digest.update(np.ascontiguousarray(tensor).tobytes())
    return digest.hexdigest()


@lru_cache(maxsize=1 << 16)
def _run_and_number(path: Path, *_: int) -> tuple[int | None, int]:
    """Return the Flower run and the number of a stored round.

    The result is cached; the further arguments are the file's `_stamp`, so that a rewritten file is read again.
    """
    stored_round = kept_round(path)
    return stored_round.run, stored_round.number


def _stamp(path: Path) -> tuple[int, int, int]:
    """Return numbers that change when the file is rewritten."""
    stored = path.stat()
    return stored.st_ino, stored.st_mtime_ns, stored.st_size


def _set_aside(directory: Path, stored_round: StoredRound) -> None:
    """Move the stored rounds that the new round `stored_round` makes outdated to a new subdirectory `earlier-N`.

    Rounds of other runs are outdated. Rounds of the same run are outdated if their number is that of `stored_round` or
    larger. If the observer sees only models, another client may have stored such rounds of the same run. They are then
    moved only if `stored_round` is round 1.
    """
    earlier_rounds = {path: _run_and_number(path, *_stamp(path)) for path in directory.glob("round-*.json")}
    later = [
        path
        for path, (run, number) in earlier_rounds.items()
        if run != stored_round.run or number >= stored_round.number
    ]
    if stored_round.models_only:  # another client may have kept later rounds of the run
        later = [path for path in later if earlier_rounds[path][0] != stored_round.run or stored_round.number == 1]
    if later:
        earlier = [path.name.removeprefix("earlier-") for path in directory.glob("earlier-*")]
        aside = (
            directory
            / f"earlier-{max((int(number_text) for number_text in earlier if number_text.isdecimal()), default=0) + 1}"
        )
        aside.mkdir()
        for path in later:
            path.rename(aside / path.name)
