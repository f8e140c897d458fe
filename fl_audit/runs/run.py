"""A run from its plan to its report."""

import errno
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, assert_never

from flwr.clientapp import ClientApp
from flwr.serverapp import Grid

from fl_audit.atomic_files import write_json
from fl_audit.audits.membership.attacks.registry import attacks_named
from fl_audit.audits.membership.shadow_sums import require_shadows_of_all
from fl_audit.clients.app import announce_calls
from fl_audit.clients.app import app as default_client_app
from fl_audit.errors import FederationError
from fl_audit.federation.run_plan import RunPlan
from fl_audit.learning.metric_names import metric_text, metric_title
from fl_audit.runs import verbosity
from fl_audit.runs.cluster.ray_connection import cluster_at
from fl_audit.runs.cluster.ray_options import RayOptions
from fl_audit.runs.disk_space_estimate import require_room
from fl_audit.runs.engine_names import Engine
from fl_audit.runs.epsilon_by_round import accounted_releases
from fl_audit.runs.local_engine import run_locally
from fl_audit.runs.progress import Progress, at_work, no_progress, progress_bar
from fl_audit.runs.provenance import note_session
from fl_audit.runs.ray_engine import local_calls, run_on_ray
from fl_audit.runs.run_directory import TIMING, RunDirectory
from fl_audit.runs.run_directory_checks import RESUME
from fl_audit.runs.run_requirements import require_runnable
from fl_audit.server.app import FederationTimestamps, build_server_app, run_federation
from fl_audit.server.release_findings import OnRelease
from fl_audit.server.reply_timeout_grid import ReplyTimeoutGrid
from fl_audit.server.trial_batch_results import ResultSink
from fl_audit.strategies.secret_draws import SeededChallenger
from fl_audit.strategies.trial_batch_strategy import TrialBatchStrategy
from fl_audit.trial_batches import TrialBatch
from fl_audit.words import number_text

if TYPE_CHECKING:
    from fl_audit.report.report_elements import ReportContents

_OnRound = Callable[[int], None]
Federate = Callable[[Sequence[TrialBatch], ResultSink, FederationTimestamps, _OnRound], None]
"""A function that trains batches of trials.

Its arguments are the batches, a function that stores a finished batch, a clock, and a function that receives the number
of rounds that were finished since its last call.
"""


@dataclass(frozen=True)
class ClientAppAndStrategy:
    """The ClientApp and the server's strategy that carry out a federation."""

    client_app: ClientApp = default_client_app  # the ClientApp, which all clients share
    strategy: type[TrialBatchStrategy] = TrialBatchStrategy  # the strategy of the server


HONEST = ClientAppAndStrategy()
_ENOUGH_TRIALS = 64
"""Number of trials with which a million targets all have shadow trials, except once in a billion runs."""
_NOT_WRITTEN = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EFBIG, errno.EACCES, errno.EPERM)
"""Error codes of systems for files that cannot be written, whoever asks."""


def run_audit(
    plan: RunPlan,
    directory: Path,
    engine: Engine = Engine.RAY,
    ray_address: str | None = None,
    resume: bool = False,
    progress: Progress = no_progress,
    parties: ClientAppAndStrategy = HONEST,
    with_report: bool = True,
) -> "ReportContents":
    """Carry out or continue a run, write its report, and return the stored summary and tables.

    `parties`: Studies of faulty mechanisms replace them.
    """
    ray_address = cluster_at(ray_address)

    def federate_of(seeded_plan: RunPlan) -> Federate:
        # A run that is part of several tells no lines of its own.
        lines = line_of_release(seeded_plan) if progress is progress_bar else None
        return partial(_federate, engine, seeded_plan, ray_address, parties, lines)

    return _carry_out(plan, RunDirectory(directory), engine.value, federate_of, resume, progress, with_report)


def run_audit_on_grid(plan: RunPlan, directory: Path, grid: Grid) -> "ReportContents":
    """Carry out or continue a run on the grid of a Flower run; otherwise like `run_audit`."""
    run = RunDirectory(directory)
    timed_grid = ReplyTimeoutGrid(grid, plan.config.run.client_time_limit)

    def federate_of(seeded_plan: RunPlan) -> Federate:
        lines = line_of_release(seeded_plan)

        def federate(
            batches: Sequence[TrialBatch], sink: ResultSink, timestamps: FederationTimestamps, on_round: _OnRound
        ) -> None:
            run_federation(seeded_plan, batches, timed_grid, sink, timestamps, on_round, on_release=lines)

        return federate

    return _carry_out(plan, run, "flwr run", federate_of, run.is_begun, no_progress, with_report=True)


def _carry_out(
    plan: RunPlan,
    run: RunDirectory,
    engine: str,
    federate_of: Callable[[RunPlan], Federate],
    resume: bool,
    progress: Progress,
    with_report: bool,
) -> "ReportContents":
    """Check a plan, open the run directory, train what is unfinished, and return the stored summary and tables.

    `federate_of` is called with the plan that has the challenger's seed.
    """
    has_core = plan.federation.weights is not None
    with at_work(f"passing records through {plan.federation.model}" if has_core else "looking at data and model"):
        require_runnable(plan)
    if not resume:
        require_room(plan, run.path)
    with _kept_if_unwritable(), run.opened(plan, resume) as seeded_plan:
        _play(seeded_plan, run, engine, federate_of(seeded_plan), progress)
        return _report_function()(seeded_plan, run, with_report)


def _report_function() -> "Callable[..., ReportContents]":
    """Return the function that writes a run's report; its first call takes seconds for the imports of figures."""
    import pyarrow.dataset  # pandas reads tables with it  # noqa: F401, PLC0415

    from fl_audit.runs.run_report import finish  # noqa: PLC0415

    return finish


@contextmanager
def _kept_if_unwritable() -> Iterator[None]:
    """Turn the error in a `with` block that a file cannot be written into a `FederationError` of one line."""
    try:
        yield
    except OSError as error:
        if error.errno not in _NOT_WRITTEN:
            raise
        problem = f"{error.filename or 'a file'} cannot be written: {error.strerror}; finished batches are kept"
        raise FederationError(f"{problem}: give it room, and go on with {RESUME}") from error


def _play(plan: RunPlan, run: RunDirectory, engine: str, federate: Federate, progress: Progress) -> None:
    """Carry out the unfinished batches of trials of a run, and record how long setup and training took."""
    pending = _pending_batches(plan, run)
    if not pending:
        return
    note_session(run, plan)
    trials = sum(batch.count for batch in pending)
    clock = FederationTimestamps()
    with progress(trials * plan.federation.rounds) as on_round:
        store = run.store(plan.config)
        store.clear(plan.config.audit.trials)
        federate(pending, store.finish, clock, on_round)
    training = clock.finished - clock.ready
    timing = {"setup_seconds": clock.ready - clock.started, "training_seconds": training}
    write_json(run.path / TIMING, timing | {"trials_per_second": trials / training, "engine": engine})


def _getting_ready(on_round: _OnRound) -> _OnRound:
    """Return a function like `on_round` whose first call also starts, in a thread, the imports for the end of a run.

    So these imports cost no time after the last round.
    """
    begun = threading.Event()

    def prepare_and_report(trials: int) -> None:
        if not begun.is_set():
            begun.set()
            threading.Thread(target=_report_function, daemon=True).start()
        on_round(trials)

    return prepare_and_report


def _federate(
    engine: Engine,
    plan: RunPlan,
    ray_address: str | None,
    parties: ClientAppAndStrategy,
    lines: OnRelease | None,
    batches: Sequence[TrialBatch],
    sink: ResultSink,
    timestamps: FederationTimestamps,
    on_round: _OnRound,
) -> None:
    clients = plan.federation.nodes
    settings = plan.config.run
    app = parties.client_app
    ready = _getting_ready(on_round)
    server_app = build_server_app(plan, batches, sink, timestamps, ready, parties.strategy, lines, app)
    match engine:
        case Engine.LOCAL:
            # With one trial in a batch, clients train together (stacked). With more, the trials of one client do.
            ahead = announce_calls if settings.trials_per_batch == 1 else None
            run_locally(server_app, app, clients, settings.client_time_limit, local_calls(settings), ahead)
        case Engine.RAY:
            run_on_ray(server_app, app, clients, RayOptions.of(settings, ray_address))
        case _:
            assert_never(engine)


def line_of_release(plan: RunPlan) -> OnRelease | None:
    """Return a function that prints a line on each evaluated release of a run of one trial; None if nobody reads it."""
    if verbosity.is_quiet():
        return None

    accounted = set(accounted_releases(plan))

    def print_line(number: int, metrics: Mapping[str, float]) -> None:
        values = ", ".join(f"{metric_title(name)} {metric_text(name, value)}" for name, value in metrics.items())
        spent = f", epsilon {number_text(plan.epsilon_after(number), 3)} so far" if number in accounted else ""
        verbosity.say(f"round {number} of {plan.federation.rounds}: {values}{spent}")

    return print_line


def _pending_batches(plan: RunPlan, run: RunDirectory) -> tuple[TrialBatch, ...]:
    """Return the batches that are not finished or whose results are damaged.

    Raises `InputError` if an attack needs shadow models, but a target would be in all trials or in none.
    """
    public = plan.federation
    audit = plan.config.audit
    needs_shadows = any(attack.needs_shadows_of_each_target for attack in attacks_named(audit.attacks))
    if needs_shadows and audit.trials < _ENOUGH_TRIALS:
        challenger = SeededChallenger(plan.seed, public.targets, public.membership_scheme)
        require_shadows_of_all(challenger.membership(range(audit.trials)))
    return run.store(plan.config).pending(audit.trials, plan.trials_per_batch)
