"""The federation that a configuration describes: clients, data, mechanism and targets, which all parties know."""

from dataclasses import replace
from typing import assert_never

import numpy as np

from fl_audit.adjacency import NeighbourPair, Unit
from fl_audit.audits.membership.attacks.registry import attacks_named, attacks_on_any_unit
from fl_audit.audits.registry import audit_named, audit_of
from fl_audit.data.attribute_to_infer import choose_attribute
from fl_audit.data.catalogue import DataSpec, load_source
from fl_audit.data.data_files import data_directory
from fl_audit.data.loaded_dataset import LoadedDataset
from fl_audit.data.partition import users_of
from fl_audit.data.randomizers import LaplacePixelation, LocalRandomizer, RandomisedBits, RandomisedEdges
from fl_audit.data.record_selection import Split, population_size
from fl_audit.data.records import Records
from fl_audit.errors import require
from fl_audit.federation.federation import Federation
from fl_audit.federation.target_membership import MembershipScheme
from fl_audit.learning.frozen_backbones import find_weights
from fl_audit.mechanisms.contribution import PrivateTraining
from fl_audit.mechanisms.mechanism import Mechanism
from fl_audit.mechanisms.threat_model import Adversary
from fl_audit.runs import mechanism_of_config
from fl_audit.runs.config import AuditSection, DataSection, PrivacySection, RunConfig
from fl_audit.words import name_list

_DATA_OPTIONS = (
    *("path", "test_path", "label", "owner", "user", "records_per_user", "drop", "missing", "max_levels"),
    *("separator", "decimal", "encoding", "skip_lines", "sheet", "axes", "ignore_case", "unique"),
    *("text", "vocabulary", "tokenizer", "tokens", "task"),
    *("image_size", "grey", "subset", "split", "test_split"),
)


_USUAL_TARGETS = 200


_ASCENT = 1.0
"""Factor of the malicious insider: at 1 it takes back the contribution of a member's owner for that member."""


def federation_of(config: RunConfig, mechanism: Mechanism, split: Split, pair: NeighbourPair) -> Federation:
    """Return the federation that a configuration describes, for a mechanism with its noise multiplier.

    Raises `InputError` if the federation does not suit the audit.
    """
    data = config.data
    audit = config.audit
    prior = candidate_prior(audit, load_source(data_spec(data)), split)
    column = audit_named(audit.kind).column_of_candidates(audit.attribute)
    replacements = _records_instead(config, mechanism.unit, split, pair)
    # The federation says how many records are used, where a configuration names the most that are wanted.
    public = Federation(
        data=data_spec(data),
        data_seed=data.seed,
        records=data.records,
        test_records=len(split.test),
        population_records=population_size(split, data.population_records, replacements),
        clients=mechanism_of_config.clients_of(data),
        partition=data.partition,
        partition_parameters=tuple(sorted(mechanism_of_config.partition_parameters(data).items())),
        pair=pair,
        model=config.model.name,
        mechanism=_with_hiding(_with_target_first(mechanism, config, split, pair), config, split, pair),
        rounds=mechanism_of_config.rounds_of(config),
        view=audit.view,
        threads=config.run.threads,
        device=config.run.device,
        audit=audit.kind,
        with_insider=audit.insider,
        threat_model=mechanism_of_config.threat_model_of(audit),
        targets=_targets(config) if column is None else len(prior),
        membership_scheme=_membership_scheme(config),
        candidate_prior=prior,
        candidate_column=column,
        ascent=_ASCENT if any(attack.needs_ascent for attack in attacks_named(audit.attacks)) else 0.0,
        weights=find_weights(config.model.name, config.model.weights),
        local_randomizer=randomizer_of(config.privacy),
        canaries=audit.canaries or 0,
        users=data.users or 0,
        user_across_clients=data.user_across_clients,
        aggregation=config.training.aggregation,
    )
    audit_of(public).guarantee_tests.require_supported(public)
    return public


def _membership_scheme(config: RunConfig) -> MembershipScheme:
    """Return the scheme of the audit; an ordinary training by a Flower strategy without privacy is one on D."""
    is_on_whole = not config.privacy.private and config.training.aggregation is not None and config.is_ordinary_training
    return MembershipScheme.ALL if is_on_whole else audit_named(config.audit.kind).scheme


def _records_instead(config: RunConfig, unit: Unit, split: Split, pair: NeighbourPair) -> int:
    """Return the number of records from outside D that replace the differing unit's records in D'."""
    if pair.replacement is None:
        return 0
    match unit:
        case Unit.RECORD:
            return 1
        case Unit.USER:
            assert split.outside is not None, "somebody outside D takes the place"
            return int(np.sum(users_of(split.outside) == pair.replacement))
        case Unit.CLIENT:
            return len(mechanism_of_config.shards_of(config, split)[pair.index])
        case _:
            assert_never(unit)


def _with_target_first(mechanism: Mechanism, config: RunConfig, split: Split, pair: NeighbourPair) -> Mechanism:
    """Return the mechanism, changed so that the differing unit is in the first group if groups of units take turns."""
    participation = mechanism.participation
    if participation.eligible_units(0, 1) is None:
        return mechanism
    unit = pair.index
    if mechanism.contribution.unit is Unit.CLIENT and mechanism.unit is not Unit.CLIENT:
        unit = next(
            owner for owner, shard in enumerate(mechanism_of_config.shards_of(config, split)) if pair.index in shard
        )
    return replace(mechanism, participation=participation.with_first(unit))


def _with_hiding(mechanism: Mechanism, config: RunConfig, split: Split, pair: NeighbourPair) -> Mechanism:
    """Return the mechanism, to which the relative size of the noise that hides the differing record is added.

    This size is needed only for DP-SGD at the clients with an insider; other mechanisms are returned unchanged. It is
    the joint noise of the record's client and of all clients whose noise the insider does not know, divided by the
    noise of the record's client.
    """
    training = mechanism.contribution
    audit = config.audit
    if not isinstance(training, PrivateTraining) or audit.adversary is not Adversary.CLIENT:
        return mechanism
    shards = mechanism_of_config.shards_of(config, split)
    victim = next(client for client, shard in enumerate(shards) if pair.index in shard)
    other_sizes = [len(shard) for client, shard in enumerate(shards) if client != victim]
    # The insider knows its own noise and that of the clients after it.
    gain = training.noise_gain_from_others(len(shards[victim]), other_sizes[1 + audit.colluders :])
    return replace(mechanism, contribution=replace(training, hiding=gain))


def randomizer_of(privacy: PrivacySection) -> LocalRandomizer | None:
    """Return the configured method by which clients randomize their records; None if records are not randomized."""
    if privacy.local_randomizer is None:
        return None
    assert privacy.record_epsilon is not None, "the configuration needs it with a randomizer"
    match privacy.local_randomizer:
        case "randomised-response":
            return RandomisedBits(privacy.record_epsilon)
        case "randomised-edges":
            return RandomisedEdges(privacy.record_epsilon)
        case "pixelation":
            assert privacy.pixelation_pixels is not None, "the configuration needs it with pixelation"
            return LaplacePixelation(privacy.record_epsilon, privacy.pixelation_pixels, privacy.pixelation_block or 1)
        case _:
            assert_never(privacy.local_randomizer)


def _targets(config: RunConfig) -> int:
    """Return the number of targets (membership audit) or of candidates (reconstruction audit); 1 for other audits."""
    if (counted_setting := audit_named(config.audit.kind).counted) is None:
        return 1
    match config.privacy.adjacency.unit:
        case Unit.RECORD:
            units = config.data.records
            name = "records"
        case Unit.USER:
            units = config.data.users or 0
            name = "users"
        case Unit.CLIENT:
            units = mechanism_of_config.clients_of(config.data)
            name = "clients"
        case unit:
            assert_never(unit)
    targets = getattr(config.audit, counted_setting) or min(_USUAL_TARGETS, units)
    require(targets <= units, f"{counted_setting} is {targets} of {units} {name}: accepted are 2 to {units}")
    return targets


def data_spec(data: DataSection) -> DataSpec:
    """Return the specification of the data set that a [data] section describes: name, directory and options."""
    options = {name.replace("_", "-"): getattr(data, name) for name in _DATA_OPTIONS}
    # FL_AUDIT_DATA is read here, once: a client on another machine or a later replay may have another one.
    directory = data_directory(data.data_dir)
    options_given = tuple((key, value) for key, value in options.items() if value is not None)
    options_given += tuple((name.replace("_", "-"), value) for name, value in sorted(data.loader_parameters.items()))
    return DataSpec(data.name, None if directory is None else str(directory), options_given)


def with_attribute(config: RunConfig, dataset: LoadedDataset, split: Split) -> RunConfig:
    """Check that the configured attacks are possible, and return the configuration with the attribute to guess.

    The attribute is the table column whose value an attack guesses. If no attack guesses one, the configuration is
    returned unchanged.

    Raises `InputError` if an attack on single records is configured although the unit is a user or a client, or if the
    attribute does not exist.
    """
    audit = config.audit
    relation = config.privacy.adjacency
    attacks = attacks_named(audit.attacks)
    of_records = [attack.name for attack in attacks if attack.needs_single_records]
    problem = f"attacks {name_list(of_records)} ask about records, and adjacency is {relation}"
    accepted = f"accepted about {relation.unit}s are {name_list(attacks_on_any_unit())}"
    require(relation.unit is Unit.RECORD or not of_records, f"{problem}: {accepted}")
    column = audit_named(audit.kind).column_of_candidates(audit.attribute)
    if column is None and not any(attack.guesses_values for attack in attacks):
        return config
    attribute_name = None if audit.attribute is None else str(audit.attribute)
    chosen = choose_attribute(dataset, _nonmembers(split), attribute_name)
    return config.changed(audit={"attribute": chosen.column.name})


def candidate_prior(audit: AuditSection, dataset: LoadedDataset, split: Split) -> tuple[float, ...]:
    """Return the prior probability of each candidate in a reconstruction audit; empty if all are equally likely.

    Candidates that are the values of an attribute are as likely as among records that no trial uses for training.
    """
    attribute_name = audit_named(audit.kind).column_of_candidates(audit.attribute)
    return (
        ()
        if attribute_name is None
        else tuple(choose_attribute(dataset, _nonmembers(split), attribute_name).prior.tolist())
    )


def _nonmembers(split: Split) -> Records:
    """Return the records outside D, or the test records if there are none."""
    return split.test if split.outside is None else split.outside
