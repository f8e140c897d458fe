"""The neighbour D' of a run, searched for once for all runs that have the same one: a search may take minutes."""

from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache
from typing import Any

from fl_audit.adjacency import Adjacency, NeighbourPair
from fl_audit.audits.registry import audit_named
from fl_audit.data.catalogue import DataSpec, load_source
from fl_audit.data.dissimilarity import Measure
from fl_audit.data.neighbours import NeighbourChoice, ranked_neighbours
from fl_audit.data.record_selection import select_records
from fl_audit.errors import InputError
from fl_audit.runs.config import RunConfig
from fl_audit.runs.federation_of_config import data_spec
from fl_audit.runs.run_directory import RunDirectory, read_public

RANKS = 3  # number of most and of least dissimilar neighbours that one search keeps
_RANKED = (NeighbourChoice.MOST_DISSIMILAR, NeighbourChoice.LEAST_DISSIMILAR)


def shared_pair(config: RunConfig, other_runs: Iterable[tuple[RunConfig, RunDirectory]] = ()) -> NeighbourPair | None:
    """Return the difference of D and D' for a configuration; None if no ranking of neighbours chooses it.

    If one of `other_runs` has the same neighbour and has begun, the difference is read from its directory.
    """
    if config.audit.neighbour not in _RANKED or not audit_named(config.audit.kind).chooses_pair:
        return None
    search, rank = search_and_rank = _search_and_rank(config)
    for other_config, run in other_runs:
        if _search_and_rank(other_config) == search_and_rank and run.is_begun:
            with suppress(InputError):  # it is just being written, by another process
                return read_public(run.path)[0].pair
    return _ranked(*search)[rank - 1]


def _search_and_rank(config: RunConfig) -> tuple[tuple[Any, ...], int]:
    """Return the arguments of `_ranked` for a configuration, and the rank of its neighbour."""
    data = config.data
    audit = config.audit
    farthest = audit.neighbour is NeighbourChoice.MOST_DISSIMILAR
    search = (
        data_spec(data),
        data.records,
        data.test_records,
        data.seed,
        config.privacy.adjacency,
        audit.dissimilarity,
        farthest,
    )
    return search, audit.neighbour_rank or 1


@lru_cache(maxsize=32)
def _ranked(
    data: DataSpec,
    records: int,
    test_records: int,
    seed: int,
    adjacency: Adjacency,
    dissimilarity: Measure,
    farthest: bool,
) -> tuple[NeighbourPair, ...]:
    """Return the neighbours that are most dissimilar, or least, the most extreme one first."""
    split = select_records(load_source(data), records, test_records, seed)
    return ranked_neighbours(adjacency, split.inside, split.outside, dissimilarity, RANKS, farthest)
