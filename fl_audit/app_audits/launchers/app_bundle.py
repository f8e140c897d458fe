"""The hash of an app's bundle (FAB), as Flower's own command builds it."""

import subprocess
import sys
from pathlib import Path

from fl_audit.ordinary_files import sha256_of

_SECONDS = 60.0  # longest time in which Flower may build the bundle


def bundle_hash(app: Path, path: Path) -> str | None:
    """Return the SHA-256 digest of the bundle that `flwr build` makes of an app, in hexadecimal digits.

    Flower checks this digest when a run starts. None if Flower cannot build the app.

    `path`: An empty directory in which the bundle is built; the app's directory stays as it is.
    """
    program = Path(sys.executable).with_name("flwr")
    path.mkdir()
    try:
        subprocess.run(
            [str(program), "build", "--app", str(app.resolve())],
            cwd=path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=True,
            timeout=_SECONDS,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    bundles = list(path.glob("*.fab"))
    return sha256_of(bundles[0]) if len(bundles) == 1 else None
