"""Runs as tasks of Ray, several at the same time: each is played in one process, and its files are sent back.

Ray Tune is not used, for three reasons: it continues from pickle files, which this project never loads; it cannot add
runs to a finished experiment; and its result tables have their own format. Here each run is an ordinary run directory,
which appears when the run is finished.
"""

import os
import tempfile
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

import ray
from ray import cloudpickle
from ray.exceptions import RayError, RayTaskError

from fl_audit.atomic_files import write_bytes
from fl_audit.data.catalogue import DataSpec, bring_source, load_source
from fl_audit.errors import FederationError, InputError
from fl_audit.federation.run_plan import RunPlan
from fl_audit.ordinary_files import read_file
from fl_audit.runs.cluster.call_scheduling import RETRIES
from fl_audit.runs.cluster.nodes import alive_rows
from fl_audit.runs.cluster.ray_connection import ray_for
from fl_audit.runs.cluster.ray_options import RayOptions
from fl_audit.runs.many_runs import Begin, OnRound, RunOutcome, ScheduledRun, partial_directory, play_run, remove_locks
from fl_audit.runs.trial_batch_store import make_private
from fl_audit.sent_modules import make_importable, sent_modules
from fl_audit.user_modules import PortableValue

_POLL_SECONDS = 0.5

Files = dict[str, bytes]  # the files of a run directory: content by relative path


def as_ray_tasks(runs: Sequence[ScheduledRun], begin: Begin, options: RayOptions) -> Generator[RunOutcome]:
    """Play runs as Ray tasks at the same time, each on the local engine of its process; see `many_runs.Execution`."""
    with ray_for(options):
        yield from _outcomes(runs, begin, options)


def _outcomes(runs: Sequence[ScheduledRun], begin: Begin, options: RayOptions) -> Generator[RunOutcome]:
    # Local, as the class of the counter is, so that Ray sends it whole.
    def play(work: Any, counter: Any, call_context: list[Any]) -> Any:
        for reference in call_context:
            ray.get(reference)()
        run, plan = work
        return run(plan, counter)

    counter = _counter()
    needed: dict[str, Any] = options.share()
    task: Any = ray.remote(max_retries=RETRIES, **needed)(play)
    plans = [run.plan() for run in runs]
    call_context = _call_context(plans)
    waiting = {
        task.remote(
            PortableValue((_files_of_run, plan), cloudpickle.dumps), counter, call_context[plan.federation.data]
        ): run
        for run, plan in zip(runs, plans, strict=True)
    }
    total = len(waiting)
    shown_count = 0
    while waiting:
        ready, _ = ray.wait(list(waiting), num_returns=1, timeout=_POLL_SECONDS)
        for reference in ready:
            run = waiting.pop(reference)
            try:
                _keep(ray.get(reference), run.directory)
            except RayError as error:
                yield run, _failure(error)
            else:
                yield run, None
        with suppress(RayError):  # a lost count of trial-rounds is no lost run
            done = ray.get(counter.total.remote())
            lacking = "" if has_room(options) else f", waiting for a node with {options.threads} cores"
            begin(f"{total - len(waiting)}/{total} runs{lacking}")(done - shown_count)
            shown_count = done


def _failure(error: RayError) -> str:
    """Return a text that says why the Ray task of a run failed."""
    if not isinstance(error, RayTaskError):
        return f"its process ended ({type(error).__name__})"
    is_expected = isinstance(error.cause, InputError | FederationError)
    return str(error.cause) if is_expected else f"{type(error.cause).__name__}: {error.cause}"


def has_room(options: RayOptions) -> bool:
    """Return whether a machine of the Ray cluster has enough cores for the task of one run."""
    return any(row["Resources"].get("CPU", 0) >= options.threads for row in alive_rows())


def _counter() -> Any:
    """Start and return a Ray actor that counts the finished rounds of all trials of all runs.

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
    modules = ray.put(PortableValue(partial(make_importable, sent_modules(names)), cloudpickle.dumps))

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


def _files_of_run(plan: RunPlan, counter: Any) -> Files:
    """Play a run in a temporary directory, and return its files.

    `counter` is the handle of the actor that counts finished rounds.
    """
    # An embedded Ray has a directory of its own, which is removed with it, however it ends.
    with tempfile.TemporaryDirectory(dir=os.environ.get("RAY_TMPDIR")) as scratch, _counting(counter) as on_round:
        directory = Path(scratch) / "run"
        # The runs share the cores; [run] actors says how many runs are played, not how many clients of one.
        alone = replace(plan, config=plan.config.changed(run={"actors": 1}))
        trial_rounds = plan.config.audit.trials * plan.federation.rounds
        play_run(ScheduledRun("", directory, trial_rounds, lambda: alone), on_round)
        remove_locks(directory)
        files = (path for path in sorted(directory.rglob("*")) if path.is_file())
        return {path.relative_to(directory).as_posix(): read_file(path) for path in files}


@contextmanager
def _counting(counter: Any) -> Iterator[OnRound]:
    """Yield a function for newly finished trial-rounds, which the actor `counter` receives at intervals."""
    done = 0
    last = time.monotonic()

    def on_round(trial_rounds: int) -> None:
        nonlocal done, last
        done += trial_rounds
        if time.monotonic() - last > _POLL_SECONDS:
            counter.add.remote(done)
            done = 0
            last = time.monotonic()

    yield on_round
    counter.add.remote(done)


def _keep(files: Files, directory: Path) -> None:
    """Write the files of a run directory; the directory appears only after all files have been written.

    Only the user may read the files in `challenger/`.
    """
    unfinished = partial_directory(directory)
    unfinished.mkdir(parents=True)
    for name, content in files.items():
        path = unfinished / PurePosixPath(name)
        private = name.startswith("challenger/")
        if private:
            make_private(path.parent)
        write_bytes(path, content, private)
    unfinished.rename(directory)
