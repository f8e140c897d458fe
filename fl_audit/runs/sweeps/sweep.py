"""A sweep from its points to its result tables and its plot of utility against privacy."""

import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from fl_audit.adjacency import NeighbourPair
from fl_audit.atomic_files import atomic_file, write_bytes, write_json
from fl_audit.data.catalogue import load_source
from fl_audit.data.neighbours import CRAFTED
from fl_audit.errors import FederationError, InputError, require
from fl_audit.federation.run_plan import RunPlan
from fl_audit.learning.metric_names import Metric, is_smaller_better
from fl_audit.privacy.private_selection import SelectionCost, selection_cost_of
from fl_audit.report.figure_style import to_png
from fl_audit.run_files import read_json
from fl_audit.runs.cluster.ray_options import RayOptions
from fl_audit.runs.engine_names import Engine
from fl_audit.runs.planning import plan_run
from fl_audit.runs.progress import RunsProgress, at_work, no_runs_progress
from fl_audit.runs.run_directory import file_lock
from fl_audit.runs.sweeps.grid import Point, describe, require_distinct
from fl_audit.runs.sweeps.point_execution import play_points
from fl_audit.runs.sweeps.privacy_utility_plot import landscape_figure
from fl_audit.runs.sweeps.tables import choose_utility, models_table, points_table
from fl_audit.runs.trial_batch_store import make_private

RUNS = "points"
SELECTION = "challenger/selection.json"
"""File of a private selection in the directory of a sweep: what was drawn, and never shown."""


@dataclass(frozen=True)
class SweepResults:
    """The results of a sweep: two tables, the measure of utility, and the plot of utility against privacy."""

    models: pd.DataFrame  # one row for each trained model, see `models_table`
    points: pd.DataFrame  # one row for each point, see `points_table`
    utility: str  # the metric that is the measure of utility
    figure: Figure = field(repr=False)  # the plot of utility against privacy
    selection: SelectionCost | None = None  # what the best of the private points spends; None without one number


def run_sweep(
    points: Sequence[Point],
    directory: Path,
    options: RayOptions | None = None,
    utility: str | None = None,
    progress: RunsProgress = no_runs_progress,
    title: str = "Privacy-utility landscape",
    engine: Engine = Engine.RAY,
) -> SweepResults:
    """Run the unfinished points of a sweep, write the results of all points, and return these results.

    `directory`: Points that are finished there are not run again.

    `options`: Not used with the local engine.

    `utility`: None selects the headline metric of the runs.
    """
    require(len(points) > 0, "the sweep has no points: accepted is at least one")
    require_distinct(points)
    for point in points:
        is_measured = point.config.audit.epsilon_star
        require(is_measured, f"point {point.name}: epsilon-star = false: a landscape needs it true")
    require(not directory.exists() or directory.is_dir(), f"--out {directory} is a file: accepted is a directory")
    with at_work("loading the data, choosing neighbours, calibrating the noise of every point"):
        plans = plans_of(points, utility)
    ray = None if engine is Engine.LOCAL else options or RayOptions()

    def write_models() -> None:
        with atomic_file(directory / "models.parquet") as file:
            models_table(points, directory / RUNS).to_parquet(file, index=False)

    with locked(directory):
        no_selection = not (directory / SELECTION).exists()
        require(no_selection, f"--out {directory} holds a private selection: accepted is another directory")
        (directory / RUNS).mkdir(exist_ok=True)
        try:
            play_points(plans, directory / RUNS, ray, progress, write_models, secret_of(directory))
        except FederationError:
            if finished := [point for point in points if (directory / RUNS / point.name).is_dir()]:
                _store_results(finished, directory, utility, title)
            raise
        write_models()
        cost = selection_cost_of([plan.guarantee for plan in plans.values()])
        return replace(_store_results(points, directory, utility, title), selection=cost)


def plans_of(points: Sequence[Point], utility: str | None) -> dict[str, RunPlan]:
    """Return the plan of each point by name; points with equal data and neighbour have the same pair D and D'."""
    pairs: dict[str, NeighbourPair] = {}
    plans = {}
    for point in points:
        audit = point.config.audit
        privacy = point.config.privacy
        question = repr(
            (point.config.data, privacy.adjacency, audit.neighbour, audit.neighbour_rank, audit.dissimilarity)
        )
        if audit.neighbour in CRAFTED:
            question += repr((point.config.model, privacy.clipping_norm))
        try:
            plan = plan_run(point.config, pairs.get(question))
        except InputError as error:
            raise InputError(f"point {describe(point.settings)}: {error}") from None
        _require_utility(plan, utility)
        pairs[question], plans[point.name] = plan.federation.pair, plan
    return plans


def _require_utility(plan: RunPlan, utility: str | None) -> None:
    """Raise `InputError` if the runs of a sweep do not compute a metric, or a smaller value of it is better."""
    classes = load_source(plan.federation.data).pool.classes
    always = [metric for metric in (Metric.ACCURACY, Metric.AUROC) if metric.suits(classes)]
    known_metrics = [str(metric) for metric in dict.fromkeys((*plan.metrics, *always)) if not is_smaller_better(metric)]
    accepted = ", ".join(known_metrics)
    is_known = utility is None or utility in known_metrics
    accepted_metrics = "those of training.metrics of which more is better"
    require(
        is_known, f"utility is {utility}: accepted for {plan.config.data.name} are {accepted}, and {accepted_metrics}"
    )


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Create the directory of a sweep, and lock it while the block runs; another sweep there is refused."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / ".lock").touch()
    except OSError as error:
        raise InputError(f"--out {directory} cannot be written to: {error.strerror}") from error
    with file_lock(directory / ".lock", f"--out {directory} is in use by another sweep"):
        yield


def secret_of(directory: Path) -> int:
    """Return the 256-bit secret of a sweep, which the first call draws and stores."""
    # Points played again have the same trials, and new points leave the others as they are.
    path = directory / "challenger" / "seed.json"
    if not path.exists():
        make_private(path.parent)
        write_json(path, {"seed": secrets.token_hex(32)}, private=True)
    try:
        return int(read_json(path)["seed"], 16)
    except (KeyError, TypeError, ValueError):
        raise InputError(f"{path} is damaged: remove it to have new points draw seeds of another secret") from None


def _store_results(points: Sequence[Point], directory: Path, utility: str | None, title: str) -> SweepResults:
    """Write the table and the figure of a sweep, and return its results."""
    results = results_of(points, directory / RUNS, utility, title)
    with atomic_file(directory / "points.csv") as file:
        results.points.to_csv(file, index=False)
    write_bytes(directory / "landscape.png", to_png(results.figure))
    return results


def results_of(
    points: Sequence[Point], runs: Path, utility: str | None, title: str, by_guarantee: bool = True
) -> SweepResults:
    """Return the results of points whose finished runs lie in the directory `runs`.

    `by_guarantee`: Otherwise the landscape is that of utility against Epsilon*.
    """
    models = models_table(points, runs)
    chosen = choose_utility(models, utility)
    table = points_table(models, points, chosen, by_guarantee)
    return SweepResults(models, table, chosen, landscape_figure(table, models, chosen, title, by_guarantee))
