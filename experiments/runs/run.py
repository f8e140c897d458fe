"""A run from its audit plan to its report."""

import errno
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, assert_never

from flwr.clientapp import ClientApp
from flwr.serverapp import Grid

from fl_audit.atomic_files import atomic_file, read_json, require_sealed, write_json
from fl_audit.audits.membership.attack_names import Attack, of_ours
from fl_audit.audits.membership.shadow_sums import require_shadows_of_all
from fl_audit.audits.registry import audit_of
from fl_audit.clients.app import app as default_client_app
from fl_audit.clients.app import read_ahead
from fl_audit.errors import InputError
from fl_audit.experiments.runs import lazy_imports
from fl_audit.experiments.runs.attack_queries import more_queries
from fl_audit.experiments.runs.audit_plan import AuditPlan
from fl_audit.experiments.runs.cluster.ray_connection import RayOptions, cluster_at
from fl_audit.experiments.runs.config import EpsilonStarLocation
from fl_audit.experiments.runs.disk_usage import require_room
from fl_audit.experiments.runs.engines import Engine, local_calls, run_on_ray
from fl_audit.experiments.runs.image_reconstruction import DRAWING_STEPS, drawn_by, require_drawable
from fl_audit.experiments.runs.local_engine import run_locally
from fl_audit.experiments.runs.non_private_run import note_unprotected, read_unprotected
from fl_audit.experiments.runs.preflight import require_finite_steps
from fl_audit.experiments.runs.progress import Progress, at_work, no_progress, steps_bar
from fl_audit.experiments.runs.provenance import note_session, read_provenance
from fl_audit.experiments.runs.run_directory import RunDirectory, read_plan
from fl_audit.experiments.runs.trial_batch_store import write_sealed, write_table
from fl_audit.federation.loaded_federation import load_federation
from fl_audit.federation.run_tables import SECRET_TABLES, RunTables
from fl_audit.released_model.parametric_star import StarSettings
from fl_audit.server.app import FederationPlan, FederationTimestamps, build_server_app, run_federation
from fl_audit.server.evaluator import require_evaluable
from fl_audit.server.monitored_grid import MonitoredGrid
from fl_audit.server.trial_batch_results import ResultSink
from fl_audit.strategies.challenger import SeededChallenger
from fl_audit.strategies.dp_strategy import DPStrategy
from fl_audit.strategies.epsilon_star_queries import FederatedLossSettings
from fl_audit.strategies.errors import FederationError
from fl_audit.trials import TrialBatch

if TYPE_CHECKING:
    from fl_audit.report.finding import ReportContents

_OnRound = Callable[[int], None]
_TIMING = "timing.json"
_UNKNOWN: dict[str, Any] = dict.fromkeys(("setup_seconds", "training_seconds", "trials_per_second", "engine"))
"""Durations of a run that was ended between its last batch and its report."""
_FOR_THE_END = ("pyarrow.dataset", *lazy_imports.PLACES)
"""Modules that take seconds to import and are needed after the last round: imported while the clients work."""


@dataclass(frozen=True)
class PartyApps:
    """The ClientApp and the server's strategy that carry out a federation."""

    client_app: ClientApp = default_client_app  # the ClientApp, which all clients share
    strategy: type[DPStrategy] = DPStrategy  # the strategy of the server


HONEST = PartyApps()
_ENOUGH_TRIALS = 64
"""Number of trials with which a million targets all have shadow trials, except once in a billion runs."""
_NOT_WRITTEN = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EFBIG, errno.EACCES, errno.EPERM)
"""Error codes of systems for files that cannot be written, whoever asks."""


def run_audit(
    plan: AuditPlan,
    directory: Path,
    engine: Engine = Engine.RAY,
    ray_address: str | None = None,
    resume: bool = False,
    progress: Progress = no_progress,
    parties: PartyApps = HONEST,
    with_report: bool = True,
) -> "ReportContents":
    """Carry out or continue a run, write its report, and return the stored summary and tables.

    Parameters
    ----------
    plan
        The audit plan: completed configuration, guarantee and federation of the run.
    directory
        Run directory; it must be new unless `resume` is true.
    resume
        Whether to continue an interrupted run, whose finished batches are not computed again.
    engine
        The engine that trains the clients.
    ray_address
        HOST:PORT of a running Ray cluster; None starts Ray on this machine.
    progress
        Display of the progress of the run.
    parties
        ClientApp and server strategy. Studies of faulty mechanisms replace them.
    with_report
        Whether the report is written, in addition to tables and summary.

    Raises
    ------
    InputError
        If the plan or the directory cannot be used. Nothing is written in this case.
    FederationError
        If the federation had to stop. The results of finished batches are kept.
    """
    with at_work("looking at data and model"):
        require_playable(plan)
    ray_address = cluster_at(ray_address)
    if not resume:
        require_room(plan, directory)
    run = RunDirectory(directory)

    with _kept_if_unwritable(), run.opened(plan, resume) as plan:
        federate = partial(_federate, engine, plan, ray_address, parties.client_app)
        _play(plan, run, engine.value, federate, progress, parties)
        return finish(plan, run, with_report)


@contextmanager
def _kept_if_unwritable() -> Iterator[None]:
    """Turn an `OSError` about a file that cannot be written into a one-line `FederationError`.

    The message says that the run can be continued.

    Raises
    ------
    FederationError
        If a file cannot be written, for example because the disk is full.
    OSError
        If the block raises an `OSError` for another reason.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in _NOT_WRITTEN:
            raise
        said = f"{error.filename or 'a file'} cannot be written: {error.strerror}; finished batches are kept"
        raise FederationError(f"{said}: give it room, and go on with --resume") from error


def require_playable(plan: AuditPlan) -> None:
    """Check that a planned run can begin with its data, model and settings.

    Raises `InputError` if the data cannot be read, the model cannot be evaluated, images cannot be reconstructed as
    configured, or numbers would overflow in the first step.

    Parameters
    ----------
    plan
        The audit plan: completed configuration, guarantee and federation of the run.
    """
    federation = load_federation(plan.public)
    require_evaluable(federation, plan.config.audit.epsilon_star, plan.config.audit.membership)
    require_drawable(plan)
    require_finite_steps(plan.config, federation)


def _play(
    plan: AuditPlan,
    run: RunDirectory,
    engine: str,
    federate: Callable[[FederationPlan, ResultSink, FederationTimestamps, _OnRound], None],
    progress: Progress = no_progress,
    parties: PartyApps = HONEST,
) -> None:
    """Carry out the unfinished trial batches of a run, and record how long setup and training took.

    The trials of a batch are trained together.

    Parameters
    ----------
    plan
        The audit plan: completed configuration, guarantee and federation of the run.
    run
        Run directory, which receives the results.
    engine
        Name of the engine, for the record.
    federate
        Function that carries out a federation. It is called with the server's plan, a function that stores a finished
        batch, a clock, and a function to call with the number of newly finished trial-rounds.
    progress
        Display of the progress of the run.
    parties
        ClientApp and server strategy with which the trials are trained.
    """
    pending = _pending_batches(plan, run)
    if not pending:
        return
    note_session(run, plan)
    trials, clock = sum(batch.count for batch in pending), FederationTimestamps()
    with progress(trials * plan.public.rounds) as on_round:
        store = run.store(plan.config)
        store.clear(plan.config.audit.trials)
        federate(federation_plan(plan, pending, parties), store.finish, clock, on_round)
    training = clock.finished - clock.ready
    timing = {"setup_seconds": clock.ready - clock.started, "training_seconds": training}
    write_json(run.path / _TIMING, timing | {"trials_per_second": trials / training, "engine": engine})


def _getting_ready(on_round: _OnRound) -> _OnRound:
    """Return a function like `on_round` whose first call also starts slow imports in a thread.

    The imported modules are needed only after the last round.

    Parameters
    ----------
    on_round
        Function that is called with the number of newly finished trial-rounds.
    """
    begun = threading.Event()

    def told(trials: int) -> None:
        if not begun.is_set():
            begun.set()
            threading.Thread(target=lambda: [import_module(name) for name in _FOR_THE_END], daemon=True).start()
        on_round(trials)

    return told


def _federate(
    engine: Engine,
    plan: AuditPlan,
    ray_address: str | None,
    app: ClientApp,
    federation: FederationPlan,
    keep: ResultSink,
    clock: FederationTimestamps,
    on_round: _OnRound,
) -> None:
    interrupted, clients, settings = threading.Event(), plan.public.nodes, plan.config.run
    server_app = build_server_app(federation, keep, clock, _getting_ready(on_round), interrupted.is_set)
    match engine:
        case Engine.LOCAL:
            # Clients are stacked where they have one trial each: where they have many, these are stacked already.
            ahead = read_ahead if settings.trials_per_batch == 1 else None
            run_locally(server_app, app, clients, settings.client_time_limit, local_calls(settings), ahead)
        case Engine.RAY:
            run_on_ray(server_app, app, clients, RayOptions.of(settings, ray_address), interrupted)
        case _:
            assert_never(engine)


def play_on(grid: Grid, plan: AuditPlan, run: RunDirectory) -> None:
    """Carry out the unfinished trial batches (trials that are trained together) of a run on the grid of a Flower run.

    Parameters
    ----------
    grid
        Flower's grid.
    plan
        The audit plan: completed configuration, guarantee and federation of the run.
    run
        Run directory, which receives the results.
    """
    watched = MonitoredGrid(grid, plan.config.run.client_time_limit)
    _play(plan, run, "flwr run", lambda federation, *rest: run_federation(federation, watched, *rest))


def _pending_batches(plan: AuditPlan, run: RunDirectory) -> tuple[TrialBatch, ...]:
    """Return the batches of trials that are not finished, or whose results are damaged.

    Raises `InputError` if an attack needs shadow models and a target would be in all trials or in none.
    """
    public, audit, seed = plan.public, plan.config.audit, plan.config.run.seed
    if not {Attack.LIRA, Attack.RMIA}.isdisjoint(audit.attacks or ()) and audit.trials < _ENOUGH_TRIALS:
        assert seed is not None, "a run directory that was opened names the seed"
        require_shadows_of_all(
            SeededChallenger(seed, public.targets, public.membership_scheme).membership(range(audit.trials))
        )
    per_batch = plan.config.run.trials_per_batch
    assert per_batch is not None, "a resolved configuration names the size of a batch"
    return run.store(plan.config).pending(plan.config.audit.trials, per_batch)


def federation_plan(plan: AuditPlan, pending: tuple[TrialBatch, ...], parties: PartyApps = HONEST) -> FederationPlan:
    """Return the server's plan for the unfinished trial batches (trials that are trained together) of a run.

    Parameters
    ----------
    plan
        The audit plan of the run, with the challenger's seed.
    pending
        The batches of trials that are not finished yet, in order.
    parties
        ClientApp and server strategy with which the trials are trained.
    """
    run, audit = plan.config.run, plan.config.audit
    star = StarSettings(plan.config.privacy.delta, audit.epsilon_star_cut)
    assert run.seed is not None, "a run directory that was opened names the seed"
    assert run.keep_releases is not None, "a resolved configuration names of how many trials releases are kept"
    return FederationPlan(
        public=plan.public,
        seed=run.seed,
        model_seed=plan.config.model.seed,
        initial=plan.config.model.initial,
        batches=pending,
        batches_in_flight=run.batches_in_flight,
        time_limit=run.client_time_limit,
        # Releases whose log-odds nobody could recompute are not kept.
        keep_releases=0 if audit_of(plan.public).not_weighed_again(plan.public) else run.keep_releases,
        star=star if audit.epsilon_star else None,
        membership=audit.membership,
        evaluate_every=audit.evaluate_every,
        federated_losses=FederatedLossSettings(star, audit.loss_range, audit.client_epsilon_star)
        if audit.epsilon_star_losses is EpsilonStarLocation.FEDERATED
        else None,
        strategy=parties.strategy,
        patience=plan.config.training.early_stopping,
        sees_weights=any(attack.sees_weights for attack in of_ours(audit.attacks or ())),
        more=more_queries(plan.config, load_federation(plan.public)),
    )


def finish(
    plan: AuditPlan, run: RunDirectory, with_report: bool = True, pdf_with_appendix: bool = False
) -> "ReportContents":
    """Join the results of all trial batches, and write the tables, the summary and the report of a run.

    Parameters
    ----------
    plan
        The audit plan: completed configuration, guarantee and federation of the run.
    run
        Run directory, in which all batches are finished.
    with_report
        Whether to write the report, in addition to tables and summary.
    pdf_with_appendix
        Whether the PDF of the report includes the appendix.

    Returns
    -------
    ReportContents
        The summary and the tables.
    """
    with at_work("joining the tables"):
        write_report, summarise = lazy_imports.report_files.write_report, lazy_imports.summary.summarise
        store = run.store(plan.config)
        frames = store.tables(plan.config.audit.trials)
        if "targets" in frames and audit_of(plan.public).keeps_outputs(plan.public):
            frames["targets"] = lazy_imports.attacks.with_attacks(plan, store, frames["targets"])
        for label, frame in frames.items():
            if label in SECRET_TABLES:  # participation and the like stay with the challenger
                continue
            with atomic_file(run.path / f"{label}.parquet") as file:
                write_table(frame, file)
    drawn = None
    if plan.config.audit.reconstruct_samples is not None:
        with steps_bar("drawing the pictures", DRAWING_STEPS) as on_step:
            drawn = drawn_by(plan, on_step)
    with at_work("holding what was measured against the guarantee"):
        known = _timing(run), read_provenance(run), read_unprotected(run)
        contents = summarise(plan, RunTables(**frames), *known, drawn, _looks(run, plan.config.audit.trials))
    write_sealed(run.path, run.summary, contents.summary)
    if with_report:
        with at_work("drawing the figures, writing the report"):
            write_report(contents, run.path, pdf_with_appendix)
    return contents


def _looks(run: RunDirectory, trials: int) -> tuple[int, ...]:
    """Return the numbers of trials after which a verdict was computed, in ascending order and without repetitions.

    Parameters
    ----------
    run
        Run directory, whose summary lists the earlier numbers.
    trials
        The present number of trials, which is included.
    """
    earlier = set[int]()
    with suppress(AttributeError, TypeError, ValueError):  # no summary, or a damaged one
        earlier = set(map(int, read_json(run.summary).get("looks") or ()))
    return tuple(sorted(earlier | {trials}))


def _timing(run: RunDirectory) -> dict[str, Any]:
    """Return the recorded durations of the run and the name of its engine, by key.

    All values are None if the file with them is missing or unreadable.
    """
    with suppress(InputError, AttributeError):
        stored: dict[str, Any] = read_json(run.path / _TIMING)
        if stored.keys() == _UNKNOWN.keys():
            return stored
    return _UNKNOWN


def rebuild_report(
    directory: Path, without_privacy: Path | None = None, pdf_with_appendix: bool = False
) -> "ReportContents":
    """Write the report of a finished run again from its stored results, and return the stored summary and tables.

    Raises `InputError` if the directory holds no finished run, if its files were damaged or edited, or if
    `without_privacy` holds a run of another training.

    Parameters
    ----------
    directory
        Directory of the run.
    without_privacy
        Directory of a run of the same training without privacy, whose accuracy the report shows for comparison. None
        keeps the comparison that is stored in the run, if any.
    pdf_with_appendix
        Whether the PDF of the report includes the appendix.
    """
    require_sealed(directory)
    plan, run = read_plan(directory), RunDirectory(directory)
    with run.locked():
        if without_privacy is not None:
            note_unprotected(directory, without_privacy)
        return finish(plan, run, pdf_with_appendix=pdf_with_appendix)
