"""Property: the same table as CSV, Excel workbook and Parquet file gives the same records, remarks and refusals."""

import csv
import datetime
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fl_audit.data.catalogue import DataSpec, load_source
from fl_audit.errors import InputError
from tests.builders.workbooks import write_workbook
from tests.few_examples import examples

ROWS = 24
Cells = list[Any]
_DAYS = st.dates(datetime.date(1950, 1, 1), datetime.date(2049, 12, 31))
_DECIMALS = st.integers(-(10**6), 10**6).map(lambda number: number / 100)
KINDS: dict[str, st.SearchStrategy[Any]] = {
    "dates": _DAYS,
    "dates with points": _DAYS.map(lambda day: f"{day:%d.%m.%Y}"),
    "dates with slashes": _DAYS.map(lambda day: f"{day:%d/%m/%Y}"),
    "leading zeros": st.integers(0, 999).map(lambda number: f"{number:05d}"),
    # More digits than a double holds, which a workbook keeps as text.
    "big integers": st.integers(10**17, 10**18 - 1).map(str),
    "whole numbers": st.integers(-(10**6), 10**6),
    "decimals": _DECIMALS,
    "truth values": st.booleans(),
    "percent": st.integers(0, 1000).map(lambda number: f"{number / 10} %"),
    "decimal commas": _DECIMALS.map(lambda number: f"{number:.2f}".replace(".", ",")),
    "words": st.sampled_from(["north", 'we"st', "e,ast", "NA", "Žižkov", " south"]),
    "mixed": st.sampled_from([1, 2.5, True, "x", "007", "", datetime.date(2024, 3, 31)]),
}
"""Kinds of cells, as a file holds them that has types; a cell of a string is text in all three formats."""


@st.composite
def columns(draw: st.DrawFn) -> dict[str, Cells]:
    """Draw a table of one or two columns beside the label, half of them with empty cells."""
    table: dict[str, Cells] = {}
    for number in range(draw(st.integers(1, 2))):
        kind = draw(st.sampled_from(list(KINDS)))
        # As many different cells as words may have, so that most columns can be read.
        different = draw(st.lists(KINDS[kind], min_size=2, max_size=8))
        cells = [different[row % len(different)] for row in range(ROWS)]
        for row in draw(st.lists(st.integers(0, ROWS - 1), min_size=1, max_size=3)) if draw(st.booleans()) else ():
            cells[row] = None
        table[f"{kind} {number}"] = cells
    return table | {"label": ["a", "b"] * (ROWS // 2)}


def _text(cell: Any) -> str:
    match cell:
        case None:
            return ""
        case datetime.date():
            return cell.isoformat()
        case _:
            return str(cell)


def write_csv(path: Path, names: Sequence[str], rows: list[Cells]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([names, *([_text(cell) for cell in row] for row in rows)])


def write_parquet(path: Path, names: Sequence[str], rows: list[Cells]) -> None:
    """Write columns of one type with it, and columns of several types as text."""
    arrays = {}
    for name, cells in zip(names, map(list, zip(*rows, strict=True)), strict=True):
        is_of_one_type = len({type(cell) for cell in cells if cell is not None}) <= 1
        arrays[name] = pa.array(cells if is_of_one_type else [None if cell is None else _text(cell) for cell in cells])
    pq.write_table(pa.table(arrays), path)


WRITERS: dict[str, Callable[[Path, Sequence[str], list[Cells]], None]] = {
    "csv": write_csv,
    "xlsx": lambda path, names, rows: write_workbook(path, {"Data": [list(names), *rows]}),
    "parquet": write_parquet,
}


def answer(path: Path, options: dict[str, object]) -> tuple[Any, ...]:
    """Return all that is said of a table without the name of the file, and its records; or the refusal."""

    def plain(text: str) -> str:
        kinds = {
            str(path): "FILE",
            path.name: "FILE",
            "CSV": "TABLE",
            "Excel workbook": "TABLE",
            "Parquet file": "TABLE",
        }
        for name, word in kinds.items():
            text = text.replace(name, word)
        return text

    given_ = {"path": str(path), "label": "label", **options}
    try:
        dataset = load_source(DataSpec("table", None, tuple(given_.items())))  # type: ignore[arg-type]
    except InputError as error:
        return plain(str(error)), error.remedies
    column_texts = [plain(str(column)) for column in dataset.columns]
    cautions = [plain(str(caution)) for caution in dataset.cautions]
    features = np.asarray(dataset.pool.features)
    return (
        column_texts,
        cautions,
        features.shape,
        features.tobytes(),
        dataset.pool.labels.tolist(),
        plain(dataset.description),
    )


@settings(max_examples=examples(60), derandomize=True, suppress_health_check=list(HealthCheck))
@given(table=columns(), options=st.sampled_from([{}, {"missing": ()}, {"missing": "impute"}, {"missing": ("NA", "x")}]))
def test_the_same_table_gives_the_same_answer_in_three_formats(
    table: dict[str, Cells], options: dict[str, object]
) -> None:
    rows = [list(row) for row in zip(*table.values(), strict=True)]
    answers = {}
    with tempfile.TemporaryDirectory() as directory:
        for kind, write in WRITERS.items():
            path = Path(directory) / f"table.{kind}"
            write(path, list(table), rows)
            answers[kind] = answer(path, options)
    assert answers["xlsx"] == answers["csv"]
    assert answers["parquet"] == answers["csv"]
