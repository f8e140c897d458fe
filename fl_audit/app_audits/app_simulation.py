"""Run a whole Flower app, unchanged, on the grid of this software: its ServerApp here, its clients by an engine.

The ServerApp gets our grid, and the ClientApp is called in threads or in processes of Ray, with the contexts that
Flower's own simulation gives: partition, number of partitions, run configuration, and a state that each node keeps.
"""

import re
import sys
import time
import tomllib
import traceback
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, assert_never, cast

from flwr.app import UserConfig
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

from fl_audit.app_audits.review.app_loading import AppDescription, StubImportFinder, flat_settings, loaded, read_app
from fl_audit.errors import FederationError, InputError, in_a_line, require
from fl_audit.ordinary_files import read_text_file
from fl_audit.runs.cluster.ray_connection import cluster_at
from fl_audit.runs.cluster.ray_options import RayOptions, calls_on_all_cores
from fl_audit.runs.engine_names import Engine
from fl_audit.runs.local_engine import run_locally
from fl_audit.runs.ray_engine import run_on_ray
from fl_audit.runs.verbosity import show_flower
from fl_audit.words import name_list

USUAL_CLIENTS = 10
"""Number of clients of an app whose file names none, as in Flower's own simulation."""
_NO_LIMIT = float("inf")
_PAIR = re.compile(r"""(?P<key>[^\s="']+)=(?P<value>"[^"]*"|'[^']*'|[^\s"']\S*)""")
"""A pair of key and value in a text of `--run-config`; a value with spaces is in quotes."""


@dataclass(frozen=True)
class PlayedApp:
    """A Flower app that was played to its end."""

    app: AppDescription  # the app, with the run configuration that it was given
    clients: int  # number of clients
    engine: Engine  # engine that called the clients
    failed_calls: Counter[str]  # number of client calls that failed, by the text of the error
    seconds: float  # time from the start of the ServerApp to its end; with Ray, its start and end count too


def simulate_app(
    directory: Path,
    engine: Engine,
    run_config: Sequence[str] = (),
    clients: int | None = None,
    ray_address: str | None = None,
) -> PlayedApp:
    """Play the Flower app in a directory to its end.

    Parameters
    ----------
    directory
        Directory with the app's `pyproject.toml`.
    engine
        Engine that calls the clients.
    run_config
        Values that replace those of the app's run configuration, as `flwr run --run-config` takes them: texts such as
        "num-server-rounds=5 lr=0.1", or the path of one TOML file.
    clients
        Number of clients; None for that of the app's file, or 10.
    ray_address
        Address of a running Ray cluster; None starts a Ray for this app.

    Returns
    -------
    PlayedApp
        The app, with its number of clients and the time that it took.

    Raises
    ------
    InputError
        If the app cannot be read or imported, or its ServerApp raises an exception.
    """
    described = read_app(directory.resolve())
    app = replace(described, config=_overridden(described, run_config))
    # Nothing is replaced by a stub: the app is to run, and not only to be looked at.
    missing = StubImportFinder(app.directory)
    require(bool(app.client), f"{app.directory / 'pyproject.toml'} names no clientapp: accepted is module:object")
    server_app = loaded(app, app.server, missing)
    client_app = loaded(app, app.client, missing)
    for reference, loaded_object, kind in ((app.server, server_app, ServerApp), (app.client, client_app, ClientApp)):
        require(
            isinstance(loaded_object, kind),
            f"{reference} is a {type(loaded_object).__name__}: accepted is a {kind.__name__}",
        )
    number = clients or app.nodes or USUAL_CLIENTS
    show_flower()
    began = time.monotonic()
    failed_calls = _play(app, cast(ServerApp, server_app), cast(ClientApp, client_app), number, engine, ray_address)
    return PlayedApp(app, number, engine, failed_calls, time.monotonic() - began)


def _overridden(app: AppDescription, run_config: Sequence[str]) -> dict[str, Any]:
    """Return an app's run configuration with values that replace its own; only keys that it has are accepted."""
    try:
        values = run_config_values(run_config)
    except InputError:
        raise
    except (OSError, ValueError) as error:  # what `tomllib` and text encodings raise are ValueErrors
        arguments = " ".join(run_config)
        accepted = "accepted are texts such as 'num-server-rounds=5 lr=0.1', or one TOML file"
        raise InputError(f"--run-config {arguments!r} cannot be read: {accepted}") from error
    unknown = [key for key in values if key not in app.config]
    accepted = f"accepted are {name_list(app.config)}" if app.config else "the app has no run configuration"
    require(not unknown, f"--run-config has the key {(unknown or [''])[0]!r}: {accepted}")
    return app.config | values


def run_config_values(run_config: Sequence[str]) -> dict[str, bool | float | int | str]:
    """Return the values of one TOML file, or of texts with pairs `key=value` whose values are written as in TOML."""
    if len(run_config) == 1 and run_config[0].endswith(".toml"):
        path = Path(run_config[0]).expanduser()
        return flat_settings(str(path), tomllib.loads(read_text_file(path)))
    values = dict[str, bool | float | int | str]()
    for text in run_config:
        if _PAIR.sub("", text).strip():
            raise ValueError(f"not pairs of key and value: {text!r}")
        lines = [f"{pair['key']} = {pair['value']}" for pair in _PAIR.finditer(text)]
        values |= flat_settings("--run-config", tomllib.loads("\n".join(lines)))
    return values


def _play(
    app: AppDescription,
    server_app: ServerApp,
    client_app: ClientApp,
    clients: int,
    engine: Engine,
    ray_address: str | None,
) -> Counter[str]:
    config = UserConfig(app.config)
    try:
        match engine:
            case Engine.LOCAL:
                calls = calls_on_all_cores(1)
                return run_locally(server_app, client_app, clients, _NO_LIMIT, calls, run_config=config)
            case Engine.RAY:
                options = RayOptions(cluster_at(ray_address))
                reference: Any = _ClientAppReference(str(app.directory), app.client)
                return run_on_ray(server_app, reference, clients, options, config)
            case _:
                assert_never(engine)
    except (InputError, FederationError):
        raise
    except (Exception, SystemExit) as error:
        raise InputError(
            f"the ServerApp of {app.name} raised {in_a_line(error)}{_place(error, app.directory)}"
        ) from error


def _place(error: BaseException, directory: Path) -> str:
    """Return the last line of an app's own code that an exception came through, as the end of a message; else ""."""
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename).is_relative_to(directory)
    ]
    return f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""


class _ClientAppReference:
    """A stand-in for a ClientApp that a process of Ray turns into the app, by importing the app's module.

    Parameters
    ----------
    directory
        Directory of the app.
    named
        Reference of the ClientApp, as `module:object`.
    """

    def __init__(self, directory: str, reference: str) -> None:
        self._directory, self._named = directory, reference

    def __reduce__(self) -> tuple[Any, tuple[str, str]]:
        return _imported_client_app, (self._directory, self._named)


def _imported_client_app(directory: str, reference: str) -> object:
    path = Path(directory)
    sys.path[:] = [entry for entry in sys.path if entry != directory]
    app = AppDescription(path.name, path, "", reference, {}, None)
    return loaded(app, reference, StubImportFinder(path))
