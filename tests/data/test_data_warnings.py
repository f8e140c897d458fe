"""Tests of warnings about words for missing values, sentinels and odd labels, and of the remedies that they name."""

import gzip
import re
from collections.abc import Sequence
from itertools import count
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fl_audit.data.loaded_dataset import LoadedDataset
from fl_audit.data.missing_values import USUAL_WORDS, missing_value_word_counts, without_words
from fl_audit.data.warnings import header_warnings
from fl_audit.errors import Remedy
from tests.builders.refusals import assert_refused
from tests.builders.tables import load_table

pytestmark = pytest.mark.usefixtures("small_working_directory")

LIKE_A_RECORD = r"like a record\b"
DRAW = np.random.default_rng(0)
ROWS = 160


def among(cells: Sequence[str]) -> np.ndarray:
    """Return cells for the rows of a table: each equally often, in random order."""
    return DRAW.permutation(np.resize(np.array(cells), ROWS))


HONEST = {
    "age": DRAW.integers(18, 95, ROWS),
    "crp": DRAW.gamma(2, 4, ROWS).round(5),
    "ward": DRAW.choice(["A", "B"], ROWS),
    "y": np.arange(ROWS) % 2,
}


def load(columns: dict[str, object], **options: object) -> LoadedDataset:
    return read(pd.DataFrame(HONEST | columns).to_csv(index=False).encode(), **options)


FILES = count()


def read(content: bytes, **options: object) -> LoadedDataset:
    path = Path(f"own{next(FILES)}.csv")  # data are loaded once for each name
    path.write_bytes(content)
    return load_table(path, **{"label": "y"} | options)


def fixed(dataset: LoadedDataset, columns: dict[str, object], **options: object) -> LoadedDataset:
    """Return the table of a warning, read again with the remedies that the warning names."""
    (caution,) = dataset.cautions
    return load(columns, **options, **{remedy.key: remedy.value for remedy in caution.remedies})


def test_an_honest_table_has_no_warning() -> None:
    assert load({}).cautions == ()


def test_country_codes_are_no_missing_values_and_the_setting_alone_makes_them_some() -> None:
    columns = {"country": among(["NA", "ZA", "BW", "AO"])}
    for missing in (None, ()):
        dataset = load(columns, missing=missing)
        assert len(dataset.pool) == ROWS
        assert re.search(r"levels, 4 .*: AO, BW, NA", str(dataset.columns[4]))
        assert re.search(r"'NA' .* country \(40 of 160\)", dataset.cautions[0].text)
    without = fixed(dataset, columns)
    assert (len(without.pool), without.cautions) == (120, ())
    assert re.search(r"\b40 records .*\('NA' in 40\) .*left out$", without.description)


@pytest.mark.few_cases(6)
@pytest.mark.parametrize("word", sorted(USUAL_WORDS))
def test_no_word_is_missing_unless_the_setting_says_so(word: str) -> None:
    columns = {"test": among([word, "low", "high"])}
    dataset = load(columns)
    assert len(dataset.pool) == ROWS
    assert [caution.remedies for caution in dataset.cautions] == [(Remedy("missing", (word,)),)]
    assert len(fixed(dataset, columns).pool) == ROWS - 54


@pytest.mark.parametrize("share", [0.05, 0.9])
def test_a_word_among_numbers_is_asked_about_however_frequent_it_is(share: float) -> None:
    gaps = np.arange(ROWS) < share * ROWS
    DRAW.shuffle(gaps)
    columns = {"ferritin": np.where(gaps, "NA", "81.5"), "iron": np.where(np.arange(ROWS) % 40 == 3, "None", "7")}
    error = assert_refused(r"'(NA|None)' .*missing value .* (ferritin|iron)", load, columns)
    options = {remedy.key: remedy.value for remedy in error.remedies}
    # A column that mostly lacks is left out, and not the records.
    assert options == ({"drop": ("ferritin",)} if share > 0.5 else {"missing": ("NA", "None")})
    options |= {"missing": ("None",)} if share > 0.5 else {}
    assert len(load(columns, **options).pool) >= ROWS / 2


def test_the_count_of_records_left_out_names_words_and_empty_cells() -> None:
    content = b"a,b,y\n" + b"1,x,0\n-,?,1\n,x,0\n4,?,1\n2,x,1\n" * 10
    described = read(content, missing=("?", "-")).description
    assert re.search(r"\b30 records .*\('\?' in 20, '-' in 10, empty in 10\)", described)


def test_data_sets_of_other_formats_follow_the_setting_too() -> None:
    frame = pd.DataFrame({"a": [1, -99, 3], "b": ["x", " NA", "z"], "c": [True, False, True]})
    assert without_words(frame, ()).equals(frame)
    gone = without_words(frame, ("NA", "-99"))
    assert gone.isna().sum().to_dict() == {"a": 1, "b": 1, "c": 0}
    assert missing_value_word_counts(frame, gone) == {"NA": 1, "-99": 1}


@pytest.mark.parametrize(
    ("column", "cells", "remaining_records"),
    [
        ("potassium", ["-99", "4.1", "3.9", "5.0"], 120),
        ("potassium", ["-99.0", "4.1", "3.9", "5.0"], 120),
        ("years", ["999", "41", "39", "50"], 120),
        ("grade", ["99", "1", "2", "3"], 120),
        ("flag", ["-9", "0", "1", "2"], 120),
    ],
)
def test_a_number_that_stands_for_a_missing_value_is_told_with_its_share(
    column: str, cells: list[str], remaining_records: int
) -> None:
    columns = {column: among(cells)}
    dataset = load(columns)
    assert re.search(rf"{column} is {float(cells[0]):.0f} .*40 of 160 .*25\.0%", dataset.cautions[0].text)
    assert len(fixed(dataset, columns).pool) == remaining_records


@pytest.mark.parametrize(
    "cells", [["-9", "-8.5", "0", "3"], ["99", "98", "70", "40"], ["999", "400", "950", "12"], ["-1", "0", "1", "2"]]
)
def test_a_number_near_others_is_no_sentinel(cells: list[str]) -> None:
    assert load({"x": among(cells)}).cautions == ()


def test_a_measurement_below_its_limit_is_read_and_told_with_its_share() -> None:
    columns = {"troponin": among(["<0.5", "1.5", "2.5", "4.5"])}
    dataset = load(columns)
    assert str(dataset.columns[4]).startswith("troponin: number, 0.5 to 4.5")
    assert re.search(r"troponin has <0\.5 .*40 of 160 .*25\.0%", dataset.cautions[0].text)
    assert len(fixed(dataset, columns).pool) == 120


@pytest.mark.parametrize("cells", [["<18", "18-65", ">65"], ["<5", ">=5"], ["<1%", "low", "high"]])
def test_groups_with_a_sign_stay_words(cells: list[str]) -> None:
    assert str(load({"group": among(cells)}).columns[4]).startswith(f"group: levels, {len(cells)} of them")


def test_codes_with_leading_zeros_are_told_and_months_are_not() -> None:
    codes = [f"{number:05d}" for number in (1067, 1069, 80331, 10115)]
    dataset = load({"plz": among(codes), "month": among(["01", "02", "12"])})
    (caution,) = dataset.cautions
    assert re.search(r"plz .*leading zeros .*80 of 160 .*'0106[79]'", caution.text)
    assert caution.remedies == (Remedy("drop", ("plz",)),)
    assert load({"plz": among([f"N{code}" for code in codes])}).cautions == ()


def test_owners_that_numbers_would_not_tell_apart_stay_apart() -> None:
    owners = among(["007", "7", "123456789012345678", "123456789012345679"])
    assert load({"who": owners}, owner="who").pool.owners == tuple(sorted(set(owners.tolist())))
    content = b"who,x,y\n" + b"123456789012345678,1,0\n123456789012345679,2,1\n,3,1\n" * 20
    assert len(read(content, owner="who", missing=()).pool.owners) == 2


def test_long_codes_beside_an_empty_cell_are_counted_exactly() -> None:
    codes = np.array([str(10**17 + number) for number in range(40)], dtype=object)
    cells = np.resize(codes, ROWS)
    cells[5] = None
    (identifier,) = load({"account_no": cells}, missing=()).identifiers
    assert (identifier.values, identifier.rows, identifier.most) == (40, ROWS - 1, 4)


@pytest.mark.parametrize(
    ("labels", "expected_message"),
    [
        (np.r_[["rare"] * 2, np.resize(["a", "b"], ROWS - 2)], r"label rare \(2 of 160\)"),
        (DRAW.integers(1, 17, ROWS), "16 whole numbers .*1 to 16"),
        (among(["flu", "copd", "flu|copd", "none of these"]), r"label 'flu\|copd' .*'flu'"),
        (among(["a;b", "b;c", "a;c"]), "3 combinations"),
    ],
)
def test_odd_labels_are_told(labels: np.ndarray, expected_message: str) -> None:
    assert any(re.search(expected_message, caution.text) for caution in load({"y": labels}).cautions)


@pytest.mark.parametrize(
    "labels", [np.arange(ROWS) % 10, among(["n/a or no", "yes, minor", "yes, major"]), among([1, 5])]
)
def test_plain_labels_are_not(labels: np.ndarray) -> None:
    assert load({"y": labels}).cautions == ()


@pytest.mark.parametrize(
    ("column", "label"),
    [
        (DRAW.permutation(ROWS) / 7, lambda x: x > 9),  # a limit
        (DRAW.permutation(ROWS) / 7, lambda x: np.digitize(x, [5, 10, 15])),  # ranges
        (DRAW.integers(1, 21, ROWS), lambda x: x * 7 % 3 > 0),  # codes, each of one class
        (DRAW.choice(list("abcdefgh"), ROWS), lambda x: np.isin(x, list("aceg"))),
    ],
)
def test_a_column_that_determines_the_label_is_told(column: np.ndarray, label: object) -> None:
    columns = {"told": column, "y": label(column).astype(int)}  # type: ignore[operator]
    dataset = load(columns)
    assert re.search(r"\btold .*enough .*label y\b", dataset.cautions[0].text)
    assert fixed(dataset, columns).cautions == ()


def test_a_column_that_almost_determines_the_label_is_not() -> None:
    column = DRAW.permutation(ROWS) / 7
    labels = (column > 9).astype(int)
    labels[np.argmin(column)] = 1
    assert load({"told": column, "y": labels}).cautions == ()


@pytest.mark.parametrize(
    ("header", "is_told"),
    [
        (["5.1", "3.5", "1.4", "0.2", "setosa"], True),
        (["63", "1", "145", "233", "yes"], True),
        (["0", "1", "2", "3", "label"], False),
        (["2019", "2020", "2021", "y"], False),
        (["age", "q1", "2", "y"], False),
        (["age", "y"], False),
    ],
)
def test_a_header_that_looks_like_a_record_is_told(header: list[str], is_told: bool) -> None:
    assert bool(header_warnings(header)) == is_told


def test_a_table_without_a_header_is_told_from_its_file() -> None:
    rows = "".join(f"{row / 7:.1f},{row * row % 11 / 2},{'ab'[row % 2]}\n" for row in range(60))
    content = gzip.compress(("5.1,3.5,a\n" + rows).encode())
    assert any(re.search(LIKE_A_RECORD, caution.text) for caution in read(content, label="a").cautions)


def test_a_label_that_is_missing_from_a_first_line_of_numbers_is_told_with_that_line() -> None:
    lines = "\n".join(f"{number}.5,{number % 7}.25,{number % 2}" for number in range(60))
    assert_refused(rf"no label column 'y'.*{LIKE_A_RECORD}: .*names above", lambda: read(lines.encode()))
    error = assert_refused(None, lambda: read(f"a,b,c\n{lines}".encode()))
    assert not re.search(LIKE_A_RECORD, str(error))
