"""Processes that play trials: none that dies, stalls or takes too long is waited for, and none outlives its parent."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from math import inf
from pathlib import Path

import psutil
import pytest

from fl_audit.app_audits.black_box import worker_pool
from fl_audit.app_audits.black_box.worker_pool import WorkerPool


def _lost(task: int, cause: str) -> str:
    return f"{task} {cause}"


def _said_by(
    work: Callable[[int, float], object], tasks: range, processes: int = 2, until: float = inf
) -> list[object]:
    with WorkerPool(work, _lost, processes, lambda _: None) as pool:
        return list(pool.done(tasks, until).values())


@pytest.mark.parametrize("processes", [1, 2, 3])
def test_results_come_in_order_whoever_works(processes: int) -> None:
    def work(task: int, _until: float) -> int:
        time.sleep(0.02 * (task % 3 == 0))
        return task**2

    with WorkerPool(work, _lost, processes, lambda _: None) as pool:
        for tasks in (range(7), range(3, 5)):
            assert pool.done(tasks, inf) == {index: task**2 for index, task in enumerate(tasks)}


def test_what_a_killed_process_had_to_do_is_done_again(tmp_path: Path) -> None:
    def work(task: int, _until: float) -> int:
        if task == 3 and not (tmp_path / "killed").exists():
            (tmp_path / "killed").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return task

    assert _said_by(work, range(6)) == list(range(6))
    assert (tmp_path / "killed").exists()


@pytest.mark.parametrize(
    ("end", "cause"),
    [
        (lambda: os._exit(0), "with status 0"),
        (lambda: os._exit(3), "with status 3"),
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "by signal 9"),
    ],
)
def test_a_task_that_ends_its_process_twice_is_said(end: Callable[[], None], cause: str) -> None:
    def work(task: int, _until: float) -> int:
        if task == 1:
            end()
        return task

    assert _said_by(work, range(4)) == [0, f"1 {cause}", 2, 3]


def test_what_a_task_raises_is_raised() -> None:
    def work(task: int, _until: float) -> int:
        raise LookupError(f"no {task}")

    with pytest.raises(LookupError, match="no 0"):
        _said_by(work, range(1))


@pytest.mark.long
@pytest.mark.parametrize("processes", [1, 2])
def test_what_is_done_when_the_time_is_over_counts_and_nothing_works_on(tmp_path: Path, processes: int) -> None:
    def work(task: int, until: float) -> int:
        if task == 1:
            (tmp_path / "pid").write_text(str(os.getpid()))
            time.sleep(60 if processes > 1 else until - time.monotonic() + 0.01)
        return task

    begun = time.monotonic()
    # With several processes, all but the task that sleeps have to be done until then, also on a busy machine.
    until = begun + (2.0 if processes > 1 else 0.3)
    assert _said_by(work, range(5), processes, until) == ([0, 2, 3, 4] if processes > 1 else [0, 1])
    assert time.monotonic() - begun < 10
    if processes > 1:
        assert not psutil.pid_exists(int((tmp_path / "pid").read_text()))


def test_where_copies_wait_for_threads_that_they_lack_this_process_goes_on_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As with libraries that compute in threads of their own: a copy of a process has none of them."""
    monkeypatch.setattr(worker_pool, "SILENCE", 0.5)
    monkeypatch.setattr(worker_pool, "_LOOK", 0.1)
    monkeypatch.setattr(worker_pool, "_stalled", [])
    messages = list[str]()
    with ThreadPoolExecutor(1) as threads:
        threads.submit(int).result()  # its thread is there from now on
        with WorkerPool(lambda task, _: threads.submit(abs, -task).result(), _lost, 2, messages.append) as pool:
            assert pool.done(range(4), inf) == {index: index for index in range(4)}
            assert pool.done(range(2), inf) == {0: 0, 1: 1}
        with WorkerPool(
            lambda task, _: os.getpid(), _lost, 2, messages.append
        ) as pool:  # nobody waits for the same again
            assert pool.done(range(2), inf) == {0: os.getpid(), 1: os.getpid()}
    assert len(messages) == 1
    assert "goes on alone" in messages[0]


@pytest.mark.long
def test_a_task_that_never_ends_is_interrupted_in_this_process_too() -> None:
    """Of a program: the tests' own limits of time use the same alarm, and whoever uses it keeps it."""
    program = (
        "import time\n"
        "from fl_audit.app_audits.black_box.worker_pool import WorkerPool\n"
        "def work(task, until):\n"
        "    try:\n"
        "        time.sleep(300 * (task == 2))\n"
        "    except Exception:\n"
        "        return 'caught'\n"
        "    return task\n"
        "with WorkerPool(work, str, 1, print) as found:\n"
        "    print(found.done(range(4), time.monotonic() + 1.0))\n"
    )
    command_result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert command_result.stdout == "{0: 0, 1: 1}\n"


@pytest.mark.long
@pytest.mark.parametrize(("number", "option"), [(signal.SIGKILL, 1), (signal.SIGTERM, 1), (signal.SIGKILL, -1)])
def test_no_process_outlives_the_one_that_started_it(number: int, option: int) -> None:
    """By the system where it can do that, and where it cannot (it knows no such option) by a thread that looks."""
    program = (
        "import os, time\n"
        "from fl_audit.app_audits.black_box import worker_pool\n"
        "from fl_audit.app_audits.black_box.worker_pool import WorkerPool\n"
        f"worker_pool._PR_SET_PDEATHSIG = {option}\n"
        "def work(task, until):\n"
        "    os.write(1, f'{os.getpid()}\\n'.encode())\n"  # in one piece: both processes write
        "    time.sleep(300)\n"
        "with WorkerPool(work, str, 2, print) as found:\n"
        "    found.done(range(2), float('inf'))\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    workers = [psutil.Process(int(parent.stdout.readline())) for _ in range(2)]
    parent.send_signal(number)
    parent.wait()
    gone, survivors = psutil.wait_procs(workers, timeout=10)
    assert len(gone) == 2 or all(process.status() == psutil.STATUS_ZOMBIE for process in survivors)
