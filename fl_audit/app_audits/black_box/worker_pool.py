"""Pool of forked worker processes that executes tasks, and does not wait for workers that die or stall.

Workers are forks, because the strategies under audit can seldom be pickled. A fork lacks the threads of this process,
so code that waits for such a thread stalls. If the workers return no result and use no CPU time for a while, this
process executes the remaining tasks itself.
"""

import ctypes
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Generic, NoReturn, Self, TypeVar

import psutil

from fl_audit.errors import in_a_line

Task = TypeVar("Task")
Done = TypeVar("Done")

SILENCE = 20.0  # seconds without a result or CPU use, after which this process executes the tasks itself
_QUIET = 0.005  # CPU seconds per second below which a worker counts as stalled
_LOOK = 1.0  # seconds between two checks of workers that return nothing
_GRACE = 1.0  # seconds that a running task gets to finish after the time limit
_LONGEST = 1e7  # largest number of seconds that a timer is set to
_PR_SET_PDEATHSIG = 1
_stalled = list[int]()
"""IDs of processes whose workers have stalled; such a process starts no new workers, which would stall again."""


class TimeIsOverError(BaseException):  # not an `Exception`, so that the interrupted code does not catch it
    """Raised inside code that still runs when its time is over."""


@contextmanager
def interrupted_after(seconds: float) -> Iterator[None]:
    """Raise `TimeIsOverError` in a block that still runs after the given seconds, by SIGALRM in the main thread.

    Compiled code is interrupted only when it returns to Python.
    """

    def ring(*_: object) -> NoReturn:
        raise TimeIsOverError

    handler = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)


def _interrupted_late(until: float) -> AbstractContextManager[None]:
    """Interrupt a block that still runs about a second after `until` (monotonic clock), where SIGALRM can be used."""
    is_main = threading.current_thread() is threading.main_thread() and hasattr(signal, "SIGALRM")
    remaining = until + _GRACE - time.monotonic()
    is_free = is_main and signal.getsignal(signal.SIGALRM) is signal.SIG_DFL
    return interrupted_after(remaining) if is_free and 0 < remaining <= _LONGEST else nullcontext()


class _Worker:
    """A forked worker process; `task_index` is the position of its current task, None while it is idle."""

    def __init__(self, work: Callable[[Any, float], Any]) -> None:
        context = multiprocessing.get_context("fork")
        self.connection, theirs = context.Pipe()
        self.task_index: int | None = None
        self.process: BaseProcess = context.Process(target=_serve, args=(work, theirs, os.getpid()), daemon=True)
        self.process.start()
        theirs.close()

    def begin(self, task_index: int, task: object, until: float) -> None:
        self.task_index = task_index
        with suppress(OSError):  # a dead worker is noticed when its result is read
            self.connection.send((task, until))

    def end(self) -> str:
        """Kill the process; return "with status N" or "by signal N", which says how it ended."""
        self.process.kill()
        self.process.join()
        self.connection.close()
        code = self.process.exitcode or 0
        return f"with status {code}" if code >= 0 else f"by signal {-code}"


class WorkerPool(Generic[Task, Done]):
    """Pool that starts tasks in order, in several forked processes or one after another in this process.

    The end of a `with` block kills the processes.

    Parameters
    ----------
    work
        Function that executes one task; its second argument is the monotonic time, in seconds, at which it should stop.
    lost
        Function that returns the result of a task whose execution ended its worker process twice. It is called with the
        task and with words such as "by signal 9".
    processes
        Number of worker processes; with 1, tasks are executed in this process.
    say
        Function that is called with a message if the workers stall.
    """

    def __init__(
        self,
        work: Callable[[Task, float], Done],
        lost: Callable[[Task, str], Done],
        processes: int,
        say: Callable[[str], None],
    ) -> None:
        self._work = work
        self._lost = lost
        self._say = say
        can_copy = "fork" in multiprocessing.get_all_start_methods() and os.getpid() not in _stalled
        self._count = processes if can_copy else 1
        self._workers = list[_Worker]()

    def done(self, tasks: Sequence[Task], until: float) -> dict[int, Done]:
        """Return the results of all tasks that finish in time, keyed by the task's position from 0.

        If a task raises an exception, this method raises it again.
        """
        results = dict[int, Done]()
        if self._count > 1:
            self._together(tasks, until, results)
        if self._count == 1:
            with suppress(TimeIsOverError), _interrupted_late(until):
                for index, task in enumerate(tasks):
                    if time.monotonic() > until:
                        break
                    if index not in results:
                        results[index] = self._work(task, until)
        return dict(sorted(results.items()))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Kill all worker processes."""
        for worker in self._workers:
            worker.end()
        self._workers.clear()

    def _together(self, tasks: Sequence[Task], until: float, results: dict[int, Done]) -> None:
        waiting = list(range(len(tasks)))[::-1]
        deaths = dict[int, int]()
        quiet_since = time.monotonic()
        used = 0.0
        while len(results) < len(tasks):
            if time.monotonic() > until:
                waiting.clear()
            self._hand_out(tasks, waiting, until)
            busy = {worker.connection: worker for worker in self._workers if worker.task_index is not None}
            if not busy or time.monotonic() > until + _GRACE:
                break
            ready = wait(list(busy), timeout=min(_LOOK, max(0.0, until + _GRACE - time.monotonic())))
            for connection in ready:
                self._receive_result(busy[connection], tasks, waiting, deaths, results)  # type: ignore[index]
            now = time.monotonic()
            spent = sum(map(_seconds_of, self._workers))
            if ready or spent - used > _QUIET * (now - quiet_since):
                quiet_since = now
                used = spent
            elif now - quiet_since > SILENCE:
                self._count = 1
                _stalled.append(os.getpid())
                self._say(f"the processes that play trials did nothing for {SILENCE:g} s: this one goes on alone")
                break
        # Unfinished tasks are not waited for, because they may never end.
        for worker in [worker for worker in self._workers if worker.task_index is not None or self._count == 1]:
            self._workers.remove(worker)
            worker.end()

    def _hand_out(self, tasks: Sequence[Task], waiting: list[int], until: float) -> None:
        idle = sum(worker.task_index is None for worker in self._workers)
        for _ in range(min(self._count - len(self._workers), len(waiting) - idle)):
            self._workers.append(_Worker(self._work))
        for worker in self._workers:
            if worker.task_index is None and waiting:
                task_index = waiting.pop()
                worker.begin(task_index, tasks[task_index], until)

    def _receive_result(
        self,
        worker: _Worker,
        tasks: Sequence[Task],
        waiting: list[int],
        deaths: dict[int, int],
        results: dict[int, Done],
    ) -> None:
        """Store a worker's result in `results`, or return the task of a dead worker to `waiting` to be tried again.

        If a second worker dies on the same task, the task is stored as lost.
        """
        task_index, worker.task_index = worker.task_index, None
        assert task_index is not None
        try:
            is_done, result = worker.connection.recv()
        except (EOFError, OSError):
            self._workers.remove(worker)
            how_it_ended = worker.end()
            deaths[task_index] = deaths.get(task_index, 0) + 1
            if deaths[task_index] > 1:
                results[task_index] = self._lost(tasks[task_index], how_it_ended)
            else:
                waiting.append(task_index)
            return
        if not is_done:
            raise result
        results[task_index] = result


def _seconds_of(worker: _Worker) -> float:
    """Return the CPU seconds of a worker process and its children; 0 if the worker has ended."""
    try:
        times = psutil.Process(worker.process.pid).cpu_times()
    except psutil.Error:
        return 0.0
    return float(times.user + times.system + times.children_user + times.children_system)


def _serve(work: Callable[[Any, float], Any], connection: Connection, parent: int) -> None:
    """Main loop of a worker process: execute tasks from a connection; send back (True, result) or (False, exception).

    The process ends when the connection is closed, or together with its parent process.
    """
    end_with_parent(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles interrupts, and ends this process
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    while True:
        try:
            task, until = connection.recv()
        except (EOFError, OSError):
            return
        try:
            answer = True, work(task, until)
        except Exception as error:  # the parent raises it
            answer = False, error
        except BaseException:  # such as `SystemExit`: this process ends, and the parent starts another one
            os._exit(1)
        try:
            connection.send(answer)
        except (TypeError, AttributeError, ValueError) as error:  # values that cannot be sent are reported
            connection.send((False, RuntimeError(in_a_line(error))))


def end_with_parent(parent: int) -> None:
    """Make this process end as soon as its parent process, with ID `parent`, ends for whatever reason.

    On Linux the kernel kills this process. On every system a thread also checks once a second.
    """
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    threading.Thread(target=_look_at_parent, args=(parent,), daemon=True).start()


def _look_at_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_LOOK)
    os._exit(1)
