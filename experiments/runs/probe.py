"""How long a run will take and how much memory: its first batches are played for a few rounds, and thrown away."""

import time
from contextlib import suppress
from dataclasses import dataclass, replace

import psutil

from clients.app import app as client_app
from clients.app import read_ahead
from experiments.runs.local_engine import run_locally
from experiments.runs.plan import AuditPlan
from experiments.runs.run import federation_plan
from experiments.runs.run_directory import with_seed
from fl_audit.worlds import WorldBatch
from server.app import FederationClock, build_server_app
from server.results import BatchResult

ENOUGH_SECONDS = 4.0
"""A probe ends with the round in which it has taken so long, once it has two rounds to tell a time from."""
_FEWEST_ROUNDS, _MOST_ROUNDS = 2, 6


@dataclass(frozen=True)
class Probe:
    """What a few rounds took."""

    # `worlds`, `rounds`: worlds that were played together, and the rounds of each that were timed.
    worlds: int
    rounds: int
    start_seconds: float  # until the first round was over: initial models, their evaluation, and what is done once
    round_seconds: float  # one round of all these worlds
    seconds: float  # estimate of the whole training, on the local engine
    memory: int  # most bytes of memory that this process held


class _EnoughError(Exception):
    """Ends a probe."""


class _Stopwatch:
    """Counts the rounds of some worlds, and ends the run when it has seen enough of them."""

    def __init__(self, worlds: int, rounds: int) -> None:
        self.worlds, self.planned = worlds, rounds
        self.begun, self.rounds = time.monotonic(), list[float]()
        self.memory = 0
        self._moved = 0

    def __call__(self, worlds: int) -> None:
        self._moved += worlds
        if self._moved < self.worlds:
            return
        self._moved = 0
        self.rounds.append(time.monotonic())
        self.memory = max(self.memory, psutil.Process().memory_info().rss)
        timed, taken = len(self.rounds) - 1, self.rounds[-1] - self.begun
        # The last round is followed by what a finished batch writes, and nothing is to be written.
        if len(self.rounds) >= self.planned or timed >= _MOST_ROUNDS:
            raise _EnoughError
        if timed >= _FEWEST_ROUNDS and taken > ENOUGH_SECONDS:
            raise _EnoughError


class _Nowhere:
    """Takes finished batches and keeps nothing."""

    def finish(self, result: BatchResult) -> None:
        """Forget a batch."""


def probe(plan: AuditPlan) -> Probe:
    """Play the first batches of a plan for a few rounds in this process, write nothing, and say what all would take.

    Raises
    ------
    FederationError
        If a client fails.
    """
    wave = _first_wave(plan)
    together, rounds = sum(batch.count for batch in wave), plan.public.rounds
    watch = _Stopwatch(together, rounds)
    settings = plan.config.run
    # Whatever seed is drawn for the run, its worlds take as long.
    federation = replace(federation_plan(with_seed(plan, settings.seed or 0), wave), keep_releases=0)
    app = build_server_app(federation, _Nowhere(), FederationClock(), watch)
    ahead = read_ahead if settings.worlds_per_batch == 1 else None
    with suppress(_EnoughError):
        run_locally(app, client_app, plan.public.nodes, settings.client_time_limit, max(1, settings.actors), ahead)
    first = watch.rounds[0] - watch.begun
    timed = len(watch.rounds) - 1
    each = (watch.rounds[-1] - watch.rounds[0]) / timed if timed else first
    waves = plan.config.audit.worlds / together
    total = waves * (first + (rounds - 1) * each)
    return Probe(together, max(1, timed), first, each, total, watch.memory)


def _first_wave(plan: AuditPlan) -> tuple[WorldBatch, ...]:
    size, worlds = plan.config.run.worlds_per_batch, plan.config.audit.worlds
    assert size is not None, "a resolved configuration names the size of a batch"
    starts = range(0, min(worlds, size * plan.config.run.batches_in_flight), size)
    return tuple(WorldBatch(number, first, min(size, worlds - first)) for number, first in enumerate(starts))
