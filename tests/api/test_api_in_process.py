"""Tests that `fa.run_audit` runs as the command does, and leaves the process as it was."""

import json
import logging
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

import fl_audit as fa
from fl_audit.cli.main import app
from fl_audit.errors import FederationError
from fl_audit.runs import verbosity
from tests.builders.refusals import assert_refused
from tests.builders.settings import toml_text

pytestmark = pytest.mark.xdist_group("api")
SETTINGS: dict[str, dict[str, Any]] = {
    "data": {"name": "breast-cancer", "records": 60, "clients": 3},
    "model": {"name": "logistic"},
    "training": {"rounds": 3, "learning-rate": 0.1},
    "privacy": {"epsilon": 2.0, "delta": 0.01, "clipping-norm": 1.0, "adjacency": "replace-record"},
    "audit": {"trials": 6},
    "run": {"seed": 5},
}
CONFIG = toml_text(SETTINGS)
OF_TIME = ("setup_seconds", "training_seconds", "trials_per_second", "timing", "provenance", "engine", "sessions")


def _numbers(path: Path) -> Any:
    """Return the numbers of a run, without those that depend on the clock and the machine."""
    return _without_time(json.loads((path / "summary.json").read_text()))


def _without_time(values: Any) -> Any:
    if isinstance(values, dict):
        return {key: _without_time(value) for key, value in values.items() if key not in OF_TIME}
    return [_without_time(value) for value in values] if isinstance(values, list) else values


def _state() -> dict[str, Any]:
    """Return the global state that a run may change in its process."""
    return {
        "environment": dict(os.environ),
        "signals": [signal.getsignal(signal_number) for signal_number in (signal.SIGINT, signal.SIGTERM)],
        "logs": [logging.getLogger(name).level for name in ("flwr", "ray", "fl_audit")],
        "threads of torch": torch.get_num_threads(),
        "modules": list(sys.path),
        "quiet": verbosity.is_quiet(),
        "heard": verbosity.has_listener(),
        "here": Path.cwd(),
        "output": (sys.stdout, sys.stderr),
    }


@pytest.fixture(autouse=True)
def _no_report(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Write no page, because that takes seconds and is tested elsewhere."""
    monkeypatch.setattr("fl_audit.audits.page.report_files.write_report", lambda *_: None)
    threads = torch.get_num_threads()
    torch.set_num_threads(3)  # a number that no run asks for
    yield
    torch.set_num_threads(threads)


def _run_audit(*arguments: Any, **options: Any) -> fa.Run:
    """Call the function, and check that it leaves this process as it was, also after an error."""
    before = _state()
    try:
        return fa.run_audit(*arguments, **options)
    finally:
        assert _state() == before


def _threads() -> set[str]:
    return {thread.name for thread in threading.enumerate() if "_serve" in thread.name}


def test_a_call_finds_the_numbers_of_the_command_and_a_second_call_finds_them_again(tmp_path: Path) -> None:
    (tmp_path / "audit.toml").write_text(CONFIG)
    command = ["run", str(tmp_path / "audit.toml"), "--engine", "local", "--out", str(tmp_path / "command")]
    assert CliRunner().invoke(app, command).exit_code == 0
    heard: list[str] = []
    called = _run_audit(SETTINGS, tmp_path / "call", engine="local", progress=heard.append)
    _run_audit(tmp_path / "audit.toml", tmp_path / "again", engine="local", progress=None)
    assert _numbers(tmp_path / "command") == _numbers(tmp_path / "call") == _numbers(tmp_path / "again")
    assert len(called.trials) == 6
    assert any("18 of 18 trial-rounds" in line for line in heard), heard
    assert not any(line.startswith(":") for line in heard), heard
    assert all(message != following for message, following in pairwise(heard)), heard
    named = r"new directory, or --resume \(in Python, resume=True\)"
    assert_refused(named, _run_audit, SETTINGS, tmp_path / "call", engine="local", progress=None)


@pytest.mark.ray
@pytest.mark.long
def test_a_call_plays_on_ray_and_ends_it(tmp_path: Path) -> None:
    ray = _run_audit(SETTINGS, tmp_path / "ray", engine="ray", progress=None)
    _run_audit(SETTINGS, tmp_path / "local", engine="local", progress=None)
    assert not sys.modules["ray"].is_initialized()
    assert _numbers(ray.path) == _numbers(tmp_path / "local")
    _run_audit(SETTINGS, tmp_path / "ray again", engine="ray", progress=None)
    assert _numbers(tmp_path / "ray again") == _numbers(ray.path)


@pytest.mark.parametrize(
    "wrong",
    [
        {"settings": {"audit": {"trials": -1}}},
        {"settings": {"audit": {"wrlds": 3}}},
        {"settings": {"data": {"clients": 1000}}},
        {"engine": "rya"},
        {"ray_address": "127.0.0.1:1"},
        {"resume": True},
    ],
)
def test_wrong_input_is_said_before_anything_is_written(wrong: dict[str, Any], tmp_path: Path) -> None:
    assert_refused(None, _run_audit, SETTINGS, tmp_path / "run", **{"engine": "local", "progress": None, **wrong})
    assert list(tmp_path.iterdir()) == []


def test_a_table_is_a_setting(tmp_path: Path) -> None:
    settings = {"data": {"partition": "dirichlet", "partition-parameters": {"alpha": 0.0}}}
    options = {"settings": settings, "engine": "local", "progress": None}
    assert_refused("alpha", _run_audit, SETTINGS, tmp_path / "run", **options)  # it has arrived


def _stopping(error: BaseException, after: int) -> Callable[[int], None]:
    """Return a function for counts of trials that raises an error once `after` trials are counted."""
    trial_count = 0

    def stop(trials: int) -> None:
        nonlocal trial_count
        trial_count += trials
        if trial_count >= after:
            raise error

    return stop


@pytest.mark.long
@pytest.mark.parametrize("stopped_by", [KeyboardInterrupt(), FederationError("no client answered")])
def test_a_run_that_stops_keeps_what_is_finished_and_goes_on(
    stopped_by: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[str] = []
    settings = {"run": {"trials-per-batch": 2}}
    options: dict[str, Any] = {"settings": settings, "engine": "local", "progress": heard.append}
    with monkeypatch.context() as patch:
        patch.setattr("fl_audit.runs.run._getting_ready", lambda _: _stopping(stopped_by, 14))
        error = KeyboardInterrupt if isinstance(stopped_by, KeyboardInterrupt) else fa.RunError
        with pytest.raises(error):
            _run_audit(SETTINGS, tmp_path / "run", **options)
    batch_paths = [path for path in (tmp_path / "run").rglob("*") if "batch" in path.name or "trials" in path.name]
    assert batch_paths
    if error is KeyboardInterrupt:
        assert f"out={str(tmp_path / 'run')!r}, resume=True" in heard[-1]
    until = time.monotonic() + 5
    while _threads() and time.monotonic() < until:
        time.sleep(0.02)
    assert not _threads(), "threads of the clients' calls outlive the run"
    _run_audit(SETTINGS, tmp_path / "run", **{**options, "resume": True})
    _run_audit(SETTINGS, tmp_path / "whole", **options)
    assert _numbers(tmp_path / "run")["insider"] == _numbers(tmp_path / "whole")["insider"]


def test_one_run_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    error_texts: list[str] = []

    def again(*_: object) -> None:
        try:
            fa.run_audit(SETTINGS, tmp_path / "second", engine="local", progress=None)
        except fa.InputError as error:
            error_texts.append(str(error))

    monkeypatch.setattr("fl_audit.api.in_process._play", again)
    # Nothing was played.
    assert_refused("holds no", _run_audit, SETTINGS, tmp_path / "first", engine="local", progress=None)
    (line,) = error_texts
    assert re.search(r"another run .*: .*one at a time, .*own_process=True$", line)


def test_a_ray_of_the_caller_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    assert_refused(r"Ray is started", _run_audit, SETTINGS, tmp_path / "run", engine="ray", progress=None)
    assert list(tmp_path.iterdir()) == []
