"""Thousands of games against a subject, on several processes, and the trial of its claim."""

import math
import multiprocessing
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fl_audit.errors import require
from fl_audit.laboratory.claim import StatedClaim
from fl_audit.laboratory.seen import Games, Seen, stacked
from fl_audit.laboratory.trial import CHUNK, Budget, OutOfTimeError, Tell, Trial, put_on_trial
from fl_audit.randomness import Purpose, generator
from strategies.games.cast import LaboratoryGame, columns_of, model_of
from strategies.games.files import WorkingCopy, apart, outside_words
from strategies.games.kinds import BY_NAME, FEW, MANY, Kind, kinds_for
from strategies.games.subject import Subject, seed_generators
from strategies.games.watched import no_news_from_flower, say

_NUMBERS = {name: number for number, name in enumerate(BY_NAME)}
_Chunk = tuple[list[Seen], NDArray[np.bool_], list[str]]
"""Games, whether D was played, and where they wrote that could not be kept apart."""


def hold_to_claim(
    subject: Subject,
    claim: StatedClaim,
    *,
    budget: Budget | None = None,
    confidence: float = 0.95,
    seed: int = 0,
    processes: int = 1,
    without: Sequence[str] = (),
    only: Sequence[str] | None = None,
    seconds: float = math.inf,
    tell: Tell = lambda _: None,
) -> Trial:
    """Hold a strategy to its claim with thousands of short games; a number out of its range is refused.

    Parameters
    ----------
    subject, claim
        The strategy, with what its clients do, and what it claims.
    budget
        How many games; None for the usual number.
    confidence
        Probability with which a claim that holds is not called violated, above 0.5 and below 1.
    seed
        Seed of the games. The global generators of Python, numpy and torch are seeded for them: code of other people
        draws its noise there.
    processes
        How many play at the same time.
    without, only
        Kinds of games that are left out, because the claim does not cover them, and those that are played, None for
        all that say something about the claim.
    seconds
        How long the games may take, above 0: half of it for those that look for leads.
    tell
        Takes progress.
    """
    kinds = [
        kind
        for kind in kinds_of(subject, claim)
        if not {kind.name, kind.plain_name} & set(without) and (only is None or kind.name in only)
    ]
    require(len(kinds) > 0, "no kind of game is left that says something about this claim")
    last_words, outside, began = dict[str, str](), set[str](), time.monotonic()
    with no_news_from_flower(), _players(subject, claim, seed, processes) as play_chunks:
        untils = began + seconds / 2, began + seconds
        play = partial(_played, subject, play_chunks, last_words, outside, untils)
        trial = put_on_trial(
            claim,
            [kind.name for kind in kinds],
            play,
            frozenset(kind.name for kind in kinds if kind.is_malformed),
            lambda kind: last_words[kind],
            budget,
            confidence,
            tell,
        )
    if outside:
        say(outside_words(sorted(outside)))
    return trial


def kinds_of(subject: Subject, claim: StatedClaim) -> tuple[Kind, ...]:
    """Return the kinds of games that are played against a subject with a claim.

    Parameters
    ----------
    subject, claim
        What is played, and what is said of it.
    """
    sizes = tuple({FEW, MANY} - {subject.clients}) if subject.has_any_size else ()
    return kinds_for(claim.neighbours, claim.rounds, subject.is_clipped, sizes, subject.model is not None)


def _played(
    subject: Subject,
    play_chunks: Callable[[list[tuple[str, int]]], Iterable[_Chunk]],
    last_words: dict[str, str],
    outside: set[str],
    untils: tuple[float, float],
    name: str,
    first: int,
    count: int,
) -> tuple[Games, NDArray[np.bool_]]:
    # Games from the first one on look for leads; fresh ones, which try them, have other numbers.
    until, played = untils[first > 0], list[_Chunk]()
    chunks = [(name, chunk) for chunk in range(first // CHUNK, (first + count) // CHUNK)]
    waiting = iter(play_chunks(chunks))
    while len(played) < len(chunks):
        if time.monotonic() > until:
            raise OutOfTimeError
        played.append(next(waiting))
    seen = [one for games, _, _ in played for one in games]
    outside.update(path for _, _, paths in played for path in paths)
    last_words.update((name, one.refusal) for one in seen if one.refusal is not None)
    games = stacked(seen, columns_of(model_of(subject, BY_NAME[name])))
    return games, np.concatenate([present for _, present, _ in played])


@contextmanager
def _players(
    subject: Subject, claim: StatedClaim, seed: int, processes: int
) -> Iterator[Callable[[list[tuple[str, int]]], Iterable[_Chunk]]]:
    """Give what plays chunks, here or on processes that inherit the subject."""
    with TemporaryDirectory(prefix="fl-audit-") as room:
        if processes == 1:
            yield partial(map, _Player(subject, claim, seed, room))
            return
        # Strategies are seldom picklable: a forked process has them already.
        context = multiprocessing.get_context("fork")
        with context.Pool(processes, _inherit, (subject, claim, seed, room)) as pool:
            yield lambda chunks: pool.imap(_inherited_chunk, chunks)


class _Player:
    """Plays the games of a chunk: a kind of game and a number."""

    def __init__(self, subject: Subject, claim: StatedClaim, seed: int, room: str) -> None:
        self._subject, self._claim, self._seed = subject, claim, seed
        self._copy = WorkingCopy(Path.cwd(), room=Path(room))

    def __call__(self, wanted: tuple[str, int]) -> _Chunk:
        name, chunk = wanted
        draws = generator(self._seed, Purpose.LABORATORY, world=chunk, client=_NUMBERS[name])
        present = draws.random(CHUNK) < 0.5
        seed_generators(draws)
        games = []
        with apart(self._copy):
            for bit in present:
                games.append(LaboratoryGame(self._subject, self._claim, BY_NAME[name], bool(bit), draws).play())
                self._copy.tidied(thoroughly=False)
        return games, present, self._copy.outside


_INHERITED: list[_Player] = []


def _inherit(*of_player: Any) -> None:
    torch.set_num_threads(1)
    _INHERITED[:] = [_Player(*of_player)]


def _inherited_chunk(wanted: tuple[str, int]) -> _Chunk:
    return _INHERITED[0](wanted)
