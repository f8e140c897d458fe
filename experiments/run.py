"""A run from its configuration to its report."""

import time
from pathlib import Path

from flwr.clientapp import ClientApp

from clients.app import app as default_client_app
from experiments.engines import Engine, RayOptions, run_locally, run_on_ray
from experiments.plan import AuditPlan, resolve
from experiments.progress import Progress, no_progress
from experiments.run_directory import RunDirectory, read_config, read_json
from experiments.summary import Tables, report_contents, summarise
from fl_audit.game import load_game
from fl_audit.report import write_report
from fl_audit.report.contents import RunContents
from fl_audit.worlds import WorldBatch, split_worlds
from server.app import FederationClock, FederationPlan, build_server_app
from server.results import FRAMES, write_json
from strategies.dp_fedsgd import DPFedSGD

TIMING = "timing.json"


def run_audit(
    plan: AuditPlan,
    directory: Path,
    engine: Engine = Engine.RAY,
    ray_address: str | None = None,
    resume: bool = False,
    progress: Progress = no_progress,
    client_app: ClientApp = default_client_app,
    strategy_type: type[DPFedSGD] = DPFedSGD,
) -> RunContents:
    """Carry out a run, or the rest of one, and write its report.

    Parameters
    ----------
    plan
        What to do.
    directory
        Run directory, new unless `resume`.
    engine
        Where the clients run.
    ray_address
        Address of a running Ray cluster; None starts a Ray on this machine.
    resume
        Go on with an interrupted run; finished batches are not computed again.
    progress
        Shows how far the run is.
    client_app, strategy_type
        The parties; a test may put others in their place.

    Returns
    -------
    RunContents
        Summary and tables, as stored.

    Raises
    ------
    InputError
        If configuration or directory cannot be used; nothing is written then.
    FederationError
        If the federation had to stop; what was finished is kept.
    """
    load_game(plan.public)  # whatever is wrong with data or model is said before a directory is made
    run = RunDirectory(directory)
    run.open(plan, resume)
    store = run.store(plan.config)
    batches = split_worlds(plan.config.audit.worlds, plan.config.run.worlds_per_batch)
    pending = tuple(batch for batch in batches if not store.is_finished(batch))
    if pending:
        _play(plan, run, pending, engine, ray_address, progress, client_app, strategy_type)
    return finish(plan, run)


def _play(
    plan: AuditPlan,
    run: RunDirectory,
    pending: tuple[WorldBatch, ...],
    engine: Engine,
    ray_address: str | None,
    progress: Progress,
    client_app: ClientApp,
    strategy_type: type[DPFedSGD],
) -> None:
    config, started, clock = plan.config, time.monotonic(), FederationClock()
    worlds = sum(batch.count for batch in pending)
    with progress(worlds * plan.public.rounds) as on_round:
        server_app = build_server_app(
            federation_plan(plan, pending), run.store(config), clock, on_round, strategy_type
        )
        match engine:
            case Engine.LOCAL:
                run_locally(server_app, client_app, config.data.clients, config.run.client_time_limit)
            case Engine.RAY:
                options = RayOptions(ray_address, config.run.actors, config.run.threads)
                run_on_ray(server_app, client_app, config.data.clients, options)
    training = clock.finished - clock.ready
    timing = {
        "setup_seconds": clock.ready - started,
        "training_seconds": training,
        "worlds_per_second": worlds / training,
        "engine": str(engine),
    }
    write_json(run.path / TIMING, timing)


def federation_plan(plan: AuditPlan, pending: tuple[WorldBatch, ...]) -> FederationPlan:
    """Return what the server is to do about the batches that are not finished."""
    run = plan.config.run
    return FederationPlan(
        public=plan.public,
        seed=run.seed,
        batches=pending,
        batches_in_flight=run.batches_in_flight,
        time_limit=run.client_time_limit,
        keep_releases=run.keep_releases,
        epsilon_star_delta=plan.guarantee.delta if plan.config.audit.epsilon_star else None,
    )


def finish(plan: AuditPlan, run: RunDirectory) -> RunContents:
    """Join the finished batches, and write the tables, the summary and the report of a run."""
    store = run.store(plan.config)
    tables = Tables(**{label: store.frame(label) for label in FRAMES})
    for label in FRAMES:
        partial = run.path / f".{label}.parquet.partial"
        getattr(tables, label).to_parquet(partial, index=False)
        partial.replace(run.path / f"{label}.parquet")
    summary = summarise(plan, tables, read_json(run.path / TIMING))
    write_json(run.summary, summary)
    contents = report_contents(plan, tables, summary)
    write_report(contents, run.path)
    return contents


def rebuild_report(directory: Path) -> Path:
    """Write the report of a finished run again, from its stored batches.

    Raises
    ------
    InputError
        If the directory holds no finished run.
    """
    plan, run = resolve(read_config(directory)), RunDirectory(directory)
    read_json(run.summary)
    finish(plan, run)
    return directory / "report.html"
