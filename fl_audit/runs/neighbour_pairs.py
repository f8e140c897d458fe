"""Choice of the difference between D and D': an existing record, user or client, or a crafted record.

A crafted record is a synthetic record with a large effect on the releases.
"""

from dataclasses import replace

from fl_audit.adjacency import NeighbourPair, Relation, Unit
from fl_audit.audits.registry import audit_named
from fl_audit.data.catalogue import load_source
from fl_audit.data.neighbours import (
    CRAFTED,
    NeighbourChoice,
    NeighbourRule,
    choose_client,
    choose_neighbour,
    choose_user,
)
from fl_audit.data.record_selection import Split
from fl_audit.data.records import Records
from fl_audit.errors import require
from fl_audit.federation.crafted_records import MODELS, craft_pair, feature_bounds
from fl_audit.federation.federation import Federation
from fl_audit.federation.initial_weights import InitialWeightsSource, starting_models
from fl_audit.federation.loaded_federation import load_federation
from fl_audit.runs.config import RunConfig
from fl_audit.runs.mechanism_of_config import shards_of


def choose_pair(config: RunConfig, split: Split) -> NeighbourPair:
    """Return the configured difference between D and D': a record, user or client, and its replacement, if any.

    The search may go through the whole data set. For a crafted record, only its position in D is returned. Raises
    `InputError` if there is no such neighbour, or if a crafted record is not possible.
    """
    data = config.data
    audit = config.audit
    adjacency = config.privacy.adjacency
    if audit.neighbour in CRAFTED:
        _require_craftable(config, split.inside)
    if not audit_named(audit.kind).chooses_pair:
        return NeighbourPair(0, None)  # nobody asks which of many targets is first
    rule = NeighbourRule(adjacency, audit.neighbour, audit.dissimilarity, data.seed, rank=audit.neighbour_rank or 1)
    if adjacency.unit is Unit.CLIENT:
        return choose_client(rule, shards_of(config, split), split.inside)
    choose = choose_user if adjacency.unit is Unit.USER else choose_neighbour
    return choose(rule, split.inside, split.outside)


def with_crafted_records(federation: Federation, config: RunConfig) -> Federation:
    """Return the federation with a crafted record as the difference between D and D', if the configuration asks for it.

    A crafted record is an artificial record, optimised for the audit. The federation is returned unchanged if the
    configuration asks for no such record, or if the federation has one already. Raises `InputError` if no record can be
    crafted for the model.

    `federation`: It already says which record of D the crafted record replaces.

    `config`: `neighbour` in its section [audit] says how D and D' differ.
    """
    choice = config.audit.neighbour
    start = config.model.initial
    if choice not in CRAFTED or federation.pair.crafted is not None:
        return federation
    kind = load_federation(federation)
    pool = load_source(federation.data).pool
    opposite = choice is NeighbourChoice.CRAFTED_OPPOSITE
    models = starting_models(kind, start, config.model.seed, trials_to_craft_on(start)).to(federation.device)
    return replace(federation, pair=craft_pair(kind, models, feature_bounds(pool.features), opposite))


def trials_to_craft_on(weights_source: InitialWeightsSource) -> range:
    """Return the numbers of the trials whose initial models are used to craft a record.

    If all trials start from the same pretrained weights, trial 0 suffices.
    """
    return range(1 if weights_source is InitialWeightsSource.PRETRAINED else MODELS)


def _require_craftable(config: RunConfig, records: Records) -> None:
    """Raise `InputError` if a crafted record is impossible with the other settings or with the kind of records."""
    choice = config.audit.neighbour
    kind = config.audit.kind
    privacy = config.privacy
    adjacency = privacy.adjacency
    local_randomizer = privacy.local_randomizer
    is_replaced = choice is not NeighbourChoice.CRAFTED_OPPOSITE or adjacency.relation is Relation.REPLACE
    for fits, problem in (
        (adjacency.unit is Unit.RECORD, f"with adjacency = '{adjacency}': accepted are those of records"),
        (is_replaced, f"with adjacency = '{adjacency}', which has no opposite: accepted is 'crafted'"),
        (audit_named(kind).chooses_pair, f"with kind = '{kind}', whose targets are records of D: leave it out"),
        (privacy.private, "with private = false, which clips nothing to be aimed at: leave it out"),
        (
            local_randomizer is None,
            f"with local-randomizer = '{local_randomizer}', after which no record is what it was: leave it out",
        ),
        (not records.graphs, "and the records are graphs, of which none can be crafted: leave it out"),
        (not records.inputs, "and the records are texts, of which none can be crafted: leave it out"),
        (config.model.weights is None, "with model.weights, a frozen core that is not differentiated: leave it out"),
    ):
        require(fits, f"neighbour is '{choice}' in [audit] {problem}")
