"""Inert stand-ins for packages that an app imports and this machine lacks: most are for its clients and their data."""

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any


class _Kind(type):
    """What stand-ins are: classes, so that they can be called, subclassed, subscripted and named in annotations."""

    def __getattr__(cls, name: str) -> Any:
        return _attribute(name)

    def __getitem__(cls, _: object) -> Any:
        return cls

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        # A decorator leaves the app's function as it is.
        is_decorator = cls.__module__ == __name__ and len(args) == 1 and isinstance(args[0], FunctionType)
        return args[0] if is_decorator else super().__call__(*args, **kwargs)


def _attribute(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return _Kind(name, (_StandIn,), {"__module__": __name__})


class _StandIn(metaclass=_Kind):
    """Something that takes everything and does nothing."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def __getattr__(self, name: str) -> Any:
        return _attribute(name)

    def __call__(self, *args: Any, **__: Any) -> Any:
        return args[0] if len(args) == 1 and isinstance(args[0], FunctionType) else _StandIn()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None: ...


class StandIns(MetaPathFinder, Loader):
    """Finds stand-ins where the code of one directory imports a package that is not installed; nobody else gets one.

    Parameters
    ----------
    directory
        Where the code is.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = str(directory)
        self.packages = list[str]()

    @property
    def words(self) -> str:
        """What is missing, as the end of a sentence; empty if nothing is."""
        return f"; not installed here: {', '.join(self.packages)}" if self.packages else ""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> Any:
        """Find a stand-in for a package that nobody has found.

        Parameters
        ----------
        fullname, path, target
            As of `importlib.abc.MetaPathFinder`.
        """
        top = fullname.partition(".")[0]
        if top not in self.packages:
            if top != fullname or not self._is_asking() or PathFinder.find_spec(top, [self._directory]):
                return None
            self.packages.append(top)
        return ModuleSpec(fullname, self, is_package=True)

    def _is_asking(self) -> bool:
        """Return whether the import that goes on stands in the directory: libraries see what is really installed."""
        frame = sys._getframe(2)
        while frame.f_back is not None and "importlib" in frame.f_code.co_filename:
            frame = frame.f_back
        return frame.f_code.co_filename.startswith(self._directory)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return a module that has everything."""
        module = ModuleType(spec.name)
        module.__getattr__ = _attribute  # type: ignore[method-assign]
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing."""
