"""COLLAB: the text that it is read from, what is refused, and the published file."""

import zipfile
from pathlib import Path

import numpy as np
import pytest

from fl_audit.data.loaded_dataset import LoadedDataset
from fl_audit.data.packed_graphs import GRAPH_NODES, cut_graph, unpack_graph
from fl_audit.errors import InputError
from fl_audit.experiments.papers.bernau2019.collab import collab
from fl_audit.experiments.papers.bernau2019.graph_convolutions import SORTED_NODES

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
    with pytest.raises(InputError, match=words) as caught:
        source_of(text, tmp_path)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(str(tmp_path / "COLLAB.zip"))


def test_archives_are_read_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "collab" / "COLLAB.zip"
    path.parent.mkdir()
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("COLLAB/COLLAB.txt", TEXT)
    assert len(collab(tmp_path).pool) == 2
    assert [found.name for found in path.parent.iterdir()] == ["COLLAB.zip"]
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(InputError, match="damaged archive"):
        collab(tmp_path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("other.txt", TEXT)
    with pytest.raises(InputError, match=r"no file COLLAB/COLLAB\.txt"):
        collab(tmp_path)
    path.unlink()
    with pytest.raises(InputError, match=r"COLLAB\.zip not found"):
        collab(tmp_path)


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
