"""Files to which commands write figures."""

from pathlib import Path
from typing import TYPE_CHECKING

from fl_audit.atomic_files import atomic_file
from fl_audit.errors import require
from fl_audit.words import name_list

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_FORMATS = (".png", ".pdf", ".svg")


def require_figure_path(path: Path) -> None:
    """Raise `InputError` if a path does not end in .png, .pdf or .svg, or if its directory does not exist."""
    require(path.suffix in _FORMATS, f"figure {path} ends in {path.suffix!r}: accepted are {name_list(_FORMATS)}")
    require(path.absolute().parent.is_dir(), f"figure {path}: its directory does not exist")


def save_figure(figure: "Figure", path: Path, dpi: float | str = "figure") -> None:
    """Write a figure atomically to a file.

    Parameters
    ----------
    figure
        Matplotlib figure.
    path
        Path of the file, which ends in .png, .pdf or .svg.
    dpi
        Dots per inch; "figure" takes the figure's own resolution.
    """
    require_figure_path(path)
    with atomic_file(path) as file:
        figure.savefig(file, dpi=dpi)
