import re
from pathlib import Path

import numpy as np
import pytest

from fl_audit.data.catalogue import DataSpec, available_datasets, is_found, load_source
from fl_audit.data.loaded_dataset import ColumnRole, LoadedDataset
from tests.builders.refusals import assert_refused
from tests.builders.tables import load_csv

TABLE = "age,hospital,colour,outcome\n20,North,red,well\n30,East,blue,ill\n40,North,red,well\n"


def npz(path: Path, name: str, **arrays: np.ndarray) -> LoadedDataset:
    np.savez(path / "data.npz", x=np.zeros((4, 2)), y=np.array([0, 1, 0, 1]), **arrays)
    return load_source(DataSpec("npz", str(path), (("path", "data.npz"), ("owner", name))))


def owners_of(source: LoadedDataset) -> list[str]:
    assert source.pool.owner is not None
    return [source.pool.owners[code] for code in source.pool.owner]


def test_owner_column_is_no_feature(tmp_path: Path) -> None:
    source = load_csv(tmp_path, TABLE, ("owner", "hospital"))
    # age, colour=blue, colour=red
    assert source.pool.features.tolist() == [[0, 0, 1], [0.5, 1, 0], [1, 0, 1]]
    assert source.pool.owners == ("East", "North")
    assert owners_of(source) == ["North", "East", "North"]
    use = next(column for column in source.columns if column.name == "hospital")
    assert use.kind is ColumnRole.OWNER
    assert re.fullmatch(r"2 .*: East, North", use.detail)


def test_without_the_setting_the_column_is_a_feature(tmp_path: Path) -> None:
    source = load_csv(tmp_path, TABLE)
    assert source.pool.features.shape == (3, 5)
    assert source.pool.owner is None
    assert source.pool.owners == ()


def test_owner_may_be_numbers_in_order_and_have_one_record_each(tmp_path: Path) -> None:
    text = "age,clinic,outcome\n" + "".join(f"{row},{100 - row},{row % 2}\n" for row in range(30))
    source = load_csv(tmp_path, text, ("owner", "clinic"))
    assert source.pool.owners == tuple(str(number) for number in range(71, 101))
    assert owners_of(source) == [str(100 - row) for row in range(30)]


def test_records_with_missing_cells_and_test_records_have_no_owner(tmp_path: Path) -> None:
    text = TABLE.replace("30,East", "30,")
    named = r"missing value .* hospital, row 2: .* missing = \[\] in \[data\]$"
    assert_refused(named, load_csv, tmp_path, text, ("owner", "hospital"))
    (tmp_path / "table.csv").unlink()
    longer_table = TABLE + "50,South,blue,ill\n"
    test_table = TABLE.replace("North", "West")
    source = load_csv(
        tmp_path, longer_table.replace("30,East", "30,"), ("owner", "hospital"), ("missing", ("?",)), test=test_table
    )
    assert owners_of(source) == ["North", "North", "South"]
    assert source.test is not None
    assert source.test.owner is None


@pytest.mark.parametrize(
    ("values", "names"),
    [
        (np.array([10, 9, 10, 9]), ["10", "9", "10", "9"]),
        (np.array(["b", "a", "a", "c"]), ["b", "a", "a", "c"]),
        (np.array([2.0, 1.0, 1.0, 2.0]), ["2", "1", "1", "2"]),
        (np.array([1, 2, 3, 4], dtype=np.uint8), ["1", "2", "3", "4"]),
    ],
)
def test_owner_array(tmp_path: Path, values: np.ndarray, names: list[str]) -> None:
    assert owners_of(npz(tmp_path, "client", client=values)) == names


def test_owners_are_read_only(tmp_path: Path) -> None:
    source = npz(tmp_path, "client", client=np.arange(4))
    assert source.pool.owner is not None
    with pytest.raises(ValueError, match="read-only"):
        source.pool.owner[0] = 1


def femnist(path: Path, **changed: np.ndarray) -> LoadedDataset:
    arrays = {
        "x": np.full((4, 28, 28), 255, dtype=np.uint8),
        "y": np.array([0, 9, 3, 3], dtype=np.uint8),
        "client": np.array([0, 2, 1, 0], dtype=np.uint8),
    }
    arrays["x"][0, 3, 5] = 0
    np.savez(path / "femnist_digits_12clients.npz", **(arrays | changed))
    return load_source(DataSpec("femnist", str(path)))


def test_femnist_ink_is_one_and_paper_zero(tmp_path: Path) -> None:
    source = femnist(tmp_path)
    assert source.pool.features.shape == (4, 1, 28, 28)
    assert source.pool.features.sum() == source.pool.features[0, 0, 3, 5] == 1
    assert source.pool.classes == 10
    assert owners_of(source) == ["0", "2", "1", "0"]


def test_published_femnist(published: str) -> None:
    assert "femnist" in available_datasets()
    if not is_found("femnist", published):
        pytest.skip("no published FEMNIST digits")
    source = load_source(DataSpec("femnist", published))
    assert source.pool.features.shape == (5997, 1, 28, 28)
    assert source.pool.owner is not None
    counts = np.bincount(source.pool.owner)
    assert (len(counts), counts.min(), counts.max()) == (12, 454, 544)
    assert (source.pool.features.min(), source.pool.features.max()) == (0, 1)
    # Paper is white in most places, as the black of MNIST is.
    assert (source.pool.features == 0).mean() > 0.8
