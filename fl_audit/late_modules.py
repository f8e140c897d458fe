"""Modules that take seconds to import, or that an installation may lack: they are imported when they are first used."""

from collections.abc import Callable, Mapping
from importlib import import_module
from types import ModuleType


def late_modules(owner: str, places: Mapping[str, str]) -> Callable[[str], ModuleType]:
    """Return the `__getattr__` of a module whose attributes are other modules, each imported when it is first used.

    Nothing is kept here, so whoever replaces a module for a test needs to do so in one place alone.

    Parameters
    ----------
    owner, places
        The name of that module, and the full name of each other module by the name that it has there.

    Examples
    --------
    >>> late = late_modules("here", {"fractions": "fractions"})
    >>> late("fractions").Fraction(1, 2)
    Fraction(1, 2)
    """

    def imported(name: str) -> ModuleType:
        if name not in places:
            raise AttributeError(f"module {owner!r} has no attribute {name!r}")
        return import_module(places[name])

    return imported
