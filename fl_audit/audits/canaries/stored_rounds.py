"""Reading of the stored rounds of a training: the rounds that count as evidence, and mismatches of the others.

The client of a canary adds a note to its reply, so that an unexpected canary is noticed.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import cache
from hashlib import pbkdf2_hmac
from math import inf
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from fl_audit.adjacency import Relation
from fl_audit.array_types import Floats
from fl_audit.audits.canaries.canary_draws import DECOYS, canary_coins
from fl_audit.errors import InputError, require
from fl_audit.privacy.stated_releases import StatedReleases

Value = TypeVar("Value")

NOTE = "fl-audit-canary"
"""Entry of a reply that names its canary; its coin stays with the client."""
_LONGEST = 1000  # characters of a note
_WORK = 10_000  # hashes that who tries a seed has to take
_NAMED = 4
_ROUNDED = 1 - 1e-6  # share of a norm that counts as the norm


@dataclass(frozen=True)
class CanaryReply:
    """The properties of a canary whose client answered.

    Each is None if unknown, e.g. to an observer that sees only models.
    """

    number: int  # number of the canary, from 0
    is_replaced: bool | None = None  # whether its opposite is sent where it is out, and not nothing
    coins: str | None = None  # fingerprint of its seed of coins
    directions: str | None = None  # fingerprint of its seed of directions
    size: int | None = None  # number of parameters that it is spread over
    norm: float | None = None  # its norm in this round
    node: str | None = None  # the sender, as the server knows it
    # As the server knows: what its reply weighs in the average, over what the heaviest of the round does, from 0 to 1.
    weight: float | None = None

    def __str__(self) -> str:
        """Return the note as JSON text for a message, without the facts that only the server knows."""
        return json.dumps({name: value for name, value in asdict(self).items() if name not in ("node", "weight")})


def read_note(said: object, node: str | None = None) -> CanaryReply | None:
    """Return the canary note in a client's reply, None if there is none; the reply is untrusted input.

    Parameters
    ----------
    said
        The value of the reply that may be a note.
    node
        Identifier of the node that sent the reply; None if unknown.
    """
    text = str(said)
    if len(text) > _LONGEST:
        return None
    try:
        return _note_of_json(json.loads(text) | {"node": node, "weight": None})
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
        return None


def _note_of_json(values: Mapping[str, object]) -> CanaryReply:
    """Return a note from its JSON values, keyed as in `CanaryReply`; all but the number are optional."""
    number, replaced = int(str(values["number"])), values.get("is_replaced")
    coins, directions, node = (_told(str, values.get(name)) for name in ("coins", "directions", "node"))
    norm, weight = (_told(float, values.get(name)) for name in ("norm", "weight"))
    size = _told(int, values.get("size"))
    # NaN is neither below nor above another number.
    fits = (size is None or size >= 1, norm is None or 0 < norm < inf, weight is None or 0 <= weight <= 1)
    if not (0 <= number < 10**9 and (replaced is None or isinstance(replaced, bool)) and all(fits)):
        raise ValueError(f"size {size}, norm {norm} and weight {weight} of canary {number}")
    return CanaryReply(number, replaced, coins, directions, size, norm, node, weight)


def _told(kind: Callable[[str], Value], value: object) -> Value | None:
    """Return a JSON value converted to the given type; None if it is missing."""
    return None if value is None else kind(str(value))


@cache
def fingerprint(seed: int) -> str:
    """Return a hash of 16 hexadecimal digits that identifies a randomly drawn seed without revealing it."""
    return pbkdf2_hmac("sha256", str(seed).encode(), b"fl-audit", _WORK, 8).hex()


@dataclass(frozen=True)
class StoredRound:
    """One stored round: the scores of its release along all directions, and who answered."""

    number: int  # the round, from 1
    present: tuple[CanaryReply, ...]  # the canaries whose clients answered, by number
    scores: tuple[float, ...]  # of the canaries, then of decoys
    others: int | None = None  # number of other clients that answered; None where it was not seen
    size: int | None = None  # the number of parameters
    norm: float | None = None  # the strategy's clipping norm in this round; None where it is unknown
    directions: str | None = None  # fingerprint of the seed of the observer's directions
    run: int | None = None  # Flower's run
    models_only: bool = False  # whether a client has kept it, who sees the models alone
    before: str | None = None  # digest of the model before the round
    after: str | None = None  # digest of the model after it

    @property
    def numbers(self) -> tuple[int, ...]:
        """The numbers of the canaries whose clients answered."""
        return tuple(one.number for one in self.present)

    @property
    def unit(self) -> float | None:
        """The norm of a canary that is in, in the same unit in all rounds; None if unknown."""
        said = [one.norm for one in self.present]
        return self.norm or (said[0] if said and len(set(said)) == 1 else None)


class Mismatch(StrEnum):
    """A property in which a canary does not match the observer, the evaluation or the guarantee."""

    COINS = "coins"
    OUT = "out"
    DIRECTIONS = "directions"
    SIZE = "size"
    NORM = "norm"


_MEANINGS = {
    Mismatch.COINS: "tosses coins of another seed than the one given",
    Mismatch.OUT: "sends, where it is out, something else than the guarantee compares with (is_replaced is to be True "
    "where a client is replaced, and False where it comes or goes)",
    Mismatch.DIRECTIONS: "has another seed of directions than the watch",
    Mismatch.SIZE: "is spread over another number of parameters than the watched model has",
    Mismatch.NORM: "is smaller than the norm to which the strategy clips",
}
"""The mismatches in words that follow the canary's name."""


@dataclass(frozen=True)
class ExcludedCanary:
    """A canary whose rounds are excluded from the evidence, with the reason."""

    number: int  # number of the canary
    node: str | None  # the sender, where it was seen
    what: Mismatch  # the reason

    def __str__(self) -> str:
        node = "" if self.node is None else f" of node {self.node}"
        return f"canary {self.number}{node} {_MEANINGS[self.what]}"


def in_words(wrong: tuple[ExcludedCanary, ...]) -> str:
    """Return the mismatches in words; the first few are listed and the others counted."""
    more = f"; and {len(wrong) - _NAMED} more" if len(wrong) > _NAMED else ""
    return "; ".join(map(str, wrong[:_NAMED])) + more


def _misfits(kept: StoredRound, terms: StatedReleases, coins: str) -> list[ExcludedCanary]:
    """Return the mismatches of a round with coins of a fingerprint; unknown properties of a canary are skipped."""
    is_replaced = terms.adjacency.relation is Relation.REPLACE
    found = list[ExcludedCanary]()
    for one in kept.present:
        fits = {
            Mismatch.COINS: one.coins is None or one.coins == coins,
            Mismatch.OUT: one.is_replaced in (None, is_replaced),
            Mismatch.DIRECTIONS: one.directions in (None, kept.directions),
            Mismatch.SIZE: one.size in (None, kept.size),
            Mismatch.NORM: one.norm is None or kept.norm is None or one.norm >= _ROUNDED * kept.norm,
        }
        found += [ExcludedCanary(one.number, one.node, what) for what, does in fits.items() if not does]
    return found


@contextmanager
def stored_in(path: Path, what: str) -> Iterator[Any]:
    """Yield the JSON value of a file, and turn every error in the `with` block into an `InputError` of one line.

    Parameters
    ----------
    path
        Path of the file.
    what
        What the file should contain, for the error message.

    Raises
    ------
    InputError
        If the file cannot be read, or the `with` block fails on its values.
    """
    try:
        yield json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        raise InputError(f"{path} is no {what}: {error}") from None


def kept_round(path: Path) -> StoredRound:
    """Return the stored round in a file; raises `InputError` if it cannot be read."""
    with stored_in(path, "round that canaries kept") as stored:
        scores = tuple(map(float, stored["scores"]))
        require(bool(np.isfinite(scores).all()), "scores are not finite")
        others, size, run = (_told(int, stored.get(name)) for name in ("others", "size", "run"))
        directions, before, after = (_told(str, stored.get(name)) for name in ("directions", "before", "after"))
        norm = _told(float, stored.get("norm"))
        fits = (others is None or others >= 0, size is None or size >= 1, norm is None or 0 < norm < inf)
        require(all(fits), f"others are {others}, size is {size}, norm is {norm}")
        present = tuple(map(_note_of_json, stored["present"]))
        seen = (scores, others, size, norm, directions, run, stored.get("models_only") is True, before, after)
        return StoredRound(int(stored["number"]), present, *seen)


def _kept_rounds(directory: Path) -> list[StoredRound]:
    """Return the stored rounds in a directory, in order."""
    return [kept_round(path) for path in sorted(directory.glob("round-*.json"))]


def whole_rounds(directory: Path, canaries: int) -> tuple[list[StoredRound], list[StoredRound]]:
    """Return the complete rounds, in which every canary answered once, and all stored rounds, both in order.

    If two clients send the same canary, it has twice the effect of one client, and an unexpected canary may coincide
    with a decoy; such rounds are not complete. Raises `InputError` if a file cannot be read, or no round is complete.

    Parameters
    ----------
    directory
        Directory of the stored rounds.
    canaries
        The number of canaries, at least 1.
    """
    found, every = _kept_rounds(directory), tuple(range(canaries))
    whole = [one for one in found if one.numbers == every and len(one.scores) == canaries + DECOYS]
    wrong = misnamed(found, canaries)
    named = f" once each, since clients name {', '.join(map(str, wrong))} twice or beside them" if wrong else ""
    what = f"{directory} holds no round in which {canaries} canaries answered{named}"
    require(bool(whole), f"{what}: accepted is one or more")
    return whole, found


def fitting_rounds(
    rounds: list[StoredRound], terms: StatedReleases, coin_seed: int
) -> tuple[list[StoredRound], tuple[ExcludedCanary, ...]]:
    """Return the rounds whose canaries match the guarantee and the coins, and the mismatches in all other rounds.

    Raises `InputError` if no round is left.

    Parameters
    ----------
    rounds
        The stored rounds.
    terms
        Terms of the training, which define the guarantee.
    coin_seed
        Secret seed of the clients that carry canaries.
    """
    coins = fingerprint(coin_seed)
    each = [(one, _misfits(one, terms, coins)) for one in rounds]
    wrong = dict.fromkeys(misfit for _, found in each for misfit in found)
    order = tuple(sorted(wrong, key=lambda one: (one.number, one.node or "", one.what)))
    fitting = [one for one, found in each if not found]
    require(bool(fitting), f"no round counts: {in_words(order)}: accepted are canaries of one setting")
    return fitting, order


def misnamed(rounds: Iterable[StoredRound], canaries: int) -> tuple[int, ...]:
    """Return the canary numbers that two clients used in the same round, and those that are out of range.

    Parameters
    ----------
    rounds
        The stored rounds.
    canaries
        Number of canaries, which are numbered from 0.
    """
    named = (one for kept in rounds for one in set(kept.numbers) if one >= canaries or kept.numbers.count(one) > 1)
    return tuple(sorted(set(named)))


def carried_on(directory: Path, rounds: list[StoredRound]) -> int:
    """Return the number of set-aside rounds that belong to the same training as the rounds in the directory.

    A training that is restarted from a model it had released continues the same training, so its rounds compose with
    the earlier ones. This is detected by model digests: a round starts from a model that another one released. The
    initial model is released by no round.

    Parameters
    ----------
    directory
        Directory of the stored rounds.
    rounds
        The rounds that are not set aside.
    """
    chain, added = list(rounds), 0
    aside = [_kept_rounds(one) for one in sorted(directory.glob("earlier-*")) if one.is_dir()]
    while linked := next((one for one in aside if _is_linked(one, chain) or _is_linked(chain, one)), None):
        aside.remove(linked)
        known = {one.after for one in chain}
        more = [one for one in linked if one.after not in known]
        chain, added = chain + more, added + len(more)
    return added


def _is_linked(earlier: list[StoredRound], later: list[StoredRound]) -> bool:
    """Return whether one of the later rounds starts from a model that one of the earlier rounds released."""
    return bool({one.after for one in earlier} & {one.before for one in later} - {None})


def opened(rounds: list[StoredRound], coin_seed: int, canaries: int) -> tuple[Floats, Floats, Floats]:
    """Return scores and coins of canaries, both (rounds, canaries), and scores of decoys, (rounds, decoys).

    Scores are in units of a canary's norm if all rounds state it.

    Parameters
    ----------
    rounds
        The rounds of one training.
    coin_seed
        Secret seed of the clients that carry canaries.
    canaries
        Number of canaries.
    """
    scores = np.array([one.scores for one in rounds]) / units(rounds)[:, None]
    coins = canary_coins(coin_seed, [one.number for one in rounds], canaries)
    return scores[:, :canaries], coins.astype(np.float64), scores[:, canaries:]


def units(rounds: list[StoredRound]) -> Floats:
    """Return the norm of a canary in each round, (rounds,); all 1 if not every round states it."""
    said = [one.unit for one in rounds]
    return np.array([1.0 if one is None or None in said else one for one in said])
