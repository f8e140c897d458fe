import gzip
import pickle
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

from fl_audit.data.catalogue import DataSpec, load_source
from fl_audit.data.column_encoding import column_lines
from fl_audit.data.loaded_dataset import ColumnReadResult, ColumnRole, LoadedDataset
from fl_audit.data.tables import MOST_COLUMNS
from fl_audit.errors import Remedy
from tests.builders.refusals import assert_refused
from tests.builders.tables import load_csv, load_table

TABLE = "age,colour,ok,outcome\n20,red,true,well\n30,blue,false,ill\n40,red,true,well\n"


def load_npz(path: Path, **arrays: np.ndarray) -> LoadedDataset:
    np.savez(path / "data.npz", **arrays)
    return load_source(DataSpec("npz", str(path), (("path", "data.npz"),)))


def test_csv_scales_encodes_and_sorts_labels(tmp_path: Path) -> None:
    source = load_csv(tmp_path, TABLE)
    # age, colour=blue, colour=red, ok; labels ill = 0, well = 1
    assert source.pool.features.tolist() == [[0, 0, 1, 1], [0.5, 1, 0, 0], [1, 0, 1, 1]]
    assert source.pool.labels.tolist() == [1, 0, 1]
    assert source.pool.classes == 2
    assert source.test is None


def test_csv_with_test_file_uses_the_training_range(tmp_path: Path) -> None:
    test = "outcome,ok,colour,age\nill,true,green,25\nwell,true,red,90\n"
    source = load_csv(tmp_path, TABLE, test=test)
    assert source.test is not None
    # colour has the levels blue, green, red of both files; an age of 90 is clipped.
    assert source.test.features.tolist() == [[0.25, 0, 1, 0, 1], [1, 0, 0, 1, 1]]
    assert source.test.labels.tolist() == [0, 1]


def test_csv_numeric_labels_sort_as_numbers(tmp_path: Path) -> None:
    source = load_csv(tmp_path, "a,outcome\n1,10\n2,9\n3,-1\n")
    assert source.pool.labels.tolist() == [2, 1, 0]


def test_the_largest_numbers_are_scaled(tmp_path: Path) -> None:
    source = load_csv(tmp_path, "a,outcome\n1e300,0\n2,1\n-1e300,1\n")
    assert_allclose(source.pool.features[:, 0], [1, 0.5, 0])


def test_csv_gzipped_and_absolute(tmp_path: Path) -> None:
    path = tmp_path / "table.csv.gz"
    path.write_bytes(gzip.compress(TABLE.encode()))
    assert len(load_table(path, "outcome").pool) == 3


def test_npz_bytes_become_images(tmp_path: Path) -> None:
    x = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3)
    source = load_npz(tmp_path, x=x, y=np.array([7, 3], dtype=np.int16), x_test=x[:1], y_test=np.array([3]))
    assert source.pool.features.shape == (2, 1, 3, 3)
    assert_allclose(source.pool.features[1, 0] * 255, x[1], rtol=1e-6)
    assert source.pool.labels.tolist() == [1, 0]
    assert source.test is not None
    assert source.test.labels.tolist() == [0]


def test_npz_other_numbers_stay(tmp_path: Path) -> None:
    source = load_npz(tmp_path, x=np.array([[-3.0, 300.0], [1.0, 2.0]]), y=np.array(["b", "a"]))
    assert source.pool.features.tolist() == [[-3, 300], [1, 2]]
    assert source.pool.labels.tolist() == [1, 0]


class Bomb:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (Path.touch, (Path("exploded"),))  # type: ignore[return-value]


def test_pickles_and_damaged_archives_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez(tmp_path / "whole.npz", x=np.zeros((200, 3)), y=np.arange(200))
    whole = (tmp_path / "whole.npz").read_bytes()
    single = tmp_path / "single.npy"
    np.save(single, np.zeros(3))
    contents = [pickle.dumps(Bomb()), whole[:-40], whole[:300] + b"xxxx" + whole[304:], b"hello", single.read_bytes()]
    for number, content in enumerate(contents):
        (tmp_path / f"{number}.npz").write_bytes(content)
        assert_refused("archive", load_source, DataSpec("npz", str(tmp_path), (("path", f"{number}.npz"),)))
    assert not (tmp_path / "exploded").exists()


# What a column becomes


def table_of(columns: dict[str, list[object]], records: int = 40) -> str:
    """Return a CSV table with a label that has two classes."""
    columns = columns | {"y": [index % 2 for index in range(records)]}
    frame = pd.DataFrame(
        {name: [values[index % len(values)] for index in range(records)] for name, values in columns.items()}
    )
    return str(frame.to_csv(index=False))


def load_with(path: Path, text: str, **options: object) -> LoadedDataset:
    (path / "table.csv").write_text(text)
    return load_table(path / "table.csv", "y", **options)


@pytest.mark.parametrize(
    ("cells", "use", "features"),
    [
        (["10%", "30 %", "20%"], r"number, 10 to 30 \('%' left out\), .* 0 to 1", [[0], [1], [0.5]]),
        (["1,000", "3,000,000", "2000"], r"number, 1000 to 3e\+06 \(',' left out\), .* 0 to 1", [[0], [1]]),
        (["-1,000.5", "1,000.5"], r"number, -1000\.5 to 1000\.5 \(',' left out\), .* 0 to 1", [[0], [1]]),
        ([2, 6, 4], "number, 2 to 6, .* 0 to 1", [[0], [1], [0.5]]),
        ([7], "number, 7 .*every record, .*0", [[0]]),
        ([True, False], "number, 0 to 1, .* 0 to 1", [[1], [0]]),
        (["b", "a"], "levels, 2 .*: a, b", [[0, 1], [1, 0]]),
    ],
)
def test_each_column_says_what_it_became(
    tmp_path: Path, cells: list[object], use: str, features: list[list[float]]
) -> None:
    source = load_with(tmp_path, table_of({"x": cells}))
    label, column = column_lines(source.columns)
    assert label == "y: label, 2 classes: 0, 1"
    assert re.fullmatch(f"x: {use}", column)
    assert source.pool.features[: len(features)].tolist() == features


def test_a_column_that_numbers_the_records_is_pointed_out(tmp_path: Path) -> None:
    shuffled = np.random.default_rng(0).permutation(40) + 1000
    source = load_with(tmp_path, table_of({"patient": shuffled.tolist(), "age": [3, 5, 4]}))
    assert re.search(r'numbers the records, .* drop = \["patient"\]', str(source.columns[1]))
    assert "numbers the records" not in str(source.columns[2])


NAMES = [f"person {number}" for number in range(40)]


def test_a_dropped_column_is_gone_and_named(tmp_path: Path) -> None:
    source = load_with(tmp_path, table_of({"name": NAMES, "x": [1, 2]}), drop=("name",))
    assert source.pool.features.shape == (40, 1)
    assert (source.columns[-1].name, source.columns[-1].kind) == ("name", ColumnRole.DROPPED)


def test_the_number_of_levels_is_a_setting(tmp_path: Path) -> None:
    text = table_of({"word": [f"w{number:03d}" for number in range(150)]}, records=300)
    assert_refused(r"word has 150 .*max-levels is 100.*max-levels = 150", load_with, tmp_path, text)
    assert load_with(tmp_path, text, max_levels=150).pool.features.shape == (300, 150)


def test_the_only_key_of_persons_is_never_advised_to_be_left_out(tmp_path: Path) -> None:
    """Persons that the names of the records hide: with a column of their own they are users."""
    person = np.arange(132) // 6
    draw = np.random.default_rng(1)
    frame = pd.DataFrame({"x": draw.normal(size=132).round(4), "y": person % 2})
    hidden = frame.assign(name=[f"phon_R01_S{owner:02d}_{row % 6}" for row, owner in enumerate(person)])
    named = r"name .*22 ways, such as 'phon_R01_S00', .*6 each.* the user; if .* not"
    assert assert_refused(named, load_with, tmp_path, hidden.to_csv(index=False)).remedies == ()
    split = hidden.assign(who=hidden["name"].str.rpartition("_")[0])
    dataset = load_with(tmp_path, split.to_csv(index=False), user="who", drop=("name",))
    assert (len(dataset.pool.users), dataset.pool.shape) == (22, (1,))
    patient_frame = frame.assign(patient_id=[f"P{owner:03d}" for owner in person])
    text = patient_frame.to_csv(index=False)
    error = assert_refused(r"patient_id has 22 .* user = ", load_with, tmp_path, text, max_levels=10)
    assert [remedy.key for remedy in (*error.remedies, *error.choices)] == ["user"]
    assert len(load_with(tmp_path, patient_frame.to_csv(index=False), user="patient_id").pool.users) == 22


@pytest.mark.long
def test_many_texts_cost_no_memory_before_they_are_refused(tmp_path: Path) -> None:
    text = table_of({"word": [f"w{number}" for number in range(30_000)]}, records=60_000)
    assert_refused("word has 30,000 different", load_with, tmp_path, text)
    named = r"30,000 features of 60,000 records, .*1,073,741,824 numbers"
    assert_refused(named, load_with, tmp_path, text, max_levels=30_000)


@pytest.mark.parametrize(("records", "options"), [(300, {}), (40, {"max_levels": 1000})])
def test_a_quantity_to_predict_is_refused(tmp_path: Path, records: int, options: dict[str, object]) -> None:
    frame = pd.DataFrame({"x": np.arange(records) % 7, "y": np.arange(records) * 3 % 149})
    named = rf"label column y has {min(records, 149)} .*quantity"
    assert_refused(named, load_with, tmp_path, frame.to_csv(index=False), **options)
    assert_refused(r"y has 40 .* 40 records, .*quantity", load_npz, tmp_path, x=np.zeros((40, 2)), y=np.arange(40))


@pytest.mark.parametrize("classes", [21, 100])
def test_whole_numbers_are_a_quantity_unless_the_setting_says_that_they_are_classes(
    tmp_path: Path, classes: int
) -> None:
    number = np.random.default_rng(0).permutation(1000) % classes
    frame = pd.DataFrame({"x": np.arange(1000) % 7, "y": number})
    named = f"y has {classes} .*quantity .*max-levels = {classes}"
    error = assert_refused(named, load_with, tmp_path, frame.to_csv(index=False))
    as_quantity, as_classes = sorted(error.choices, key=lambda remedy: remedy.key != "task")
    assert (
        load_with(
            tmp_path, frame.to_csv(index=False), **{as_classes.key.replace("-", "_"): as_classes.value}
        ).pool.classes
        == classes
    )
    quantities = load_with(tmp_path, frame.to_csv(index=False), **{as_quantity.key: as_quantity.value}).pool.labels
    assert np.unique(quantities).size == classes
    words = frame.assign(y=[f"w{value}" for value in number])
    assert load_with(tmp_path, words.to_csv(index=False)).pool.classes == classes
    class_frame = frame.assign(y=number % 20)
    assert load_with(tmp_path, class_frame.to_csv(index=False), decimal=".").pool.classes == 20


def test_numbers_that_are_not_whole_are_refused_without_advice_that_does_not_help(tmp_path: Path) -> None:
    frame = pd.DataFrame({"x": np.arange(600) % 7, "y": np.arange(600) % 150 / 4})
    error = assert_refused(r"y has 150 .*quantity", load_with, tmp_path, frame.to_csv(index=False))
    (remedy,) = error.remedies
    quantities = load_with(tmp_path, frame.to_csv(index=False), **{remedy.key: remedy.value}).pool.labels
    assert np.unique(quantities).size == 150


def test_classes_beyond_the_limit_can_be_asked_for(tmp_path: Path) -> None:
    frame = pd.DataFrame({"x": np.arange(600) % 7, "y": np.arange(600) % 150})
    named = r"150 .* 600 records.* max-levels = 150 in \[data\]"
    assert_refused(named, load_with, tmp_path, frame.to_csv(index=False))
    assert load_with(tmp_path, frame.to_csv(index=False), max_levels=150).pool.classes == 150


def test_records_with_a_missing_value_are_left_out_where_the_words_are_named(tmp_path: Path) -> None:
    text = "x,w,y\n1,a,0\n?,b,1\n3,,1\n4,a,1\n5,b,0\nx7,b,0\n"
    assert_refused(r"missing value .* w, row 3", load_with, tmp_path, text)
    assert_refused(r"'x7' .* x, row 6", load_with, tmp_path, text, missing=("?",))
    source = load_with(tmp_path, text, missing=("?", "x7"))
    assert source.pool.features.tolist() == [[0, 1, 0], [0.75, 1, 0], [1, 0, 1]]
    assert source.pool.labels.tolist() == [0, 1, 0]
    assert re.search(r"\b3 records .*\('\?' in 1, 'x7' in 1, empty in 1\)", source.description)


def test_the_separator_is_a_setting(tmp_path: Path) -> None:
    text = table_of({"x": [1, 2]}).replace(",", ";")
    dataset = load_with(tmp_path, text)
    assert (dataset.pool.features.shape, dataset.found) == ((40, 1), (Remedy("separator", ";"),))
    assert_refused(r"no label column 'y'.* x;y", load_with, tmp_path, text, separator=",")
    assert load_with(tmp_path, text.replace(";", "\t"), separator="\t").pool.features.shape == (40, 1)
    assert_refused(r"separator is '::': .*one character", load_with, tmp_path, text, separator="::")


def test_of_many_columns_the_odd_ones_are_told_and_the_rest_is_counted() -> None:
    uses = [ColumnReadResult(f"x{number}", ColumnRole.NUMBER, "", odd=number == 7) for number in range(30)]
    lines = column_lines([*uses, ColumnReadResult("w", ColumnRole.LEVELS, "3")])
    assert lines == ["x7: number", "and 30 further columns: 29 as number, 1 as levels"]


def test_more_columns_than_are_looked_through_are_refused_with_a_format_that_takes_them(tmp_path: Path) -> None:
    names = [f"c{number}" for number in range(MOST_COLUMNS)]
    text = ",".join([*names, "y"]) + "\n" + ",".join(["1"] * (len(names) + 1)) + "\n"
    assert_refused(r"10,001 columns: accepted are up to 10,000; .*\.npz", load_with, tmp_path, text)
    wide = np.random.default_rng(0).normal(size=(40, MOST_COLUMNS + 5)).astype(np.float32)
    assert load_npz(tmp_path, x=wide, y=np.arange(40) % 2).pool.shape == (MOST_COLUMNS + 5,)
