"""Paths to which commands may write a figure."""

from pathlib import Path
from typing import TYPE_CHECKING

from fl_audit.atomic_files import atomic_file
from fl_audit.errors import require

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_FORMATS = (".png", ".pdf", ".svg")


def require_figure_path(path: Path) -> None:
    """Raise `InputError` unless the path has the extension of a figure, and its directory exists."""
    require(path.suffix in _FORMATS, f"figure {path} ends in {path.suffix!r}: accepted are {', '.join(_FORMATS)}")
    require(path.absolute().parent.is_dir(), f"figure {path}: its directory does not exist")


def save_figure(figure: "Figure", path: Path, dpi: float | str = "figure") -> None:
    """Write a figure to a file atomically.

    Parameters
    ----------
    figure
        The figure.
    dpi
        Dots per inch.
    path
        A .png, .pdf or .svg file.
    """
    require_figure_path(path)
    with atomic_file(path) as file:
        figure.savefig(file, dpi=dpi)
