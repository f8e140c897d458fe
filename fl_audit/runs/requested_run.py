"""Start of a run for the command line and the Python API.

The module imports little, so that errors in a configuration or a directory are reported before slow imports.
"""

import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from fl_audit.runs.config import RunConfig
from fl_audit.runs.config.run_section import RunSection
from fl_audit.runs.engine_names import Engine
from fl_audit.runs.progress import at_work, progress_bar
from fl_audit.runs.run_directory_checks import is_begun, require_new_run_path

if TYPE_CHECKING:
    from fl_audit.report.report_elements import ReportContents
    from fl_audit.runs.resolved_audit import ResolvedAudit

OnPlan = Callable[["ResolvedAudit"], None]
"""A function that receives the plan of a run before it is played."""
_OF_A_RUN = ("fl_audit.runs.run", "fl_audit.runs.ray_engine")


@dataclass(frozen=True)
class RequestedRun:
    """A requested run, whose configuration is valid and whose directory can be used."""

    config: RunConfig
    directory: Path
    engine: Engine
    ray_address: str | None = None  # HOST:PORT of a running Ray cluster; None starts Ray on this machine
    resume: bool = False  # whether an interrupted run is continued
    unprotected: RunConfig | None = None  # the same training without privacy, which is run as well; None for none


def whole_run(
    config: RunConfig, directory: Path, engine: Engine, ray_address: str | None, resume: bool, without_privacy: bool
) -> RequestedRun:
    """Return a request for a run, after checking that its directories can be used.

    The function writes nothing. Slow imports are made only with `without_privacy`, after the run directory was checked.
    """

    require_new_run_path(directory, resume)
    if not without_privacy:
        return RequestedRun(config, directory, engine, ray_address, resume)

    from fl_audit.runs.non_private_run import unprotected_config, unprotected_place  # noqa: PLC0415

    # It knows stored runs, which takes pandas and torch seconds to import: mistakes are answered before.
    unprotected = unprotected_config(config)
    other = unprotected_place(directory)
    require_new_run_path(other, resume and is_begun(other))
    return RequestedRun(config, directory, engine, ray_address, resume, unprotected)


def carry_out(asked: RequestedRun, on_plan: OnPlan = lambda plan: None) -> "ReportContents":
    """Carry out a requested run, write its report, and return the stored summary and tables.

    If the request asks for it, the same training is also run without privacy, and the report shows its accuracy.
    """
    with ExitStack() as ray:
        with at_work("getting ready"):
            if asked.engine is Engine.RAY and asked.ray_address is None and not asked.resume:
                start_ray(ray, asked.config.run)
            # Torch and Flower take seconds to import, which Ray needs to start too.
            from fl_audit.runs.non_private_run import unprotected_place  # noqa: PLC0415
            from fl_audit.runs.resolved_audit import resolve  # noqa: PLC0415
            from fl_audit.runs.run import require_runnable, run_audit  # noqa: PLC0415
            from fl_audit.runs.run_report import rebuild_report  # noqa: PLC0415
        with at_work(f"loading the data, choosing the neighbour: {asked.config.audit.neighbour}"):
            plan = resolve(asked.config)
        if plan.public.weights is not None:
            with at_work(f"passing records through the frozen core of {plan.public.model}"):
                require_runnable(plan)
        on_plan(plan)
        where, plain = (asked.engine, asked.ray_address), asked.unprotected
        contents = run_audit(plan, asked.directory, *where, asked.resume, progress_bar, with_report=plain is None)
        if plain is None:
            return contents
        other = unprotected_place(asked.directory)
        run_audit(resolve(plain), other, *where, is_begun(other), progress_bar, with_report=False)
        return rebuild_report(asked.directory, other)


def start_ray(stack: ExitStack, settings: RunSection) -> None:
    """Start Ray for a run, and at the same time import the modules that the run needs, because both take seconds."""

    # Ray takes a second to import, which a run on the local engine never needs.
    importing = threading.Thread(target=lambda: [import_module(name) for name in _OF_A_RUN], daemon=True)
    importing.start()

    from fl_audit.runs.cluster.ray_connection import RayOptions, ray_ahead  # noqa: PLC0415

    try:
        stack.enter_context(ray_ahead(RayOptions.of(settings, None)))
    finally:
        importing.join()
