"""Divide records among clients by the partitioners of flwr-datasets."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import datasets
import numpy as np
from flwr_datasets import partitioner as library

from fl_audit.array_types import Integers
from fl_audit.data.data_setting_enums import PartitionScheme


def divided(
    scheme: PartitionScheme, clients: int, settings: dict[str, Any], labels: Integers, order: Integers, seed: int
) -> tuple[Integers, ...]:
    """Divide records among clients by a partitioner of flwr-datasets; return each client's indices, ascending.

    Shapes: `labels` (n,), `order` (n,).

    `order`: The result consists of these indices.
    """
    with _quiet():
        partitioner = _partitioner(scheme, clients, settings, len(labels), seed)
        partitioner.dataset = ArrayTable.from_dict({"label": labels, "index": order})
        loaded = (partitioner.load_partition(client) for client in range(clients))
        return tuple(np.sort(np.asarray(partition["index"], dtype=np.int64)) for partition in loaded)


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence progress bars and warnings of Hugging Face datasets in a `with` block, and restore both afterwards."""
    disabled = datasets.are_progress_bars_disabled()
    datasets.disable_progress_bars()
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            yield
    finally:
        if not disabled:
            datasets.enable_progress_bars()


def _partitioner(scheme: PartitionScheme, clients: int, settings: dict[str, Any], records: int, seed: int) -> Any:
    kind = getattr(library, f"{scheme.capitalize()}Partitioner")
    if not settings:
        return kind(clients)
    if scheme is PartitionScheme.SHARD and settings["shard_size"] is None:
        # A size rounded up where only a number is given: rounded down, it drops records.
        size = -(-records // (clients * (settings["num_shards_per_partition"] or 2)))
        settings = {**settings, "num_shards_per_partition": None, "shard_size": size}
    # Within-client order is ours to fix (sorted), so the partitioners' own shuffling is off.
    return kind(num_partitions=clients, partition_by="label", shuffle=False, seed=seed, **settings)


class ArrayTable(datasets.Dataset):  # type: ignore[misc]
    """A table for partitioners of flwr-datasets, which returns columns and rows as NumPy arrays.

    For each client, `datasets.Dataset` would create a table, which takes milliseconds.
    """

    def __getitem__(self, name: str) -> Integers:
        """Return a column as an array. A column is read only once."""
        columns: dict[str, Integers] = self.__dict__.setdefault("columns_read", {})
        if name not in columns:
            columns[name] = self.data.column(name).to_numpy()
        return columns[name]

    def select(self, indices: Any, *_: Any, **__: Any) -> Any:
        """Return {"index": values}, where values are those of the table's column "index" at the given row numbers.

        Further arguments are ignored.
        """
        return {"index": self["index"][np.asarray(indices, dtype=np.int64)]}

    def sort(self, column_names: str, *_: Any, **__: Any) -> Any:
        """Return the table with its rows sorted by one column; equal rows keep their order."""
        rows = np.argsort(self[column_names], kind="stable")
        return ArrayTable.from_dict({name: self[name][rows] for name in self.column_names})
