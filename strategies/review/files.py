"""What a strategy writes while it plays: noticed, and taken away before the next game."""

import shutil
from pathlib import Path


class Kept:
    """A directory that is kept as it was.

    Parameters
    ----------
    directory
        The directory.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._first = self._listed()
        self.is_written = False

    def tidied(self) -> None:
        """Remove what has been added since."""
        added = self._listed() - self._first
        self.is_written = self.is_written or bool(added)
        for path in added:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)

    def _listed(self) -> set[Path]:
        # Python's own bytecode is no work of the app.
        return {path for path in self._directory.rglob("*") if "__pycache__" not in path.parts}
