import gzip
import pickle
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

from fl_audit.data.catalogue import DataSpec, load_source
from fl_audit.data.records import Source
from fl_audit.errors import InputError

TABLE = "age,colour,ok,outcome\n20,red,true,well\n30,blue,false,ill\n40,red,true,well\n"


def load_csv(path: Path, text: str, test: str | None = None, label: str = "outcome") -> Source:
    (path / "table.csv").write_text(text)
    options = [("path", "table.csv"), ("label", label)]
    if test is not None:
        (path / "test.csv").write_text(test)
        options.append(("test-path", "test.csv"))
    return load_source(DataSpec("csv", str(path), tuple(options)))


def load_npz(path: Path, **arrays: np.ndarray) -> Source:
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
    source = load_csv(tmp_path, TABLE, test)
    assert source.test is not None
    # colour has the levels blue, green, red of both files; an age of 90 is clipped.
    assert source.test.features.tolist() == [[0.25, 0, 1, 0, 1], [1, 0, 0, 1, 1]]
    assert source.test.labels.tolist() == [0, 1]


def test_csv_numeric_labels_sort_as_numbers(tmp_path: Path) -> None:
    source = load_csv(tmp_path, "a,outcome\n1,10\n2,9\n3,-1\n")
    assert source.pool.labels.tolist() == [2, 1, 0]


def test_csv_gzipped_and_absolute(tmp_path: Path) -> None:
    path = tmp_path / "table.csv.gz"
    path.write_bytes(gzip.compress(TABLE.encode()))
    source = load_source(DataSpec("csv", None, (("path", str(path)), ("label", "outcome"))))
    assert len(source.pool) == 3


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (TABLE.replace("30,", ","), "has nan in column age, row 2"),
        (TABLE.replace("30,", "inf,"), "has inf in column age, row 2"),
        (TABLE.replace("30,", "NaN,"), "has nan in column age, row 2"),
        (TABLE.replace("30,", "3O,"), "has '3O' in column age, row 2"),
        (TABLE.replace("blue", ""), "in column colour, row 2"),
        (TABLE.replace("ill", ""), "in label column outcome, row 2"),
        (TABLE.replace("30,blue,false,ill", "30,blue"), "in column ok, row 2"),
        (TABLE.replace("well", "ill"), "one class only"),
        (TABLE.replace("outcome", "result"), "no label column 'outcome': its columns are age, colour, ok, result"),
        (TABLE.replace("false,ill", "false,ill,7"), "is no CSV table"),
        ("age,outcome\n1,2,ill\n3,4,well\n", "is no CSV table"),
        ("outcome\nill\nwell\n", "no column beside the label"),
        ("a,outcome\n", "has 0 records"),
        ("a,outcome\n1,0.5\n2,1.5\n", "a label is 0.5: accepted are whole numbers or strings"),
        ("a,outcome\n1e300,0\n2,1\n-1e300,1\n", None),
        ("", r"table\.csv is empty: accepted is a complete file$"),
    ],
)
def test_spoilt_csv_is_refused(tmp_path: Path, text: str, words: str | None) -> None:
    if words is None:
        assert_allclose(load_csv(tmp_path, text).pool.features[:, 0], [1, 0.5, 0])
        return
    with pytest.raises(InputError, match=words) as caught:
        load_csv(tmp_path, text)
    assert "\n" not in str(caught.value)


def test_csv_test_file_must_fit(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"test\.csv differs from .*table\.csv in column age, weight"):
        load_csv(tmp_path, TABLE, TABLE.replace("age", "weight"))
    with pytest.raises(InputError, match="test label dead does not occur"):
        load_csv(tmp_path, TABLE, TABLE.replace("ill", "dead"))
    with pytest.raises(InputError, match=r"test\.csv has nan in column age, row 3"):
        load_csv(tmp_path, TABLE, TABLE.replace("40", ""))


def test_missing_csv_names_the_places(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"gone\.csv not found.*FL_AUDIT_DATA"):
        load_source(DataSpec("csv", str(tmp_path), (("path", "gone.csv"), ("label", "x"))))


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


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"x": np.zeros((2, 3))}, "has no array y"),
        ({"x": np.zeros((2, 3)), "y": np.zeros(2)}, "one class only"),
        ({"x": np.zeros((2, 3)), "y": np.array([0, 1, 1])}, "2 records and 3 labels"),
        ({"x": np.array([[0.0], [np.inf]]), "y": np.array([0, 1])}, "of record 1 is inf"),
        ({"x": np.zeros(2), "y": np.array([0, 1])}, "at least two axes"),
        ({"x": np.array([["a"], ["b"]]), "y": np.array([0, 1])}, "accepted are real numbers"),
        ({"x": np.zeros((2, 3)), "y": np.array([0, 1]), "x_test": np.zeros((2, 3))}, "only one of the arrays"),
        ({"x": np.zeros((2, 3)), "y": np.array([[0], [1]])}, "one label for each record"),
        (
            {"x": np.zeros((2, 3)), "y": np.array([0, 1]), "x_test": np.zeros((2, 4)), "y_test": np.array([0, 1])},
            "test records have shape",
        ),
        ({"x": np.zeros((2, 3)), "y": np.array([{}, 1], dtype=object)}, "without objects"),
    ],
)
def test_spoilt_npz_is_refused(tmp_path: Path, arrays: dict[str, np.ndarray], words: str) -> None:
    with pytest.raises(InputError, match=words):
        load_npz(tmp_path, **arrays)


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
        with pytest.raises(InputError, match="archive"):
            load_source(DataSpec("npz", str(tmp_path), (("path", f"{number}.npz"),)))
    assert not (tmp_path / "exploded").exists()
