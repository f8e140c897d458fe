"""Import the user's own modules, such as `my_models`.

The user's directory is searched last. Python's default is to search it first, so a module there could shadow a package
of the same name that fl_audit needs.
"""

import importlib.util
import pickle
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar

from fl_audit.errors import InputError, in_a_line

OWN_PACKAGE = "fl_audit"
"""The only top-level package that an installation of this software adds."""

_OWN_ROOT = Path(__file__).resolve().parents[1]

T = TypeVar("T")

_searched: list[str] = []  # the directory that `search_last` put at the end, for the messages of `import_user_module`
_added: list[str] = []  # the directory beside fl_audit, where `search_last` added it to a path that did not have it


def search_last(directory: Path) -> None:
    """Move a directory to the end of `sys.path`, so that its modules never shadow others.

    The directory that contains fl_audit itself keeps its place in `sys.path` if it has one already.
    """
    path = directory.resolve()
    is_last = _searched == [str(path)] and sys.path[-1] == str(path)
    _searched[:] = [str(path)]
    if is_last:
        return
    # Modules beside fl_audit are searched for only as long as that is the user's directory.
    before = [entry for entry in sys.path if entry not in _added]
    _added.clear()
    entries = [entry for entry in before if Path(entry or ".").resolve() != path]
    if path != _OWN_ROOT:
        sys.path[:] = [*entries, str(path)]
    elif len(entries) == len(before):
        _added.append(str(path))
        sys.path[:] = [*before, str(path)]


@contextmanager
def searched_last(directory: Path) -> Iterator[None]:
    """Search a directory last, as `search_last` does, and restore `sys.path` after the `with` block."""
    searched = list(_searched)
    path = list(sys.path)
    search_last(directory)
    try:
        yield
    finally:
        _searched[:], sys.path[:] = searched, path


def import_user_module(name: str) -> ModuleType:
    """Import a module of the user by its dotted name and return it."""
    top = name.partition(".")[0]
    for directory in _searched if top else ():
        theirs = _place(importlib.machinery.PathFinder.find_spec(top, [directory]))
        other_place = place_of(top)
        if theirs is not None and other_place is not None and Path(other_place).resolve() != Path(theirs).resolve():
            whose = "fl_audit has this name" if top == OWN_PACKAGE else f"this name is taken by {other_place}"
            problem = f"module {top!r} in {directory} cannot be imported, because {whose}"
            raise InputError(f"{problem}: accepted are other names, so rename {theirs}")
    return importlib.import_module(name)


def require_named(name: str) -> None:
    """Raise `InputError` unless a name has the form `package.module:name` and its top-level module exists.

    Nothing is imported.
    """
    module, _, attribute = name.partition(":")
    meant = meant_name(name)
    if meant is not None or not module or not attribute or module.startswith("."):
        here = "" if meant is None else f", here {meant!r}"
        raise InputError(f"{name!r} names no function: accepted is package.module:name{here}")
    top = module.partition(".")[0]
    if place_of(top) is None:
        where = f" in {_searched[0]}, nor installed" if _searched else ""
        raise InputError(f"{name!r} cannot be imported: there is no module {top!r}{where}")


def meant_name(name: str) -> str | None:
    """Return the name `package.module:name` that is meant by one with a dot for the colon, or with a file's name.

    None if the name is as it should be, or nothing is known to be meant. Nothing is imported.

    Examples
    --------
    >>> meant_name("math.sqrt"), meant_name("strategies/mine.py:private"), meant_name("math:sqrt")
    ('math:sqrt', 'strategies.mine:private', None)
    """
    path, colon, attribute = name.partition(":")
    if not colon:
        path, _, attribute = name.rpartition(".")
        if attribute == "py" or not path.partition(".")[0].isidentifier() or place_of(path.partition(".")[0]) is None:
            return None
    elif not path.endswith(".py"):
        return None
    module = path.removesuffix(".py").removeprefix("./").replace("/", ".")
    is_name = all(word.isidentifier() for word in (*module.split("."), *attribute.split(".")))
    return f"{module}:{attribute}" if is_name else None


def title_of_named(name: str) -> str:
    """Return a name for titles: the part after the colon of `package.module:name`, otherwise the whole name.

    Examples
    --------
    >>> title_of_named("my_project.networks:small_net"), title_of_named("logistic")
    ('small_net', 'logistic')
    """
    return name.rpartition(":")[2]


def import_object(name: str, noun: str) -> Any:
    """Import and return the object with the name `package.module:name`."""
    require_named(name)
    module, _, attribute = name.partition(":")
    try:
        return getattr(import_user_module(module), attribute)
    except InputError as error:
        raise InputError(f"{noun} {name!r}: {error}") from error
    # A module of the user may raise anything, and may try to end the interpreter.
    except (Exception, SystemExit) as error:
        hidden = "".join(collision_words(error, Path(directory)) for directory in _searched)
        raise InputError(f"{noun} {name!r} cannot be imported ({in_a_line(error)}{hidden})") from error


def import_function(name: str, noun: str) -> Callable[..., Any]:
    """Import a user's function by its name, and return it in a wrapper.

    If the function raises an exception, the wrapper raises an `InputError` of one line.
    """
    function = import_object(name, noun)
    if not callable(function):
        raise InputError(f"{noun} {name!r} is a {type(function).__name__}: accepted is a function")

    @wraps(function)
    def called(*arguments: Any, **further: Any) -> Any:
        try:
            return function(*arguments, **further)
        except InputError:
            raise
        except (Exception, SystemExit) as error:
            raise InputError(f"{noun} {name!r} raised {in_a_line(error)}") from error

    return called


def collision_words(error: BaseException, directory: Path) -> str:
    """Return the end of an error message if another module of the same name shadows a module of the user; else ""."""
    tops = list[str]()
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ImportError) and cause.name:
            tops.append(cause.name.partition(".")[0])
        elif isinstance(cause, AttributeError) and isinstance(cause.obj, ModuleType):
            tops.append(cause.obj.__name__.partition(".")[0])
        cause = cause.__cause__ or cause.__context__
    for top in tops:
        theirs = _place(importlib.machinery.PathFinder.find_spec(top, [str(directory)]))
        other_place = place_of(top)
        if theirs is not None and other_place is not None and Path(theirs).resolve() != Path(other_place).resolve():
            ours = " of fl_audit" if top == OWN_PACKAGE else ""
            return (
                f"; {_home(theirs)} is hidden by {_home(other_place)}{ours}: both are called {top!r}, so rename "
                "the former"
            )
    return ""


def _home(name: str) -> str:
    """Return the directory that contains `name` if `name` is an `__init__.py`, and `name` itself otherwise."""
    path = Path(name)
    return str(path.parent if path.name == "__init__.py" else path)


def _place(spec: importlib.machinery.ModuleSpec | None) -> str | None:
    """Return the file of a module, or the directory of a package without a file."""
    if spec is None:
        return None
    return spec.origin or next(iter(spec.submodule_search_locations or ()), None)


def place_of(top: str) -> str | None:
    """Return the file or directory from which Python imports a top-level module; None if there is no such module."""
    loaded = sys.modules.get(top)
    if loaded is None:
        return _place(importlib.util.find_spec(top))
    return getattr(loaded, "__file__", None) or next(iter(getattr(loaded, "__path__", ())), "Python itself")


class PortableValue(Generic[T]):
    """A picklable wrapper of a value; the process that unpickles it calls `search_last` first.

    Ray puts the directory in which a run was started first in the `sys.path` of its workers. Without the wrapper, a
    worker that unpickles a value would search for the value's modules in that directory first.

    Parameters
    ----------
    value
        Value that another process gets when it unpickles this object.
    dumps
        Function that pickles the value.
    """

    def __init__(self, value: T, dumps: Callable[[T], bytes]) -> None:
        self._directory = _searched[0] if _searched else str(Path.cwd())
        self._pickled = dumps(value)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str, bytes]]:
        return _restored, (self._directory, self._pickled)


def _restored(directory: str, pickled: bytes) -> object:
    """Return the value of a `PortableValue`, whose module is searched for in `directory` after all other directories.

    The bytes come from another process of the same run, never from a file.
    """
    search_last(Path(directory))
    return pickle.loads(pickled)
