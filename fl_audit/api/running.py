"""Audits from Python and notebooks: `run_audit` runs an audit in this process or in a separate one."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from importlib.metadata import entry_points
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from fl_audit.api.in_process import play_here
from fl_audit.api.run_error import RunError
from fl_audit.errors import FederationError, InputError, require
from fl_audit.runs.config import parse_config
from fl_audit.runs.config_file import read_toml, values_of
from fl_audit.runs.engine_names import Engine
from fl_audit.runs.expected_errors import WRONG_INPUT
from fl_audit.runs.stored_run import read_run
from fl_audit.value_checks import choice

if TYPE_CHECKING:
    from fl_audit.runs.stored_run import Run


_COMMAND = "fl-audit"
_LAST_LINES = 20


def run_in_separate_process(arguments: Sequence[str], listener: Callable[[str], None] | None) -> None:
    """Execute `fl-audit run` in a separate process, and wait for its end.

    An interrupt (Ctrl-C) also ends the separate process, which keeps the results of finished trials.

    Parameters
    ----------
    arguments
        Arguments of `fl-audit run`.
    listener
        Function that receives each progress line of the command; None for no function.

    Raises
    ------
    InputError
        If the configuration or the directory is invalid. Nothing is written.
    FederationError
        If the run fails. The results of finished trials are kept.
    """
    programs = entry_points(group="console_scripts", name=_COMMAND)
    require(bool(programs), f"command {_COMMAND} is not found: accepted is an installed fl-audit")
    # With -P Python does not search the working directory for modules.
    command = [sys.executable, "-P", "-m", next(iter(programs)).module, "run", *arguments]
    lines: list[str] = []
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None, "it was asked for"
        try:
            for line in process.stderr:
                lines = [*lines[-_LAST_LINES:], line.rstrip()]
                if listener is not None and lines[-1]:
                    listener(lines[-1])
        except BaseException:
            # On SIGINT the command stops its own processes and keeps the finished trials.
            process.send_signal(signal.SIGINT)
            raise
    if process.returncode:
        message = next((line for line in reversed(lines) if line.startswith("fl-audit: ")), "\n".join(lines))
        error = InputError if process.returncode == WRONG_INPUT else FederationError
        raise error(message.removeprefix("fl-audit: "))


Settings = Mapping[str, Mapping[str, Any]]
"""A configuration by section, with the keys of the file: `{"audit": {"trials": 100}}`."""


def show_lines(line: str) -> None:
    """Show a progress line on standard error in place of the previous line, cut to 100 characters."""
    print(f"\r{line:<100.100}", end="", file=sys.stderr, flush=True)  # noqa: T201


def run_audit(
    config: str | Path | Settings,
    out: str | Path | None = None,
    *,
    settings: Settings | None = None,
    engine: str = "ray",
    ray_address: str | None = None,
    resume: bool = False,
    data_dir: str | Path | None = None,
    progress: Callable[[str], None] | None = show_lines,
    own_process: bool = False,
) -> "Run":
    """Run the audit that a configuration describes, and return its results.

    An interrupt (Ctrl-C, or the stop button of a notebook) ends the run and keeps the results of finished trials. After
    the run, its Ray is shut down, and the global state of this process is restored.

    Parameters
    ----------
    config
        Path of a TOML file, or the same settings as nested dicts, by section and key. Paths in it are relative to the
        file, or to the working directory for dicts.
    out
        Run directory, which must be new unless `resume` is true; None creates one in the folder `runs`.
    settings
        Settings that replace those of the configuration, by section and key.
    engine
        `ray` for Flower's simulation on Ray, or `local` for all clients in one process without Ray.
    ray_address
        HOST:PORT of a running Ray cluster; None starts Ray on this machine.
    resume
        Whether to continue the interrupted run in `out`.
    data_dir
        Directory of downloaded data sets; None uses the setting `data.data-dir`, or the environment variable
        FL_AUDIT_DATA.
    progress
        Function that receives each progress message, in a thread of the run; None for none. By default, a terminal
        shows progress bars, and a notebook one line.
    own_process
        Whether the run takes place in a separate process, which allows several runs at the same time, or a run beside
        the caller's Ray.

    Raises
    ------
    InputError
        If the configuration or the directory is invalid. Nothing is written in this case.
    RunError
        If the run fails. The results of finished trials are kept.

    Examples
    --------
    >>> run = run_audit("audit.toml", "runs/first", settings={"audit": {"trials": 100}})  # doctest: +SKIP
    >>> run.verdict  # doctest: +SKIP
    """
    directory = Path("runs") / f"audit-{datetime.now():%Y%m%d-%H%M%S}" if out is None else Path(out)
    chosen = choice(Engine, "engine", engine)
    require(ray_address is None or chosen is Engine.RAY, "ray_address with engine='local': it goes with engine='ray'")
    if isinstance(config, str | Path):
        text = read_toml(Path(config))
        source_name = f"configuration {config}"
        base_directory = Path(config).absolute().parent
    else:
        text = _written(config)
        source_name = "configuration"
        base_directory = Path.cwd()
    values = values_of(
        text, source_name, base_directory, _replaced(settings or {}), None if data_dir is None else str(data_dir)
    )
    try:
        if own_process:
            options_given = {"--out": directory, "--engine": engine, "--ray-address": ray_address}
            flags = [word for name, value in options_given.items() if value is not None for word in (name, str(value))]
            with _file_of(values) as path:
                run_in_separate_process([str(path), *flags, *(["--resume"] if resume else [])], progress)
        else:
            is_drawn = progress is show_lines and sys.stderr.isatty()
            play_here(parse_config(values), directory, chosen, ray_address, resume, progress, is_drawn)
    except FederationError as error:
        raise RunError(str(error)) from error
    return read_run(directory)


@contextmanager
def _file_of(values: Settings) -> Iterator[Path]:
    """Yield a temporary TOML file with a configuration, in which paths are absolute."""
    with TemporaryDirectory(prefix="fl-audit-", ignore_cleanup_errors=True) as directory:
        path = Path(directory, "audit.toml")
        path.write_text(_written(values), encoding="utf-8")
        yield path


def _replaced(settings: Settings) -> list[str]:
    return [f"{section}.{key}={_toml(value)}" for section, keys in settings.items() for key, value in keys.items()]


def _written(config: Settings) -> str:
    lines = []
    for section, keys in config.items():
        require(isinstance(keys, Mapping), f"section {section} of the configuration is {keys!r}: accepted are settings")
        lines += [f"[{_toml(section)}]", *(f"{_toml(key)} = {_toml(value)}" for key, value in keys.items())]
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    """Return a value as TOML text; strings, numbers and booleans have the same form as in JSON."""
    match value:
        case Path():
            return json.dumps(str(value))
        case list() | tuple():
            return f"[{', '.join(_toml(element) for element in value)}]"
        case Mapping():
            return f"{{ {', '.join(f'{_toml(key)} = {_toml(element)}' for key, element in value.items())} }}"
        case float() if not abs(value) < float("inf"):
            return repr(float(value))  # TOML has words for what JSON cannot write: inf and nan
        case bool() | int() | float() | str():
            return json.dumps(value, ensure_ascii=False)
        case _:
            raise InputError(
                f"a setting is {value!r}: accepted are texts, numbers, truth values, and lists and tables of them"
            )
