"""Fixtures with the published data files, and with small files of the same formats."""

import gzip
import os
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

COMPLETE = (
    "39, State-gov, 77516, Bachelors, 13, Never-married, Adm-clerical, Not-in-family, White, Male, 2174, 0, 40, "
    "United-States, <=50K"
)
RICH = "52, Private, 209642, Masters, 14, Divorced, Sales, Unmarried, Black, Female, 0, 10, 60, India, >50K"
INCOMPLETE = "54, ?, 180211, Some-college, 10, Married-civ-spouse, ?, Husband, White, Male, 0, 0, 60, South, >50K"


@pytest.fixture(scope="session")
def published() -> str:
    """The data directory with the published files."""
    beside = Path(__file__).resolve().parents[3] / "shared" / "data"
    directory = Path(os.environ.get("FL_AUDIT_DATA", str(beside)))
    if not (directory / "adult").is_dir() or not (directory / "mnist").is_dir():
        pytest.skip("no published data files: set FL_AUDIT_DATA to a directory with the folders adult and mnist")
    return str(directory)


@pytest.fixture
def adult_dir(tmp_path: Path) -> Path:
    """A data directory with a small Adult in plain files."""
    (tmp_path / "adult.data").write_text("\n".join([COMPLETE, RICH, INCOMPLETE, "", ""]))
    test = ["|1x3 Cross validator", COMPLETE + ".", RICH.replace("60, India", "99, India") + ".", INCOMPLETE + ".", ""]
    (tmp_path / "adult.test").write_text("\n".join(test))
    return tmp_path


@pytest.fixture
def write_idx() -> Callable[[Path, np.ndarray], Path]:
    """Return a function that writes a byte array as an IDX file, gzipped if the file's name says so."""

    def write(path: Path, values: np.ndarray) -> Path:
        header = struct.pack(f">BBBB{values.ndim}I", 0, 0, 8, values.ndim, *values.shape)
        content = header + values.astype(np.uint8).tobytes()
        path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
        return path

    return write
