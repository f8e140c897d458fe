"""Execution of a sweep's points, one after the other in this process, or as one Ray task per point.

Ray Tune is not used, for three reasons: it continues from pickle files, which this project never loads; it cannot add
points to a finished experiment; and its result tables have their own format. Here each point is an ordinary run
directory, which appears when the point is finished.

The runs behind a paper have a player of their own (`experiments/papers/run_scheduling.py`). A point of a sweep is
planned before any is played, is played as a whole, and leaves the others alone if it fails; on Ray it is one task. A
paper's run is planned in the process that plays it, since it may search for its neighbour for minutes; it goes on where
it was interrupted, and ends the reproduction if it fails; on Ray its clients are distributed, and not the runs.
"""

import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

import ray
from ray import cloudpickle
from ray.exceptions import RayError, RayTaskError

from fl_audit.atomic_files import write_bytes
from fl_audit.data.catalogue import DataSpec, bring_source, load_source
from fl_audit.errors import InputError, require
from fl_audit.federation.loaded_federation import load_federation
from fl_audit.federation.run_plan import RunPlan
from fl_audit.ordinary_files import read_file
from fl_audit.runs.cluster.call_scheduling import RETRIES
from fl_audit.runs.cluster.nodes import alive_rows
from fl_audit.runs.cluster.ray_connection import cluster_at, ray_for
from fl_audit.runs.cluster.ray_options import RayOptions
from fl_audit.runs.engine_names import Engine
from fl_audit.runs.progress import Progress, RunsProgress, progress_of_part
from fl_audit.runs.run import run_audit
from fl_audit.runs.run_directory import RunDirectory
from fl_audit.runs.trial_batch_store import make_private
from fl_audit.sent_modules import sent_modules
from fl_audit.strategies.errors import FederationError
from fl_audit.user_modules import PortableValue

_POLL_SECONDS = 0.5

Files = dict[str, bytes]  # the files of a run directory: content by relative path
_Plans = Mapping[str, RunPlan]  # the plan of each point, by its name
_Begin = Callable[[str], Callable[[int], None]]  # shows a name, and returns a function for newly finished trial-rounds
_Told = Callable[[str], None]  # is called with the name of a point


def play_points(
    plans: _Plans, directory: Path, options: RayOptions | None, progress: RunsProgress, on_finished: _Told, secret: int
) -> None:
    """Run the unfinished points of a sweep, and store each run in its own directory.

    `options`: None runs them one after the other in this process.
    """
    for path in directory.glob(".*.partial"):  # left by a sweep that was killed; it holds the seed of a point
        shutil.rmtree(path, ignore_errors=True)
    if options is not None:
        options = replace(options, address=cluster_at(options.address))
    pending = {name: _seeded(plans[name], name, secret) for name in _pending(plans, directory)}
    if not pending:
        return
    total = sum(map(_trial_rounds, pending.values()))
    with progress(total) as begin, nullcontext() if options is None else ray_for(options):
        if options is None:
            failures = list(_run_here(pending, directory, begin, on_finished))
        else:
            failures = list(_run_on_ray(pending, directory, options, begin, on_finished))
    if failures:
        raise FederationError(f"{'; '.join(failures)}; finished points are kept, the same command goes on")


def _pending(plans: _Plans, directory: Path) -> list[str]:
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


def _partial_directory(directory: Path) -> Path:
    """Return the path of the temporary directory in which a point runs, and delete any old directory at this path."""
    partial = directory.with_name(f".{directory.name}.{os.getpid()}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    return partial


def _play(plan: RunPlan, run: Path, progress: Progress) -> None:
    """Carry out the run of one point on the local engine, without a report."""
    run_audit(plan, run, Engine.LOCAL, progress=progress, with_report=False)
    # The next point of this process is another federation; data sets would add up.
    load_federation.cache_clear()
    for lock in run.rglob(".lock"):  # of no use once a run has ended
        lock.unlink()


def _run_here(plans: _Plans, directory: Path, begin: _Begin, on_finished: _Told) -> Iterator[str]:
    """Run the points one after the other in this process, and yield an error message for every failed point."""
    for number, (name, plan) in enumerate(plans.items(), 1):
        partial = _partial_directory(directory / name)
        tell = begin(f"point {number} of {len(plans)}")
        try:
            _play(plan, partial, progress_of_part(tell, _trial_rounds(plan)))
            partial.rename(directory / name)
        except FederationError as error:
            yield f"point {name}: {error}"
            continue
        finally:
            shutil.rmtree(partial, ignore_errors=True)
        on_finished(name)


def _run_on_ray(
    plans: _Plans, directory: Path, options: RayOptions, begin: _Begin, on_finished: _Told
) -> Iterator[str]:
    """Run the points of a sweep as Ray tasks at the same time, and yield an error message for every failed point.

    `begin` shows the progress, and `on_finished` is called with the name of each finished point.
    """

    # Local, as the class of the counter is, so that Ray sends it whole.
    def play(work: Any, counter: Any, call_context: list[Any]) -> Any:
        for reference in call_context:
            ray.get(reference)()
        run, plan = work
        return run(plan, counter)

    counter = _counter()
    needed: dict[str, Any] = options.share()
    task: Any = ray.remote(max_retries=RETRIES, **needed)(play)
    call_context = _call_context(list(plans.values()))
    waiting = {
        task.remote(
            PortableValue((_play_alone, plan), cloudpickle.dumps), counter, call_context[plan.federation.data]
        ): name
        for name, plan in plans.items()
    }
    total = len(waiting)
    shown_count = 0
    while waiting:
        ready, _ = ray.wait(list(waiting), num_returns=1, timeout=_POLL_SECONDS)
        for reference in ready:
            name = waiting.pop(reference)
            try:
                _keep(ray.get(reference), directory / name)
                on_finished(name)
            except RayError as error:
                yield f"point {name}: {_failure(error)}"
        with suppress(RayError):  # a lost count of trial-rounds is no lost point
            done = ray.get(counter.total.remote())
            lacking = "" if has_room(options) else f", waiting for a node with {options.threads} cores"
            begin(f"{total - len(waiting)}/{total} points{lacking}")(done - shown_count)
            shown_count = done


def _failure(error: RayError) -> str:
    """Return a text that says why the Ray task of a sweep's point failed."""
    if not isinstance(error, RayTaskError):
        return f"its process ended ({type(error).__name__})"
    is_expected = isinstance(error.cause, InputError | FederationError)
    return str(error.cause) if is_expected else f"{type(error.cause).__name__}: {error.cause}"


def has_room(options: RayOptions) -> bool:
    """Return whether a machine of the Ray cluster has enough cores for the run of one point of a sweep."""
    return any(row["Resources"].get("CPU", 0) >= options.threads for row in alive_rows())


def _counter() -> Any:
    """Start and return a Ray actor that counts the finished rounds of all trials of all points.

    The class of the actor is defined inside this function. Ray then sends the code itself, so that machines without
    this module can run the actor.
    """

    class FinishedRoundCounter:
        def __init__(self) -> None:
            self._total = 0

        def add(self, rounds: int) -> None:
            self._total += rounds

        def total(self) -> int:
            return self._total

    return ray.remote(num_cpus=0)(FinishedRoundCounter).remote()


def _call_context(plans: Sequence[RunPlan]) -> dict[DataSpec, list[Any]]:
    """Return for each data set the Ray references that a task on another machine needs: user's modules and the data."""
    names = {value for plan in plans for value in _texts(plan.config.as_public_dict())}
    modules = ray.put(PortableValue(sent_modules(names), cloudpickle.dumps))

    def sent(spec: DataSpec) -> Any:
        return ray.put(PortableValue(partial(bring_source, spec, load_source(spec)), cloudpickle.dumps))

    return {spec: [modules, sent(spec)] for spec in {plan.federation.data for plan in plans}}


def _texts(value: Any) -> Iterator[str]:
    """Yield every string among the values of a configuration, at any depth."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list | tuple):
        for element in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(element)


def _play_alone(plan: RunPlan, counter: Any) -> Files:
    """Carry out the run of one point in a temporary directory, and return its files.

    `counter` is the handle of the actor that counts finished rounds.
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

    # An embedded Ray has a directory of its own, which is removed with it, however it ends.
    with tempfile.TemporaryDirectory(dir=os.environ.get("RAY_TMPDIR")) as scratch:
        run = Path(scratch) / "run"
        # The points share the cores; [run] actors says how many points run, not how many clients of one.
        _play(replace(plan, config=plan.config.changed(run={"actors": 1})), run, told)
        files = (path for path in sorted(run.rglob("*")) if path.is_file())
        return {path.relative_to(run).as_posix(): read_file(path) for path in files}


def _keep(files: Files, directory: Path) -> None:
    """Write the files of a run directory; the directory appears only after all files have been written.

    Only the user may read the files in `challenger/`.
    """
    partial = _partial_directory(directory)
    partial.mkdir(parents=True)
    for name, content in files.items():
        path = partial / PurePosixPath(name)
        private = name.startswith("challenger/")
        if private:
            make_private(path.parent)
        write_bytes(path, content, private)
    partial.rename(directory)
