import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fl_audit.adjacency import Adjacency, NeighbourPair
from fl_audit.data import dissimilarity as module
from fl_audit.data import dissimilarity_ranking
from fl_audit.data.dissimilarity import Dissimilarity
from fl_audit.data.dissimilarity_ranking import approximate_totals, ranked_pairs, ranked_records, total_dissimilarity
from fl_audit.data.neighbours import NeighbourChoice, NeighbourRule, choose_neighbour, ranked_neighbours
from fl_audit.data.records import Records
from tests.builders.refusals import refusal_test, refusals
from tests.few_examples import examples

REMOVE = Adjacency.ADD_REMOVE_RECORD
REPLACE = Adjacency.REPLACE_RECORD
EUCLIDEAN = Dissimilarity.EUCLIDEAN
Rows = list[tuple[int, int, int]]

# Few small whole numbers, so that ties abound; 1 to 2, so that no record lacks a direction.
rows = st.lists(st.tuples(*[st.integers(1, 2)] * 3), min_size=1, max_size=9)


def records(values: object) -> Records:
    features = np.asarray(values, dtype=np.float32)
    return Records(features, np.zeros(len(features)), classes=1)


def brute(first_record: tuple[int, ...], second_record: tuple[int, ...], measure: Dissimilarity) -> float:
    differences = [
        abs(first_value - second_value) for first_value, second_value in zip(first_record, second_record, strict=True)
    ]
    match measure:
        case Dissimilarity.EUCLIDEAN:
            return math.sqrt(sum(difference**2 for difference in differences))
        case Dissimilarity.MANHATTAN:
            return float(sum(differences))
        case Dissimilarity.HAMMING:
            return sum(difference > 0 for difference in differences) / len(differences)
        case Dissimilarity.COSINE:
            return 1 - sum(a * b for a, b in zip(first_record, second_record, strict=True)) / math.hypot(
                *first_record
            ) / math.hypot(*second_record)


# Records are no images here (test_data_structural.py has some), and two pairs can tie under the cosine measure without
# the same arithmetic, so its ties are not checked to the last bit.
FLAT = [measure for measure in Dissimilarity if measure is not Dissimilarity.SSIM]
TIED = [measure for measure in FLAT if measure is not Dissimilarity.COSINE]


PAIRS = {
    "inside": rows,
    "outside": rows,
    "measure": st.sampled_from(TIED),
    "farthest": st.booleans(),
    "share": st.floats(0, 1),
    "block": st.integers(1, 400),
}


@settings(max_examples=examples(200))
@given(**PAIRS)
def test_ranked_pairs_are_the_first_of_all_pairs_in_order(
    inside: Rows, outside: Rows, measure: Dissimilarity, farthest: bool, share: float, block: int
) -> None:
    sign = -1 if farthest else 1
    pairs = itertools.product(range(len(inside)), range(len(outside)))
    expected = sorted(pairs, key=lambda pair: sign * round(brute(inside[pair[0]], outside[pair[1]], measure), 9))
    count = 1 + round(share * (len(expected) - 1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BLOCK_BYTES", block)
        assert ranked_pairs(records(inside), records(outside), measure, count, farthest) == tuple(expected[:count])


@given(**PAIRS, kept_pairs=st.integers(1, 9))
def test_a_pair_of_any_rank_is_found_though_few_pairs_are_kept(
    inside: Rows, outside: Rows, measure: Dissimilarity, farthest: bool, share: float, block: int, kept_pairs: int
) -> None:
    inside_records = records(inside)
    outside_records = records(outside)
    rank = 1 + round(share * (len(inside_records) * len(outside_records) - 1))
    sizes = []
    expected = ranked_pairs(inside_records, outside_records, measure, rank, farthest)[-1]
    merge = dissimilarity_ranking._RankedPairs.merged

    def merged(
        self: dissimilarity_ranking._RankedPairs, other_pairs: dissimilarity_ranking._RankedPairs, count: int
    ) -> dissimilarity_ranking._RankedPairs:
        merged_pairs = merge(self, other_pairs, count)
        sizes.append(len(merged_pairs.scores))
        return merged_pairs

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BLOCK_BYTES", block)
        patch.setattr(dissimilarity_ranking, "_KEPT", kept_pairs)
        patch.setattr(dissimilarity_ranking._RankedPairs, "merged", merged)
        choice = MOST if farthest else LEAST
        assert choose_neighbour(
            NeighbourRule(REPLACE, choice, measure, 0, rank), inside_records, outside_records
        ) == NeighbourPair(*expected)
    assert max(sizes) <= kept_pairs


@settings(max_examples=examples(200))
@given(
    inside=rows, measure=st.sampled_from(FLAT), farthest=st.booleans(), share=st.floats(0, 1), block=st.integers(1, 400)
)
def test_totals_and_ranked_records_follow_from_the_sums_over_the_others(
    inside: Rows, measure: Dissimilarity, farthest: bool, share: float, block: int
) -> None:
    sums = np.array([math.fsum(brute(first_row, second_row, measure) for second_row in inside) for first_row in inside])
    count = 1 + round(share * (len(inside) - 1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BLOCK_BYTES", block)
        exact = total_dissimilarity(records(inside), measure)
        fast, error = approximate_totals(records(inside), measure)
        ranked = ranked_records(records(inside), measure, count, farthest)
    np.testing.assert_allclose(exact, sums, rtol=1e-12, atol=1e-12)
    assert np.abs(fast - exact).max() <= error
    if measure in TIED:
        expected = np.argsort(np.round(-sums if farthest else sums, 9), kind="stable")
        assert ranked == tuple(expected[:count])


@pytest.mark.few_cases(1)
@pytest.mark.parametrize("measure", FLAT)
@pytest.mark.parametrize("farthest", [True, False])
@pytest.mark.parametrize("width", [0, 400])
def test_fast_search_ranks_as_exact_arithmetic_does(measure: Dissimilarity, farthest: bool, width: int) -> None:
    draw = np.random.default_rng(7)
    # With copies, which tie exactly; and close together far from the origin, where fast distances are mere rounding.
    points = (1000 + draw.random((300, 20))).astype(np.float32)
    points[40:60] = points[:20]
    if width:
        common = draw.random(width).astype(np.float32)
        points = np.concatenate([1000 + points[:, :3] / 500, np.tile(4000 + common, (300, 1))], axis=1)
    inside = records(points[:120])
    outside = records(points[100:])
    totals = total_dissimilarity(inside, measure)
    order = np.lexsort((np.arange(120), -totals if farthest else totals))
    for count in (1, 3, 30):
        assert ranked_records(inside, measure, count, farthest) == tuple(order[:count])
    pairs = module.exact_block(*(module.prepare(side.features, measure) for side in (inside, outside)), measure)
    flat = np.argsort(-pairs if farthest else pairs, axis=None, kind="stable")[:30]
    with pytest.MonkeyPatch.context() as patch:
        # About fifty records are a block, wide or not.
        patch.setattr(module, "BLOCK_BYTES", 8 * 50**2 * max(1, width // 50))
        for count in (1, 3, 30):
            expected = tuple(divmod(int(position), len(outside)) for position in flat[:count])
            assert ranked_pairs(inside, outside, measure, count, farthest) == expected
        patch.setattr(dissimilarity_ranking, "_KEPT", 4)
        assert ranked_pairs(inside, outside, measure, 2, farthest, skipped=28) == expected[-2:]


def test_total_ties_are_exact_for_equal_distances_in_another_order() -> None:
    # Every point comes with its mirror image: the sums of the two hold the same addends in different orders.
    points = np.random.default_rng(0).random((40, 2))
    totals = total_dissimilarity(records(np.concatenate([points, points[::-1, ::-1]])), EUCLIDEAN)
    assert np.array_equal(totals[:40], totals[40:][::-1])


def test_a_record_is_not_dissimilar_to_itself() -> None:
    for point in np.random.default_rng(0).random((50, 1, 7)):
        assert total_dissimilarity(records(point), Dissimilarity.COSINE).tolist() == [0]


def test_images_are_flattened() -> None:
    images = records(np.arange(12).reshape(3, 1, 2, 2))
    assert total_dissimilarity(images, Dissimilarity.MANHATTAN).tolist() == [48, 32, 48]


D = records([[0, 0], [1, 0], [5, 0], [1, 1]])
OUT = records([[2, 0], [-5, 0], [6, 9]])
MOST = NeighbourChoice.MOST_DISSIMILAR
LEAST = NeighbourChoice.LEAST_DISSIMILAR
RANDOM = NeighbourChoice.RANDOM


def test_most_dissimilar_follows_the_equations() -> None:
    assert choose_neighbour(NeighbourRule(REMOVE, MOST, EUCLIDEAN, 0), D, None) == NeighbourPair(2, None)
    assert choose_neighbour(NeighbourRule(REPLACE, MOST, Dissimilarity.MANHATTAN, 0), D, OUT) == NeighbourPair(0, 2)


def test_ranks_go_on_from_the_most_and_the_least_dissimilar() -> None:
    # Sums of distances: 0: 6 + sqrt 2, 1: 6, 2: 9 + sqrt 17, 3: 1 + sqrt 2 + sqrt 17 = 6.54.
    removed = [
        choose_neighbour(NeighbourRule(REMOVE, LEAST, EUCLIDEAN, 0, rank), D, None).index for rank in (1, 2, 3, 4)
    ]
    assert removed == [1, 3, 0, 2]
    # Manhattan distances to (2, 0), (-5, 0), (6, 9): 2 5 15, 1 6 14, 3 10 10, 2 7 13.
    expected = [(0, 2), (1, 2), (3, 2), (2, 1), (2, 2), (3, 1)]
    ranked = ranked_neighbours(REPLACE, D, OUT, Dissimilarity.MANHATTAN, 6)
    assert ranked == tuple(NeighbourPair(*pair) for pair in expected)
    assert choose_neighbour(NeighbourRule(REPLACE, MOST, Dissimilarity.MANHATTAN, 0, 4), D, OUT) == NeighbourPair(2, 1)
    nearest = ranked_neighbours(REPLACE, D, OUT, Dissimilarity.MANHATTAN, 3, farthest=False)
    assert nearest == (NeighbourPair(1, 0), NeighbourPair(0, 0), NeighbourPair(3, 0))


def test_named_record() -> None:
    assert choose_neighbour(NeighbourRule(REMOVE, 3, EUCLIDEAN, 0), D, OUT) == NeighbourPair(3, None)
    assert choose_neighbour(NeighbourRule(REPLACE, 2, EUCLIDEAN, 0), D, OUT) == NeighbourPair(2, 1)


def test_random_is_uniform_and_follows_the_seed() -> None:
    pairs = [choose_neighbour(NeighbourRule(REPLACE, RANDOM, EUCLIDEAN, seed), D, OUT) for seed in range(1200)]
    assert pairs[5] == choose_neighbour(NeighbourRule(REPLACE, RANDOM, EUCLIDEAN, 5), D, OUT)
    counts = np.zeros((4, 3))
    for pair in pairs:
        counts[pair.index, pair.replacement] += 1
    # Each cell is binomial(1200, 1/12), mean 100 and standard deviation 9.6.
    assert np.abs(counts - 100).max() < 50
    removed = {choose_neighbour(NeighbourRule(REMOVE, RANDOM, EUCLIDEAN, seed), D, None).index for seed in range(60)}
    assert removed == {0, 1, 2, 3}


test_a_neighbour_must_be_possible = refusal_test(
    refusals(
        lambda relation, choice, rank, pool, outside: choose_neighbour(
            NeighbourRule(relation, choice, EUCLIDEAN, 0, rank), pool, outside
        ),
        (REMOVE, MOST, 5, D, None, "neighbour-rank is 5: accepted are 1 to 4"),
        (REPLACE, LEAST, 13, D, OUT, "neighbour-rank is 13: accepted are 1 to 12"),
        (REMOVE, MOST, 0, D, None, "neighbour-rank is 0"),
        (REPLACE, RANDOM, 2, D, OUT, "neighbour = most-dissimilar or least-dissimilar"),
        (REPLACE, 1, 2, D, OUT, "neighbour = most-dissimilar or least-dissimilar"),
        (REMOVE, -1, 1, D, OUT, "neighbour is -1: accepted are 0 to 3"),
        (REMOVE, 4, 1, D, OUT, "neighbour is 4: accepted are 0 to 3"),
        (REPLACE, -1, 1, D, OUT, "neighbour is -1: accepted are 0 to 3"),
        (REPLACE, 4, 1, D, OUT, "neighbour is 4: accepted are 0 to 3"),
        (REPLACE, MOST, 1, D, None, r"D takes all \d+ records, .* at most 3 records"),
        (REMOVE, MOST, 1, D.take([0]), OUT, r"at least 2 .* remove"),
    )
)
