"""Thousands of games against a subject, on several processes, and the trial of its claim."""

import multiprocessing
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fl_audit.errors import require
from fl_audit.laboratory.claim import StatedClaim
from fl_audit.laboratory.seen import Games, Seen, stacked
from fl_audit.laboratory.trial import CHUNK, Budget, Tell, Trial, put_on_trial
from fl_audit.randomness import Purpose, generator
from strategies.games.cast import LaboratoryGame, columns_of, model_of
from strategies.games.kinds import BY_NAME, FEW, MANY, Kind, kinds_for
from strategies.games.subject import Subject
from strategies.games.trackers import silent_trackers
from strategies.games.watched import no_news_from_flower

_NUMBERS = {name: number for number, name in enumerate(BY_NAME)}
_Chunk = tuple[list[Seen], NDArray[np.bool_]]


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
    tell: Tell = lambda _: None,
) -> Trial:
    """Hold a strategy to its claim with thousands of short games.

    Parameters
    ----------
    subject
        The strategy, with what its clients do.
    claim
        What it claims.
    budget
        How many games; None for the usual number.
    confidence
        Probability with which a claim that holds is not called violated, above 0.5 and below 1.
    seed
        Of the games. The global generators of Python, numpy and torch are seeded for them: code of other people draws
        its noise there.
    processes
        How many play at the same time.
    without
        Kinds of games that are left out, because the claim does not cover them.
    only
        Kinds of games that are played, None for all that say something about the claim.
    tell
        Takes progress.

    Returns
    -------
    Trial
        The verdict with all that it rests on.

    Raises
    ------
    InputError
        If a number is out of its range.
    """
    kinds = [
        kind
        for kind in kinds_of(subject, claim)
        if not {kind.name, kind.plain_name} & set(without) and (only is None or kind.name in only)
    ]
    require(len(kinds) > 0, "no kind of game is left that says something about this claim")
    last_words = dict[str, str]()
    with no_news_from_flower(), silent_trackers(), _players(subject, claim, seed, processes) as play_chunks:
        play = partial(_played, subject, play_chunks, last_words)
        return put_on_trial(
            claim,
            [kind.name for kind in kinds],
            play,
            frozenset(kind.name for kind in kinds if kind.is_malformed),
            lambda kind: last_words[kind],
            budget,
            confidence,
            tell,
        )


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
    play_chunks: Callable[[list[tuple[str, int]]], list[_Chunk]],
    last_words: dict[str, str],
    name: str,
    first: int,
    count: int,
) -> tuple[Games, NDArray[np.bool_]]:
    chunks = range(first // CHUNK, (first + count) // CHUNK)
    played = play_chunks([(name, chunk) for chunk in chunks])
    seen = [one for games, _ in played for one in games]
    for one in seen:
        if one.refusal is not None:
            last_words[name] = one.refusal
    games = stacked(seen, columns_of(model_of(subject, BY_NAME[name])))
    return games, np.concatenate([present for _, present in played])


@contextmanager
def _players(
    subject: Subject, claim: StatedClaim, seed: int, processes: int
) -> Iterator[Callable[[list[tuple[str, int]]], list[_Chunk]]]:
    """Give what plays chunks, here or on processes that inherit the subject."""
    if processes == 1:
        yield lambda chunks: [_chunk(subject, claim, seed, *chunk) for chunk in chunks]
        return
    # Strategies are seldom picklable: a forked process has them already.
    context = multiprocessing.get_context("fork")
    with context.Pool(processes, _inherit, (subject, claim, seed)) as pool:
        yield lambda chunks: pool.map(_inherited_chunk, chunks, chunksize=1)


_INHERITED: list[Any] = []


def _inherit(subject: Subject, claim: StatedClaim, seed: int) -> None:
    torch.set_num_threads(1)
    _INHERITED[:] = [subject, claim, seed]


def _inherited_chunk(chunk: tuple[str, int]) -> _Chunk:
    subject, claim, seed = _INHERITED
    return _chunk(subject, claim, seed, *chunk)


def _chunk(subject: Subject, claim: StatedClaim, seed: int, name: str, chunk: int) -> _Chunk:
    """Play the games of a chunk."""
    kind = BY_NAME[name]
    draws = generator(seed, Purpose.LABORATORY, world=chunk, client=_NUMBERS[name])
    present = draws.random(CHUNK) < 0.5
    for seeded in (random.seed, np.random.seed, torch.manual_seed):
        seeded(int(draws.integers(2**32)))
    return [LaboratoryGame(subject, claim, kind, bool(bit), draws).play() for bit in present], present
