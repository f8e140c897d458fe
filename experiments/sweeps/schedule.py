"""Points of a sweep as tasks of Ray: one task a point, on this machine or a cluster; a finished point is kept.

Ray Tune was looked at and left alone. Of it this needs one task a point, which plain Ray gives; its experiments resume
from pickles on disk, which nothing here loads, cannot gain points afterwards, and keep tables of their own. A point
here is an ordinary run directory: it appears whole when its task has ended, `fl-audit report` works in it, and what
decides whether it is computed again is its configuration alone.
"""

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

import ray
from ray import cloudpickle
from ray.exceptions import RayError, RayTaskError

from experiments.names import Engine
from experiments.runs.cluster.access import RayOptions, ray_for, refuse_unreachable
from experiments.runs.plan import AuditPlan
from experiments.runs.progress import RunsProgress, no_runs_progress
from experiments.runs.run import run_audit
from experiments.runs.store import make_private
from experiments.sweeps.points import NOT_KEPT, partial_directory, pending_points, require_all, seeded, world_rounds
from fl_audit.data.catalogue import DataSpec, bring_source, load_source
from fl_audit.errors import InputError
from fl_audit.game.game import load_game
from fl_audit.sent_modules import sent_modules
from fl_audit.user_modules import Portable
from fl_audit.whole_files import whole_file
from strategies.errors import FederationError

_POLL_SECONDS = 0.5

Files = dict[str, bytes]  # a run directory: content by path inside it


def play_points(
    plans: Mapping[str, AuditPlan],
    directory: Path,
    options: RayOptions,
    progress: RunsProgress = no_runs_progress,
    on_finished: Callable[[str], None] = lambda name: None,
    secret: int | None = None,
) -> None:
    """Play the points that are not finished yet, as many at a time as Ray has room for, the longest first.

    Parameters
    ----------
    plans
        What each point is to do, by its name.
    directory
        Where the run directories go, by the names of the points.
    options
        Which Ray, and how much of it a point takes.
    progress
        Shows how far all points together are.
    on_finished
        Told of each point whose run directory has just appeared.
    secret
        The sweep's secret, from which each point has a seed of its own, unless its configuration names one; None draws
        seeds at random.

    Raises
    ------
    InputError
        If a directory holds a run of another configuration, or no cluster answers.
    FederationError
        If points failed: the others are finished first, then every failure is told.
    """
    refuse_unreachable(options.address)
    pending = pending_points(plans, directory)
    if not pending:
        return
    with progress(sum(world_rounds(plans[name]) for name in pending)) as begin, ray_for(options):
        named = {name: seeded(plans[name], name, secret) for name in pending}
        failures = list(_play(pending, named, directory, options, begin, on_finished))
    require_all(failures)


def _play(
    pending: Sequence[str],
    plans: Mapping[str, AuditPlan],
    directory: Path,
    options: RayOptions,
    begin: Callable[[str], Callable[[int], None]],
    on_finished: Callable[[str], None],
) -> Iterator[str]:
    """Yield a line for every point that failed."""
    counter: Any = _counter()
    needed: dict[str, Any] = options.share()
    task: Any = ray.remote(max_retries=options.retries, **needed)(_play_portable())
    luggage = _luggage([plans[name] for name in pending])
    waiting = {
        task.remote(
            Portable((play_alone, plans[name]), cloudpickle.dumps), counter, luggage[plans[name].public.data]
        ): name
        for name in pending
    }
    total, shown = len(pending), 0
    while waiting:
        ready, _ = ray.wait(list(waiting), num_returns=1, timeout=_POLL_SECONDS)
        for reference in ready:
            name = waiting.pop(reference)
            try:
                _keep(ray.get(reference), directory / name)
                on_finished(name)
            except RayTaskError as error:
                yield f"point {name}: {_reason(error)}"
            except RayError as error:
                yield f"point {name}: its process ended ({type(error).__name__})"
        with suppress(RayError):  # a lost count of world-rounds is no lost point
            done = ray.get(counter.total.remote())
            lacking = "" if has_room(options) else f", waiting for a node with {options.threads} cores"
            begin(f"{total - len(waiting)}/{total} points{lacking}")(done - shown)
            shown = done


def has_room(options: RayOptions) -> bool:
    """Return whether any node is large enough for a point; a cluster may be about to get one."""
    nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    return any(node["Alive"] and node["Resources"].get("CPU", 0) >= options.threads for node in nodes)


def _counter() -> Any:
    """Start an actor that counts world-rounds over all tasks.

    Its class is local, so that Ray sends it whole: workers do not have to find this module. See `Portable`.
    """

    class Counter:
        def __init__(self) -> None:
            self._total = 0

        def add(self, rounds: int) -> None:
            self._total += rounds

        def total(self) -> int:
            return self._total

    return ray.remote(num_cpus=0)(Counter).remote()


def _luggage(plans: Sequence[AuditPlan]) -> dict[DataSpec, list[Any]]:
    """Return references to what points need on machines that have neither data nor modules of the user, by data."""
    names = {value for plan in plans for value in _texts(plan.config.as_public_dict())}
    modules = ray.put(Portable(sent_modules(names), cloudpickle.dumps))

    def sent(spec: DataSpec) -> Any:
        return ray.put(Portable(partial(bring_source, spec, load_source(spec)), cloudpickle.dumps))

    return {spec: [modules, sent(spec)] for spec in {plan.public.data for plan in plans}}


def _texts(value: Any) -> Iterator[str]:
    """Return all texts in a configuration: some of them name functions of the user."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list | tuple):
        for one in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(one)


def _play_portable() -> Callable[[Any, Any, list[Any]], Files]:
    """Return the task of a point; it is local for the same reason."""

    def play(work: Any, counter: Any, luggage: list[Any]) -> Any:
        for reference in luggage:
            ray.get(reference)()
        run, plan = work
        return run(plan, counter)

    return play


def play_alone(plan: AuditPlan, counter: Any) -> Files:
    """Play one run in a scratch directory of whatever machine this is, and return the run directory.

    Parameters
    ----------
    plan
        What to do. Its clients run in this process.
    counter
        The actor that is told how many world-rounds are done.
    """

    @contextmanager
    def told(pending: int) -> Iterator[Callable[[int], None]]:
        done, last = 0, time.monotonic()

        def on_round(rounds: int) -> None:
            nonlocal done, last
            done += rounds
            if time.monotonic() - last > _POLL_SECONDS:
                counter.add.remote(done)
                done, last = 0, time.monotonic()

        yield on_round
        counter.add.remote(done)

    with tempfile.TemporaryDirectory() as scratch:
        run = Path(scratch) / "run"
        # The points share the cores; [run] actors says how many points run, not how many clients of one.
        run_audit(_alone(plan), run, Engine.LOCAL, progress=told, with_report=False)
        # The next point of this process is another game; data sets would add up.
        load_game.cache_clear()
        kept = (path for path in sorted(run.rglob("*")) if path.is_file() and path.name != NOT_KEPT)
        return {path.relative_to(run).as_posix(): path.read_bytes() for path in kept}


def _alone(plan: AuditPlan) -> AuditPlan:
    config = plan.config
    return replace(plan, config=config.model_copy(update={"run": config.run.model_copy(update={"actors": 1})}))


def _keep(files: Files, directory: Path) -> None:
    """Write a run directory, whole or not at all; what only the challenger has is for the owner's eyes."""
    partial = partial_directory(directory)
    partial.mkdir(parents=True)
    for name, content in files.items():
        path, private = partial / PurePosixPath(name), name.startswith("challenger/")
        if private:
            make_private(path.parent)
        with whole_file(path, private) as file:
            file.write_bytes(content)
    partial.rename(directory)


def _reason(error: RayTaskError) -> str:
    cause = error.cause
    known = isinstance(cause, InputError | FederationError)
    return str(cause) if known else f"{type(cause).__name__}: {cause}"
