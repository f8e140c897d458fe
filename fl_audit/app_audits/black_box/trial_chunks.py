"""Trials of a black-box audit in chunks, each of which one process plays in one call."""

import os
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from fl_audit.app_audits.black_box.asked_metrics import reporting
from fl_audit.app_audits.black_box.audited_system import AuditedSystem
from fl_audit.app_audits.black_box.black_box_trial import BlackBoxTrial
from fl_audit.app_audits.black_box.metric_lookups import names_asked
from fl_audit.app_audits.black_box.scenario import Direction, Scenario
from fl_audit.app_audits.black_box.scenarios import BY_NAME, ZERO_PROBE_ON_OWN
from fl_audit.app_audits.black_box.working_copy import WorkingCopy, in_working_copy
from fl_audit.app_audits.claim_audit.claim import StatedClaim
from fl_audit.app_audits.claim_audit.claim_audit_results import CHUNK
from fl_audit.app_audits.claim_audit.transcript import Transcript
from fl_audit.app_audits.temporary_directories import new_temporary_directory
from fl_audit.generator_states import seed_generators
from fl_audit.randomness import Purpose, generator

_SCENARIOS = BY_NAME | {ZERO_PROBE_ON_OWN.name: ZERO_PROBE_ON_OWN}
_NUMBERS = {name: number for number, name in enumerate(_SCENARIOS)}


class TrialChunk(NamedTuple):
    """Trials of one scenario that one process plays in one call."""

    scenario: str  # name of the scenario
    number: int  # number of the chunk, from 0
    bears_zero: bool = True  # whether an absent target sends an update of exactly zero, or else a negligible one
    rounds: int | None = None  # number of rounds of a trial; None for those of the claim
    asked: tuple[str, ...] = ()  # names of the metrics that the strategy is known to look up in replies
    # Names of the only metrics that clients report, in a chunk of a single trial; None for those of other chunks.
    reported: tuple[str, ...] | None = None


class ChunkTrials(NamedTuple):
    """The trials of one chunk that were played."""

    transcripts: list[Transcript]
    present: NDArray[np.bool_]  # whether each trial used D, shape (trials,)
    outside: list[str]  # paths outside of the working copy to which trials wrote
    asked: tuple[str, ...] = ()  # names of the metrics that the strategy looked up in replies


class TrialExecutor:
    """Executor of trials in chunks, in this process or in a fork. See `TrialChunk`."""

    def __init__(
        self, system: AuditedSystem, claim: StatedClaim, seed: int, target_places: Mapping[str, int] | None = None
    ) -> None:
        self._system = system
        self._claim = claim
        self._seed = seed
        self._target_places = target_places or {}
        self._owner = os.getpid()
        self._room = new_temporary_directory(self._owner)
        self._copies = dict[int, WorkingCopy]()

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._room, ignore_errors=True)

    def play(self, chunk: TrialChunk, until: float) -> ChunkTrials:
        """Run the trials of a chunk one after the other, and end after the trial that is running at a given time.

        Parameters
        ----------
        chunk
            The chunk.
        until
            The time of the monotonic clock, in seconds.
        """
        copy = self._copy_here()
        draws, present = self._drawn(chunk)
        seed_generators(draws)
        trials = list[Transcript]()
        is_single = chunk.reported is not None
        with in_working_copy(copy), names_asked() as asked:
            for bit in present:
                trials.append(self._trial(chunk, bit, draws).play())
                copy.restore(thoroughly=False)
                if is_single or time.monotonic() > until:
                    break
        return ChunkTrials(trials, present[: len(trials)], copy.outside, tuple(asked))

    def lost(self, chunk: TrialChunk, reason: str) -> ChunkTrials:
        """Return the results of a chunk of trials during which the worker process ended.

        Every trial of the chunk counts as one that the strategy refused.

        Parameters
        ----------
        chunk
            The chunk.
        reason
            How the process ended, in words.
        """
        draws, present = self._drawn(chunk)
        text = f"it ended its process {reason}"
        transcripts = [self._trial(chunk, bit, draws).refused(text) for bit in present]
        return ChunkTrials(transcripts, present, [])

    def _drawn(self, chunk: TrialChunk) -> tuple[np.random.Generator, NDArray[np.bool_]]:
        draws = generator(self._seed, Purpose.BLACK_BOX, trial=chunk.number, client=_NUMBERS[chunk.scenario])
        return draws, draws.random(CHUNK) < 0.5

    def _trial(self, chunk: TrialChunk, bit: np.bool_, draws: np.random.Generator) -> BlackBoxTrial:
        claim = self._claim if chunk.rounds is None else replace(self._claim, rounds=chunk.rounds)
        scenario = _SCENARIOS[chunk.scenario]
        index = self._target_places.get(chunk.scenario, 0)
        system = replace(self._system, asked=chunk.asked)
        if chunk.reported is not None:
            system = reporting(system, chunk.reported)
        return BlackBoxTrial(system, claim, scenario, bool(bit), draws, chunk.bears_zero, index)

    def _copy_here(self) -> WorkingCopy:
        """Return this process's own copy of the working directory; it is made at the first call."""
        here = os.getpid()
        if here not in self._copies:
            if here != self._owner:
                torch.set_num_threads(1)
            self._copies[here] = WorkingCopy(Path.cwd(), room=self._room)
        return self._copies[here]


def target_places(kinds: Sequence[Scenario], system: AuditedSystem, seed: int) -> dict[str, int]:
    """Return the place of the target among the clients, from 0, for each scenario, keyed by its name.

    Some strategies treat clients unequally by their places. The scenarios share all places evenly, those with an
    ordinary update first, because others may tell too little of one client that counts more than it should.

    Parameters
    ----------
    kinds
        The scenarios that are played.
    system
        The audited system, with the number of clients of a trial.
    seed
        Seed of the draw of places, from 0.
    """
    is_ordinary = [kind.present.direction is Direction.FIRST and not kind.is_malformed for kind in kinds]
    ordered = [kind for kind, first in zip(kinds, is_ordinary, strict=True) if first]
    ordered += [kind for kind, first in zip(kinds, is_ordinary, strict=True) if not first]
    draws = generator(seed, Purpose.BLACK_BOX, client=len(_NUMBERS))
    positions_by_scenario = dict[str, int]()
    for clients in sorted({kind.stage.clients or system.clients for kind in kinds}):
        positions = draws.permutation(clients)
        alike = [kind for kind in ordered if (kind.stage.clients or system.clients) == clients]
        positions_by_scenario |= {kind.name: int(positions[number % clients]) for number, kind in enumerate(alike)}
    return positions_by_scenario
