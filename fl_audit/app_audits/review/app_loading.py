"""Read a Flower app's `pyproject.toml`, and import its ServerApp and ClientApp even if packages are missing.

A package that is not installed is replaced by a stub whose objects do nothing. Most such packages are for the app's
clients and data.
"""

import importlib
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from fl_audit.errors import InputError, in_a_line
from fl_audit.ordinary_files import read_text_file
from fl_audit.user_modules import OWN_PACKAGE, collision_words

STRATEGY_ALONE = (
    "of any other project the strategy alone can be audited: fl-audit strategy PACKAGE.MODULE:FACTORY, with a function "
    "that returns AuditedSystem(make_strategy, model=initial_arrays) and needs no data"
)
"""Remedy for a project or app that cannot be reviewed."""


@dataclass(frozen=True)
class AppDescription:
    """A Flower app as described by its `pyproject.toml`: name, directory, ServerApp, ClientApp and configuration."""

    name: str  # name of the project, or else of its directory
    directory: Path  # directory with `pyproject.toml`
    server: str  # reference of the ServerApp, as `module:object`
    client: str  # reference of the ClientApp, as `module:object`; empty if there is none
    config: dict[str, Any]  # run configuration, keyed by names that Flower joins with dots
    nodes: int | None  # `num-supernodes` of the default federation; None if not set


def read_app(directory: Path) -> AppDescription:
    """Return the Flower app in a directory; raises `InputError` if `pyproject.toml` is missing or has no ServerApp."""
    accepted = "accepted is the directory of a Flower app, whose pyproject.toml has [tool.flwr.app.components]"
    path = directory / "pyproject.toml"
    if not path.is_file():
        raise InputError(f"{directory} has no pyproject.toml: {accepted}; {STRATEGY_ALONE}")
    try:
        project = tomllib.loads(read_text_file(path))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read ({in_a_line(error)}): {accepted}") from error
    flower = project.get("tool", {}).get("flwr", {})
    components = flower.get("app", {}).get("components", {})
    server = components.get("serverapp")
    if not isinstance(server, str) or ":" not in server:
        raise InputError(f"{path} names no serverapp as module:object (found {server!r}): {accepted}; {STRATEGY_ALONE}")
    federations = flower.get("federations", {})
    options = federations.get(federations.get("default", "local-simulation"), {}).get("options", {})
    name = project.get("project", {}).get("name", directory.name)
    client = str(components.get("clientapp", ""))
    config = flat_settings(f"{path}: tool.flwr.app.config", flower.get("app", {}).get("config", {}))
    return AppDescription(name, directory, server, client, config, options.get("num-supernodes"))


def flat_settings(source: str, settings: Mapping[str, Any], prefix: str = "") -> dict[str, bool | float | int | str]:
    """Return the settings of an app by dotted names, as Flower hands them over: `{"a": {"b": 1}}` as `{"a.b": 1}`."""
    flat: dict[str, bool | float | int | str] = {}
    for key, value in settings.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            flat |= flat_settings(source, value, f"{name}.")
        elif isinstance(value, bool | float | int | str):
            flat[name] = value
        else:
            accepted = "accepted are numbers, texts, true and false, and tables of them"
            raise InputError(f"{source}, {name} is {value!r}: {accepted}")
    return flat


def loaded(app: AppDescription, spec: str, finder: "StubImportFinder") -> object:
    """Import and return the ServerApp or the ClientApp of a Flower app."""
    module, _, attribute = spec.partition(":")
    top = module.partition(".")[0]
    if top == OWN_PACKAGE:
        raise InputError(f"{spec} is in a package called {top}, as this software is: accepted is another name")
    if str(app.directory) not in sys.path:
        # As Flower does, so that the app's own modules are found before installed ones.
        sys.path.insert(0, str(app.directory))
    try:
        return getattr(importlib.import_module(module), attribute)
    except (Exception, SystemExit) as error:
        hidden = collision_words(error, app.directory)
        raise InputError(f"{spec} cannot be imported ({in_a_line(error)}{hidden}){finder.words}") from error


class _StubMetaclass(type):
    """Metaclass of the stubs that replace packages which an app imports and which are not installed.

    Stubs are classes, so that an app can call, subclass, subscript and annotate with them.
    """

    def __getattr__(cls, name: str) -> Any:
        return _attribute(name)

    def __getitem__(cls, _: object) -> Any:
        return cls

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        # A stub that is used as a decorator returns the app's function unchanged.
        is_decorator = cls.__module__ == __name__ and len(args) == 1 and isinstance(args[0], FunctionType)
        return args[0] if is_decorator else super().__call__(*args, **kwargs)


def _attribute(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return _StubMetaclass(name, (_StandIn,), {"__module__": __name__})


class _StandIn(metaclass=_StubMetaclass):
    """Stub for an object of a package that is not installed: any call and attribute works and does nothing."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def __getattr__(self, name: str) -> Any:
        return _attribute(name)

    def __call__(self, *args: Any, **__: Any) -> Any:
        return args[0] if len(args) == 1 and isinstance(args[0], FunctionType) else _StandIn()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None: ...


def is_stand_in(module: object) -> bool:
    """Return whether an object is a stub for an object of a package that is not installed."""
    return isinstance(module, (_StandIn, _StubMetaclass))


class StubImportFinder(MetaPathFinder, Loader):
    """Import finder that provides a stub if code in one directory imports a package that is not installed.

    Other code gets the usual ImportError.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = str(directory)
        self.packages = list[str]()

    @property
    def words(self) -> str:
        """Names of the packages replaced by stubs, phrased as the end of a sentence; empty if there are none."""
        return f"; not installed here: {', '.join(self.packages)}" if self.packages else ""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> Any:
        """Return the spec of a stub for a package that is not installed; None if another finder must look for it."""
        top = fullname.partition(".")[0]
        if top not in self.packages:
            if top != fullname or not self._is_import_by_app() or PathFinder.find_spec(top, [self._directory]):
                return None
            self.packages.append(top)
        return ModuleSpec(fullname, self, is_package=True)

    def _is_import_by_app(self) -> bool:
        """Return whether the import statement that runs now is in a file of the app's directory."""
        frame = sys._getframe(2)
        while frame.f_back is not None and "importlib" in frame.f_code.co_filename:
            frame = frame.f_back
        return frame.f_code.co_filename.startswith(self._directory)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return an empty stub module; any attribute can be read from it, and is again a stub."""
        module = ModuleType(spec.name)
        module.__getattr__ = _attribute  # type: ignore[method-assign]
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing, because a stub module has no code."""
