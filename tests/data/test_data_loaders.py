import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import sklearn.datasets
from numpy.testing import assert_allclose

from fl_audit.data.catalogue import DataSpec, available_datasets, load_source
from fl_audit.data.idx_images import read_idx
from tests.builders.refusals import assert_refused

MNIST = (("train-images-idx3-ubyte", "train-labels-idx1-ubyte"), ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"))
Write = Callable[[Path, np.ndarray], Path]


def test_built_in_sets_are_those_of_scikit_learn_scaled() -> None:
    for name, shape, classes in [("digits", (1797, 64), 10), ("breast-cancer", (569, 30), 2)]:
        source = load_source(DataSpec(name))
        theirs = getattr(sklearn.datasets, f"load_{name.replace('-', '_')}")()
        low, high = (0, 16) if name == "digits" else (theirs.data.min(axis=0), theirs.data.max(axis=0))
        assert_allclose(source.pool.features, (theirs.data - low) / (high - low), atol=1e-7)
        assert np.array_equal(source.pool.labels, theirs.target)
        assert source.pool.features.shape == shape
        assert source.pool.classes == classes == len(np.unique(source.pool.labels))
        assert source.pool.features.min() == 0
        assert source.pool.features.max() == 1
        assert source.test is None
        assert source.feature_shape == shape[1:]


def test_loaded_once_and_read_only() -> None:
    source = load_source(DataSpec("digits"))
    assert load_source(DataSpec("digits")) is source
    with pytest.raises(ValueError, match="read-only"):
        source.pool.features[0, 0] = 1


@pytest.mark.long
def test_published_adult(published: str) -> None:
    source = load_source(DataSpec("adult", published))
    assert source.pool.features.shape == (30162, 104)
    assert source.test is not None
    assert source.test.features.shape == (15060, 104)
    # Complete rows over 50,000 dollars, as the file's own documentation counts them (24.78 % of 30,162).
    assert (source.pool.labels == 1).sum() == 7508
    assert_allclose(source.pool.features[:, 6:].sum(axis=1), 8)
    assert source.pool.features.min() == source.test.features.min() == 0
    assert source.pool.features.max() == source.test.features.max() == 1
    # Every level of the table occurs, so none of the 104 columns is idle.
    assert source.pool.features.max(axis=0).min() == 1


@pytest.mark.long
def test_published_adult_with_its_incomplete_rows(published: str) -> None:
    source = load_source(DataSpec("adult-all", published))
    assert source.test is not None
    assert (len(source.pool), len(source.test)) == (32561, 16281)
    # As the file's own documentation counts them.
    assert ((source.pool.labels == 1).sum(), (source.test.labels == 1).sum()) == (7841, 3846)
    assert_allclose(source.pool.features[:, 6:].sum(axis=1), 8)
    assert source.pool.features.max(axis=0).min() == 1
    complete = load_source(DataSpec("adult", published))
    assert source.pool.features.shape[1] == complete.pool.features.shape[1] + 4


def test_published_mnist(published: str) -> None:
    source = load_source(DataSpec("mnist", published))
    assert source.pool.features.shape == (60000, 1, 28, 28)
    assert source.pool.labels[:5].tolist() == [5, 0, 4, 1, 9]
    assert source.test is not None
    assert source.test.features.shape == (10000, 1, 28, 28)
    assert source.test.labels[:5].tolist() == [7, 2, 1, 0, 4]
    assert source.pool.features.max() == 1


def test_small_adult(adult_dir: Path) -> None:
    source = load_source(DataSpec("adult", str(adult_dir)))
    assert source.test is not None
    assert source.pool.labels.tolist() == source.test.labels.tolist() == [0, 1]
    assert source.pool.features.shape == source.test.features.shape == (2, 104)
    assert source.pool.features[:, :6].tolist() == [[0, 0, 0, 1, 0, 0], [1, 1, 1, 0, 1, 1]]
    # 99 hours a week lie beyond the training range and are clipped.
    assert source.test.features[1, 5] == 1


def test_adult_in_its_own_folder_and_gzipped(adult_dir: Path, tmp_path: Path) -> None:
    folder = tmp_path / "other" / "adult"
    folder.mkdir(parents=True)
    for name in ("adult.data", "adult.test"):
        (folder / f"{name}.gz").write_bytes(gzip.compress((adult_dir / name).read_bytes()))
    packed = load_source(DataSpec("adult", str(folder.parent)))
    plain = load_source(DataSpec("adult", str(adult_dir)))
    assert np.array_equal(packed.pool.features, plain.pool.features)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("39, State-gov", "39, Circus", "workclass 'Circus' .* 1: .* Federal-gov"),
        ("<=50K", "many", "label 'many' .* 1: .* <=50K and >50K"),
        ("39, ", "old, ", "wrong number .* 1"),
        ("39, ", "nan, ", "not finite .* 1"),
        (", United-States", "", "14 fields .* 1: .* 15"),
    ],
)
def test_spoilt_adult_rows_are_named(adult_dir: Path, old: str, new: str, words: str) -> None:
    path = adult_dir / "adult.data"
    path.write_text(path.read_text().replace(old, new, 1))
    assert_refused(words, lambda: load_source(DataSpec("adult", str(adult_dir))))


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_small_mnist(tmp_path: Path, write_idx: Write, suffix: str) -> None:
    images = np.arange(2 * 28 * 28).reshape(2, 28, 28) % 256
    for pictures, labels in MNIST:
        write_idx(tmp_path / f"{pictures}{suffix}", images)
        write_idx(tmp_path / f"{labels}{suffix}", np.array([3, 9]))
    source = load_source(DataSpec("mnist", str(tmp_path)))
    assert_allclose(source.pool.features[:, 0] * 255, images, rtol=1e-6)
    assert source.pool.labels.tolist() == [3, 9]
    assert source.pool.classes == 10


def test_mnist_by_writer(tmp_path: Path, write_idx: Write) -> None:
    for split, digits in (("train", [3, 9, 3]), ("t10k", [3, 9])):
        write_idx(tmp_path / f"{split}-images-idx3-ubyte", np.zeros((len(digits), 28, 28)))
        write_idx(tmp_path / f"{split}-labels-idx1-ubyte", np.array(digits))
    spec = DataSpec("mnist", str(tmp_path), (("user", "writer"),))
    assert_refused(r"qmnist-train-labels-idx2-int or .* not found", load_source, spec)
    assert load_source(DataSpec("mnist", str(tmp_path))).pool.user is None, "the files of MNIST name no writers"

    def write(digits: list[int]) -> None:
        table = np.zeros((3, 8), dtype=">i4")
        table[:, 0], table[:, 2] = digits, [2154, 17, 2154]
        header = bytes([0, 0, 0x0C, 2, 0, 0, 0, 3, 0, 0, 0, 8])
        (tmp_path / "qmnist-train-labels-idx2-int").write_bytes(header + table.tobytes())

    write([3, 9, 4])
    assert_refused(r"another digit than train-labels-idx1-ubyte .* 1 of 3 images", load_source, spec)
    write([3, 9, 3])
    pool = load_source(spec).pool
    assert pool.users == ("17", "2154")
    assert pool.user is not None
    assert pool.user.tolist() == [1, 0, 1]
    assert_refused(r"owner.*: .*mnist is 'writer'", load_source, DataSpec("mnist", str(tmp_path), (("user", "owner"),)))


def test_truncated_and_foreign_idx_are_refused(tmp_path: Path, write_idx: Write) -> None:
    path = write_idx(tmp_path / "images", np.zeros((3, 4, 5)))
    whole = path.read_bytes()
    for content, words in [
        (whole[:-1], r"has 75 bytes: .* \(3, 4, 5\), .* 76; .*truncated"),
        (whole + b"x", "needs exactly 76"),
        (whole[:9], "ends after 9 bytes"),
        (b"\x89PNG" + whole, "bytes 89 50 4e 47"),
        (b"\0\0\x07\x03" + whole, "bytes 00 00 07 03"),
        (b"", "is empty"),
    ]:
        path.write_bytes(content)
        assert_refused(words, read_idx, path)


def test_idx_of_the_wrong_kind_is_refused(tmp_path: Path, write_idx: Write) -> None:
    images, labels = (tmp_path / name for name in MNIST[0])
    for path in map(tmp_path.joinpath, MNIST[1]):
        write_idx(path, np.zeros((3, 4, 5)))
    spec = DataSpec("mnist", str(tmp_path))
    write_idx(images, np.zeros((3, 4, 5)))
    write_idx(labels, np.zeros((3, 4, 5)))
    assert_refused(r": .* labels, one axis", load_source, spec)
    write_idx(labels, np.array([0, 1]))
    assert_refused("images-idx3-ubyte: there are 3 records and 2 labels", load_source, spec)
    write_idx(images, np.array([0, 1]))
    assert_refused("accepted are images", load_source, spec)


@pytest.mark.parametrize("damage", ["cut", "flip"])
def test_damaged_gzip_is_refused(adult_dir: Path, damage: str) -> None:
    packed = bytearray(gzip.compress((adult_dir / "adult.data").read_bytes() * 50))
    if damage == "cut":
        packed = packed[: len(packed) // 2]
    else:
        packed[len(packed) // 2] ^= 0xFF
    (adult_dir / "adult.data").write_bytes(bytes(packed))
    assert_refused("damaged gzip data", lambda: load_source(DataSpec("adult", str(adult_dir))))


def test_missing_directory_and_file_say_how_to_give_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FL_AUDIT_DATA", raising=False)
    expected_message = r"adult\.data.*--data-dir or FL_AUDIT_DATA"
    assert_refused(expected_message, lambda: load_source(DataSpec("adult")))
    assert_refused(expected_message, lambda: load_source(DataSpec("adult", str(tmp_path))))
    assert_refused(r"nowhere .*not exist.*--data-dir", load_source, DataSpec("adult", str(tmp_path / "nowhere")))


def test_directory_from_the_environment(adult_dir: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FL_AUDIT_DATA", str(adult_dir))
    assert len(load_source(DataSpec("adult")).pool) == 2
    monkeypatch.setenv("FL_AUDIT_DATA", str(tmp_path / "gone"))
    assert_refused(r"gone .*not exist", lambda: load_source(DataSpec("adult")))


def test_catalogue_lists_what_needs_files() -> None:
    needs = {name: entry.needs_files for name, entry in available_datasets().items()}
    assert [name for name, files in needs.items() if not files] == ["digits", "breast-cancer"]
    assert {"adult", "mnist", "table", "npz", "images"} <= set(needs)


def test_the_earlier_name_of_tables_is_still_read() -> None:
    assert DataSpec("csv", None, (("path", "x"), ("label", "y"))) == DataSpec(
        "table", None, (("path", "x"), ("label", "y"))
    )
