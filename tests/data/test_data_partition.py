import time

import numpy as np
import pytest
from datasets import Dataset
from flwr_datasets.partitioner import IidPartitioner
from hypothesis import given, settings
from hypothesis import strategies as st

from fl_audit.data.partition import PartitionScheme, partition_records
from fl_audit.errors import InputError
from fl_audit.randomness import Purpose, generator
from tests.builders.refusals import assert_refused
from tests.few_examples import examples

LABELS = np.random.default_rng(0).integers(0, 10, 500)


def are_equal(first: list[np.ndarray], second: list[np.ndarray]) -> bool:
    return all(map(np.array_equal, first, second))


DRAWN = [scheme for scheme in PartitionScheme if scheme is not PartitionScheme.NATURAL]


@settings(max_examples=examples(120))
@given(
    scheme=st.sampled_from(DRAWN),
    classes=st.integers(1, 6),
    records=st.integers(1, 80),
    clients=st.integers(1, 12),
    seed=st.integers(0, 2**64 - 1),
)
def test_parts_are_disjoint_covering_and_deterministic(
    scheme: PartitionScheme, classes: int, records: int, clients: int, seed: int
) -> None:
    labels = np.random.default_rng(seed).integers(0, classes, records)
    try:
        shards = partition_records(labels, clients, scheme, {}, seed)
    except InputError:
        # Refusing is right where a client would get nothing or a record would be dropped, never for iid and shard.
        assert scheme not in (PartitionScheme.IID, PartitionScheme.SHARD) or clients > records
        return
    assert len(shards) == clients
    assert all(len(shard) > 0 and (np.diff(shard) > 0).all() and shard.dtype == np.int64 for shard in shards)
    assert np.array_equal(np.sort(np.concatenate(shards)), np.arange(records))
    assert are_equal(shards, partition_records(labels, clients, scheme, {}, seed))


@pytest.mark.parametrize("scheme", DRAWN)
def test_every_scheme_divides_and_follows_the_seed(scheme: PartitionScheme) -> None:
    clients = 4 if scheme is PartitionScheme.EXPONENTIAL else 10
    first_partition, second_partition = (partition_records(LABELS, clients, scheme, {}, seed) for seed in (0, 1))
    assert len(first_partition) == clients
    assert not are_equal(first_partition, second_partition)


def test_global_generators_do_not_matter() -> None:
    np.random.seed(1)  # noqa: NPY002
    first_partition = partition_records(LABELS, 5, PartitionScheme.DIRICHLET, {}, 7)
    np.random.seed(2)  # noqa: NPY002
    second_partition = partition_records(LABELS, 5, PartitionScheme.DIRICHLET, {}, 7)
    assert are_equal(first_partition, second_partition)


def test_iid_is_random_even_on_sorted_records() -> None:
    labels = np.repeat([0, 1], 500)
    shards = partition_records(labels, 2, PartitionScheme.IID, {}, 0)
    # Hypergeometric with mean 250 and standard deviation 7.9.
    assert all(abs(int(labels[shard].sum()) - 250) < 40 for shard in shards)


@pytest.mark.parametrize(("records", "clients"), [(500, 7), (12, 12), (13, 4), (9, 1)])
def test_iid_is_the_partition_of_flower_datasets(records: int, clients: int) -> None:
    order = generator(3, Purpose.PARTITION).permutation(records)
    library = IidPartitioner(clients)
    library.dataset = Dataset.from_dict({"index": order})
    shards = partition_records(LABELS[:records], clients, PartitionScheme.IID, {}, 3)
    for client, shard in enumerate(shards):
        assert shard.tolist() == sorted(library.load_partition(client)["index"])


def test_schemes_do_what_their_names_say() -> None:
    sizes = [len(shard) for shard in partition_records(LABELS, 4, PartitionScheme.LINEAR, {}, 0)]
    assert sizes == [50, 100, 150, 200]
    pathological_shards = partition_records(
        LABELS, 10, PartitionScheme.PATHOLOGICAL, {"num-classes-per-partition": 3}, 0
    )
    assert all(len(np.unique(LABELS[shard])) == 3 for shard in pathological_shards)
    even, odd = (
        [
            np.bincount(LABELS[shard], minlength=10).std()
            for shard in partition_records(LABELS, 5, "dirichlet", parameters, 0)
        ]
        for parameters in ({"alpha": 1000.0}, {"alpha": 0.1})
    )
    assert max(even) < min(odd)
    shards = partition_records(LABELS, 5, PartitionScheme.SHARD, {"num_shards_per_partition": 1}, 0)
    assert max(len(np.unique(LABELS[shard])) for shard in shards) <= 4
    # 500 records in 14 shards of 36, the last of 32: two a client, and none left over.
    assert sorted(len(shard) for shard in partition_records(LABELS, 7, PartitionScheme.SHARD, {}, 0)) == [68] + [72] * 6


def test_nothing_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    partition_records(LABELS, 10, PartitionScheme.SHARD, {}, 0)
    captured = capfd.readouterr()
    assert captured.out == captured.err == ""


@given(owner=st.lists(st.integers(0, 9), min_size=1, max_size=60), seed=st.integers(0, 2**64 - 1))
def test_every_owner_is_a_client(owner: list[int], seed: int) -> None:
    whose = np.array(owner)
    owners = np.unique(whose)
    shards = partition_records(np.zeros(len(owner), np.int64), len(owners), PartitionScheme.NATURAL, {}, seed, whose)
    assert len(shards) == len(owners)
    for shard, owner_index in zip(shards, owners, strict=True):
        assert shard.dtype == np.int64
        assert np.array_equal(shard, np.flatnonzero(whose == owner_index))


def test_natural_clients_are_as_many_as_owners() -> None:
    owner = np.repeat([0, 4, 7], 2)
    labels = np.zeros(6, np.int64)
    words = "clients is 2, .* 3 owners: .*natural is 3, .*leave clients out"
    assert_refused(words, partition_records, labels, 2, PartitionScheme.NATURAL, {}, 0, owner)
    assert_refused("whose each record", partition_records, labels, 2, PartitionScheme.NATURAL, {}, 0)
    named = r"natural .*no parameter 'alpha'"
    assert_refused(named, partition_records, labels, 3, PartitionScheme.NATURAL, {"alpha": 1.0}, 0, owner)


@pytest.mark.parametrize("scheme", DRAWN)
def test_parts_are_those_of_the_library(scheme: PartitionScheme) -> None:
    """Our table class gives the partitioners the same records as the library's own one."""
    import datasets

    from fl_audit.data import partitioner_library as module

    clients = 4 if scheme is PartitionScheme.EXPONENTIAL else 10
    ours = partition_records(LABELS, clients, scheme, {}, 3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "ArrayTable", datasets.Dataset)
        theirs = partition_records(LABELS, clients, scheme, {}, 3)
    assert are_equal(ours, theirs)


@pytest.mark.parametrize("scheme", ["iid", "pathological", "shard"])
def test_ten_thousand_clients_take_seconds_at_most(scheme: str) -> None:
    labels = np.random.default_rng(1).integers(0, 10, 50_000)
    partition_records(labels[:100], 2, PartitionScheme.IID, {}, 0)
    # Processor time: a test must not fail because others run beside it. A table for each client took 70 seconds.
    begun = time.process_time()
    assert len(partition_records(labels, 10_000, PartitionScheme(scheme), {}, 0)) == 10_000
    assert time.process_time() - begun < 5
