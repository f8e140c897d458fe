"""Tests of file formats: CSV, workbook and Parquet tables hold the same records, and other kinds of files are named."""

import datetime
import gzip
import sqlite3
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal

from fl_audit.data import table_text
from fl_audit.data.file_format_detection import file_format_phrase
from fl_audit.data.loaded_dataset import LoadedDataset
from fl_audit.data.numpy_archives import load_npz
from fl_audit.data.table_text import read_table_text
from fl_audit.errors import Remedy
from tests.builders.refusals import assert_refused
from tests.builders.tables import archive, load_table
from tests.builders.workbooks import write_workbook

pytestmark = pytest.mark.usefixtures("small_working_directory")

ROWS = 30
TABLE = pd.DataFrame(
    {
        "age": [20 + row for row in range(ROWS)],
        "crp": [0.1 * row + 0.05 for row in range(ROWS)],
        "ward": ['we"st', "e,ast", "north"] * (ROWS // 3),
        "seen": [datetime.date(2024, 1, 1) + datetime.timedelta(row) for row in range(ROWS)],
        "ok": [row % 4 == 0 for row in range(ROWS)],
        "outcome": ["ill", "well"] * (ROWS // 2),
    }
)
TEXT = TABLE.to_csv(index=False)


def load(name: str, label: str = "outcome", **options: object) -> LoadedDataset:
    return load_table(Path(name), label, **options)


def rows(frame: pd.DataFrame = TABLE) -> list[list[object]]:
    return [list(frame.columns), *frame.astype(object).to_numpy().tolist()]


def archived(inside: str) -> None:
    with zipfile.ZipFile("t", "w") as archive:
        archive.writestr(inside, b"x")


WRITTEN: dict[str, tuple[Callable[[], object], dict[str, object]]] = {
    "spaces": (lambda: Path("t").write_text(TABLE.assign(ward=TABLE.ward.str[:3]).to_string(index=False)), {}),
    "spaces, named": (lambda: Path("t").write_text(TEXT.replace(",ast", "ast").replace(",", "  ")), {"separator": " "}),
    "tabs as a shell hands them on": (lambda: TABLE.to_csv("t", sep="\t", index=False), {"separator": "\\t"}),
    "a title": (lambda: Path("t").write_text(f"Report, of 2025\n\n{TEXT}"), {"skip_lines": 2}),
    "blank lines above": (lambda: Path("t").write_text(f"\n\n{TEXT}"), {}),
    "a workbook": (lambda: write_workbook(Path("t"), {"Data": rows(), "Empty": []}), {}),
    "a sheet below a title": (
        lambda: write_workbook(Path("t"), {"Data": [["Report"], [], *rows()], "Old": [["x"]]}),
        {"sheet": "Data", "skip_lines": 2},
    ),
    "Parquet": (lambda: TABLE.to_parquet("t"), {}),
    "Parquet with the numbers of its rows": (lambda: TABLE.iloc[::-1].iloc[::-1].to_parquet("t", index=True), {}),
    "gzipped Parquet": (lambda: Path("t").write_bytes(gzip.compress(TABLE.to_parquet())), {}),
}


@pytest.mark.parametrize("format_name", WRITTEN)
def test_every_way_to_write_a_table_holds_the_same_records(format_name: str) -> None:
    Path("plain.csv").write_text(TEXT)
    expected = load("plain.csv")
    write, options = WRITTEN[format_name]
    write()
    dataset = load("t", **options)
    assert_array_equal(dataset.pool.labels, expected.pool.labels)
    if not format_name.startswith("spaces"):  # words with a separator inside were changed
        assert_array_equal(dataset.pool.features, expected.pool.features)
        assert [column.detail for column in dataset.columns] == [column.detail for column in expected.columns]
    assert dataset.pool.features.shape == expected.pool.features.shape


def test_what_is_missing_in_a_workbook_or_parquet_is_missing() -> None:
    frame = TABLE.assign(crp=[None, *TABLE.crp[1:]])
    frame.to_parquet("t.parquet")
    write_workbook(Path("t.xlsx"), {"Data": [*rows(TABLE)[:1], [20, None, *rows()[1][2:]], *rows()[2:], []]})
    for name in ("t.parquet", "t.xlsx"):
        assert_refused(r"missing value .* crp, row 1", load, name)
        assert len(load(name, missing=()).pool) == ROWS - 1


def test_lists_in_parquet_are_refused_unless_they_are_dropped() -> None:
    TABLE.assign(scan=[[row, 2 * row] for row in range(ROWS)]).to_parquet("t.parquet")
    error = assert_refused(None, load, "t.parquet")
    assert error.remedies == (Remedy("drop", ("scan",)),)
    assert len(load("t.parquet", drop=("scan",)).pool) == ROWS


def test_a_workbook_without_its_reader_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    write_workbook(Path("t.xlsx"), {"Data": rows()})
    monkeypatch.setattr(table_text, "find_spec", lambda name: None)
    assert_refused(r"t\.xlsx is .*Excel.*pip install 'fl-audit\[excel\]'", load, "t.xlsx")
    assert "\n" not in table_text._INSTALL


def test_settings_that_do_not_fit_a_kind_of_file_are_refused() -> None:
    write_workbook(Path("t.xlsx"), {"Data": rows(), "Old": rows()})
    TABLE.to_parquet("t.parquet")
    Path("t.csv").write_text(TEXT)
    for name, options, expected_message in (
        ("t.xlsx", {"separator": ";"}, "no separator: leave separator out"),
        ("t.parquet", {"encoding": "cp1252"}, "no encoding: leave encoding out"),
        ("t.parquet", {"sheet": "Data"}, "no sheets: leave sheet out"),
        ("t.csv", {"sheet": "Data"}, "text .*no sheets: leave sheet out"),
        ("t.xlsx", {"sheet": "New"}, "no sheet 'New': .* 'Data', 'Old'"),
        ("t.csv", {"skip_lines": 99}, "skip-lines is 99"),
        ("t.csv", {"separator": "::"}, "separator is '::': .* one character"),
    ):
        assert_refused(expected_message, load, name, **options)


def write_database() -> None:
    with sqlite3.connect("t") as database:
        database.execute("create table t (x, y)")


KINDS: dict[str, Callable[[], object]] = {
    "a zip archive": lambda: archived("table.csv"),
    "an office document": lambda: archived("[Content_Types].xml"),
    "a NumPy archive": lambda: archived("x.npy"),
    "a damaged zip archive": lambda: Path("t").write_bytes(b"PK\x03\x04rest"),
    "an SQLite database": write_database,
    "a Stata file": lambda: TABLE.drop(columns="seen").to_stata("t"),
    "an Arrow or Feather file": lambda: TABLE.to_feather("t"),
    "a pickle of Python objects": lambda: Path("t").write_bytes(b"\x80\x04\x95\0\0."),
    "a JSON file": lambda: TABLE.ward.to_frame().to_json("t", orient="records"),
    "a web page": lambda: TABLE.to_html("t"),
    "an XML file": lambda: Path("t").write_text('<?xml version="1.0"?><a/>'),
    "a NumPy array (.npy)": lambda: (np.save("t", np.ones(3)), Path("t.npy").rename("t")),
    "an R data file": lambda: Path("t").write_bytes(gzip.compress(b"X\n\0\0\0\3\0")),
    "an SPSS file": lambda: Path("t").write_bytes(b"$FL2@(#) SPSS\0\0"),
    "a SAS file": lambda: Path("t").write_bytes(b"\0" * 12 + b"\xc2\xea\x81\x60" + b"\0" * 20),
    "an HDF5 file": lambda: Path("t").write_bytes(b"\x89HDF\r\n\x1a\n\0\0"),
    "a tar archive": lambda: Path("t").write_bytes(b"a".ljust(257, b"\0") + b"ustar\0"),
    "compressed by xz": lambda: Path("t").write_bytes(b"\xfd7zXZ\0\0"),
    "a PDF document": lambda: Path("t").write_bytes(b"%PDF-1.7\n"),
    "a picture": lambda: Path("t").write_bytes(b"\x89PNG\r\n\x1a\n\0"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_of_another_kind_is_named_with_what_to_do(kind: str) -> None:
    KINDS[kind]()
    error = assert_refused(None, read_table_text, Path("t"))
    message = str(error)
    assert message.startswith(f"t is {kind}: ")
    assert "(CSV)" in message
    assert "encoding" not in message


@pytest.mark.parametrize(
    "text", ["ORC,y\n1,2\n", "PAR1,y\n1,2\n", "A\n2\n", "BZh9,y\n1,2\n", "X\n1\n", "{x},y\n1,2\n", "GIF8,y\n"]
)
def test_words_that_other_files_begin_with_can_be_names_of_columns(text: str) -> None:
    assert file_format_phrase(text.encode()) is None


def test_bytes_of_no_kind_are_no_text() -> None:
    Path("t").write_bytes(np.random.default_rng(0).integers(0, 256, 4000).astype(np.uint8).tobytes())
    assert_refused("t is no text, and no kind", read_table_text, Path("t"))


DRAW = np.random.default_rng(0)
X = DRAW.normal(size=(40, 5, 3)).astype(np.float32)
Y = np.arange(40) % 4


def test_records_of_two_axes_are_pictures_unless_they_are_sequences() -> None:
    name = archive(x=X, y=Y)
    pictures = load_npz(None, {"path": name})
    assert pictures.feature_shape == (1, 5, 3)
    assert pictures.cautions[0].remedies == (Remedy("axes", "sequence"), Remedy("axes", "picture"))
    assert load_npz(None, {"path": name, "axes": "picture"}).cautions == ()
    sequences = load_npz(None, {"path": name, "axes": "sequence"})
    assert (sequences.feature_shape, sequences.is_table, sequences.cautions) == ((5, 3), False, ())
    assert_array_equal(sequences.pool.features, X)
    assert "5 steps by 3 features" in sequences.description
    assert load_npz(None, {"path": archive(x=(255 * DRAW.random((40, 5, 3))).astype(np.uint8), y=Y)}).cautions == ()
    named = r"x has shape .*leave axes out"
    assert_refused(named, lambda: load_npz(None, {"path": archive(x=X[:, 0], y=Y), "axes": "sequence"}))
    named = r"axes in .* 'video': .* picture .*sequence"
    assert_refused(named, lambda: load_npz(None, {"path": archive(x=X, y=Y), "axes": "video"}))


@pytest.mark.parametrize(
    "labels",
    [
        Y[:, None],
        np.eye(4)[Y],
        np.eye(4, dtype=bool)[Y],
        np.eye(4, dtype=np.uint8)[Y],
        np.array(list("abcd"))[Y][:, None],
    ],
)
def test_labels_in_a_column_and_one_hot_are_classes(labels: np.ndarray) -> None:
    dataset = load_npz(None, {"path": archive(x=X[:, 0], y=labels, x_test=X[:8, 0], y_test=labels[:8])})
    assert_array_equal(dataset.pool.labels, Y)
    assert dataset.test is not None
    assert_array_equal(dataset.test.labels, Y[:8])
