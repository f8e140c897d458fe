"""Start of a run for the command line and the Python API.

The module imports little, so that errors in a configuration or a directory are reported before slow imports.
"""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from fl_audit.runs.cluster.embedded_ray import ray_ahead
from fl_audit.runs.cluster.ray_options import RayOptions
from fl_audit.runs.config import RunConfig
from fl_audit.runs.engine_names import Engine
from fl_audit.runs.progress import at_work, progress_bar
from fl_audit.runs.run_directory_checks import is_begun, require_new_run_path

if TYPE_CHECKING:
    from fl_audit.federation.run_plan import RunPlan
    from fl_audit.report.report_elements import ReportContents

OnPlan = Callable[["RunPlan"], None]
"""A function that receives the plan of a run before it is played."""


def require_startable(config: RunConfig, directory: Path, resume: bool, without_privacy: bool) -> None:
    """Raise `InputError` if a run cannot begin or go on in its directory, or be repeated without privacy beside it.

    Nothing is written. Slow imports are made only with `without_privacy`, after the run directory was checked.
    """
    require_new_run_path(directory, resume)
    if not without_privacy:
        return
    # It knows stored runs, which takes pandas and torch seconds to import: mistakes are answered before.
    from fl_audit.runs.non_private_run import unprotected_config, unprotected_place  # noqa: PLC0415

    unprotected_config(config)
    unprotected_directory = unprotected_place(directory)
    require_new_run_path(unprotected_directory, resume and is_begun(unprotected_directory))


def loading_text(config: RunConfig) -> str:
    """Return what is said while a run is planned; of an ordinary training nothing about neighbours."""
    if config.is_ordinary_training:
        return "loading the data"
    return f"loading the data, choosing the neighbour: {config.audit.neighbour}"


def carry_out(
    config: RunConfig,
    directory: Path,
    engine: Engine,
    ray_address: str | None,
    resume: bool,
    without_privacy: bool = False,
    on_plan: OnPlan = lambda plan: None,
) -> "ReportContents":
    """Carry out a run, write its report, and return the stored summary and tables; see `require_startable`.

    With `without_privacy`, the same training is also run without privacy, and the report shows its accuracy.
    """
    with ExitStack() as ray:
        with at_work("getting ready"):
            if engine is Engine.RAY and ray_address is None and not resume:
                ray.enter_context(ray_ahead(RayOptions.of(config.run, None)))
            # Torch, Flower and Ray take seconds to import, which the embedded Ray needs to start too.
            from fl_audit.runs.non_private_run import unprotected_config, unprotected_place  # noqa: PLC0415
            from fl_audit.runs.planning import plan_run  # noqa: PLC0415
            from fl_audit.runs.run import run_audit  # noqa: PLC0415
            from fl_audit.runs.run_report import rebuild_report  # noqa: PLC0415
        with at_work(loading_text(config)):
            plan = plan_run(config)
        on_plan(plan)
        with_report = not without_privacy
        contents = run_audit(plan, directory, engine, ray_address, resume, progress_bar, with_report=with_report)
        if with_report:
            return contents
        if config.privacy.stop_at_epsilon is not None:  # the same training is as long as the budget allowed
            config = config.changed(training={"rounds": plan.federation.rounds, "epochs": None})
        unprotected_plan = plan_run(unprotected_config(config))
        unprotected_directory = unprotected_place(directory)
        resume = is_begun(unprotected_directory)
        run_audit(unprotected_plan, unprotected_directory, engine, ray_address, resume, progress_bar, with_report=False)
        return rebuild_report(directory, unprotected_directory)
