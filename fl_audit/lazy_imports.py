"""Import modules at their first use, because they take seconds to import or may not be installed."""

from collections.abc import Callable, Iterable
from importlib import import_module
from types import ModuleType


def lazy_modules(owner: str, places: Iterable[str]) -> Callable[[str], ModuleType]:
    """Return a function for a module's `__getattr__`, which imports other modules when they are accessed.

    Parameters
    ----------
    owner
        Full name of the module that gets the `__getattr__`.
    places
        Full names of the modules to import; the last part of each name is the name of the attribute.

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
