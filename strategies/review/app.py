"""A Flower app as its `pyproject.toml` names it, and its two objects."""

import importlib
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flwr.common.config import flatten_dict

from fl_audit.errors import InputError, in_a_line
from fl_audit.user_modules import OWN_PACKAGES
from strategies.review.stand_ins import StandIns


@dataclass(frozen=True)
class App:
    """A Flower app."""

    name: str  # its name
    directory: Path  # where it is
    # `server`, `client`: `module:object` of its two parts; the client's is empty where it has none.
    server: str
    client: str
    config: dict[str, Any]  # its run configuration, flattened as Flower does
    nodes: int | None  # how many clients its file says that a simulation has; None where it does not


def read_app(directory: Path) -> App:
    """Read the app of a directory.

    Raises
    ------
    InputError
        If there is none.
    """
    accepted = "accepted is the directory of a Flower app, whose pyproject.toml has [tool.flwr.app.components]"
    path = directory / "pyproject.toml"
    if not path.is_file():
        raise InputError(f"{directory} has no pyproject.toml: {accepted}")
    try:
        project = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read ({in_a_line(error)}): {accepted}") from error
    flower = project.get("tool", {}).get("flwr", {})
    components = flower.get("app", {}).get("components", {})
    server = components.get("serverapp")
    if not isinstance(server, str) or ":" not in server:
        raise InputError(f"{path} names no serverapp as module:object (found {server!r}): {accepted}")
    federations = flower.get("federations", {})
    options = federations.get(federations.get("default", "local-simulation"), {}).get("options", {})
    return App(
        project.get("project", {}).get("name", directory.name),
        directory,
        server,
        str(components.get("clientapp", "")),
        flatten_dict(flower.get("app", {}).get("config")),
        options.get("num-supernodes"),
    )


def loaded(app: App, named: str, stand_ins: StandIns) -> object:
    """Import one of an app's parts.

    Parameters
    ----------
    app
        The app.
    named
        The part, as `module:name`.
    stand_ins
        What stands in for missing packages.

    Raises
    ------
    InputError
        If it cannot be had.
    """
    module, _, attribute = named.partition(":")
    top = module.partition(".")[0]
    if top in OWN_PACKAGES:
        raise InputError(f"{named} is in a package called {top}, as one of fl_audit is: accepted is another name")
    if str(app.directory) not in sys.path:
        # As Flower does: what the app brings along is found first.
        sys.path.insert(0, str(app.directory))
    try:
        return getattr(importlib.import_module(module), attribute)
    except Exception as error:
        raise InputError(f"{named} cannot be imported ({in_a_line(error)}){stand_ins.words}") from error
