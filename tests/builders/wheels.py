"""Wheels of this repository, unpacked as an installer does."""

import subprocess
import sys
import zipfile
from pathlib import Path


def unpacked_wheel(project: Path, directory: Path) -> Path:
    """Build the wheel of a project, and return the directory of packages that it was unpacked to."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(directory)]
    built = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    (wheel,) = directory.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(directory / "site-packages")
    return directory / "site-packages"
