"""The audit plan of a run: its completed configuration, its privacy guarantee and its federation."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import assert_never

import numpy as np

from fl_audit.adjacency import NeighbourPair, Unit
from fl_audit.array_types import Integers
from fl_audit.audits.membership.attack_names import Attack
from fl_audit.audits.registry import audit_named, audit_of
from fl_audit.data.catalogue import DataSpec, load_source
from fl_audit.data.files import data_directory
from fl_audit.data.partition import owners_of, users_of
from fl_audit.data.randomizers import LaplacePixelation, LocalRandomizer, RandomisedBits, RandomisedEdges
from fl_audit.data.record_selection import Split, population_size, select_records
from fl_audit.errors import require
from fl_audit.experiments.runs import mechanism_of_config
from fl_audit.experiments.runs.attack_queries import candidate_prior, with_queries
from fl_audit.experiments.runs.config import DataSection, EpsilonStarLocation, RunConfig
from fl_audit.experiments.runs.neighbour_pairs import choose_pair, with_crafted_records
from fl_audit.federation.federation import Federation
from fl_audit.federation.model_check_records import probe_records
from fl_audit.federation.record_tensors import model_for
from fl_audit.learning.frozen_backbones import find_weights
from fl_audit.learning.stacked_model import StackedModel
from fl_audit.mechanisms.contribution import PrivateTraining
from fl_audit.mechanisms.effective_noise import SensitivityKind
from fl_audit.mechanisms.mechanism import NO_LIKELIHOOD_RATIO, Mechanism
from fl_audit.mechanisms.threat_model import Adversary
from fl_audit.privacy.accounting import exact_accountant
from fl_audit.privacy.accounting_enums import MultiplierReference
from fl_audit.privacy.calibration import noise_multiplier_for_all
from fl_audit.privacy.claim import Claim
from fl_audit.privacy.guarantee import Guarantee, guarantee_of_all
from fl_audit.privacy.identifiability_bounds import SignalToNoiseAdaptivity
from fl_audit.privacy.targets import DETAILS, TARGETS, NoiseMultiplierTarget, one_target
from fl_audit.user_modules import import_function

_WORK_A_ROUND, _MESSAGE_SCALARS = 1e9, 2**22
"""Scalars that the clients' passes of one round touch, and scalars of the stacked models in one message."""
_FEWEST_TRIALS, _MOST_TRIALS = 100, 1000
_USUALLY_KEPT, _KEPT_SCALARS = 4, 2**28
"""Number of trials whose releases are kept, and the largest number of scalars in them: a gigabyte."""
_DATA_OPTIONS = (
    *("path", "test_path", "label", "owner", "user", "records_per_user", "drop", "missing", "max_levels"),
    *("separator", "decimal", "encoding", "skip_lines", "sheet", "axes", "ignore_case", "unique"),
    *("text", "vocabulary", "tokenizer", "tokens"),
    *("images", "labels", "test_images", "test_labels", "classes", "generated_records"),
    *("graph_nodes", "image_size", "grey", "subset", "split", "test_split"),
)


@dataclass(frozen=True)
class AuditPlan:
    """The plan of a run: completed configuration, privacy guarantee, and the federation, which all parties know."""

    config: RunConfig  # the user's configuration, defaults filled in
    guarantee: Guarantee | None  # the guarantee; None where nothing is claimed
    public: Federation  # the federation that is audited

    def with_seed(self, seed: int) -> "AuditPlan":
        """Return a copy of the plan in which the seed of all secret draws is set.

        Parameters
        ----------
        seed
            Seed of the challenger, who draws the secret bits and the noise, 0 to 2**64 - 1.
        """
        return replace(self, config=self.config.changed(run={"seed": seed}))


def resolve(config: RunConfig, pair: NeighbourPair | None = None) -> AuditPlan:
    """Return the audit plan of a configuration.

    The function loads the data, calibrates the noise, and chooses the unit in which D and D' differ. It raises
    `InputError` if the noise cannot achieve the guarantee, or if the settings do not fit together.

    Parameters
    ----------
    config
        The configuration of the run.
    pair
        The difference between D and D' if it is known already. With None, it is searched for, or a record is crafted,
        depending on the configuration.
    """
    if config.audit.insider:
        # Said before the noise is calibrated: without a guarantee there is nothing to calibrate it to.
        require(config.privacy.private, NO_LIKELIHOOD_RATIO)
    if config.training.early_stopping is not None:
        # Owners would be asked about models that go on to train, and not about those that the trials keep.
        pooled = config.audit.epsilon_star_losses is EpsilonStarLocation.POOLED
        require(pooled, "early-stopping with epsilon-star-losses = 'federated': accepted with it is 'pooled'")
    source, data = load_source(data_spec(config.data)), config.data
    by_user = config.privacy.adjacency.unit is Unit.USER
    split = select_records(source, data.records, data.test_records, data.seed, by_user, data.users)
    if by_user:
        # Whole users rarely have just as many records as are wanted.
        config = config.changed(
            data={"records": len(split.inside), "users": mechanism_of_config.units_of(split.inside)}
        )
    else:
        require(data.users is None, "users is set in [data], and adjacency is not about users: leave users out")
    local_randomizer = _randomizer(config)
    # The records of D, and those outside it, which may be in D'.
    for records in (split.inside, split.outside):
        if local_randomizer is not None and records is not None:
            local_randomizer.require_records(records)
    _require_own(config)
    # Left out, the clients are the owners of records in D.
    clients = len(owners_of(split.inside.owner)) if data.clients is None else data.clients
    config = with_queries(config.changed(data={"clients": clients}), source, split)
    mechanism = mechanism_of_config.mechanism_of(config, 1.0, split)
    if config.privacy.private:
        mechanism = mechanism.with_multiplier(calibrated_multiplier(config, mechanism))
    public = _federation_of(config, mechanism, split, pair or choose_pair(config, split))
    public = public if pair is not None else with_crafted_records(public, config)
    return AuditPlan(_sized(config), guarantee_of(mechanism, config), public)


def _require_own(config: RunConfig) -> None:
    """Raise `InputError` if a configured attack or report section of the user's own cannot be imported."""
    for attack in config.audit.attacks or ():
        if not isinstance(attack, Attack):
            import_function(attack, "attack")
    if config.audit.sections:
        # Its figures need matplotlib, which takes its time.
        from fl_audit.audits.sections import own_section

        for name in config.audit.sections:
            own_section(name)


def guarantee_of(mechanism: Mechanism, config: RunConfig) -> Guarantee | None:
    """Return the guarantee of all rounds of a mechanism together, or None if the mechanism adds no noise.

    Parameters
    ----------
    mechanism
        The mechanism with its noise multiplier.
    config
        The configuration, which states adjacency, delta, prior, number of rounds and accountant.
    """
    return guarantee_of_all(_claims(config, mechanism)) if mechanism.adds_noise else None


def calibrated_multiplier(config: RunConfig, at_unit_noise: Mechanism) -> float:
    """Return the noise multiplier (relative to the sensitivity) with which a mechanism has the configured guarantee.

    If the configuration states a noise multiplier itself, it is only converted to be relative to the sensitivity.

    Parameters
    ----------
    config
        The configuration, which states the target of the calibration, for example epsilon and delta.
    at_unit_noise
        The mechanism with noise multiplier 1.
    """
    privacy = config.privacy
    target = one_target({name: getattr(privacy, name.replace("-", "_")) for name in (*TARGETS, *DETAILS)})
    if isinstance(target, NoiseMultiplierTarget):
        over = privacy.noise_over or MultiplierReference.SENSITIVITY
        return over.over_sensitivity(target.noise_multiplier, privacy.adjacency)
    return noise_multiplier_for_all(target, _claims(config, at_unit_noise))


def _claims(config: RunConfig, mechanism: Mechanism) -> list[Claim]:
    """Return the claims that accounting turns into the guarantee.

    There is one claim, or one for each number of records of a client if clients train by DP-SGD.
    """
    privacy, each = (
        config.privacy,
        mechanism.events_of_each(mechanism_of_config.rounds_of(config), mechanism_of_config.threat_model_of(config)),
    )
    accountant = privacy.accountant or exact_accountant(event for events in each for event in events)
    # Only noise that follows the rounds' sensitivities gives every round the same ratio, whoever chooses them.
    follows = privacy.sensitivity is SensitivityKind.LOCAL
    sensitivities = SignalToNoiseAdaptivity.FIXED if follows else SignalToNoiseAdaptivity.ADAPTIVE
    return [
        Claim(privacy.adjacency, events, privacy.delta, privacy.prior, accountant, sensitivities) for events in each
    ]


def _sized(config: RunConfig) -> RunConfig:
    """Return the configuration with two missing numbers filled in: trials per batch, and trials with kept releases.

    Trials of a batch are trained together. Kept releases are stored, so that log-odds can be computed again later.
    """
    run, source = config.run, load_source(data_spec(config.data))
    model = StackedModel.of(model_for(config.model.name, source.pool), probe_records(source))
    by_work = int(_WORK_A_ROUND / (_examples_a_round(config) * model.scalars_per_example))
    by_message = int(_MESSAGE_SCALARS / model.layout.size)
    trials = max(1, min(by_message, max(_FEWEST_TRIALS, min(_MOST_TRIALS, by_work))))
    kept = min(_USUALLY_KEPT, _KEPT_SCALARS // (mechanism_of_config.rounds_of(config) * model.layout.size))
    kept = kept if run.keep_releases is None else run.keep_releases
    return config.changed(run={"trials_per_batch": run.trials_per_batch or trials, "keep_releases": kept})


def _examples_a_round(config: RunConfig) -> float:
    """Return the expected number of per-record gradients that all clients together compute in a round."""
    training, share = (
        config.training,
        mechanism_of_config.denominator_of(config) / mechanism_of_config.clients_of(config),
    )
    if training.strategy == "dp-fedsgd":
        return float(mechanism_of_config.sampling_rate(config) * config.data.records / (training.cycle or 1))
    if training.local_steps is not None:
        return float(
            training.local_steps * (training.local_batch or 1) * mechanism_of_config.clients_of(config) * share
        )
    return float((training.local_epochs or 1) * config.data.records * share)


def _federation_of(config: RunConfig, mechanism: Mechanism, split: Split, pair: NeighbourPair) -> Federation:
    data, audit = config.data, config.audit
    prior = candidate_prior(config, load_source(data_spec(data)), split)
    column = audit_named(audit.kind).column_of_candidates(audit.attribute)
    taken = 0  # records outside D that stand in D' for those of the differing unit
    if pair.replacement is not None:
        taken = _records_instead(
            mechanism.unit, pair.replacement, split, lambda: mechanism_of_config.shards_of(config, split)[pair.index]
        )
    # The federation says how many records are used, where a configuration names the most that are wanted.
    public = Federation(
        data=data_spec(data),
        data_seed=data.seed,
        records=data.records,
        test_records=len(split.test),
        population_records=population_size(split, data.population_records, taken),
        clients=mechanism_of_config.clients_of(config),
        partition=data.partition,
        partition_parameters=tuple(sorted(mechanism_of_config.partition_parameters(data).items())),
        pair=pair,
        model=config.model.name,
        mechanism=_with_hiding(_with_target_first(mechanism, config, split, pair), config, split, pair),
        rounds=mechanism_of_config.rounds_of(config),
        view=audit.view,
        threads=config.run.threads,
        device=config.run.device,
        tf32=config.run.tf32,
        audit=audit.kind,
        with_insider=audit.insider,
        threat_model=mechanism_of_config.threat_model_of(config),
        insiders=audit.insiders,
        targets=_targets(config) if column is None else len(prior),
        membership_scheme=audit_named(audit.kind).scheme,
        candidate_prior=prior,
        candidate_column=column,
        ascent=_ASCENT if Attack.ACTIVE in (audit.attacks or ()) else 0.0,
        weights=find_weights(config.model.name, config.model.weights),
        local_randomizer=_randomizer(config),
        canaries=audit.canaries or 0,
        users=data.users or 0,
        user_across_clients=data.user_across_clients,
    )
    audit_of(public).judging.require_playable(public)
    return public


def _records_instead(unit: Unit, number: int, split: Split, shard: Callable[[], Integers]) -> int:
    """Return the number of records from outside D that replace the differing unit's records in D'.

    Parameters
    ----------
    unit
        Kind of unit in which D and D' differ.
    number
        Number of the user outside D who replaces a user; not used for records and clients.
    split
        The data set split into the training set D, records outside D, and test records.
    shard
        Function that returns the record indices of the differing client; called only for clients.
    """
    match unit:
        case Unit.RECORD:
            return 1
        case Unit.USER:
            assert split.outside is not None, "somebody outside D takes the place"
            return int(np.sum(users_of(split.outside) == number))
        case Unit.CLIENT:
            return len(shard())
        case _:
            assert_never(unit)


def _with_target_first(mechanism: Mechanism, config: RunConfig, split: Split, pair: NeighbourPair) -> Mechanism:
    """Return the mechanism; if groups of units take turns, the differing unit is in the first group.

    The differing unit is the one in which D and D' differ. If no groups take turns, the mechanism is returned
    unchanged.
    """
    participation = mechanism.participation
    if participation.members(0, 1) is None:
        return mechanism
    unit = pair.index
    if mechanism.contribution.unit is Unit.CLIENT and mechanism.unit is not Unit.CLIENT:
        unit = next(
            owner for owner, shard in enumerate(mechanism_of_config.shards_of(config, split)) if pair.index in shard
        )
    return replace(mechanism, participation=participation.with_first(unit))


def _with_hiding(mechanism: Mechanism, config: RunConfig, split: Split, pair: NeighbourPair) -> Mechanism:
    """Return a copy of the mechanism that states how much noise hides the differing record from attacking clients.

    The relative size of this noise is the joint noise of the record's client and of all clients whose noise the
    attackers do not know, divided by the noise of the record's client. It is needed only if clients train by DP-SGD and
    the adversary is a client. Otherwise the mechanism is returned unchanged.
    """
    training, audit = mechanism.contribution, config.audit
    if not isinstance(training, PrivateTraining) or audit.adversary is not Adversary.CLIENT:
        return mechanism
    shards = mechanism_of_config.shards_of(config, split)
    victim = next(client for client, shard in enumerate(shards) if pair.index in shard)
    others = [len(shard) for client, shard in enumerate(shards) if client != victim]
    # An insider knows its own noise and that of the clients after it. Of several insiders, the one from which the most
    # is hidden counts.
    turned = [others[first:] + others[:first] for first in range(audit.insiders)]
    most = max(training.hiding_of(len(shards[victim]), one[1 + audit.colluders :]) for one in turned)
    return replace(mechanism, contribution=replace(training, hiding=most))


def _randomizer(config: RunConfig) -> LocalRandomizer | None:
    """Return the configured method by which clients randomize their records; None if records are not randomized."""
    privacy = config.privacy
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


_USUAL_TARGETS = 200
_ASCENT = 1.0
"""Factor of the malicious insider: at 1 it takes back the contribution of a member's owner for that member."""


def _targets(config: RunConfig) -> int:
    """Return the number of targets (units with random membership) or of candidates (of which one is in).

    The number is 1 for audits of another kind. Raises `InputError` if there are fewer units than targets or candidates.
    """
    if (named := audit_named(config.audit.kind).counted) is None:
        return 1
    match config.privacy.adjacency.unit:
        case Unit.RECORD:
            units, name = config.data.records, "records"
        case Unit.USER:
            units, name = config.data.users or 0, "users"
        case Unit.CLIENT:
            units, name = mechanism_of_config.clients_of(config), "clients"
        case unit:
            assert_never(unit)
    targets = getattr(config.audit, named) or len(config.audit.candidate_weights or ()) or min(_USUAL_TARGETS, units)
    require(targets <= units, f"{named} is {targets} of {units} {name}: accepted are 2 to {units}")
    return targets


def data_spec(data: DataSection) -> DataSpec:
    """Return the specification of the data set that a [data] section describes: name, directory and options."""
    options = {name.replace("_", "-"): getattr(data, name) for name in _DATA_OPTIONS}
    # FL_AUDIT_DATA is read here, once: a client on another machine or a later replay may have another one.
    directory = data_directory(data.data_dir)
    given = tuple((key, value) for key, value in options.items() if value is not None)
    return DataSpec(data.name, None if directory is None else str(directory), given)
