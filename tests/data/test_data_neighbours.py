import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fl_audit.data import dissimilarity as module
from fl_audit.data.dissimilarity import Dissimilarity, farthest_pair, total_dissimilarity
from fl_audit.data.neighbours import NeighbourChoice, NeighbourPair, choose_neighbour
from fl_audit.data.records import Records
from fl_audit.errors import InputError
from fl_audit.privacy.release import NeighbouringRelation

REMOVE, REPLACE = NeighbouringRelation.ADD_REMOVE_RECORD, NeighbouringRelation.REPLACE_RECORD
Rows = list[tuple[int, int, int]]

# Few small whole numbers, so that ties abound; 1 to 2, so that no record lacks a direction.
rows = st.lists(st.tuples(*[st.integers(1, 2)] * 3), min_size=1, max_size=9)


def records(values: object) -> Records:
    features = np.asarray(values, dtype=np.float32)
    return Records(features, np.zeros(len(features)), classes=1)


def brute(one: tuple[int, ...], two: tuple[int, ...], measure: Dissimilarity) -> float:
    differences = [abs(left - right) for left, right in zip(one, two, strict=True)]
    match measure:
        case Dissimilarity.EUCLIDEAN:
            return math.sqrt(sum(difference**2 for difference in differences))
        case Dissimilarity.MANHATTAN:
            return float(sum(differences))
        case Dissimilarity.HAMMING:
            return sum(difference > 0 for difference in differences) / len(differences)
        case Dissimilarity.COSINE:
            return 1 - sum(a * b for a, b in zip(one, two, strict=True)) / math.hypot(*one) / math.hypot(*two)


# Two pairs can tie under the cosine measure without the same arithmetic, so its ties are not checked to the last bit.
TIED = [measure for measure in Dissimilarity if measure is not Dissimilarity.COSINE]


@settings(max_examples=150, deadline=None)
@given(inside=rows, outside=rows, measure=st.sampled_from(TIED), block=st.integers(1, 400))
def test_farthest_pair_is_the_first_of_all_pairs(
    inside: Rows, outside: Rows, measure: Dissimilarity, block: int
) -> None:
    pairs = itertools.product(range(len(inside)), range(len(outside)))
    expected = max(pairs, key=lambda pair: round(brute(inside[pair[0]], outside[pair[1]], measure), 9))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_BLOCK_BYTES", block)
        assert farthest_pair(records(inside), records(outside), measure) == expected


@settings(max_examples=150, deadline=None)
@given(inside=rows, measure=st.sampled_from(Dissimilarity), block=st.integers(1, 400))
def test_total_dissimilarity_is_the_sum_over_the_others(inside: Rows, measure: Dissimilarity, block: int) -> None:
    expected = [math.fsum(brute(one, two, measure) for two in inside) for one in inside]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_BLOCK_BYTES", block)
        found = total_dissimilarity(records(inside), measure)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
    if measure in TIED:
        assert np.argmax(found) == np.argmax(np.round(expected, 9))


def test_total_ties_are_exact_for_equal_distances_in_another_order() -> None:
    # Every point comes with its mirror image: the sums of the two hold the same addends in different orders.
    points = np.random.default_rng(0).random((40, 2))
    found = total_dissimilarity(records(np.concatenate([points, points[::-1, ::-1]])), Dissimilarity.EUCLIDEAN)
    assert np.array_equal(found[:40], found[40:][::-1])


def test_a_record_is_not_dissimilar_to_itself() -> None:
    for point in np.random.default_rng(0).random((50, 1, 7)):
        assert total_dissimilarity(records(point), Dissimilarity.COSINE).tolist() == [0]


def test_images_are_flattened() -> None:
    images = records(np.arange(12).reshape(3, 1, 2, 2))
    assert total_dissimilarity(images, Dissimilarity.MANHATTAN).tolist() == [48, 32, 48]


def test_cosine_refuses_zeros_and_shapes_must_agree() -> None:
    with pytest.raises(InputError, match="record 1 has only zeros"):
        total_dissimilarity(records([[1, 0], [0, 0]]), Dissimilarity.COSINE)
    with pytest.raises(InputError, match=r"shape \(3,\)"):
        farthest_pair(records([[1, 0]]), records([[1, 0, 0]]), Dissimilarity.EUCLIDEAN)


D = records([[0, 0], [1, 0], [5, 0], [1, 1]])
OUT = records([[2, 0], [-5, 0], [6, 9]])
MOST, RANDOM = NeighbourChoice.MOST_DISSIMILAR, NeighbourChoice.RANDOM


def test_most_dissimilar_follows_the_equations() -> None:
    assert choose_neighbour(REMOVE, D, None, MOST, Dissimilarity.EUCLIDEAN, 0) == NeighbourPair(2, None)
    assert choose_neighbour(REPLACE, D, OUT, MOST, Dissimilarity.MANHATTAN, 0) == NeighbourPair(0, 2)


def test_named_record() -> None:
    assert choose_neighbour(REMOVE, D, OUT, 3, Dissimilarity.EUCLIDEAN, 0) == NeighbourPair(3, None)
    assert choose_neighbour(REPLACE, D, OUT, 2, Dissimilarity.EUCLIDEAN, 0) == NeighbourPair(2, 1)


@pytest.mark.parametrize("relation", [REMOVE, REPLACE])
@pytest.mark.parametrize("index", [-1, 4])
def test_index_out_of_range(relation: NeighbouringRelation, index: int) -> None:
    with pytest.raises(InputError, match=f"neighbour index is {index}: accepted are 0 to 3"):
        choose_neighbour(relation, D, OUT, index, Dissimilarity.EUCLIDEAN, 0)


def test_random_is_uniform_and_follows_the_seed() -> None:
    drawn = [choose_neighbour(REPLACE, D, OUT, RANDOM, Dissimilarity.EUCLIDEAN, seed) for seed in range(1200)]
    assert drawn[5] == choose_neighbour(REPLACE, D, OUT, RANDOM, Dissimilarity.EUCLIDEAN, 5)
    counts = np.zeros((4, 3))
    for pair in drawn:
        counts[pair.index, pair.replacement] += 1
    # Each cell is binomial(1200, 1/12), mean 100 and standard deviation 9.6.
    assert np.abs(counts - 100).max() < 50
    removed = {choose_neighbour(REMOVE, D, None, RANDOM, Dissimilarity.EUCLIDEAN, seed).index for seed in range(60)}
    assert removed == {0, 1, 2, 3}


def test_a_neighbour_must_be_possible() -> None:
    with pytest.raises(InputError, match="no record is left outside D"):
        choose_neighbour(REPLACE, D, None, MOST, Dissimilarity.EUCLIDEAN, 0)
    with pytest.raises(InputError, match="at least 2 are needed to remove one"):
        choose_neighbour(REMOVE, D.take([0]), OUT, MOST, Dissimilarity.EUCLIDEAN, 0)
