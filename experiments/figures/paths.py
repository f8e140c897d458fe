"""Where commands may write a figure."""

from pathlib import Path

from fl_audit.errors import require

_FORMATS = (".png", ".pdf", ".svg")


def require_figure_path(path: Path) -> None:
    """Raise `InputError` unless a figure can be written there: a known ending, an existing directory."""
    require(path.suffix in _FORMATS, f"figure {path} ends in {path.suffix!r}: accepted are {', '.join(_FORMATS)}")
    require(path.absolute().parent.is_dir(), f"figure {path}: its directory does not exist")
