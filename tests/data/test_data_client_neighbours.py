import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fl_audit.adjacency import Adjacency, NeighbourPair
from fl_audit.data.dissimilarity import Dissimilarity
from fl_audit.data.neighbours import (
    NeighbourChoice,
    NeighbourRule,
    choose_client,
    client_dissimilarities,
    replacement_positions,
)
from fl_audit.data.records import Records
from tests.builders.refusals import assert_refused
from tests.few_examples import examples

REMOVE = Adjacency.ADD_REMOVE_CLIENT
REPLACE = Adjacency.REPLACE_CLIENT
MOST = NeighbourChoice.MOST_DISSIMILAR
LEAST = NeighbourChoice.LEAST_DISSIMILAR
RANDOM = NeighbourChoice.RANDOM
EUCLIDEAN = Dissimilarity.EUCLIDEAN


def records(features: object, labels: object, classes: int = 2, owner: object = None) -> Records:
    codes = None if owner is None else np.asarray(owner)
    names = () if codes is None else tuple("abcdefghijkl")
    return Records(np.asarray(features, dtype=np.float32), np.asarray(labels), classes, codes, names)


def random_records(number: int, seed: int, owners: int | None = None) -> Records:
    draw = np.random.default_rng(seed)
    owner = None if owners is None else draw.integers(0, owners, number)
    return records(draw.random((number, 3)), draw.integers(0, 2, number), owner=owner)


@pytest.mark.parametrize(
    ("measure", "expected"),
    [
        # Client 0 has the mean (1, 2) and the shares (1/2, 1/2), the others (4, 6) and (1, 0).
        (EUCLIDEAN, np.sqrt(3**2 + 4**2 + 0.5**2 + 0.5**2)),
        (Dissimilarity.MANHATTAN, 3 + 4 + 0.5 + 0.5),
        (Dissimilarity.COSINE, 1 - (4 + 12 + 0.5) / np.sqrt((1 + 4 + 0.5) * (16 + 36 + 1))),
    ],
)
def test_means_and_label_shares_are_compared(measure: Dissimilarity, expected: float) -> None:
    client_records = records([[0, 2], [2, 2], [4, 5], [4, 6], [4, 7]], [0, 1, 0, 0, 0])
    shards = [np.array([0, 1]), np.array([2, 4]), np.array([3])]
    assert client_dissimilarities(shards, client_records, measure)[0] == pytest.approx(expected, rel=1e-12)


def test_images_are_flattened() -> None:
    flat = random_records(12, 0)
    images = Records(flat.features.reshape(12, 1, 1, 3), flat.labels, 2)
    shards = np.split(np.arange(12), [3, 7])
    assert np.array_equal(client_dissimilarities(shards, flat), client_dissimilarities(shards, images))


@settings(max_examples=examples(60))
@given(clients=st.integers(2, 8), seed=st.integers(0, 2**32), farthest=st.booleans())
def test_ranks_are_in_order_and_do_not_depend_on_the_order_of_records(clients: int, seed: int, farthest: bool) -> None:
    draw = np.random.default_rng(seed)
    # Few different clients, so that there are ties.
    kinds = [random_records(4, int(kind)) for kind in draw.integers(0, 3, clients)]
    order = [draw.permutation(4) for _ in range(clients)]
    whole = records(
        np.concatenate([kind.features[rows] for kind, rows in zip(kinds, order, strict=True)]),
        np.concatenate([kind.labels[rows] for kind, rows in zip(kinds, order, strict=True)]),
    )
    shards = np.split(np.arange(4 * clients), clients)
    choice = MOST if farthest else LEAST
    ranked = [
        choose_client(NeighbourRule(REMOVE, choice, EUCLIDEAN, seed, rank), shards, whole).index
        for rank in range(1, clients + 1)
    ]
    assert sorted(ranked) == list(range(clients))
    scores = np.round(client_dissimilarities(shards, whole), 9) * (-1 if farthest else 1)
    assert ranked == sorted(range(clients), key=lambda client: (scores[client], client))


def test_the_relation_decides_whether_there_is_a_stand_in() -> None:
    whole = random_records(12, 0)
    shards = np.split(np.arange(12), 4)
    assert choose_client(NeighbourRule(REMOVE, 2, EUCLIDEAN, 0), shards, whole) == NeighbourPair(2, None)
    assert choose_client(NeighbourRule(REPLACE, 2, EUCLIDEAN, 0), shards, whole) == NeighbourPair(2, 0)
    assert choose_client(NeighbourRule(REPLACE, 3, EUCLIDEAN, 0), shards, whole) == NeighbourPair(3, 0)


def test_random_client_follows_the_seed_and_is_uniform() -> None:
    whole = random_records(12, 0)
    shards = np.split(np.arange(12), 4)
    chosen, removed = (
        [choose_client(NeighbourRule(relation, RANDOM, EUCLIDEAN, seed), shards, whole).index for seed in range(trials)]
        for relation, trials in ((REPLACE, 400), (REMOVE, 20))
    )
    assert chosen[:20] == removed
    # Each count is binomial(400, 1/4), standard deviation 8.7.
    assert np.abs(np.bincount(chosen, minlength=4) - 100).max() < 45


@settings(max_examples=examples(150))
@given(
    outside=st.integers(1, 60),
    size=st.integers(1, 30),
    owners=st.none() | st.integers(1, 6),
    seed=st.integers(0, 2**64 - 1),
    number=st.integers(0, 2**40),
)
def test_a_stand_in_is_a_sorted_set_of_its_size_of_one_owner_who_has_enough(
    outside: int, size: int, owners: int | None, seed: int, number: int
) -> None:
    pool = random_records(outside, outside, owners)
    if outside < size:
        assert_refused(f"has {size} records, .* {outside} are left", replacement_positions, pool, size, seed, number)
        return
    shard = replacement_positions(pool, size, seed, number)
    assert shard.dtype == np.int64
    assert shard.shape == (size,)
    assert (np.diff(shard) > 0).all()
    assert 0 <= shard[0] <= shard[-1] < outside
    assert np.array_equal(shard, replacement_positions(pool, size, seed, number))
    if pool.owner is not None and np.bincount(pool.owner).max() >= size:
        assert len(np.unique(pool.owner[shard])) == 1


@settings(max_examples=examples(150))
@given(
    inside=st.integers(1, 30),
    outside=st.integers(1, 60),
    owners=st.integers(1, 6),
    seed=st.integers(0, 2**32),
    natural=st.booleans(),
)
def test_who_stands_in_follows_the_owners(inside: int, outside: int, owners: int, seed: int, natural: bool) -> None:
    pool = random_records(outside, seed, owners)
    training = random_records(inside, seed + 1, max(1, owners - 1))
    assert pool.owner is not None
    assert training.owner is not None
    replaced = np.flatnonzero(training.owner == training.owner[0]) if natural else np.arange(inside)
    replaced_owners = np.unique(training.owner[replaced])
    size = len(replaced)
    free = np.flatnonzero(pool.owner != replaced_owners[0]) if len(replaced_owners) == 1 else np.arange(outside)
    if len(free) < size:
        named = "its stand-in"
        assert_refused(named, replacement_positions, pool, size, seed, inside_records=training, replaced=replaced)
        return
    whose = pool.owner[replacement_positions(pool, size, seed, inside_records=training, replaced=replaced)]
    if len(replaced_owners) > 1:
        return
    assert replaced_owners[0] not in whose
    counts = np.bincount(pool.owner[free], minlength=owners)
    strangers = [owner for owner in range(owners) if counts[owner] >= size and owner not in training.owner]
    if (counts >= size).any():
        assert len(np.unique(whose)) == 1
    if strangers:
        assert whose[0] in strangers


def test_stand_ins_of_other_numbers_and_seeds_are_other_draws() -> None:
    pool = random_records(200, 0)
    shards = {tuple(replacement_positions(pool, 10, seed, number)) for seed in range(3) for number in range(20)}
    assert len(shards) == 60


def test_stand_ins_are_uniform() -> None:
    pool = random_records(10, 0)
    counts = np.zeros(10)
    for number in range(2000):
        counts[replacement_positions(pool, 4, 0, number)] += 1
    # Each count is binomial(2000, 0.4), standard deviation 22.
    assert np.abs(counts - 800).max() < 110


def test_a_client_of_several_owners_is_replaced_by_a_mixture() -> None:
    pool = random_records(400, 0, 4)
    training = random_records(40, 1, 4)
    assert pool.owner is not None
    shard = replacement_positions(pool, 40, 0, inside_records=training, replaced=np.arange(40))
    assert len(np.unique(pool.owner[shard])) == 4


def test_no_other_owner_is_refused() -> None:
    pool = random_records(50, 0, 1)
    training = random_records(5, 1, 1)
    named = r"has 5 records, .* 0 of other owners"
    assert_refused(named, replacement_positions, pool, 5, 0, inside_records=training, replaced=np.arange(5))
