import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fl_audit.data.loaded_dataset import LoadedDataset
from fl_audit.data.record_selection import population_size, select_records
from fl_audit.data.records import Records
from tests.builders.refusals import assert_refused


def make(n: int, classes: int = 2, official: int = 0) -> LoadedDataset:
    def part(size: int, first: int) -> Records:
        numbers = np.arange(first, first + size)
        return Records(numbers[:, None].astype(np.float32), numbers % classes, classes)

    return LoadedDataset("made", part(n, 0), part(official, n) if official else None, "made for a test")


def values(records: Records | None) -> set[float]:
    return set() if records is None else set(records.features[:, 0].tolist())


def test_take_keeps_order_and_copies() -> None:
    records = make(4).pool
    assert records.take([2, 0]).features[:, 0].tolist() == [2, 0]
    records.take([0]).features[0, 0] = 9
    assert records.features[0, 0] == 0
    assert records.features.dtype == np.float32
    assert records.labels.dtype == np.int64


@given(
    owner=st.lists(st.integers(0, 2), min_size=2, max_size=20),
    chosen=st.lists(st.integers(0, 1), min_size=1, max_size=9),
)
def test_take_carries_owners(owner: list[int], chosen: list[int]) -> None:
    n = len(owner)
    records = Records(np.zeros((n, 1)), np.zeros(n), 1, np.array(owner), ("a", "b", "c"))
    subset = records.take(chosen)
    assert subset.owner is not None
    assert subset.owner.tolist() == [owner[index] for index in chosen]
    assert subset.owners == ("a", "b", "c")
    assert make(4).pool.take([0]).owner is None


def test_split_carries_owners() -> None:
    pool = Records(np.arange(100)[:, None], np.arange(100) % 2, 2, np.arange(100) % 7, tuple("abcdefg"))
    split = select_records(LoadedDataset("made", pool, None, ""), 30, 10, seed=1)
    for subset in (split.inside, split.outside, split.test):
        assert subset is not None
        assert subset.owner is not None
        assert np.array_equal(subset.owner, subset.features[:, 0].astype(int) % 7)


def test_split_without_official_test_is_a_partition_of_the_pool() -> None:
    source = make(100)
    split = select_records(source, records=30, test_records=1000, seed=1)
    value_sets = [values(split.inside), values(split.outside), values(split.test)]
    assert [len(value_set) for value_set in value_sets] == [30, 50, 20]
    assert set.union(*value_sets) == values(source.pool)


def test_split_with_official_test_leaves_the_pool_alone() -> None:
    source = make(50, official=40)
    split = select_records(source, records=10, test_records=15, seed=1)
    assert len(split.test) == 15
    assert values(split.test) <= values(source.test)
    assert values(split.inside) | values(split.outside) == values(source.pool)
    assert len(select_records(source, 10, 1000, seed=1).test) == 40


def test_split_depends_on_the_seed_and_not_on_the_test_size() -> None:
    source = make(100)
    chosen = [select_records(source, 30, tests, seed).inside.features for tests, seed in [(5, 3), (20, 3), (5, 4)]]
    assert np.array_equal(chosen[0], chosen[1])
    assert not np.array_equal(chosen[0], chosen[2])


def test_split_draws_uniformly() -> None:
    source = make(10, classes=10)
    counts = np.zeros(10)
    for seed in range(2000):
        counts[select_records(source, 4, 1, seed).inside.features[:, 0].astype(int)] += 1
    # Each count is binomial(2000, 0.4), standard deviation 22; 5 of them are a one-in-a-million event.
    assert np.abs(counts - 800).max() < 110


def test_split_may_use_the_whole_pool() -> None:
    assert select_records(make(10, official=5), 10, 5, seed=0).outside is None
    assert select_records(make(10), 8, 100, seed=0).outside is None


@pytest.mark.parametrize(("official", "free"), [(0, 8), (5, 10)])
def test_too_many_records_names_the_available(official: int, free: int) -> None:
    named = f"have 11 records, .*made has {free}.*: .* 1 to {free}"
    assert_refused(named, lambda: select_records(make(10, official=official), 11, 100, seed=0))
    named = f"1 to {free - 1}, since another one"
    assert_refused(named, lambda: select_records(make(10, official=official), free, 100, seed=0, fewest_outside=1))
    assert len(select_records(make(10, official=official), free - 1, 100, seed=0, fewest_outside=1).inside) == free - 1


@pytest.mark.parametrize(
    ("records", "population_records", "records_taken", "expected"),
    [
        (10, 1000, False, (10, 4, 6)),
        (10, 1000, True, (10, 4, 5)),
        (10, 3, True, (10, 4, 3)),
        (14, 1000, False, (14, 4, 2)),
        (14, 1000, True, (14, 4, 4)),
        (16, 1000, False, (16, 4, 4)),
        (6, 1000, 7, (6, 4, 3)),
        (6, 1000, 9, (6, 4, 4)),
    ],
)
def test_the_sizes_that_are_used_are_known(
    records: int, population_records: int, records_taken: int, expected: tuple[int, int, int]
) -> None:
    features = np.arange(20, dtype=np.float32).reshape(-1, 1)
    source = LoadedDataset("made", Records(features, np.arange(20) % 2, 2), None, "")
    split = select_records(source, records, 4, seed=0)
    assert (len(split.inside), len(split.test), population_size(split, population_records, records_taken)) == expected
