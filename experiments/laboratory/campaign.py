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

import experiments  # noqa: F401  # sets the environment before Flower is imported
from experiments.talk import settle_flower
from fl_audit.errors import require
from fl_audit.laboratory.claim import StatedClaim
from fl_audit.laboratory.seen import Games, Seen, stacked
from fl_audit.laboratory.trial import CHUNK, Budget, Tell, Trial, put_on_trial
from fl_audit.randomness import Purpose, generator
from strategies.laboratory.kinds import KINDS, Kind, kinds_for
from strategies.laboratory.play import Game
from strategies.laboratory.replies import template
from strategies.laboratory.subject import Subject

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
    settle_flower()
    kinds = [
        kind
        for kind in kinds_for(claim.neighbours, claim.rounds, subject.is_clipped)
        if kind.name not in without and (only is None or kind.name in only)
    ]
    require(len(kinds) > 0, "no kind of game is left that says something about this claim")
    last_words = dict[str, str]()
    with _players(subject, claim, seed, processes) as play_chunks:
        play = partial(_played, play_chunks, last_words)
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


def _played(
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
    games = stacked(seen, template(_kind(name).model).tensors)
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
    kind = _kind(name)
    draws = generator(seed, Purpose.LABORATORY, world=chunk, client=KINDS.index(kind))
    present = draws.random(CHUNK) < 0.5
    for seeded in (random.seed, np.random.seed, torch.manual_seed):
        seeded(int(draws.integers(2**32)))
    return [Game(subject, claim, kind, bool(bit), draws).play() for bit in present], present


def _kind(name: str) -> Kind:
    return next(kind for kind in KINDS if kind.name == name)
