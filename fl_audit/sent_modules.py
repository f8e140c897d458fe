"""Modules of the user on their way to other processes, which import them without any file."""

import sys
import sysconfig
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.abc import InspectLoader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import decode_source, spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType

from fl_audit.errors import require
from fl_audit.user_modules import OWN_PACKAGES, place_of

_MOST_CHARACTERS = 2**24
"""Of all modules together: what is larger is no directory of modules."""
_INSTALLED = frozenset({"site-packages", "dist-packages"})


@dataclass(frozen=True)
class SentModule:
    """A module on its way."""

    path: str  # where its file is on the machine that it comes from
    source: str  # its text

    @property
    def is_package(self) -> bool:
        """Whether it is the file of a package."""
        return Path(self.path).name == "__init__.py"


@dataclass(frozen=True)
class SentModules:
    """Modules on their way; when this is called in another process, they can be imported there."""

    modules: dict[str, SentModule]  # by their dotted names

    def __call__(self) -> None:
        """Let this process import them; what it may have itself of the same names is passed over."""
        known = any(isinstance(finder, _Finder) and finder.modules == self.modules for finder in sys.meta_path)
        if self.modules and not known:
            sys.meta_path.insert(0, _Finder(self.modules))


class _Finder(MetaPathFinder, InspectLoader):
    """Finds and loads modules that were sent."""

    def __init__(self, modules: dict[str, SentModule]) -> None:
        self.modules = modules

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in self.modules:
            return None
        found = self.modules[fullname]
        within = [str(Path(found.path).parent)] if found.is_package else None
        return spec_from_file_location(fullname, found.path, loader=self, submodule_search_locations=within)

    def is_package(self, fullname: str) -> bool:
        return self.modules[fullname].is_package

    def get_source(self, fullname: str) -> str:
        return self.modules[fullname].source

    def get_code(self, fullname: str) -> CodeType:
        found = self.modules[fullname]
        return self.source_to_code(found.source, found.path)


def sent_modules(names: Iterable[str]) -> SentModules:
    """Return the modules of the user that what is named needs, and those beside them; `InputError` if it is too much.

    Names such as `package.module:name` are imported already; others are passed over. Of modules that are installed
    nothing is sent: they have to be installed wherever they are needed.
    """
    tops = {name.partition(":")[0].partition(".")[0] for name in names if ":" in name}
    tops = {top for top in tops if top.isidentifier()} - set(OWN_PACKAGES)
    directories = {_directory(top) for top in tops} - {None}
    files = [(directory, file) for directory in directories if directory for file in _files(directory)]
    modules = {_name(directory, file): SentModule(str(file), source) for directory, file in files
               if (source := _source(file)) is not None}  # fmt: skip
    size = sum(len(module.source) for module in modules.values())
    require(
        size <= _MOST_CHARACTERS,
        f"the modules beside {', '.join(sorted(tops))} are {size:,} characters: accepted are {_MOST_CHARACTERS:,}, so "
        "keep them in a directory of their own",
    )
    return SentModules(modules)


def _directory(top: str) -> Path | None:
    """Return the directory that has a top-level module; None if it is installed or there is none."""
    place = place_of(top)
    if place is None or not Path(place).exists():
        return None
    found = Path(place).resolve()
    directory = found.parent.parent if found.name == "__init__.py" else found.parent
    is_installed = _INSTALLED & set(directory.parts) or directory.is_relative_to(sysconfig.get_path("stdlib"))
    return None if is_installed else directory


def _files(directory: Path) -> list[Path]:
    """Return the modules of a directory, and of those packages in it that are loaded."""
    packages = {name for name in list(sys.modules) if "." not in name and (directory / name).is_dir()}
    within = [file for name in sorted(packages - set(OWN_PACKAGES)) for file in (directory / name).rglob("*.py")]
    return [*directory.glob("*.py"), *within]


def _name(directory: Path, file: Path) -> str:
    parts = file.relative_to(directory).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _source(file: Path) -> str | None:
    try:
        return decode_source(file.read_bytes())
    except (OSError, SyntaxError, UnicodeDecodeError):  # nothing that was imported
        return None
