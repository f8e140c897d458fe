"""Tests of graphs as records: cutting, packing, randomization and comparison."""

import re
import zipfile
from pathlib import Path

import numpy as np
import pytest

from fl_audit.adjacency import Adjacency
from fl_audit.data.catalogue import DataSpec, load_source
from fl_audit.data.dissimilarity import Dissimilarity
from fl_audit.data.dissimilarity_ranking import ranked_pairs, ranked_records
from fl_audit.data.neighbours import NeighbourChoice, NeighbourRule, choose_neighbour, client_dissimilarities
from fl_audit.data.packed_graphs import GRAPH_NODES, comparable, cut_graph, graph_records, pack_graph, unpack_graph
from fl_audit.data.randomizers import RandomisedEdges
from fl_audit.data.records import Records
from fl_audit.randomness import Purpose, generator
from tests.builders.refusals import assert_refused

STAR = np.zeros((5, 5), dtype=np.bool_)
STAR[2, :2] = STAR[:2, 2] = STAR[2, 3:] = STAR[3:, 2] = True


def random_graphs(sizes: list[int]) -> list[np.ndarray]:
    draw = np.random.default_rng(0)
    above = [np.triu(draw.random((nodes, nodes)) < 0.4, 1) for nodes in sizes]
    return [matrix | matrix.T for matrix in above]


def records_of(matrices: list[np.ndarray], nodes: int = GRAPH_NODES) -> Records:
    return graph_records(matrices, np.arange(len(matrices)) % 2, 2, nodes)


def test_records_hold_the_graphs() -> None:
    graphs = random_graphs([3, 30, 17])
    records = records_of(graphs, 40)
    assert records.graphs
    assert records.shape == (30, 3)
    assert records.labels.tolist() == [0, 1, 0]
    for number in range(3):
        assert np.array_equal(unpack_graph(records.features[number]), graphs[number])
    subset = records.take([2, 0])
    assert subset.graphs
    assert np.array_equal(unpack_graph(subset.features[0]), graphs[2])
    assert_refused(r"graph-nodes is 1: .* from 2", records_of, graphs, 1)


def test_graphs_of_zeros_and_ones_are_graphs() -> None:
    numbers = records_of([STAR.astype(float)])
    truths = records_of([STAR])
    assert np.array_equal(numbers.features, truths.features)


def test_large_graphs_keep_the_nodes_of_highest_degree_in_their_order() -> None:
    assert np.array_equal(cut_graph(STAR, 5), STAR)
    # Node 2 is joined to all; of the others, which are joined to it alone, the first ones stay.
    assert cut_graph(STAR, 3).astype(int).tolist() == [[0, 0, 1], [0, 0, 1], [1, 1, 0]]
    graphs = random_graphs([40])
    matrix = graphs[0]
    degrees = graphs[0].sum(axis=1)
    kept_nodes = [
        node for node in range(40) if (degrees > degrees[node]).sum() + (degrees[:node] == degrees[node]).sum() < 25
    ]
    assert np.array_equal(cut_graph(matrix, 25), matrix[np.ix_(kept_nodes, kept_nodes)])
    assert np.array_equal(unpack_graph(records_of(graphs, 25).features[0]), cut_graph(matrix, 25))


def test_randomised_graphs_are_what_the_randomizer_makes_of_the_matrices() -> None:
    graphs = random_graphs([3, 30, 17])
    local_randomizer = RandomisedEdges(1.0)
    records = records_of(graphs, 40)
    randomised_graphs = local_randomizer.perturb(records.features, generator(3, Purpose.LOCAL_RANDOMIZER))
    assert randomised_graphs.shape == records.features.shape
    draws = generator(3, Purpose.LOCAL_RANDOMIZER)
    for number in range(3):
        # Absent nodes change nothing.
        alone = local_randomizer.perturb(pack_graph(graphs[number], len(graphs[number]))[np.newaxis], draws)[0]
        assert np.array_equal(unpack_graph(randomised_graphs[number]), unpack_graph(alone))
        assert local_randomizer.log_odds(randomised_graphs[number : number + 1], alone, alone) == 0
    assert np.array_equal(
        local_randomizer.perturb(records.features[:2], generator(3, Purpose.LOCAL_RANDOMIZER)), randomised_graphs[:2]
    )
    assert not np.array_equal(randomised_graphs[1:], records.features[1:])
    # With epsilon 50 nothing is told wrongly but once in 10^19 times; these graphs have no lonely node.
    nearly_all = RandomisedEdges(50.0).perturb(records.features[1:], generator(3, Purpose.LOCAL_RANDOMIZER))
    assert np.array_equal(nearly_all, records.features[1:])


def test_graphs_are_as_far_apart_as_they_have_different_pairs() -> None:
    graphs = random_graphs([4, 30, 30, 17, 9])
    features = comparable(records_of(graphs)).features
    assert set(np.unique(features)) == {0.0, 1.0}
    for first_index in range(5):
        for second_index in range(5):
            first_matrix, second_matrix = np.zeros((2, 30, 30), dtype=np.bool_)
            for number, whole in ((first_index, first_matrix), (second_index, second_matrix)):
                nodes = len(graphs[number])
                whole[:nodes, :nodes] = graphs[number]
            pairs = np.triu(first_matrix != second_matrix).sum() + abs(
                len(graphs[first_index]) - len(graphs[second_index])
            )
            assert np.square(features[first_index] - features[second_index]).sum() == pairs
    plain_records = Records(np.eye(3), np.arange(3), 3)
    assert comparable(plain_records) is plain_records


@pytest.mark.few_cases(6)
@pytest.mark.parametrize("measure", [Dissimilarity.EUCLIDEAN, Dissimilarity.HAMMING, Dissimilarity.MANHATTAN])
@pytest.mark.parametrize("adjacency", [Adjacency.ADD_REMOVE_RECORD, Adjacency.REPLACE_RECORD])
@pytest.mark.parametrize("choice", [NeighbourChoice.MOST_DISSIMILAR, NeighbourChoice.LEAST_DISSIMILAR, 4])
def test_neighbours_are_chosen_by_pairs_of_nodes(
    choice: NeighbourChoice | int, adjacency: Adjacency, measure: Dissimilarity
) -> None:
    records = records_of(random_graphs([9, 30, 12, 25, 17, 30, 5, 22]))
    flat = comparable(records)
    halves = np.arange(5), np.arange(5, 8)
    neighbour, expected = (
        choose_neighbour(
            NeighbourRule(adjacency, choice, measure, 0), representation.take(halves[0]), representation.take(halves[1])
        )
        for representation in (records, flat)
    )
    assert neighbour == expected
    (inside, outside), (flat_inside, flat_outside) = (
        [representation.take(half) for half in halves] for representation in (records, flat)
    )
    assert ranked_pairs(inside, outside, measure, 15) == ranked_pairs(flat_inside, flat_outside, measure, 15)
    assert ranked_records(records, measure, 8) == ranked_records(flat, measure, 8)
    clients = [np.arange(3), np.arange(3, 8)]
    if measure is not Dissimilarity.HAMMING:
        assert np.array_equal(
            client_dissimilarities(clients, records, measure), client_dissimilarities(clients, flat, measure)
        )


COLLAB = "fl_audit.experiments.papers.bernau2019.collab:collab"


def collab(directory: Path, graphs: list[np.ndarray]) -> Path:
    """Write graphs of two classes in turn in the text format of DGCNN."""
    lines = [str(len(graphs))]
    for number in range(len(graphs)):
        lines.append(f"{len(graphs[number])} {number % 2}")
        for row in graphs[number]:
            joined = np.flatnonzero(row)
            lines.append(" ".join(map(str, [0, len(joined), *joined])))
    with zipfile.ZipFile(directory / "COLLAB.zip", "w") as archive:
        archive.writestr("COLLAB/COLLAB.txt", "\n".join(lines))
    return directory


def test_the_catalogue_has_collab(tmp_path: Path) -> None:
    graphs = random_graphs([9, 30, 12])
    source = load_source(DataSpec(COLLAB, str(collab(tmp_path, graphs)), (("graph-nodes", 12),)))
    assert source.pool.graphs
    assert source.feature_shape == (12, 2)
    assert re.fullmatch(r"COLLAB, 3 graphs .* 12 nodes, 1 .* cut .*", source.description)
    assert np.array_equal(unpack_graph(source.pool.features[1]), cut_graph(graphs[1], 12))
    assert_refused(r"graph-nodes is 1: .* from 2", load_source, DataSpec(COLLAB, str(tmp_path), (("graph-nodes", 1),)))
