"""The data directory, and the paths of data files and folders in it or named by a user."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from fl_audit.errors import InputError
from fl_audit.value_checks import expanded_path

DATA_DIRECTORY_VARIABLE = "FL_AUDIT_DATA"  # environment variable that names the data directory where no other is given

_HOW = f"give the directory that holds it with --data-dir or {DATA_DIRECTORY_VARIABLE}"
_SHOKRI = "https://github.com/privacytrustlab/datasets"
_SOURCES = {
    "adult": "https://archive.ics.uci.edu/dataset/2/adult",
    "mnist": "https://github.com/cvdfoundation/mnist, the writers at https://github.com/facebookresearch/qmnist",
    "location30": _SHOKRI,
    "purchase100": _SHOKRI,
    "texas100": _SHOKRI,
}
"""Addresses of published data sets, by the folder in which each usually lies."""


def data_directory(path_given: str | None) -> Path | None:
    """Return the absolute path of the data directory: `path_given`, else the value of FL_AUDIT_DATA, else None."""
    chosen = path_given or os.environ.get(DATA_DIRECTORY_VARIABLE)
    return expanded_path(chosen).absolute() if chosen else None


def locate(directory: Path | None, folder: str, *names: str) -> list[Path]:
    """Return the path of each named file, plain or gzipped, in `directory`/`folder` or in `directory`.

    `directory`: `InputError` is raised if it is None or lacks a file.
    """
    return [locate_any(directory, folder, (name, f"{name}.gz")) for name in names]


def locate_any(directory: Path | None, folder: str, names: Sequence[str]) -> Path:
    """Return the path of the first file that exists among several names, in `directory`/`folder` or in `directory`."""
    wanted_names = " or ".join(names)
    remedy = _HOW
    if (source := _SOURCES.get(folder)) is not None:
        remedy = f"{_HOW}; {folder} is published at {source}"
    if directory is None:
        raise InputError(f"no data directory to look for {wanted_names} in: {remedy}")
    if not directory.is_dir():
        raise InputError(f"data directory {directory} does not exist, looking for {wanted_names}: {remedy}")
    paths = [path / name for path in (directory / folder, directory) for name in names]
    if found := next((path for path in paths if path.is_file()), None):
        return found
    raise InputError(f"{wanted_names} not found in {directory / folder} or {directory}: {remedy}")


def resolve(directory: Path | None, path: str, kind: Literal["file", "folder"] = "file") -> Path:
    """Return the absolute path of an existing file or folder that a user named."""
    first = expanded_path(path).absolute()
    candidates = [first] if directory is None else [first, directory / path]
    for candidate in candidates:
        if candidate.is_file() if kind == "file" else candidate.is_dir():
            return candidate
    tried = " or ".join(map(str, dict.fromkeys(candidates)))
    start = f"the directory that a relative path starts from with --data-dir or {DATA_DIRECTORY_VARIABLE}"
    raise InputError(f"{kind} {tried} not found: give an existing {kind}, or {start}")
