"""Digests of the code and settings of a Flower app's strategy and clients.

Trials are stored with such a digest, so that an audit continues only trials of the same code and settings.
"""

import functools
import inspect
import sys
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from flwr.app import ConfigRecord
from flwr.clientapp import ClientApp
from flwr.server.strategy import Strategy as OldStrategy
from flwr.serverapp.strategy import Strategy

from fl_audit.ordinary_files import read_text_file

_FRAMES = 50  # number of call frames above a mod that are searched for its ClientApp


def fingerprint(strategy: object, arguments: Mapping[str, object] | None = None) -> str:
    """Return a digest, 12 hexadecimal digits, of the code and settings of a strategy and of all strategies it wraps.

    Settings are numbers, booleans, and strings of letters, hyphens and underscores. Other strings do not count, because
    many are file names with a timestamp, which differ between equal runs. The code is the text of the app's modules
    that define the strategy, and of the app's modules that these import. Of an installed library, only the text of the
    strategy's class counts.

    `arguments`: None for no arguments.
    """
    records = {name: value for name, value in (arguments or {}).items() if isinstance(value, ConfigRecord)}
    lines = [f"{name}: {line}" for name, config in sorted(records.items()) for line in _settings(config)]
    return _digest([*_of_strategy(strategy), *lines])


def client_fingerprint(call_next: object, config: Mapping[str, object]) -> str:
    """Return a digest, 12 hexadecimal digits, of the functions, mods and settings of the running ClientApp.

    Only a mod may call this function, because it searches its callers for the ClientApp.

    `config`: Only numbers, booleans, and strings of letters, hyphens and underscores enter the digest.
    """
    app = _calling_app()
    elements = [call_next] if app is None else [*app._mods, app._call, *app._registered_funcs.values()]
    visited = set[int]()
    lines = [line for element in elements for line in _of_callable(element, visited)]
    return _digest([*lines, *_settings(config)])


def joined(*digests: str) -> str:
    """Return one digest, 12 hexadecimal digits, of several digests; their order and repetitions do not matter."""
    return _digest(sorted(set(digests)))


def _digest(lines: Sequence[str]) -> str:
    return sha256("\n".join(lines).encode()).hexdigest()[:12]


def _of_strategy(strategy: object) -> list[str]:
    lines = [_source(kind) for kind in type(strategy).__mro__[:-1]]
    for name, value in sorted(vars(strategy).items()):
        if isinstance(value, (Strategy, OldStrategy)):
            lines += [name, *_of_strategy(value)]
        elif isinstance(value, FunctionType):
            lines += [name, _source(value)]
    return [*lines, *_settings(vars(strategy))]


def _of_callable(function: object, visited: set[int]) -> list[str]:
    """Return lines with the code and settings of a callable, and of the callables that it wraps or closes over.

    `visited` has the IDs of the callables that were visited already.
    """
    if id(function) in visited or function is None:
        return []
    visited.add(id(function))
    if isinstance(function, functools.partial):
        closed_over: dict[Any, Any] = {**dict(enumerate(function.args)), **function.keywords}
        inner = [function for function in (function.func, *closed_over.values()) if callable(function)]
        return [line for function in inner for line in _of_callable(function, visited)] + _settings(closed_over)
    if not isinstance(function, FunctionType):
        kind = function if isinstance(function, type) else type(function)
        return [_source(kind), *_settings(getattr(function, "__dict__", {}))] if callable(function) else []
    cells = dict(
        zip(function.__code__.co_freevars, (cell.cell_contents for cell in function.__closure__ or ()), strict=True)
    )
    inner = [value for value in cells.values() if callable(value)]
    return [
        _source(function),
        *_settings(cells),
        *(line for function in inner for line in _of_callable(function, visited)),
    ]


def _settings(settings: Mapping[Any, object]) -> list[str]:
    return sorted(f"{name} = {value!r}" for name, value in settings.items() if _is_setting(value))


def _is_setting(value: object) -> bool:
    """Return whether a value is a number, a boolean, a word of letters, hyphens and underscores, or a list of these."""
    if isinstance(value, (list, tuple)):
        return all(_is_setting(element) for element in value)
    is_word = isinstance(value, str) and value.replace("-", "").replace("_", "").isalpha()
    return is_word or isinstance(value, (bool, int, float))


def _source(function: type | FunctionType) -> str:
    """Return the source of the app's module that defines an object, and of the app's modules that this module uses.

    If an installed library defines the object, only the object's own source is returned. If there is no source file,
    the object's name is returned.
    """
    module = sys.modules.get(function.__module__)
    path = getattr(module, "__file__", None)
    try:
        if module is None or path is None or _is_installed(path):
            return inspect.getsource(function)
        root = Path(path).parents[module.__name__.count(".") + Path(path).stem.startswith("__init__")]
        return "\n".join(read_text_file(Path(file)) for file in sorted(set(_files(module, root, set()))))
    except (OSError, TypeError, IndexError):  # no source file, as for generated or compiled code
        return function.__qualname__


def _is_installed(path: str) -> bool:
    return "site-packages" in path or path.startswith((sys.prefix, sys.base_prefix))


def _files(module: ModuleType, root: Path, visited: set[str]) -> Iterator[str]:
    """Yield the paths of a module and, recursively, of the app's modules under `root` whose objects it uses."""
    path = getattr(module, "__file__", None)
    if module.__name__ in visited or not path or _is_installed(path) or not Path(path).is_relative_to(root):
        return
    visited.add(module.__name__)
    yield path
    for value in list(vars(module).values()):
        name = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
        other_module = sys.modules.get(name) if isinstance(name, str) else None
        if other_module is not None:
            yield from _files(other_module, root, visited)


def _calling_app() -> ClientApp | None:
    """Return the innermost ClientApp among the callers of this function; None if there is none within 50 frames."""
    frame = inspect.currentframe()
    for _ in range(_FRAMES):
        frame = frame.f_back if frame else None
        if frame and isinstance(caller := frame.f_locals.get("self"), ClientApp):
            return caller
    return None
