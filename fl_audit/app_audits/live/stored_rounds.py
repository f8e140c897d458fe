"""Read the stored rounds of a training, and find the rounds that count as evidence.

A canary client reports the properties of its canary to the observer in a note. A round is excluded if a note
contradicts the directions, size or clipping norm that the observer stored, the seed of the coins that the evaluation
uses, or the adjacency of the guarantee.
"""

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from math import inf
from pathlib import Path
from typing import Any

import numpy as np

from fl_audit.adjacency import Relation
from fl_audit.app_audits.live.reported_canary_properties import (
    ReportedCanaryProperties,
    converted,
    fingerprint,
    note_of_json,
)
from fl_audit.array_types import Floats
from fl_audit.audits.canaries.canary_draws import DECOYS, canary_coins
from fl_audit.errors import InputError, require
from fl_audit.ordinary_files import read_text_file
from fl_audit.privacy.stated_releases import StatedReleases
from fl_audit.value_checks import require_number

MOST_CANARIES = 10_000
MOST_ROUNDS = 2**24
_NAMED = 4  # largest number of mismatches that a message lists
_ROUNDED = 1 - 1e-6  # smallest ratio of a canary's norm to the clipping norm that counts as equal


@dataclass(frozen=True)
class StoredRound:
    """One stored round of a training: the scores of its release, and the canaries whose clients answered."""

    # All fields with the default None are None if unknown.
    number: int  # number of the round, from 1
    present: tuple[ReportedCanaryProperties, ...]  # the canaries whose clients answered, ordered by number
    scores: tuple[float, ...]  # scores of the canaries, then of the decoys
    others: int | None = None  # number of clients without a canary that answered
    size: int | None = None  # number of parameters of the model
    norm: float | None = None  # clipping norm of the strategy in this round
    directions: str | None = None  # fingerprint of the seed of the directions that the observer used
    run: int | None = None  # identifier of the Flower run
    models_only: bool = False  # whether the observer was a client, which sees only the models
    before: str | None = None  # SHA-256 digest of the model before the round
    after: str | None = None  # SHA-256 digest of the model after the round

    @property
    def numbers(self) -> tuple[int, ...]:
        """The numbers of the canaries whose clients answered, in ascending order."""
        return tuple(properties.number for properties in self.present)

    @property
    def canary_norm(self) -> float | None:
        """The norm with which canaries are sent in this round; None if unknown.

        It is the clipping norm of the strategy or, if that is unknown, the norm that every canary reports.
        """
        norms = [properties.norm for properties in self.present]
        return self.norm or (norms[0] if norms and len(set(norms)) == 1 else None)


class MismatchedCanaryProperty(StrEnum):
    """A property of a canary that does not match the observer, the evaluation or the guarantee."""

    COINS = "coins"
    OUT = "out"
    DIRECTIONS = "directions"
    SIZE = "size"
    NORM = "norm"


# They stand here and in no template, since a client of a running federation installs no templates.
_MEANINGS = {
    MismatchedCanaryProperty.COINS: "tosses coins of another seed than the one given",
    MismatchedCanaryProperty.OUT: "sends, where it is out, something else than the guarantee compares with "
    "(is_replaced is to be True where a client is replaced, and False where it comes or goes)",
    MismatchedCanaryProperty.DIRECTIONS: "has another seed of directions than the watch",
    MismatchedCanaryProperty.SIZE: "is spread over another number of parameters than the watched model has",
    MismatchedCanaryProperty.NORM: "is smaller than the norm to which the strategy clips",
}
"""A phrase on each mismatch, which follows the number of the canary in a sentence."""


@dataclass(frozen=True)
class MismatchedCanary:
    """A canary whose rounds do not count as evidence, with the reason."""

    number: int  # number of the canary
    node: str | None  # identifier of the node that sent the canary; None if unknown
    mismatch: MismatchedCanaryProperty  # the property that does not match

    def __str__(self) -> str:
        node = "" if self.node is None else f" of node {self.node}"
        return f"canary {self.number}{node} {_MEANINGS[self.mismatch]}"


def mismatches_text(wrong: tuple[MismatchedCanary, ...]) -> str:
    """Return a phrase that lists the first four of the given mismatches, and counts the others."""
    suffix = f"; and {len(wrong) - _NAMED} more" if len(wrong) > _NAMED else ""
    return "; ".join(map(str, wrong[:_NAMED])) + suffix


def _misfits(stored_round: StoredRound, releases: StatedReleases, coins: str) -> list[MismatchedCanary]:
    """Return the properties of a round's canaries that contradict the claim, the stored round or the seed of the coins.

    `releases` is the claim, and `coins` the fingerprint of the seed.
    """
    is_replaced = releases.adjacency.relation is Relation.REPLACE
    canaries = list[MismatchedCanary]()
    for properties in stored_round.present:
        fits = {
            MismatchedCanaryProperty.COINS: properties.coins is None or properties.coins == coins,
            MismatchedCanaryProperty.OUT: properties.is_replaced in (None, is_replaced),
            MismatchedCanaryProperty.DIRECTIONS: properties.directions in (None, stored_round.directions),
            MismatchedCanaryProperty.SIZE: properties.size in (None, stored_round.size),
            MismatchedCanaryProperty.NORM: properties.norm is None
            or stored_round.norm is None
            or properties.norm >= _ROUNDED * stored_round.norm,
        }
        canaries += [
            MismatchedCanary(properties.number, properties.node, name) for name, does in fits.items() if not does
        ]
    return canaries


@contextmanager
def stored_in(path: Path, description: str) -> Iterator[Any]:
    """Yield the JSON value of a file, and turn an error in the `with` block into an `InputError` of one line.

    Parameters
    ----------
    path
        Path of the file.
    description
        A noun phrase for what the file should contain, for the error message.

    Raises
    ------
    InputError
        If the file cannot be read, or the `with` block fails on its values.
    """
    try:
        yield json.loads(read_text_file(path))
    except (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        raise InputError(f"{path} is no {description}: {error}") from None


def kept_round(path: Path) -> StoredRound:
    """Return the round that is stored in a file; raises `InputError` if the file cannot be read or is not valid."""
    with stored_in(path, "round that canaries kept") as stored:
        scores = tuple(map(float, stored["scores"]))
        require(bool(np.isfinite(scores).all()), "scores are not finite")
        other_clients, size, run = (converted(int, stored.get(name)) for name in ("others", "size", "run"))
        directions, before, after = (converted(str, stored.get(name)) for name in ("directions", "before", "after"))
        norm = converted(float, stored.get("norm"))
        fits = (other_clients is None or other_clients >= 0, size is None or size >= 1, norm is None or 0 < norm < inf)
        require(all(fits), f"others are {other_clients}, size is {size}, norm is {norm}")
        present = tuple(map(note_of_json, stored["present"]))
        fields = (scores, other_clients, size, norm, directions, run, stored.get("models_only") is True, before, after)
        number = stored["number"]
        require_number("its number is", number, f"whole numbers from 1 to {MOST_ROUNDS}")
        return StoredRound(number, present, *fields)


def _kept_rounds(directory: Path) -> list[StoredRound]:
    return [kept_round(path) for path in sorted(directory.glob("round-*.json"))]


def whole_rounds(directory: Path, canaries: int) -> tuple[list[StoredRound], list[StoredRound]]:
    """Return the complete rounds and all stored rounds of a directory, both in the order of their numbers.

    A round is complete if each canary answered exactly once and no other canary answered. Raises `InputError` if a file
    cannot be read, or if no round is complete.

    Parameters
    ----------
    directory
        Directory of the stored rounds.
    canaries
        Number of canaries, at least 1, which are numbered from 0.
    """
    stored_rounds = _kept_rounds(directory)
    every = tuple(range(canaries))
    whole = [
        stored_round
        for stored_round in stored_rounds
        if stored_round.numbers == every and len(stored_round.scores) == canaries + DECOYS
    ]
    wrong = misnumbered(stored_rounds, canaries)
    remark = f" once each, since clients name {', '.join(map(str, wrong))} twice or beside them" if wrong else ""
    problem = f"{directory} holds no round in which {canaries} canaries answered{remark}"
    require(bool(whole), f"{problem}: accepted is one or more")
    return whole, stored_rounds


def fitting_rounds(
    rounds: list[StoredRound], releases: StatedReleases, coin_seed: int
) -> tuple[list[StoredRound], tuple[MismatchedCanary, ...]]:
    """Return the rounds whose canaries all match the guarantee and the coins, and the mismatches in the other rounds.

    Raises `InputError` if no round matches.

    Parameters
    ----------
    rounds
        The stored rounds to choose from.
    releases
        The claimed guarantee of the training, as the releases that it states.
    coin_seed
        Secret seed of the canaries' coins, from 0 to 2**64 - 1.
    """
    coins = fingerprint(coin_seed)
    misfits = [(round, _misfits(round, releases, coins)) for round in rounds]
    wrong = dict.fromkeys(misfit for _, canaries in misfits for misfit in canaries)
    order = tuple(sorted(wrong, key=lambda canary: (canary.number, canary.node or "", canary.mismatch)))
    fitting = [stored_round for stored_round, canaries in misfits if not canaries]
    require(bool(fitting), f"no round counts: {mismatches_text(order)}: accepted are canaries of one setting")
    return fitting, order


def misnumbered(rounds: Iterable[StoredRound], canaries: int) -> tuple[int, ...]:
    """Return the numbers of wrongly numbered canaries, in ascending order.

    These are the numbers that two clients used in the same round, and the numbers out of range.

    Parameters
    ----------
    rounds
        The stored rounds.
    canaries
        Number of canaries, which are numbered from 0.
    """
    wrong_numbers = (
        number
        for round in rounds
        for number in set(round.numbers)
        if number >= canaries or round.numbers.count(number) > 1
    )
    return tuple(sorted(set(wrong_numbers)))


def earlier_rounds_of_same_training(directory: Path, rounds: list[StoredRound]) -> int:
    """Return the number of rounds in the subdirectories `earlier-*` that belong to the same training as `rounds`.

    If a training is restarted from one of its released models, it is still the same training, so its new rounds compose
    with the earlier rounds. A restart is detected by digests of models: a round in one directory starts from a model
    that a round in another directory released.

    Parameters
    ----------
    directory
        Directory of the stored rounds.
    rounds
        The rounds in the directory itself.
    """
    chain = list(rounds)
    added = 0
    aside = [_kept_rounds(path) for path in sorted(directory.glob("earlier-*")) if path.is_dir()]
    while linked := next(
        (
            stored_rounds
            for stored_rounds in aside
            if _is_linked(stored_rounds, chain) or _is_linked(chain, stored_rounds)
        ),
        None,
    ):
        aside.remove(linked)
        afters = {stored_round.after for stored_round in chain}
        later_rounds = [stored_round for stored_round in linked if stored_round.after not in afters]
        chain = chain + later_rounds
        added = added + len(later_rounds)
    return added


def _is_linked(earlier: list[StoredRound], later: list[StoredRound]) -> bool:
    """Return whether a `later` round starts from a model that an `earlier` round released."""
    return bool(
        {stored_round.after for stored_round in earlier} & {stored_round.before for stored_round in later} - {None}
    )


def scores_and_coins(rounds: list[StoredRound], coin_seed: int, canaries: int) -> tuple[Floats, Floats, Floats]:
    """Return the scores of canaries, the coins of canaries, and the scores of decoys, as three arrays.

    Scores and coins have shape (rounds, canaries), and the scores of decoys (rounds, decoys). A coin is 1 if the canary
    was in, else 0. Scores are in units of a canary's norm if this norm is known for all rounds.

    Parameters
    ----------
    rounds
        The rounds of one training.
    coin_seed
        Secret seed of the canaries' coins, from 0 to 2**64 - 1.
    canaries
        Number of canaries.
    """
    scores = np.array([round.scores for round in rounds]) / canary_norms(rounds)[:, None]
    coins = canary_coins(coin_seed, [round.number for round in rounds], canaries)
    return scores[:, :canaries], coins.astype(np.float64), scores[:, canaries:]


def canary_norms(rounds: list[StoredRound]) -> Floats:
    """Return the norm of a canary in each round, shape (rounds,); all 1 if it is unknown for any round."""
    norms = [round.canary_norm for round in rounds]
    return np.array([1.0 if norm is None or None in norms else norm for norm in norms])
