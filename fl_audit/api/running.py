"""Audits from Python and notebooks: the command line in a process of its own.

A process of its own keeps Ray, Flower's threads and the handling of Ctrl-C out of the caller's.
"""

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
from typing import Any

from fl_audit.api.stored_run import Run, read_run
from fl_audit.errors import InputError, expanded_path, require

Settings = Mapping[str, Mapping[str, Any]]
"""A configuration by section, with the keys of the file: `{"audit": {"worlds": 100}}`."""

WRONG_INPUT = 2
"""Exit status of the command where what it was given is not accepted."""
_COMMAND = "fl-audit"
_LAST_LINES = 20


class RunError(Exception):
    """A run that had to stop; what was finished is kept, and `resume=True` goes on."""


def show_lines(line: str) -> None:
    """Show a line of progress in the place of the one before."""
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
) -> Run:
    """Carry out the audit that a configuration describes, and read what it found.

    Parameters
    ----------
    config
        A TOML file, or the same settings by section. Relative paths are relative to the file, or to the working
        directory.
    out
        Run directory, which must be new unless `resume`; None makes one below `runs`.
    settings
        Settings that replace those of the configuration, by section.
    engine
        `ray` for Flower's runtime on Ray, `local` for one process without Ray.
    ray_address
        Address of a running Ray cluster, `HOST:PORT`; None starts a Ray on this machine.
    resume
        Go on with the interrupted run in `out`.
    data_dir
        Data directory of published data sets; None is that of FL_AUDIT_DATA.
    progress
        Told each line that the run says on its way; None hears nothing.

    Raises
    ------
    InputError
        If configuration or directory cannot be used; nothing is written then.
    RunError
        If the run had to stop.

    Examples
    --------
    >>> run = run_audit("audit.toml", "runs/first", settings={"audit": {"worlds": 100}})  # doctest: +SKIP
    >>> run.verdict  # doctest: +SKIP
    """
    directory = Path("runs") / f"audit-{datetime.now():%Y%m%d-%H%M%S}" if out is None else Path(out)
    given = {"--out": directory, "--engine": engine, "--ray-address": ray_address, "--data-dir": data_dir}
    flags = [word for name, value in given.items() if value is not None for word in (name, str(value))]
    for section, keys in (settings or {}).items():
        flags += [word for key, value in keys.items() for word in ("--set", f"{section}.{key}={_toml(value)}")]
    with _file_of(config) as path:
        _carry_out([str(path), *flags, *(["--resume"] if resume else [])], progress)
    return read_run(directory)


def _carry_out(arguments: Sequence[str], progress: Callable[[str], None] | None) -> None:
    """Run the command; with -P Python does not look for its modules where the caller stands."""
    # The library does not know who makes the command: it is asked for by its name, as in a shell.
    programs = entry_points(group="console_scripts", name=_COMMAND)
    require(bool(programs), f"command {_COMMAND} is not found: accepted is an installed fl-audit")
    command = [sys.executable, "-P", "-m", next(iter(programs)).module, "run", *arguments]
    lines: list[str] = []
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None, "it was asked for"
        try:
            for line in process.stderr:
                lines = [*lines[-_LAST_LINES:], line.rstrip()]
                if progress is not None and lines[-1]:
                    progress(lines[-1])
        except BaseException:
            # The command ends all that it started, and keeps what is finished.
            process.send_signal(signal.SIGINT)
            raise
    if process.returncode:
        said = next((line for line in reversed(lines) if line.startswith("fl-audit: ")), "\n".join(lines))
        error = InputError if process.returncode == WRONG_INPUT else RunError
        raise error(said.removeprefix("fl-audit: "))


@contextmanager
def _file_of(config: str | Path | Settings) -> Iterator[Path]:
    """Give the file of a configuration; settings are written to one, with paths from the working directory."""
    if isinstance(config, str | Path):
        yield Path(config)
        return
    with TemporaryDirectory(prefix="fl-audit-", ignore_cleanup_errors=True) as place:
        path = Path(place, "audit.toml")
        path.write_text(_written(config), encoding="utf-8")
        yield path


_PATHS = ("data-dir", "path", "test-path", "images", "labels", "test-images", "test-labels", "weights")
"""Keys of [data] and [model] whose values are paths, which the command reads from the place of its file."""


def _written(config: Settings) -> str:
    lines = []
    for section, keys in config.items():
        require(isinstance(keys, Mapping), f"section {section} of the configuration is {keys!r}: accepted are settings")
        lines.append(f"[{section}]")
        for key, value in keys.items():
            is_path = section in ("data", "model") and key in _PATHS and isinstance(value, str | Path)
            lines.append(f"{key} = {_toml(str(expanded_path(value).absolute()) if is_path else value)}")
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    """Return a value as TOML writes it, which of texts, numbers, truth values and lists is as JSON does."""
    match value:
        case Path():
            return json.dumps(str(value))
        case list() | tuple():
            return f"[{', '.join(_toml(each) for each in value)}]"
        case bool() | int() | float() | str():
            return json.dumps(value, ensure_ascii=False)
        case _:
            raise InputError(f"a setting is {value!r}: accepted are texts, numbers, truth values and lists of them")
