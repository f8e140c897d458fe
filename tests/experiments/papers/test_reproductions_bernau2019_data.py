"""Data of Bernau et al. 2019: prepared as in the paper, by itself and as the collaborative set."""

import re
import zipfile
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import entropy

from fl_audit.data.catalogue import DataSpec, load_source
from fl_audit.data.data_files import locate_any
from fl_audit.data.loaded_dataset import LoadedDataset
from fl_audit.data.packed_graphs import GRAPH_NODES, cut_graph, unpack_graph
from fl_audit.data.record_selection import select_records
from fl_audit.errors import InputError
from fl_audit.experiments.papers.bernau2019 import skewed
from fl_audit.experiments.papers.bernau2019.collab import collab
from fl_audit.experiments.papers.bernau2019.graph_convolutions import SORTED_NODES
from fl_audit.experiments.papers.bernau2019.labeled_faces import LFW_FILES
from fl_audit.experiments.papers.bernau2019.skewed import FEATURES, SKEWED_CLASSES, skewed_purchases
from tests.builders.refusals import assert_refused

PERSON = np.array([1, 2, 2, 0, 2, 1, 0, 2, 3], dtype=np.int16)
"""Two images of persons 0 and 1, four of person 2, one of person 3."""


def load(name: str, directory: str | Path, **options: int | str) -> LoadedDataset:
    option_values = tuple((key.replace("_", "-"), value) for key, value in options.items())
    return load_source(DataSpec(f"fl_audit.experiments.papers.bernau2019.{name}", str(directory), option_values))


def needs_faces(directory: Path) -> None:
    try:
        locate_any(directory, "lfw", LFW_FILES)
    except InputError:
        pytest.skip("no published faces there")


def write_faces(directory: Path, **changes: object) -> Path:
    images = np.arange(9 * 2 * 4, dtype=np.uint8).reshape(9, 2, 4)
    arrays = {"x": images, "y": PERSON, "people": np.array(["a", "b", "c", "d"])} | changes
    np.savez(directory / "lfw.npz", **{key: np.asarray(value) for key, value in arrays.items() if value is not None})
    return directory


@pytest.mark.parametrize(("classes", "records", "fewest"), [(20, 1906, 39), (50, 2773, 22), (62, 3023, 20)])
def test_published_faces(published_data: Path, classes: int, records: int, fewest: int) -> None:
    needs_faces(published_data)
    source = load("labeled_faces:lfw", published_data, classes=classes)
    assert source.pool.features.shape == (records, 1, 64, 64)
    assert (source.pool.features.min(), source.pool.features.max()) == (0, 1)
    counts = np.bincount(source.pool.labels)
    assert counts.size == source.pool.classes == classes
    assert all(earlier >= later for earlier, later in pairwise(counts.tolist()))
    assert counts[:3].tolist() == [530, 236, 144]
    assert counts[-1] == fewest


def test_more_people_than_there_are_are_refused(published_data: Path) -> None:
    needs_faces(published_data)
    assert_refused(r"classes is 100: .*\b2 to 62\b", load, "labeled_faces:lfw", published_data, classes=100)


def test_people_are_numbered_by_their_images(tmp_path: Path) -> None:
    write_faces(tmp_path)
    everybody = load("labeled_faces:lfw", tmp_path)
    assert everybody.pool.labels.tolist() == [2, 0, 0, 1, 0, 2, 1, 0, 3]
    assert re.fullmatch(r"Labeled Faces .*, 9 .* 2x4, 4 people", everybody.description)
    two = load("labeled_faces:lfw", tmp_path, classes=2)
    assert two.pool.labels.tolist() == [0, 0, 1, 0, 1, 0]
    assert np.allclose(two.pool.features[0, 0, 0] * 255, [8, 9, 10, 11])


@pytest.mark.parametrize(
    ("changes", "options", "words"),
    [
        ({"people": None}, {}, r"people: .*x, y and people"),
        ({"x": np.zeros((9, 2, 4))}, {}, r"\(9, 2, 4\) .*float64: .*grey images"),
        ({"x": np.zeros((9, 2, 4, 3), dtype=np.uint8)}, {}, "accepted are grey"),
        ({"y": np.arange(9)}, {}, r"\by .*people: .*0 to 3"),
        ({"y": PERSON[:8]}, {}, r"9 images .*labels .*\(8,\)"),
        ({}, {"classes": 1}, "classes is 1: accepted are 2 to 4"),
        ({}, {"classes": 0}, "classes is 0: accepted are 2 to 4"),
        ({}, {"people": 3}, r"labeled_faces:lfw .*no people .*: .*classes"),
    ],
)
def test_spoilt_faces_are_refused(
    tmp_path: Path, changes: dict[str, object], options: dict[str, int | str], words: str
) -> None:
    write_faces(tmp_path, **changes)
    assert_refused(words, load, "labeled_faces:lfw", tmp_path, **options)


@pytest.mark.parametrize(
    ("name", "classes", "file"),
    [
        *(("purchases_and_texas_loaders:purchases", classes, f"purchase{classes}") for classes in (10, 20, 50, 100)),
        *(("purchases_and_texas_loaders:texas", classes, f"texas{classes}") for classes in (100, 150, 200, 300)),
    ],
)
def test_class_counts_have_files_of_their_own(tmp_path: Path, name: str, classes: int, file: str) -> None:
    np.savez(tmp_path / f"{file}.npz", features=np.eye(3, 5), labels=np.array([1, 2, classes]))
    source = load(name, tmp_path, classes=classes)
    assert source.name.endswith(name)
    assert source.pool.classes == classes
    assert source.pool.labels.tolist() == [0, 1, classes - 1]
    other_classes = {10: 20, 100: 50 if name.endswith(":purchases") else 150}.get(classes, 100)
    assert_refused("not found in", load, name, tmp_path, classes=other_classes)


def test_other_class_counts_are_refused(tmp_path: Path) -> None:
    named = "classes is 30: accepted are 10, 20, 50 and 100"
    assert_refused(named, load, "purchases_and_texas_loaders:purchases", tmp_path, classes=30)
    named = "classes is 10: accepted are 100, 150, 200 and 300"
    assert_refused(named, load, "purchases_and_texas_loaders:texas", tmp_path, classes=10)


@pytest.mark.parametrize("classes", SKEWED_CLASSES)
def test_skewed_purchases_follow_their_definition(classes: int) -> None:
    """Shares of ones at a class' own positions and at others, within five standard errors; all positions alike."""
    source = skewed_purchases(classes=classes, generated_records=8000)
    assert source.test is not None
    for records, noise in ((source.pool, 0.2), (source.test, 0.5)):
        class_mask = np.arange(FEATURES) // (FEATURES // classes) == records.labels[:, np.newaxis]
        assert (class_mask.sum(axis=1) == FEATURES // classes).all()
        for mask, share in ((class_mask, 0.8), (~class_mask, noise)):
            ones = records.features[mask]
            assert abs(ones.mean() - share) < 5 * np.sqrt(share * (1 - share) / ones.size)
        expected = 0.8 / classes + noise * (1 - 1 / classes)
        error = np.sqrt(expected * (1 - expected) / len(records))
        assert np.abs(records.features.mean(axis=0) - expected).max() < 5 * error
        counts = np.bincount(records.labels, minlength=classes)
        assert np.abs(counts - len(records) / classes).max() < 5 * np.sqrt(len(records) / classes)


def test_skewed_purchases_are_the_same_for_everybody() -> None:
    small, large = (skewed_purchases(classes=20, generated_records=size) for size in (1500, 3000))
    assert small.test is not None
    assert large.test is not None
    assert np.array_equal(small.pool.features, large.pool.features[:750])
    assert np.array_equal(small.test.labels, large.test.labels[:750])
    assert not np.array_equal(small.pool.labels, small.test.labels)
    # Stored runs refer to these records: change them never.
    assert np.flatnonzero(small.pool.features[0])[:5].tolist() == [0, 1, 2, 3, 5]
    assert small.pool.labels[:5].tolist() == [0, 5, 10, 14, 11]


def test_entropy_of_skewed_purchases() -> None:
    """The paper says about 0.3 bits; measured: the mean of H over positions, given the class."""
    noisier, pool = (entropy([t, 10 - t], base=2) for t in (skewed._NOISE_OF_TEST, skewed._NOISE_OF_POOL))
    gaps = [(1 - 1 / classes) * (noisier - pool) for classes in SKEWED_CLASSES]
    assert np.round(gaps, 3).tolist() == [0.25, 0.264, 0.273, 0.275]


def test_skewed_purchases_in_a_configuration() -> None:
    source = load("skewed:skewed_purchases", ".", classes=50, generated_records=1000)
    expected_description = r"Skewed Purchases, 500 records .*500 noisier .*, generated, 600 binary .*, 50 classes"
    assert re.fullmatch(expected_description, source.description)
    split = select_records(source, 100, 50, seed=0)
    assert (len(split.inside), len(split.test)) == (100, 50)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"classes": 30}, r"classes is 30: .*10, 20, 50 and 100"),
        ({"generated_records": 2}, r"generated-records is 2: .*\b4 to 200000"),
        ({"generated_records": 1001}, r"generated-records is 1001: .*even"),
        ({"generated_records": 200_002}, "generated-records is 200002"),
    ],
)
def test_other_numbers_are_refused(options: dict[str, int], words: str) -> None:
    assert_refused(words, load, "skewed:skewed_purchases", ".", **options)


TEXT = "2\n3 7\n0 2 1 2\n0 1 0\n0 2 2 0\n2 5\n0 0\n0 0\n"
"""A path of three nodes whose last one is joined to itself, and two nodes that are not joined."""


def source_of(text: str, directory: Path) -> LoadedDataset:
    with zipfile.ZipFile(directory / "COLLAB.zip", "w") as archive:
        archive.writestr("COLLAB/COLLAB.txt", text)
    return collab(directory)


def test_the_text_of_dgcnn(tmp_path: Path) -> None:
    source = source_of(TEXT, tmp_path)
    path, pair = map(unpack_graph, source.pool.features)
    assert path.astype(int).tolist() == [[0, 1, 1], [1, 0, 0], [1, 0, 1]]
    assert pair.shape == (2, 2)
    assert not pair.any()
    assert (source.name, source.test, source.pool.labels.tolist(), source.pool.classes) == ("collab", None, [1, 0], 2)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ("0\n", "holds 0 graphs"),
        (TEXT.replace("7", "7.5"), "whole numbers"),
        (TEXT.replace("7", "x"), "whole numbers"),
        (TEXT[:-3], "graph 2 of 2"),
        (TEXT[:10], "graph 1 of 2"),
        (TEXT + "1\n", "after its last"),
        (TEXT.replace("0 2 1 2", "0 2 1 3"), r"graph 1 .*: .*\b0 to 2"),
        (TEXT.replace("0 2 1 2", "0 2 1 1"), r"graph 1 .*twice"),
        (TEXT.replace("0 2 1 2", "0 1 1"), r"graph 1 .*not back"),
        (TEXT.replace("0 2 1 2", "0 9 1 2"), "graph 1 joins node 0 to 9 nodes of 3"),
        (TEXT.replace("2 5\n0", "2 5\n1"), r"2 different tags"),
        (TEXT.replace("3 7", "0 7"), "graph 1 has 0 nodes"),
    ],
)
def test_spoilt_texts_are_refused(tmp_path: Path, text: str, words: str) -> None:
    error = assert_refused(words, source_of, text, tmp_path)
    assert str(error).startswith(str(tmp_path / "COLLAB.zip"))


def test_archives_are_read_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "collab" / "COLLAB.zip"
    path.parent.mkdir()
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("COLLAB/COLLAB.txt", TEXT)
    assert len(collab(tmp_path).pool) == 2
    assert [entry.name for entry in path.parent.iterdir()] == ["COLLAB.zip"]
    path.write_bytes(path.read_bytes()[:-30])
    assert_refused("damaged archive", collab, tmp_path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("other.txt", TEXT)
    assert_refused(r"no file COLLAB/COLLAB\.txt", collab, tmp_path)
    path.unlink()
    assert_refused(r"COLLAB\.zip not found", collab, tmp_path)


@pytest.mark.long
def test_published_collab(published_data: Path) -> None:
    if not any(published_data.rglob("COLLAB.zip")):
        pytest.skip("no published COLLAB there")
    pool = collab(published_data, graph_nodes=492).pool
    matrices = [unpack_graph(packed) for packed in pool.features]
    assert len(matrices) == 5000
    assert np.bincount(pool.labels).tolist() == [2600, 775, 1625]
    nodes = np.array(list(map(len, matrices)))
    assert (nodes.min(), nodes.max(), nodes.sum()) == (32, 492, 372_474)
    assert sum(np.count_nonzero(np.triu(matrix)) for matrix in matrices) == 12_288_916
    assert sum(int(matrix.trace()) for matrix in matrices) == 2837
    assert max(int(matrix.sum(axis=1).max()) for matrix in matrices) == 491
    # What the defaults of the model and of the records say.
    assert (nodes <= SORTED_NODES).mean() >= 0.9 > (nodes < SORTED_NODES).mean()
    assert int((nodes > GRAPH_NODES).sum()) == 508
    cut = collab(published_data).pool.features[::100]
    for packed, matrix in zip(cut, matrices[::100], strict=True):
        assert np.array_equal(unpack_graph(packed), cut_graph(matrix, GRAPH_NODES))
