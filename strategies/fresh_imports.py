"""Import the modules of a class of somebody else anew, so that what they hold, such as generators, begins anew too."""

import os
import sys
import sysconfig
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TypeVar

from fl_audit.strategies.trial_batch_strategy import TrialBatchStrategy

Strategy = TypeVar("Strategy", bound=TrialBatchStrategy)
_INSTALLED = tuple(Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib", "purelib", "platlib"))
_OURS = "fl_audit"


def imported_anew(strategy: type[Strategy]) -> type[Strategy] | None:
    """Return a class as its module defines it when it is imported anew, with the user's modules that it imports.

    The modules that are imported stay as they are. None if the class cannot be imported, such as one that is defined
    inside of a function or in a notebook.
    """
    modules = {name: module for name, module in sys.modules.items() if _is_of_user(name, module)}
    if strategy.__module__ not in modules or "<locals>" in strategy.__qualname__:
        return None
    for name in modules:
        del sys.modules[name]
    try:
        attribute: object = import_module(strategy.__module__)
        for name_part in strategy.__qualname__.split("."):
            attribute = getattr(attribute, name_part)
    except Exception:  # a module of somebody else may refuse to be imported twice in any way
        return None
    finally:
        for name in [name for name, module in sys.modules.items() if _is_of_user(name, module)]:
            del sys.modules[name]
        sys.modules.update(modules)
    return attribute if isinstance(attribute, type) and issubclass(attribute, TrialBatchStrategy) else None  # type: ignore[return-value]


def _is_of_user(name: str, module: ModuleType) -> bool:
    """Return whether a module is neither ours nor installed: one that a user wrote and imported."""
    file = getattr(module, "__file__", None)
    if file is None or name == "__main__" or name.partition(".")[0] == _OURS:
        return False
    # There are thousands of modules, and the path of each as an object would take ten times as long.
    return not _is_installed(os.path.dirname(file))


@cache
def _is_installed(directory: str) -> bool:
    """Return whether a directory belongs to Python or to its installed packages."""
    path = Path(directory).resolve()
    return any(path.is_relative_to(installed) for installed in _INSTALLED)
