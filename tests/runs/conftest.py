"""Fixtures that tests of runs share."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from fl_audit.runs.signed_statement import new_key


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return new keys of an officer and an engineer, by these names."""
    directory = tmp_path_factory.mktemp("keys")
    paths = {name: directory / name for name in ("officer", "engineer")}
    for path in paths.values():
        new_key(path)
    return paths


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a disk of 160 KB, with room for some batches, where this machine lets the test have one."""
    disk_directory = tmp_path / "disk"
    disk_directory.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=160k", "none", str(disk_directory)]
    if os.name != "posix" or os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("a small disk is mounted, which only root may")
    yield disk_directory
    subprocess.run(["umount", str(disk_directory)], check=True)
