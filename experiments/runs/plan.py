"""From a configuration to what is promised and what is played."""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from math import ceil

import numpy as np
from numpy.typing import NDArray

from experiments.runs.config import PRIVACY_TARGETS, DataSection, RunConfig, TrainingSection
from fl_audit.adjacency import NeighbourPair, Unit
from fl_audit.data.catalogue import DataSpec, load_source
from fl_audit.data.client_neighbours import choose_client
from fl_audit.data.files import data_directory
from fl_audit.data.neighbours import choose_neighbour
from fl_audit.data.partition import owners_of, partition_records
from fl_audit.data.split import Split, select_records, used_sizes
from fl_audit.errors import require
from fl_audit.game.public import PublicGame
from fl_audit.learning.local_training import LocalSchedule
from fl_audit.learning.models import ModelSpec
from fl_audit.learning.optimizers import ServerOptimizer
from fl_audit.learning.stacked import StackedModel
from fl_audit.mechanisms.clipping import AdaptiveClipping, Clipping, FixedClipping, NoClipping
from fl_audit.mechanisms.contribution import Contribution, LocalTraining, PrivateTraining, RecordGradients
from fl_audit.mechanisms.law import NOTHING_TO_WEIGH, ReleaseLaw
from fl_audit.mechanisms.noise import (
    CentralGaussian,
    CorrelatedGaussian,
    DistributedGaussian,
    InsideTraining,
    LocalGaussian,
    Noise,
    NoiseScaling,
    NoNoise,
)
from fl_audit.mechanisms.participation import Everybody, FixedCohort, Participation, participation_of
from fl_audit.mechanisms.standpoint import Standpoint
from fl_audit.privacy.beliefs import Sensitivities
from fl_audit.privacy.calibration import noise_multiplier_for
from fl_audit.privacy.claim import Claim
from fl_audit.privacy.events import ReleaseEvent
from fl_audit.privacy.guarantee import Guarantee, guarantee
from fl_audit.privacy.matrices import StrategyKind
from fl_audit.privacy.targets import AdvantageTarget, BeliefTarget, EpsilonTarget, NoiseMultiplierTarget, Target

_TARGETS: dict[str, Callable[[float], Target]] = {
    "belief": BeliefTarget,
    "epsilon": EpsilonTarget,
    "advantage": AdvantageTarget,
    "noise-multiplier": NoiseMultiplierTarget,
}
_WORK_A_ROUND, _MESSAGE_SCALARS = 1e9, 2**22
"""Scalars that the clients' passes of one round touch, and scalars of the stacked models in one message."""
_FEWEST_WORLDS, _MOST_WORLDS = 100, 1000
_DATA_OPTIONS = (
    *("path", "test_path", "label", "owner", "drop", "separator", "missing", "max_levels"),
    *("images", "labels", "test_images", "test_labels"),
)


@dataclass(frozen=True)
class AuditPlan:
    """A resolved configuration.

    Parameters
    ----------
    config
        What the user wrote, defaults filled in.
    guarantee
        What is promised; None where nothing is.
    public
        The game that is played.
    """

    config: RunConfig
    guarantee: Guarantee | None
    public: PublicGame


def resolve(config: RunConfig, pair: NeighbourPair | None = None) -> AuditPlan:
    """Calibrate the noise to the promise and lay out the game.

    Parameters
    ----------
    config
        The configuration.
    pair
        Where D and D' differ, if that search was done before; None searches.

    Raises
    ------
    InputError
        If the promise cannot be kept or the game cannot be played.
    """
    if config.audit.insider:
        # Said before the noise is calibrated: without a promise there is nothing to calibrate it to.
        require(config.privacy.private, NOTHING_TO_WEIGH)
    split = _split(config)
    config = _with_clients(config, split)
    at_unit_noise = law_of(config, 1.0, split)
    law = at_unit_noise.with_multiplier(_calibrated(config, at_unit_noise)) if config.privacy.private else at_unit_noise
    public = _public_game(config, law, split, pair or _pair(config, split))
    return AuditPlan(_sized(config), guarantee_of(law, config), public)


def law_of(config: RunConfig, noise_multiplier: float, split: Split) -> ReleaseLaw:
    """Return the release law of a configuration at some noise multiplier; it has none where nothing is promised.

    Parameters
    ----------
    config
        The configuration, with the number of clients.
    noise_multiplier
        z.
    split
        The records: where clients train privately, the promise depends on the smallest shard.

    Raises
    ------
    InputError
        If the parts of the law do not go together.
    """
    privacy, training = config.privacy, config.training
    return ReleaseLaw(
        adjacency=privacy.adjacency,
        clipping=_clipping(config),
        participation=_participation(config),
        noise=_noise(config, noise_multiplier),
        denominator=_denominator(config),
        optimizer=ServerOptimizer(training.optimizer, training.learning_rate, momentum=training.momentum),
        contribution=_contribution(config, split),
    )


def standpoint_of(config: RunConfig) -> Standpoint:
    """Return from where the adversary of a configuration looks."""
    return Standpoint(config.audit.place, config.audit.participation, config.audit.colluders)


def _contribution(config: RunConfig, split: Split) -> Contribution:
    training = config.training
    match training.strategy:
        case "dp-fedsgd":
            return RecordGradients()
        case "dp-fedavg":
            return LocalTraining(_schedule(training))
        case "dp-sgd-clients":
            return PrivateTraining(_schedule(training), min(len(shard) for shard in _shards(config, split)))


def _schedule(training: TrainingSection) -> LocalSchedule:
    assert training.local_learning_rate is not None, "the configuration fills it in"
    assert training.local_batch is not None, "the configuration fills it in"
    return LocalSchedule(
        training.local_learning_rate, training.local_batch, training.local_epochs, training.local_steps
    )


def _clipping(config: RunConfig) -> Clipping:
    privacy = config.privacy
    if not privacy.private:
        return NoClipping()
    match privacy.clipping:
        case "fixed":
            return FixedClipping(privacy.clipping_norm)
        case "adaptive":
            usual = AdaptiveClipping(privacy.clipping_norm)
            return AdaptiveClipping(
                privacy.clipping_norm,
                quantile=privacy.quantile or usual.quantile,
                learning_rate=privacy.clipping_learning_rate or usual.learning_rate,
                bit_noise=privacy.quantile_noise or usual.bit_noise,
            )


def _participation(config: RunConfig) -> Participation:
    training, clients = config.training, _clients(config)
    if training.strategy == "dp-fedsgd":
        return participation_of(float(sampling_rate(config)))
    if training.cohort is None:
        return participation_of(training.client_sampling_rate or 1.0)
    require(
        training.cohort <= clients, f"cohort is {training.cohort} of {clients} clients: accepted are 1 to {clients}"
    )
    return Everybody() if training.cohort == clients else FixedCohort(training.cohort, clients)


def _denominator(config: RunConfig) -> float:
    """Return n: the records, or the clients, that take part in a round on average."""
    match _participation(config), config.training.strategy:
        case FixedCohort(size), _:
            return float(size)
        case _, "dp-fedavg" | "dp-sgd-clients":
            return float(_clients(config) * (config.training.client_sampling_rate or 1.0))
        case _:
            return float(sampling_rate(config) * config.data.records)


def _noise(config: RunConfig, multiplier: float) -> Noise:
    privacy, clients = config.privacy, _clients(config)
    if not privacy.private:
        return NoNoise()
    if privacy.noise != "central":
        require(
            privacy.sensitivity is NoiseScaling.GLOBAL,
            f"sensitivity is 'local' with noise = '{privacy.noise}': accepted with it is 'global'",
        )
    match privacy.noise:
        case "central":
            return CentralGaussian(multiplier, privacy.sensitivity)
        case "distributed":
            return DistributedGaussian(multiplier, clients)
        case "local":
            return LocalGaussian(multiplier, clients)
        case "inside-training":
            return InsideTraining(multiplier)
        case "tree":
            return CorrelatedGaussian(multiplier, StrategyKind.TREE, rounds_of(config))
        case "banded":
            return CorrelatedGaussian(multiplier, StrategyKind.BANDED, rounds_of(config), _bands(config))


def _bands(config: RunConfig) -> int:
    """Return the bands: left out, as many as rounds lie from one of a client's to its next, where cohorts take part."""
    rounds = rounds_of(config)
    if config.privacy.bands is not None:
        require(
            config.privacy.bands <= rounds, f"bands is {config.privacy.bands}: accepted are 1 to {rounds}, the rounds"
        )
        return config.privacy.bands
    participation = _participation(config)
    return min(rounds, participation.separation if isinstance(participation, FixedCohort) else rounds)


def sampling_rate(config: RunConfig) -> Fraction:
    """Return q, the probability with which a record takes part in a round: the number that was written, exactly.

    Raises
    ------
    InputError
        If a round is to have more records than there are.
    """
    training, records = config.training, config.data.records
    if training.expected_batch is None:
        return Fraction(str(training.sampling_rate or 1))
    batch = training.expected_batch
    require(batch <= records, f"expected-batch is {batch} of {records} records: accepted are 1 to {records}")
    return Fraction(batch, records)


def rounds_of(config: RunConfig) -> int:
    """Return k, the number of rounds: as many as it takes that a record takes part `epochs` times on average."""
    training = config.training
    if training.epochs is None:
        assert training.rounds is not None, "the configuration fills in its default"
        return training.rounds
    return ceil(Fraction(str(training.epochs)) / sampling_rate(config))


def guarantee_of(law: ReleaseLaw, config: RunConfig) -> Guarantee | None:
    """Return what the rounds of a release law promise, by the accountant of a configuration; None if nothing."""
    if not law.adds_noise:
        return None
    return guarantee(_claim(config, law.events(rounds_of(config), standpoint_of(config))))


def _calibrated(config: RunConfig, at_unit_noise: ReleaseLaw) -> float:
    """Return the noise multiplier that the promise of a configuration needs."""
    privacy = config.privacy
    name = next(name for name in PRIVACY_TARGETS if getattr(privacy, name.replace("-", "_")) is not None)
    target = _TARGETS[name](getattr(privacy, name.replace("-", "_")))
    if isinstance(target, NoiseMultiplierTarget):
        return target.noise_multiplier
    events = at_unit_noise.events(rounds_of(config), standpoint_of(config))
    return noise_multiplier_for(target, _claim(config, events))


def _claim(config: RunConfig, events: tuple[ReleaseEvent, ...]) -> Claim:
    privacy = config.privacy
    return Claim(
        adjacency=privacy.adjacency,
        events=events,
        delta=privacy.delta,
        prior=privacy.prior,
        accountant=privacy.accountant,
        sensitivities=_sensitivities(privacy.sensitivity),
    )


def _sensitivities(scaling: NoiseScaling) -> Sensitivities:
    """Return who chooses the rounds' sensitivities: only noise that follows them gives every round the same ratio."""
    match scaling:
        case NoiseScaling.LOCAL:
            return Sensitivities.FIXED
        case NoiseScaling.GLOBAL:
            return Sensitivities.ADAPTIVE


def _sized(config: RunConfig) -> RunConfig:
    """Fill in how many worlds make a batch: about a second of work a round, and messages of bounded size."""
    if config.run.worlds_per_batch is not None:
        return config
    source = load_source(data_spec(config.data))
    model = StackedModel.of(ModelSpec(config.model.name, source.feature_shape, source.pool.classes))
    by_work = int(_WORK_A_ROUND / (_examples_a_round(config) * model.scalars_per_example))
    by_message = int(_MESSAGE_SCALARS / model.layout.size)
    worlds = max(1, min(by_message, max(_FEWEST_WORLDS, min(_MOST_WORLDS, by_work))))
    return config.model_copy(update={"run": config.run.model_copy(update={"worlds_per_batch": worlds})})


def _examples_a_round(config: RunConfig) -> float:
    """Return how many passes of single records a round takes, of all clients together."""
    training, share = config.training, _denominator(config) / _clients(config)
    if training.strategy == "dp-fedsgd":
        return float(sampling_rate(config) * config.data.records)
    if training.local_steps is not None:
        return float(training.local_steps * (training.local_batch or 1) * _clients(config) * share)
    return float((training.local_epochs or 1) * config.data.records * share)


def _split(config: RunConfig) -> Split:
    data = config.data
    return select_records(load_source(data_spec(data)), data.records, data.test_records, data.seed)


def _with_clients(config: RunConfig, split: Split) -> RunConfig:
    """Fill in the number of clients where it is left out: that of the owners of records in D."""
    if config.data.clients is not None:
        return config
    clients = len(owners_of(split.inside.owner))
    return config.model_copy(update={"data": config.data.model_copy(update={"clients": clients})})


def _public_game(config: RunConfig, law: ReleaseLaw, split: Split, pair: NeighbourPair) -> PublicGame:
    data, audit = config.data, config.audit
    # The game says how many records are used, where a configuration names the most that are wanted.
    used = used_sizes(split, data.population_records, _taken(config, split, pair))
    return PublicGame(
        data=data_spec(data),
        data_seed=data.seed,
        records=data.records,
        test_records=used.test,
        population_records=used.population,
        clients=_clients(config),
        partition=data.partition,
        partition_parameters=tuple(sorted(_partition_parameters(data).items())),
        pair=pair,
        model=config.model.name,
        law=law,
        rounds=rounds_of(config),
        view=audit.view,
        threads=config.run.threads,
        device=config.run.device,
        with_insider=audit.insider,
        standpoint=standpoint_of(config),
        insiders=audit.insiders,
    )


def _pair(config: RunConfig, split: Split) -> NeighbourPair:
    """Choose where D and D' differ; the search over a large data set takes a while and is done here only."""
    data, audit = config.data, config.audit
    if config.privacy.adjacency.unit is Unit.CLIENT:
        return choose_client(
            config.privacy.adjacency,
            _shards(config, split),
            split.inside,
            audit.neighbour,
            audit.dissimilarity,
            data.seed,
            audit.neighbour_rank or 1,
        )
    return choose_neighbour(
        config.privacy.adjacency,
        split.inside,
        split.outside,
        audit.neighbour,
        audit.dissimilarity,
        data.seed,
        audit.neighbour_rank or 1,
    )


def _partition_parameters(data: DataSection) -> dict[str, bool | int | float | str]:
    return {name.replace("-", "_"): value for name, value in data.partition_parameters.items()}


def _shards(config: RunConfig, split: Split) -> tuple[NDArray[np.int64], ...]:
    data, inside = config.data, split.inside
    parameters = _partition_parameters(data)
    return partition_records(inside.labels, _clients(config), data.partition, parameters, data.seed, inside.owner)


def _clients(config: RunConfig) -> int:
    clients = config.data.clients
    assert clients is not None, "a resolved configuration names the number of clients"
    return clients


def data_spec(data: DataSection) -> DataSpec:
    """Return which data a section names."""
    options = {name.replace("_", "-"): getattr(data, name) for name in _DATA_OPTIONS}
    # FL_AUDIT_DATA is read here, once: a client on another machine or a later replay may have another one.
    directory = data_directory(data.data_dir)
    return DataSpec(
        data.name,
        None if directory is None else str(directory),
        tuple((key, value) for key, value in options.items() if value is not None),
    )


def _taken(config: RunConfig, split: Split, pair: NeighbourPair) -> int:
    """Return how many records outside D stand in D' for those of the differing unit."""
    if pair.replacement is None:
        return 0
    match config.privacy.adjacency.unit:
        case Unit.RECORD:
            return 1
        case Unit.CLIENT:
            return len(_shards(config, split)[pair.index])
