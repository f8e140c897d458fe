"""Wheels of this repository, unpacked as an installer does."""

import subprocess
import sys
import zipfile
from pathlib import Path


def unpacked_wheel(project: Path, place: Path) -> Path:
    """Build the wheel of a project, and return the directory of packages that it was unpacked to."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(place)]
    built = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    (wheel,) = place.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(place / "site-packages")
    return place / "site-packages"
