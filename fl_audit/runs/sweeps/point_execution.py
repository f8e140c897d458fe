"""Execution of a sweep's points: which are unfinished, in which order, and with which seeds.

The runs themselves are played by `runs/many_runs.py`, each as a whole: a point that fails leaves the others alone.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from fl_audit.errors import require
from fl_audit.federation.run_plan import RunPlan
from fl_audit.runs.cluster.ray_connection import cluster_at
from fl_audit.runs.cluster.ray_options import RayOptions
from fl_audit.runs.cluster.run_tasks import as_ray_tasks
from fl_audit.runs.many_runs import ScheduledRun, one_by_one, play_runs, play_whole, remove_partial_directories
from fl_audit.runs.progress import RunsProgress
from fl_audit.runs.run_directory import RunDirectory


def play_points(
    plans: Mapping[str, RunPlan],
    directory: Path,
    options: RayOptions | None,
    progress: RunsProgress,
    on_finished: Callable[[], None],
    secret: int,
) -> None:
    """Run the unfinished points of a sweep, and store each run in its own directory.

    `plans`: The plan of each point, by its name.

    `options`: None runs them one after the other in this process.

    `on_finished`: Called whenever the directory of a point is there.
    """
    remove_partial_directories(directory)
    if options is None:
        execution = partial(one_by_one, play=play_whole)
    else:
        execution = partial(as_ray_tasks, options=replace(options, address=cluster_at(options.address)))
    runs = [
        _scheduled(f"point {name}", directory / name, _seeded(plans[name], name, secret))
        for name in _pending(plans, directory)
    ]
    play_runs(runs, execution, progress, lambda run: on_finished())


def _scheduled(label: str, directory: Path, plan: RunPlan) -> ScheduledRun:
    return ScheduledRun(label, directory, _trial_rounds(plan), lambda: plan)


def _pending(plans: Mapping[str, RunPlan], directory: Path) -> list[str]:
    """Return the names of the unfinished points, in descending order of work.

    A directory that exists but holds no finished run of its point is refused.
    """
    pending = [name for name, plan in plans.items() if not RunDirectory(directory / name).is_finished(plan.config)]
    for stray in (directory / name for name in pending):
        problem = f"{stray} is there and holds no finished point of this sweep"
        require(not stray.exists(), f"{problem}: accepted is another --out")

    def work(name: str) -> float:
        """Estimated work of a point, to order points: rounds of all trials times (expected records per round + 50)."""
        expected = plans[name].federation.mechanism.sampling_rate * plans[name].federation.records
        return _trial_rounds(plans[name]) * (expected + 50.0)

    return sorted(pending, key=lambda name: -work(name))


def derived_bytes(secret: int, text: str) -> bytes:
    """Return 32 bytes that follow from a sweep's secret and a text, and that nobody knows without the secret."""
    return hashlib.sha256(secret.to_bytes(32, "big") + text.encode()).digest()


def _seeded(plan: RunPlan, name: str, secret: int) -> RunPlan:
    """Return the plan with a seed derived from the sweep's secret and the point's name, unless it has a seed already.

    With the same seed, points would have the same noise, and the difference of their releases would be free of noise.
    """
    if plan.config.run.seed is not None:
        return plan
    digest = derived_bytes(secret, name)
    return plan.with_seed(int.from_bytes(digest[:8], "big"))


def _trial_rounds(plan: RunPlan) -> int:
    return plan.config.audit.trials * plan.federation.rounds
