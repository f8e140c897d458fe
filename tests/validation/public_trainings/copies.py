"""Copies of public code: files of a clone, with edits, as modules whose missing packages have small stand-ins."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from fl_audit.errors import InputError


@dataclass(frozen=True)
class Edit:
    """A change of a line of a copy."""

    at: str  # part of the text; it stands there once
    by: str  # its replacement
    file: str  # the end of the file's path


def applied(text: str, edits: Sequence[Edit], name: str) -> str:
    """Return a text with its edits.

    `name` is the path of the file, by which its edits are found. `InputError` is raised if the text has the place of an
    edit not exactly once.
    """
    for edit in edits:
        if not name.endswith(edit.file):
            continue
        if (times := text.count(edit.at)) != 1:
            raise InputError(f"{name} has {edit.at.strip()!r} {times} times: accepted is the commit that is named")
        text = text.replace(edit.at, edit.by)
    return text


@contextmanager
def among_modules(modules: Mapping[str, ModuleType]) -> Iterator[None]:
    """Let modules be imported by their names meanwhile."""
    before = {name: sys.modules.get(name) for name in modules}
    sys.modules.update(modules)
    try:
        yield
    finally:
        for name, module in before.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module


def module_of(
    path: Path, name: str, edits: Sequence[Edit] = (), beside: Mapping[str, ModuleType] | None = None
) -> ModuleType:
    """Return a file as a module, which is not left among those of Python.

    `beside` has stand-ins for modules that the file imports and that are not installed.
    """
    module = ModuleType(name)
    text = applied(path.read_text(encoding="utf-8"), edits, path.as_posix())
    module.__file__ = str(path)
    with among_modules({**(beside or {}), name: module}):
        exec(compile(text, str(path), "exec"), module.__dict__)  # that is what this is for
    return module


def stand_in(name: str, **values: Any) -> ModuleType:
    """Return a module with some values."""
    module = ModuleType(name)
    vars(module).update(values)
    return module


def _nothing(*_: Any, **__: Any) -> Any:
    return lambda function: function


def without_pictures() -> dict[str, ModuleType]:
    """Return stand-ins for torchvision, whose transforms do nothing."""
    names = ("Compose", "ToTensor", "Normalize", "RandomCrop", "RandomHorizontalFlip")
    transforms = stand_in("torchvision.transforms", **dict.fromkeys(names, _nothing))
    datasets = stand_in("torchvision.datasets", CIFAR10=None, MNIST=None)
    vision = stand_in("torchvision", transforms=transforms, datasets=datasets)
    return {"torchvision": vision, "torchvision.transforms": transforms, "torchvision.datasets": datasets}
