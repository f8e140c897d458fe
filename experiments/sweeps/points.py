"""The points of a sweep that are still to be played, each with a seed of its own; and playing them in this process."""

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from experiments.names import Engine
from experiments.runs.plan import AuditPlan
from experiments.runs.progress import RunsProgress, no_runs_progress, part_of
from experiments.runs.run import run_audit
from experiments.runs.run_directory import RunDirectory, with_seed
from fl_audit.errors import require
from fl_audit.game.game import load_game
from strategies.errors import FederationError

NOT_KEPT = ".lock"  # name of a file that is of no use once a run has ended


def pending_points(plans: Mapping[str, AuditPlan], directory: Path) -> list[str]:
    """Return the names of the points that are not finished, the longest first.

    Parameters
    ----------
    plans
        The points by name.
    directory
        Where their runs lie.

    Raises
    ------
    InputError
        If a directory holds a run of another configuration, or something else.
    """
    pending = [name for name, plan in plans.items() if not RunDirectory(directory / name).is_finished(plan.config)]
    for name in pending:
        stray = directory / name
        require(
            not stray.exists(), f"{stray} is there and holds no finished point of this sweep: accepted is another --out"
        )
    return sorted(pending, key=lambda name: -_work(plans[name]))


def seeded(plan: AuditPlan, name: str, secret: int | None) -> AuditPlan:
    """Return a plan with a seed that nobody can tell from the seeds of other points.

    Two runs under one seed share their noise, so whoever compares what they released can take it off.

    Parameters
    ----------
    plan
        The plan of a point.
    name
        Name of the point.
    secret
        The sweep's secret; None where the plan has a seed.
    """
    if plan.config.run.seed is not None or secret is None:
        return plan
    digest = hashlib.sha256(secret.to_bytes(32, "big") + name.encode()).digest()
    return with_seed(plan, int.from_bytes(digest[:8], "big"))


def world_rounds(plan: AuditPlan) -> int:
    """Return how many rounds of single worlds a run has."""
    return plan.config.audit.worlds * plan.public.rounds


def partial_directory(directory: Path) -> Path:
    """Return where a point is written before it is whole; nothing stands there."""
    partial = directory.with_name(f".{directory.name}.{os.getpid()}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    return partial


def require_all(failures: Sequence[str]) -> None:
    """Raise `FederationError` with what went wrong, if anything did."""
    if failures:
        raise FederationError(f"{'; '.join(failures)}; finished points are kept, the same command goes on")


def play_here(
    plans: Mapping[str, AuditPlan],
    directory: Path,
    progress: RunsProgress = no_runs_progress,
    on_finished: Callable[[str], None] = lambda name: None,
    secret: int | None = None,
) -> None:
    """Play the points that are not finished yet one after the other on the local engine; all else as `play_points`.

    Parameters
    ----------
    plans, directory, progress, on_finished, secret
        As for `play_points`.

    Raises
    ------
    InputError
        If a directory holds a run of another configuration, or something else.
    FederationError
        If points failed: the others are finished first, then every failure is told.
    """
    pending = pending_points(plans, directory)
    if pending:
        with progress(sum(world_rounds(plans[name]) for name in pending)) as begin:
            named = {name: seeded(plans[name], name, secret) for name in pending}
            failures = list(_play(named, directory, begin, on_finished))
        require_all(failures)


def _play(
    plans: Mapping[str, AuditPlan],
    directory: Path,
    begin: Callable[[str], Callable[[int], None]],
    on_finished: Callable[[str], None],
) -> Iterator[str]:
    """Yield a line for every point that failed."""
    for number, (name, plan) in enumerate(plans.items(), 1):
        partial, told = partial_directory(directory / name), begin(f"point {number} of {len(plans)}")
        try:
            progress = part_of(told, world_rounds(plan))
            run_audit(plan, partial, Engine.LOCAL, progress=progress, with_report=False)
        except FederationError as error:
            shutil.rmtree(partial, ignore_errors=True)
            yield f"point {name}: {error}"
            continue
        # The next point is another game; data sets would add up.
        load_game.cache_clear()
        for lock in partial.rglob(NOT_KEPT):
            lock.unlink()
        partial.rename(directory / name)
        on_finished(name)


def _work(plan: AuditPlan) -> float:
    """Return about how long a run takes, in records that gradients are computed of; a round has its own cost too."""
    expected = plan.public.law.sampling_rate * plan.public.records
    return world_rounds(plan) * (expected + 50.0)
