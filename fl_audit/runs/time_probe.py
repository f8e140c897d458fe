"""Estimate of a run's time and memory from a few rounds of its first trials, whose results are discarded.

The pilot run (`pilot_run`) is another one: it plays a few trials to their end, since only whole trials have a verdict.
How many it can afford follows from this probe, which ends within seconds however long a trial takes.
"""

import time
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import assert_never

import numpy as np
import psutil

from fl_audit.audits.audit import ReleaseQueryKind
from fl_audit.audits.registry import audit_of
from fl_audit.clients.app import announce_calls
from fl_audit.clients.app import app as client_app
from fl_audit.federation.loaded_federation import load_federation
from fl_audit.federation.run_plan import RunPlan
from fl_audit.runs.cluster.ray_options import calls_on_all_cores
from fl_audit.runs.engine_names import Engine
from fl_audit.runs.local_engine import run_locally
from fl_audit.runs.ray_engine import local_calls
from fl_audit.server.app import build_server_app
from fl_audit.trial_batches import BATCHES_IN_FLIGHT, TrialBatch, remaining_batches, waves

ENOUGH_SECONDS = 4.0
"""Duration after which a probe ends with the round, once it has two rounds to measure."""
_FEWEST_ROUNDS = 2
_MOST_ROUNDS = 6
_FEWEST_SECONDS = 1.5
"""Duration in seconds that a probe lasts at least, however many rounds that takes: the first rounds last longest."""
_FEWEST_TRIALS = 2
"""Trials that are played together where those of the first batches would take longer than `ENOUGH_SECONDS` a round."""
_ROWS_HELD = 18
"""Vectors as long as a model that a run holds of each trial at its peak, as measured with a million parameters."""
_RAY_STARTS = 0.8
_CLIENT_STARTS = 0.7
_REPORT = 1.5
_REPORT_A_ROW = 5e-5
_REPORT_A_SCORE = 8e-6
"""Times, in units of the time that this program takes to start, as measured on machines of two cores.

They are those of the start of Ray, of the start of a client's process, and of a report: its constant part, what each
row for a trial and a round adds, and what each score of a target in a trial adds.
"""
_PROCESSES_APART = 2
"""The processes of the victim and of the insider."""
_MEMORY_AT_THE_END = 170 * 2**20
_MEMORY_OF_RAY = 60 * 2**20
_MEMORY_OF_CLIENTS = 215 * 2**20
"""Memory that a report adds to this process, that Ray adds to it, and that a client's process takes before its first
call: without pages that processes share, as measured.
"""
_SECONDS_OF_A_ROUND = 0.02
_SECONDS_OF_A_CALL = 0.001
"""Costs of a round on Ray besides the clients' work, and of each of its client calls, which share calls of Ray."""


@dataclass(frozen=True)
class TimeAndMemoryEstimate:
    """Measurements of a few rounds, and estimates of time and memory for the whole run."""

    trials: int  # number of trials that were trained together
    rounds: int  # number of rounds that were timed
    start_seconds: float  # seconds until the end of the first round, including preparations
    round_seconds: float  # seconds of a later round of all these trials
    seconds: float  # estimated seconds of the whole training, on the local engine
    memory: int  # estimated peak memory of all processes together in bytes, on the chosen engine
    processes: int  # number of processes: this one, and the client processes on Ray
    command_seconds: float  # estimated seconds of the whole command, with start and report, on the chosen engine


class ProbeEndError(Exception):
    """Raised to end a probe after enough rounds, or a pilot run that takes too long."""


class _RoundCounter:
    """A callback that times finished rounds, and ends the training after enough of them."""

    def __init__(self, trials: int, rounds: int) -> None:
        self.trials = trials
        self.planned = rounds
        self.begun, self.rounds = time.monotonic(), list[float]()
        self.memory = 0
        self._moved = 0

    def __call__(self, trials: int) -> None:
        self._moved += trials
        if self._moved < self.trials:
            return
        self._moved = 0
        self.rounds.append(time.monotonic())
        self.memory = max(self.memory, _own_memory())
        timed = len(self.rounds) - 1
        duration = self.rounds[-1] - self.begun
        # The last round is followed by what a finished batch writes, and nothing is to be written.
        if len(self.rounds) >= self.planned or (timed >= _MOST_ROUNDS and duration > _FEWEST_SECONDS):
            raise ProbeEndError
        if timed >= _FEWEST_ROUNDS and duration > ENOUGH_SECONDS:
            raise ProbeEndError


def probe(plan: RunPlan, engine: Engine = Engine.LOCAL) -> TimeAndMemoryEstimate:
    """Train the first trials of a planned run for a few rounds, and estimate time and memory of the whole run.

    The training is done in this process, and nothing is written. If rounds take long, only a few of the trials in the
    first batches are trained. Raises `FederationError` if a client fails.

    `engine`: The training itself uses the local engine.
    """
    begun = psutil.Process().cpu_times()
    wave = _first_wave(plan)
    memory_held = _own_memory()
    together = sum(batch.count for batch in wave)
    rounds = plan.federation.rounds
    began = time.monotonic()
    busy = time.process_time()
    watch = _few_rounds(plan, _affordable(plan, wave, engine), engine)
    # If others use the machine too, everything that is computed from processor seconds takes as much longer.
    slowness = max(1.0, (time.monotonic() - began) / max(1e-3, time.process_time() - busy))
    first = watch.rounds[0] - watch.begun
    timed = len(watch.rounds) - 1
    # The first rounds last longer. A mean counts those whose release is evaluated too, as often as they occur.
    seconds_each = float(np.mean(np.diff(watch.rounds)[timed // 3 :])) if timed else first
    times = plan.config.audit.trials / watch.trials  # long rounds take time in proportion to their trials
    total = times * (first + (rounds - 1) * seconds_each)
    imports = slowness * (begun.user + begun.system)
    # The report takes the time of its tables, tests and figures.
    trials = plan.config.audit.trials
    report = imports * (_REPORT + _REPORT_A_ROW * trials * rounds + _REPORT_A_SCORE * trials * plan.federation.targets)
    command = imports + _training_seconds(plan, engine, total, imports) + report
    apart = _client_processes(plan) if engine is Engine.RAY else 0
    size = load_federation(plan.federation).model.layout.size
    most_memory = watch.memory + (together - watch.trials) * _ROWS_HELD * size * np.dtype(np.float32).itemsize
    memory = _memory(most_memory, memory_held, apart)
    return TimeAndMemoryEstimate(watch.trials, max(1, timed), first, seconds_each, total, memory, 1 + apart, command)


def _memory(most_memory: int, memory_held: int, apart: int) -> int:
    """Return the estimated peak memory in bytes of this process and of `apart` client processes.

    `most_memory` is the peak of this process while it trains, and `memory_held` its memory before.
    """
    # A client's process holds a part of what came to this one, in which the server worked and all clients were called.
    further = apart * (_MEMORY_OF_CLIENTS + max(0, most_memory - memory_held) / 2) + (_MEMORY_OF_RAY if apart else 0)
    return round(most_memory + _MEMORY_AT_THE_END + further)


def _own_memory() -> int:
    """Return the resident memory of this process in bytes, without shared pages."""
    memory = psutil.Process().memory_info()
    return int(memory.rss - getattr(memory, "shared", 0))  # some systems do not tell which pages are shared


def _few_rounds(plan: RunPlan, wave: tuple[TrialBatch, ...], engine: Engine) -> _RoundCounter:
    """Train batches of trials for a few rounds on the local engine, and return the times at which rounds ended.

    If `engine` is Ray, client calls are made one after the other, because the estimate divides their time by the number
    of Ray's processes.
    """
    settings = plan.config.run
    watch = _RoundCounter(sum(batch.count for batch in wave), plan.federation.rounds)
    # Whatever seed is drawn for the run, its trials take equally long.
    config = plan.config.changed(run={"seed": settings.seed or 0, "keep_releases": 0})
    app = build_server_app(replace(plan, config=config), wave, lambda result: None, on_round=watch)
    ahead = announce_calls if settings.trials_per_batch == 1 else None
    with suppress(ProbeEndError):
        # The time of clients on Ray is divided by its processes: here the calls are made one after the other.
        calls = local_calls(settings) if engine is Engine.LOCAL else 1
        run_locally(app, client_app, plan.federation.nodes, settings.client_time_limit, calls, ahead)
    return watch


def _affordable(plan: RunPlan, wave: tuple[TrialBatch, ...], engine: Engine) -> tuple[TrialBatch, ...]:
    """Return the given batches, or a single smaller batch if one timed trial shows that they would take too long."""
    together = sum(batch.count for batch in wave)
    if together <= _FEWEST_TRIALS:
        return wave
    alone = _few_rounds(plan, (TrialBatch(0, 0, 1),), engine)
    seconds_each = (alone.rounds[-1] - alone.begun) / len(alone.rounds)
    if seconds_each * together <= ENOUGH_SECONDS:
        return wave
    trials_tried = min(together, max(_FEWEST_TRIALS, round(ENOUGH_SECONDS / seconds_each)))
    return (TrialBatch(0, 0, trials_tried),)


def _training_seconds(plan: RunPlan, engine: Engine, alone: float, imports: float) -> float:
    """Return the estimated seconds that a run needs to start the clients and to train.

    `alone` is the estimate for the local engine, and `imports` is how long this process took to start.
    """
    settings = plan.config.run
    public = plan.federation
    match engine:
        case Engine.LOCAL:
            return alone
        case Engine.RAY:
            cores = calls_on_all_cores(settings.threads)
            clients = _clients_of_a_round(plan)
            batches = -(-plan.config.audit.trials // (settings.trials_per_batch or 1))
            in_turn = -(-batches // BATCHES_IN_FLIGHT)
            observers = 0 if audit_of(public).query(public) is ReleaseQueryKind.NOTHING else 1
            calls = batches * public.rounds * (clients + observers)
            processes = _client_processes(plan)
            start = _RAY_STARTS * imports + _CLIENT_STARTS * imports * processes / cores
            waiting = _SECONDS_OF_A_ROUND * public.rounds * in_turn + _SECONDS_OF_A_CALL * calls
            return start + alone / min(cores, clients) + waiting
        case _:
            assert_never(engine)


def _clients_of_a_round(plan: RunPlan) -> int:
    cohort = plan.federation.cohort(1)
    return plan.federation.nodes if cohort is None else len(cohort)


def _client_processes(plan: RunPlan) -> int:
    """Return the number of client processes that an embedded Ray would start on this machine."""
    settings = plan.config.run
    is_observed = audit_of(plan.federation).query(plan.federation) is not ReleaseQueryKind.NOTHING
    apart = _PROCESSES_APART if is_observed else _PROCESSES_APART - 1
    return min(settings.actors or calls_on_all_cores(settings.threads), _clients_of_a_round(plan)) + apart


def _first_wave(plan: RunPlan) -> tuple[TrialBatch, ...]:
    size = plan.trials_per_batch
    trials = plan.config.audit.trials
    return waves(remaining_batches(trials, size, ()))[0]
