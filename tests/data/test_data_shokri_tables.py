import gzip
import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fl_audit.data.catalogue import DataSpec, is_found, load_source
from fl_audit.data.loaded_dataset import LoadedDataset
from fl_audit.data.record_selection import select_records
from tests.builders.refusals import assert_refused

ROWS = '"13",0,1,0,1\n"1",1,1,0,0\n"30",0,0,0,1\n'
VALUES = [[0, 1, 0, 1], [1, 1, 0, 0], [0, 0, 0, 1]]
ARCHIVES = {
    "location30": "dataset_location.tgz",
    "purchase100": "dataset_purchase.tgz",
    "texas100": "dataset_texas.tgz",
}
TEXAS = {"texas/100/feats": "0,1,0,1\n1,1,0,0\n0,0,0,1\n", "texas/100/labels": "13\n1\n100\n"}


def archive(path: Path, files: dict[str, str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as tar:
        folder = tarfile.TarInfo("texas")
        folder.type = tarfile.DIRTYPE
        tar.addfile(folder)
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text.encode())
            tar.addfile(member, io.BytesIO(text.encode()))
    return path


def load(name: str, directory: Path) -> LoadedDataset:
    return load_source(DataSpec(name, str(directory)))


def load_archive(directory: Path, files: dict[str, str], name: str = "location30") -> LoadedDataset:
    archive(directory / ARCHIVES[name], files)
    return load(name, directory)


def load_npz(directory: Path, name: str = "purchase100", **arrays: object) -> LoadedDataset:
    np.savez(directory / f"{name}.npz", **{key: np.asarray(values) for key, values in arrays.items()})
    return load(name, directory)


def test_published_location30(published: str) -> None:
    if not is_found("location30", published):
        pytest.skip("no published Location-30 there")
    source = load_source(DataSpec("location30", published))
    assert source.pool.features.shape == (5010, 446)
    assert np.unique(source.pool.features).tolist() == [0, 1]
    assert source.pool.features.sum(axis=1).mean() == pytest.approx(53.702, abs=5e-4)
    assert np.unique(source.pool.labels).tolist() == list(range(30))
    assert source.pool.labels[0] == 12
    assert source.test is None
    split = select_records(source, 1000, 2000, seed=0)
    assert (len(split.inside), len(split.test)) == (1000, 1002)


@pytest.mark.parametrize("folder", ["", "location30"])
def test_labelled_rows_in_a_tar(tmp_path: Path, folder: str) -> None:
    archive(tmp_path / folder / ARCHIVES["location30"], {"._bangkok": "attributes", "./bangkok": ROWS})
    source = load("location30", tmp_path)
    assert source.pool.features.tolist() == VALUES
    assert source.pool.labels.tolist() == [12, 0, 29]
    assert source.pool.classes == 30
    assert source.description == "Location-30, 3 records, 4 binary features, 30 classes"


@pytest.mark.parametrize(
    "text",
    [
        ROWS.replace('"', ""),
        ROWS.replace("\n", "\r\n"),
        ROWS.replace("0,1\n", "0.0, 1.0\n") + "\n\n",
        ROWS.replace(",1", ',"1"').rstrip(),
    ],
)
def test_other_spellings_of_rows(tmp_path: Path, text: str) -> None:
    source = load_archive(tmp_path, {"dataset_purchase": text}, "purchase100")
    assert source.pool.features.tolist() == VALUES
    assert source.pool.labels.tolist() == [12, 0, 29]
    assert source.pool.classes == 100


@pytest.mark.parametrize("backwards", [False, True])
def test_texas_has_labels_apart(tmp_path: Path, backwards: bool) -> None:
    files = dict(reversed(TEXAS.items())) if backwards else TEXAS
    source = load_archive(tmp_path, {"texas/10/labels": "7\n", **files}, "texas100")
    assert source.pool.features.tolist() == VALUES
    assert source.pool.labels.tolist() == [12, 0, 99]


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (np.eye(100)[[12, 0, 99]], [12, 0, 99]),
        (np.array([12, 0, 99]), [12, 0, 99]),
        (np.array([13, 1, 100], dtype=np.float32), [12, 0, 99]),
        (np.array([13, 1, 99]), [13, 1, 99]),
    ],
)
@pytest.mark.parametrize("kind", [np.bool_, np.int32, np.float64])
def test_arrays_with_either_form_of_labels(tmp_path: Path, kind: type, labels: np.ndarray, expected: list[int]) -> None:
    source = load_npz(tmp_path, features=np.array(VALUES, dtype=kind), labels=labels)
    assert source.pool.features.tolist() == VALUES
    assert source.pool.labels.tolist() == expected
    assert source.pool.classes == 100


Damage = Callable[[bytes], bytes]


@pytest.mark.parametrize(
    "damage",
    [
        lambda whole: whole[: len(whole) // 2],
        lambda whole: whole[:-4],
        lambda whole: whole[:-8] + bytes([whole[-8] ^ 1]) + whole[-7:],
        lambda whole: whole[: len(whole) // 2] + bytes([whole[len(whole) // 2] ^ 0xFF]) + whole[len(whole) // 2 + 1 :],
        lambda whole: gzip.compress(gzip.decompress(whole)[:1700]),
        lambda whole: gzip.compress(b"no tar" * 300),
        lambda whole: gzip.decompress(whole),
        lambda whole: b"",
    ],
)
def test_damaged_archives_are_refused(tmp_path: Path, damage: Damage) -> None:
    draw = np.random.default_rng(0)
    text = "".join(f'"{row % 30 + 1}",{",".join(draw.choice(["0", "1"], 50))}\n' for row in range(200))
    path = archive(tmp_path / ARCHIVES["location30"], {"bangkok": text})
    path.write_bytes(damage(path.read_bytes()))
    assert_refused(r"dataset_location\.tgz .*damaged archive", load, "location30", tmp_path)


def test_names_in_an_archive_are_no_paths(tmp_path: Path) -> None:
    data = tmp_path / "data"
    source = load_archive(data, {"../../outside": ROWS})
    assert len(source.pool) == 3
    assert [path.name for path in tmp_path.rglob("*")] == ["data", ARCHIVES["location30"]]


def test_links_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(ROWS)
    with tarfile.open(tmp_path / ARCHIVES["location30"], "w:gz") as tar:
        link = tarfile.TarInfo("bangkok")
        link.type, link.linkname = tarfile.SYMTYPE, str(tmp_path / "secret")
        tar.addfile(link)
    assert_refused("holds no file", load, "location30", tmp_path)


@pytest.mark.parametrize("name", ARCHIVES)
def test_missing_file_names_the_accepted_ones(tmp_path: Path, name: str) -> None:
    assert_refused(rf"{ARCHIVES[name]} or {name}\.npz not found .*{name} or .*--data-dir", load, name, tmp_path)
    assert not is_found(name, str(tmp_path))
    (tmp_path / f"{name}.npz").touch()
    assert is_found(name, str(tmp_path))


def test_what_is_found(tmp_path: Path) -> None:
    assert is_found("digits", str(tmp_path))
    assert not is_found("csv", str(tmp_path))
    assert not is_found("adult", str(tmp_path / "gone"))
