"""Modules that take seconds to import, or that may not be installed: they are imported at first use."""

from collections.abc import Callable, Iterable
from importlib import import_module
from types import ModuleType


def lazy_modules(owner: str, places: Iterable[str]) -> Callable[[str], ModuleType]:
    """Return the `__getattr__` of a module whose attributes are other modules, each imported at first use.

    Nothing is cached here, so a test replaces a module in one place alone.

    Parameters
    ----------
    owner
        Full name of the module.
    places
        Full names of the other modules, each of which becomes an attribute under the last part of its name.

    Examples
    --------
    >>> modules = lazy_modules("here", ["fractions", "collections.abc"])
    >>> modules("fractions").Fraction(1, 2)
    Fraction(1, 2)
    >>> modules("abc").__name__
    'collections.abc'
    """

    by_name = {place.rpartition(".")[2]: place for place in places}

    def imported(name: str) -> ModuleType:
        if name not in by_name:
            raise AttributeError(f"module {owner!r} has no attribute {name!r}")
        return import_module(by_name[name])

    return imported
