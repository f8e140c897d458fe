"""Files appear whole or not at all."""

from pathlib import Path

import pytest

from fl_audit.atomic_files import atomic_file


def write(path: Path, content: str, fails: bool = False) -> None:
    with atomic_file(path) as file:
        file.write_text(content)
        if fails:
            raise OSError("disk full")


def test_a_failed_write_leaves_the_old_file_and_no_rest(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "report.html"
    write(path, "old")
    with pytest.raises(OSError, match="disk full"):
        write(path, "new", fails=True)
    assert path.read_text() == "old"
    assert list(path.parent.iterdir()) == [path]
    write(path, "new")
    assert path.read_text() == "new"
