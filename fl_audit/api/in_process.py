"""An audit run in the caller's process, whose global state is restored afterwards.

A run changes environment variables for Flower and Ray, signal handlers, log levels, `sys.path` and the number of torch
threads. All of this is restored when the run ends or fails.
"""

import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path

from fl_audit.errors import InputError, require
from fl_audit.runs import settle_environment, verbosity
from fl_audit.runs.config import RunConfig
from fl_audit.runs.engine_names import Engine
from fl_audit.runs.run_start import carry_out, require_startable
from fl_audit.user_modules import searched_last

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_LOGS = ("flwr", "ray", "fl_audit")
_at_work = threading.Lock()


def play_here(
    config: RunConfig,
    directory: Path,
    engine: Engine,
    ray_address: str | None,
    resume: bool,
    listener: verbosity.Listener | None,
    is_drawn: bool,
) -> None:
    """Carry out an audit run in this process.

    Parameters
    ----------
    config
        The configuration of the run.
    directory
        Run directory, which must be new unless `resume` is true.
    engine
        Engine that runs the clients: Ray, or this process alone.
    ray_address
        HOST:PORT of a running Ray cluster; None starts Ray on this machine.
    resume
        Whether to continue an interrupted run in the directory.
    listener
        Function that receives progress messages; None for no messages.
    is_drawn
        Whether progress bars are drawn on the terminal instead of calling `listener`.

    Raises
    ------
    InputError
        If the configuration or the directory is invalid, or another run is in progress in this process. Nothing is
        written.
    FederationError
        If the run fails. The results of finished trials are kept.
    """
    problem = "another run is played in this process: accepted is one at a time, or own_process=True"
    require(_at_work.acquire(blocking=False), problem)
    try:
        require_startable(config, directory, resume, without_privacy=False)
        _require_no_ray(engine)
        with (
            _process_state_restored(),
            verbosity.with_verbosity(None if is_drawn else listener, quiet=listener is None),
        ):
            _play(config, directory, engine, ray_address, resume)
    finally:
        _at_work.release()


def _play(config: RunConfig, directory: Path, engine: Engine, ray_address: str | None, resume: bool) -> None:
    try:
        carry_out(config, directory, engine, ray_address, resume)
    except KeyboardInterrupt:
        verbosity.tell(f"interrupted: run_audit(..., out={str(directory)!r}, resume=True) goes on, if it was begun")
        raise
    except OSError as error:
        # With a file name, the error is about a file that the user named; without one it is no mistake of the user's.
        if error.filename is None:
            raise
        raise InputError(f"{error.filename}: {error.strerror}") from error


def _require_no_ray(engine: Engine) -> None:
    """Refuse to run on Ray if this process has already started Ray, because the end of the run would shut it down."""
    ray = sys.modules.get("ray")
    problem = "Ray is started in this process: accepted are ray.shutdown() before, own_process=True, or engine='local'"
    require(engine is not Engine.RAY or ray is None or not ray.is_initialized(), problem)


@contextmanager
def _process_state_restored() -> Iterator[None]:
    """Set up environment, signals and logging of the process for a run, and restore them after the block."""
    variables = dict(os.environ)
    logs = [(log, log.level) for log in map(logging.getLogger, _LOGS)]
    is_main = threading.current_thread() is threading.main_thread()
    handlers = [(signal_number, signal.getsignal(signal_number)) for signal_number in _SIGNALS] if is_main else []
    torch = import_module("torch")
    threads = torch.get_num_threads()
    settle_environment()
    try:
        with searched_last(Path.cwd()):
            yield
    finally:
        torch.set_num_threads(threads)
        for handled_signal, handler in handlers:
            with suppress(TypeError):  # a handler that was not set by Python cannot be restored from Python
                signal.signal(handled_signal, handler)
        for log, level in logs:
            log.setLevel(level)
        for name in os.environ.keys() - variables.keys():
            del os.environ[name]
        os.environ.update(variables)
