"""Writing of a report's files, each whole or not at all."""

import os
from pathlib import Path

from fl_audit.report.contents import RunContents
from fl_audit.report.figures import draw_all
from fl_audit.report.html import render_html


def write_report(contents: RunContents, directory: Path) -> Path:
    """Write `figures/<name>.png` and `report.html` into a directory and return the path of the page.

    Everything is drawn before the first file is written. Each file gets a temporary name in its own directory and is
    then moved into place, so that a reader never finds half of one.

    Parameters
    ----------
    contents
        What the report is made of.
    directory
        Where to write; made where it is missing. A report that is there already is replaced.
    """
    figures = draw_all(contents)
    page = render_html(contents, figures)
    for name, png in figures.items():
        write_whole(directory / "figures" / f"{name}.png", png)
    path = directory / "report.html"
    write_whole(path, page.encode("utf-8"))
    return path


def write_whole(path: Path, content: bytes) -> None:
    """Write a file whole or not at all, making its directory where it is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        temporary.write_bytes(content)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
