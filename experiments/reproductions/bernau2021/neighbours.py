"""The neighbours of the settings, each searched for only once: a search over all pairs of images takes minutes."""

from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache

from experiments.runs.config import RunConfig
from experiments.runs.plan import data_spec
from experiments.runs.run_directory import RunDirectory, read_public
from fl_audit.adjacency import Adjacency, NeighbourPair
from fl_audit.data.catalogue import DataSpec, load_source
from fl_audit.data.dissimilarity import Dissimilarity, Measure
from fl_audit.data.neighbours import NeighbourChoice, ranked_neighbours
from fl_audit.data.split import select_records
from fl_audit.errors import InputError

RANKS = 3  # how many most and how many least dissimilar neighbours one search keeps: as many as Figure 4 shows


def neighbour_of(config: RunConfig, begun: Iterable[tuple[RunConfig, RunDirectory]] = ()) -> NeighbourPair:
    """Return where D and D' differ: read from a run with the same neighbour if one was begun, otherwise searched for.

    Parameters
    ----------
    config
        A configuration whose neighbour is ranked by dissimilarity.
    begun
        Other configurations with their run directories; runs that were not begun are ignored.
    """
    asked = _question(config)
    for other, run in begun:
        if _question(other) == asked and run.configuration.exists():
            with suppress(InputError):  # it is just being written, by another process
                return read_public(run.path)[0].pair
    *search, rank = asked
    return _ranked(*search)[rank - 1]


def labels_of(config: RunConfig, pair: NeighbourPair) -> tuple[int, ...]:
    """Return the label of the differing record of D, and that of its replacement if it has one.

    Parameters
    ----------
    config, pair
        The configuration of a run; how D' differs.
    """
    data = config.data
    split = select_records(load_source(data_spec(data)), data.records, data.test_records, data.seed)
    label = int(split.inside.labels[pair.index])
    if pair.replacement is None or split.outside is None:
        return (label,)
    return label, int(split.outside.labels[pair.replacement])


_Question = tuple[DataSpec, int, int, int, Adjacency, Measure, bool, int]


def _question(config: RunConfig) -> _Question:
    """Return everything that the choice of the neighbour depends on, with the rank last."""
    data, audit = config.data, config.audit
    farthest = audit.neighbour is NeighbourChoice.MOST_DISSIMILAR
    return (
        data_spec(data),
        data.records,
        data.test_records,
        data.seed,
        config.privacy.adjacency,
        audit.dissimilarity,
        farthest,
        audit.neighbour_rank or 1,
    )


@lru_cache(maxsize=32)
def _ranked(
    spec: DataSpec,
    records: int,
    test_records: int,
    seed: int,
    relation: Adjacency,
    dissimilarity: Dissimilarity,
    farthest: bool,
) -> tuple[NeighbourPair, ...]:
    split = select_records(load_source(spec), records, test_records, seed)
    return ranked_neighbours(relation, split.inside, split.outside, dissimilarity, RANKS, farthest)
