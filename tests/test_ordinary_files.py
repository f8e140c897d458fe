"""Files of users are opened in one way: ordinary ones alone, up to a size, and never waited for."""

import ast
import gzip
import os
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import fl_audit
from fl_audit import array_files, ordinary_files, parquet_files
from fl_audit.array_files import read_archive, read_array
from fl_audit.data.data_files import read_bytes
from fl_audit.errors import InputError
from fl_audit.ordinary_files import open_file, read_file, read_text_file, require_ordinary, sha256_of
from fl_audit.parquet_files import read_frame
from fl_audit.run_files import read_json
from tests.builders.refusals import assert_refused

SOURCES = Path(fl_audit.__file__).parent
OWN_FILES = {
    "ordinary_files.py": "the functions themselves",
    "array_files.py": "opened by `open_file`",
    "parquet_files.py": "read by `read_file`",
    "data/data_files.py": "opened by `open_file`",
    "data/file_format_detection.py": "content that was read",
    "data/table_text.py": "content that was read",
    "data/image_folders.py": "opened by `open_file`",
    "data/tables.py": "text that was read",
    "runs/exports/trackers.py": "content that was read",
    "learning/frozen_backbones.py": "content that was read",
    "privacy/strategy_matrices.py": "a file of this package",
    "runs/provenance.py": "what the machine says of its processor",
    "data/builtin.py": "data of scikit-learn",
    "app_audits/launchers/isolated_process.py": "a pipe to a process of this program, and its log",
    "app_audits/launchers/review_launcher.py": "a log that this program writes",
    "app_audits/black_box/transcript_store.py": "a file that this program writes",
}
"""Modules with a call that opens a file or reads its content, and why it is no user's file that is opened there."""
OPENING = {
    "open",
    "read_text",
    "read_bytes",
    "load_file",
    "safe_open",
    "from_filelike",
    "fromfile",
    "loadtxt",
    "genfromtxt",
    "memmap",
    "ParquetFile",
    "ZipFile",
    "TarFile",
    "GzipFile",
    "read_csv",
    "read_parquet",
    "read_excel",
    "read_table",
    "read_feather",
    "read_pickle",
    "fdopen",
    "imread",
}
OPENING_OF = {
    ("np", "load"),
    ("numpy", "load"),
    ("torch", "load"),
    ("tomllib", "load"),
    ("json", "load"),
    ("pickle", "load"),
}


def opens(call: ast.Call) -> bool:
    match call.func:
        case ast.Name(name):
            return name in OPENING - {"read_text", "read_bytes"}  # as functions these are those of `data.data_files`
        case ast.Attribute(ast.Name(owner), name):
            return name in OPENING or (owner, name) in OPENING_OF
        case ast.Attribute(_, name):
            return name in OPENING
    return False


def test_no_module_opens_a_file_of_a_user_otherwise() -> None:
    file_names = set()
    parties = [SOURCES / party for party in ("clients", "server", "strategies")]
    for path in (path for directory in (SOURCES, *parties) for path in directory.rglob("*.py")):
        name = path.relative_to(SOURCES).as_posix()
        calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call) and opens(node)]
        if calls and not name.startswith("experiments/"):
            file_names.add(name)
    assert file_names == set(OWN_FILES)


def test_a_pipe_is_not_waited_for_and_a_device_not_read(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    link = tmp_path / "zero"
    os.mkfifo(pipe)
    link.symlink_to("/dev/zero")
    for path, kind in ((pipe, "pipe"), (link, "device")):
        for read in (read_file, read_text_file, sha256_of, read_bytes, read_array, read_frame, open_file):
            assert_refused(rf"{path.name} is a {kind}: accepted", read, path)
    with pytest.raises(IsADirectoryError):
        read_file(tmp_path)


def test_a_file_without_end_ends_at_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "long"
    path.write_bytes(b"x" * 100)
    assert_refused("more than 99 bytes", read_file, path, largest=99)
    assert read_file(path, largest=100) == b"x" * 100
    monkeypatch.setattr(ordinary_files, "_CHUNK", 16)
    assert read_file(path) == b"x" * 100
    for name in ("kmsg", "self/status", "self/mem"):
        assert_refused("is a file of the system: accepted are files", read_file, Path("/proc") / name)


@pytest.mark.parametrize("name", ["a\0b", "long" * 2000])
def test_what_is_no_path_is_said_in_a_line(name: str, tmp_path: Path) -> None:
    with pytest.raises((InputError, OSError)) as refused:
        read_file(tmp_path / name)
    assert "\n" not in str(refused.value)
    assert len(str(assert_refused("accepted", require_ordinary, name, tmp_path / name))) < 300


def test_what_becomes_too_large_is_refused_before_memory_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (array_files, parquet_files):
        monkeypatch.setattr(module, "LARGEST_FILE", 10_000)
    np.savez_compressed(tmp_path / "a.npz", x=np.zeros(1251), y=np.ones(4))
    assert_refused("more than 10,000 decompressed bytes", read_archive, tmp_path / "a.npz", ["x"])
    assert read_archive(tmp_path / "a.npz", ["y"])["y"].tolist() == [1, 1, 1, 1]
    pd.DataFrame({"x": np.zeros(2000)}).to_parquet(tmp_path / "a.parquet")
    assert_refused("more than 10,000 decompressed bytes", read_frame, tmp_path / "a.parquet")
    packed = gzip.compress(bytes(10_001)) + gzip.compress(b"x")
    assert_refused("more than 10,000 decompressed bytes", ordinary_files.unpacked, packed, tmp_path / "a.gz", 10_000)
    assert len(ordinary_files.unpacked(packed, tmp_path / "a.gz", 10_002)) == 10_002


def spoilt(kind: str, content: bytes) -> bytes:
    """Return an archive with a flipped byte, an encrypted member or a header that claims too much."""
    match kind:
        case "flipped":
            middle = len(content) // 3
            return content[:middle] + bytes([content[middle] ^ 0xFF]) + content[middle + 1 :]
        case "encrypted":
            flags = content.index(b"PK\1\2") + 8  # of the first entry of the directory
            return content[:flags] + b"\1" + content[flags + 1 :]
        case "cut":
            return content[: len(content) // 2]
        case _:
            return content[:2] + b"\5\7garbage" + content[11:]


@pytest.mark.parametrize("kind", ["flipped", "encrypted", "cut", "garbage"])
def test_damaged_archives_are_said_in_a_line(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez_compressed(path, x=np.random.default_rng(0).normal(size=300))
    path.write_bytes(spoilt(kind, path.read_bytes()))
    assert_refused("accepted is", read_archive, path, ["x"])


def test_a_header_that_claims_more_than_the_file_has_is_refused(tmp_path: Path) -> None:
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (400000000000,), }"
    array = b"\x93NUMPY\1\0" + len(header).to_bytes(2, "little") + header + bytes(80)
    (tmp_path / "a.npy").write_bytes(array)
    assert_refused("an array of 3,200,000,000,000 bytes in a file of", read_array, tmp_path / "a.npy")
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("x.npy", array)
    assert_refused("an array of 3,200,000,000,000 bytes", read_archive, tmp_path / "a.npz", ["x"])


@pytest.mark.parametrize("constant", ["NaN", "Infinity", "-Infinity"])
def test_json_with_a_number_that_json_does_not_have_is_refused(constant: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(f'{{"epsilon": {constant}}}')
    assert_refused(rf"a\.json cannot be read: it has {constant}", read_json, tmp_path / "a.json")
