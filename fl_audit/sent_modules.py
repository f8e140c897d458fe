"""Send the user's modules to other processes, which can then import them."""

import sys
import sysconfig
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.abc import InspectLoader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import decode_source, spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType

from fl_audit.errors import InputError, require
from fl_audit.ordinary_files import LARGEST_TEXT, read_file
from fl_audit.user_modules import OWN_PACKAGE, place_of

_MOST_CHARACTERS = 2**24
"""Largest total size of the modules in characters; a larger directory is surely no directory of modules."""
_INSTALLED = frozenset({"site-packages", "dist-packages"})


@dataclass(frozen=True)
class SentModule:
    """The source of a module, to be sent to another process."""

    path: str  # path of the module's file on the machine from which it is sent
    source: str  # text of the module

    @property
    def is_package(self) -> bool:
        """True if the module is the `__init__.py` of a package."""
        return Path(self.path).name == "__init__.py"


def make_importable(modules: dict[str, SentModule]) -> None:
    """Make modules, by their dotted names, importable in this process, before its own modules of the same names."""
    is_known = any(isinstance(finder, _Finder) and finder.modules == modules for finder in sys.meta_path)
    if modules and not is_known:
        sys.meta_path.insert(0, _Finder(modules))


class _Finder(MetaPathFinder, InspectLoader):
    def __init__(self, modules: dict[str, SentModule]) -> None:
        self.modules = modules

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in self.modules:
            return None
        module = self.modules[fullname]
        within = [str(Path(module.path).parent)] if module.is_package else None
        return spec_from_file_location(fullname, module.path, loader=self, submodule_search_locations=within)

    def is_package(self, fullname: str) -> bool:
        return self.modules[fullname].is_package

    def get_source(self, fullname: str) -> str:
        return self.modules[fullname].source

    def get_code(self, fullname: str) -> CodeType:
        module = self.modules[fullname]
        return self.source_to_code(module.source, module.path)


def sent_modules(names: Iterable[str]) -> dict[str, SentModule]:
    """Return the sources, by dotted name, of the user's modules that are named by `package.module:name`.

    All modules in the same directories are included. The modules must be imported already; names of another form are
    ignored. Installed modules are left out, because every process must have them installed. Raises `InputError` if the
    modules are too large.
    """
    tops = {name.partition(":")[0].partition(".")[0] for name in names if ":" in name}
    tops = {top for top in tops if top.isidentifier()} - {OWN_PACKAGE}
    modules = dict[str, SentModule]()
    for directory in {directory for top in tops if (directory := _directory(top)) is not None}:
        for file in _files(directory):
            *packages, last = file.relative_to(directory).with_suffix("").parts
            with suppress(OSError, InputError, SyntaxError, UnicodeDecodeError):  # nothing that was imported
                name = ".".join(packages if last == "__init__" else (*packages, last))
                modules[name] = SentModule(str(file), decode_source(read_file(file, LARGEST_TEXT)))
    size = sum(len(module.source) for module in modules.values())
    beside = ", ".join(sorted(tops))
    accepted = f"accepted are {_MOST_CHARACTERS:,}, so keep them in a directory of their own"
    require(size <= _MOST_CHARACTERS, f"the modules beside {beside} are {size:,} characters: {accepted}")
    return modules


def _directory(top: str) -> Path | None:
    """Return the directory that contains a top-level module; None if it is installed or does not exist."""
    name = place_of(top)
    if name is None or not Path(name).exists():
        return None
    path = Path(name).resolve()
    directory = path.parent.parent if path.name == "__init__.py" else path.parent
    is_installed = _INSTALLED & set(directory.parts) or directory.is_relative_to(sysconfig.get_path("stdlib"))
    return None if is_installed else directory


def _files(directory: Path) -> list[Path]:
    """Return the Python files directly in a directory, and those in its packages that are imported."""
    packages = {name for name in list(sys.modules) if "." not in name and (directory / name).is_dir()}
    within = [file for name in sorted(packages - {OWN_PACKAGE}) for file in (directory / name).rglob("*.py")]
    return [*directory.glob("*.py"), *within]
