"""The mechanism of a configuration, and the numbers that determine it: rounds, clients, sampling rate, records."""

from dataclasses import replace
from fractions import Fraction
from math import ceil
from typing import assert_never

from fl_audit.adjacency import Unit
from fl_audit.array_types import Integers
from fl_audit.data.partition import partition_records, user_shards, users_of
from fl_audit.data.record_selection import Split
from fl_audit.data.records import Records
from fl_audit.errors import require
from fl_audit.learning.local_training import LocalOptimizer, LocalSchedule
from fl_audit.learning.losses import TrainingLoss
from fl_audit.learning.optimizers import CosineDecay, ExponentialDecay, RateDecay, ServerOptimizer, share_of_rate
from fl_audit.mechanisms import contribution
from fl_audit.mechanisms.mechanism import Mechanism
from fl_audit.mechanisms.noises.mechanism_noise import MechanismNoise, NoiseSettings
from fl_audit.mechanisms.noises.registry import NO_NOISE, noise_of
from fl_audit.mechanisms.participations.participation import Participation, ParticipationSettings
from fl_audit.mechanisms.participations.registry import participation_of, settings_of_participations
from fl_audit.mechanisms.threat_model import ThreatModel
from fl_audit.runs.config import AuditSection, DataSection, PrivacySection, RunConfig, TrainingSection
from fl_audit.runs.config.setting_types import SMALLEST_SIZE


def mechanism_of(config: RunConfig, noise_multiplier: float, split: Split) -> Mechanism:
    """Return the mechanism that a configuration describes, with a given noise multiplier.

    Without a claim (`private = false`), it neither clips nor adds noise. Raises `InputError` if the configured parts
    cannot be combined.

    `split`: If clients train by DP-SGD, the numbers of their records are parts of the mechanism.
    """
    privacy = config.privacy
    training = config.training
    noise = _noise(config, noise_multiplier)
    decay = _decay(config)
    return Mechanism(
        adjacency=privacy.adjacency,
        clipping=_clipping(privacy, noise),
        participation=_participation(config),
        noise=noise,
        denominator=denominator_of(config),
        optimizer=ServerOptimizer.of_kind(
            training.optimizer, training.learning_rate, training.momentum, None if _clients_train(training) else decay
        ),
        contribution=_contribution(config, split),
        loss=_loss(training, split.inside),
    )


def threat_model_of(audit: AuditSection) -> ThreatModel:
    """Return the configured threat model: adversary, its view of participation, and number of colluders."""
    return ThreatModel(audit.adversary, audit.participation, audit.colluders)


def _contribution(config: RunConfig, split: Split) -> contribution.Contribution:
    training = config.training
    match training.strategy:
        case "dp-fedsgd":
            is_of_users = config.privacy.adjacency.unit is Unit.USER
            return contribution.UserGradients() if is_of_users else contribution.RecordGradients()
        case "dp-fedavg":
            return contribution.LocalTraining(replace(_schedule(training), decay=_decay(config)))
        case "dp-sgd-clients":
            sizes = sorted({len(shard) for shard in shards_of(config, split)})
            return contribution.PrivateTraining(_schedule(training), tuple(sizes))
        case _:
            assert_never(training.strategy)


def _schedule(training: TrainingSection) -> LocalSchedule:
    rate = training.local_learning_rate
    batch = training.local_batch
    rule = training.local_optimizer
    assert rate is not None, "the configuration fills it in"
    assert batch is not None, "the configuration fills it in"
    return LocalSchedule(
        rate,
        batch,
        training.local_epochs,
        training.local_steps,
        rule or LocalOptimizer.SGD,
        proximal=training.proximal_mu or 0.0,
    )


def _clients_train(training: TrainingSection) -> bool:
    """Return whether the step size that falls over the rounds is that of clients, and not the server's."""
    return training.strategy != "dp-fedsgd"


def _decay(config: RunConfig) -> RateDecay | None:
    """Return the schedule of the step size; raise `InputError` if it leaves a step of the last round that is too small.

    A factor of 1 is no schedule.
    """
    training = config.training
    if training.learning_rate_decay in (None, 1):
        return None
    rounds = rounds_of(config)
    decay: RateDecay
    if isinstance(training.learning_rate_decay, str):
        decay = CosineDecay(rounds)
    else:
        decay = ExponentialDecay(training.learning_rate_decay)
    rate = training.local_learning_rate if _clients_train(training) else training.learning_rate
    assert rate is not None, "the configuration fills it in"
    last = rate * share_of_rate(decay, rounds)
    problem = f"learning-rate-decay is {training.learning_rate_decay}, which leaves a step size of {last:.3g} in round"
    require(last >= SMALLEST_SIZE, f"{problem} {rounds}: accepted are step sizes from {SMALLEST_SIZE:g}")
    return decay


def _loss(training: TrainingSection, records: Records) -> TrainingLoss:
    """Return the loss of training; raise `InputError` if it does not suit the labels of the records."""
    weights = training.class_weights or ()
    smoothing = training.label_smoothing
    if records.has_quantities:
        for name, value in {"class-weights": weights, "label-smoothing": smoothing}.items():
            require(
                not value,
                f"{name} is set, and the labels are quantities: accepted with it are labels that name classes",
            )
    problem = f"class-weights has length {len(weights)}, and the labels have {records.classes} classes"
    require(len(weights) in (0, records.classes), f"{problem}: accepted is a number for each class")
    return TrainingLoss(weights, smoothing)


def _clipping(privacy: PrivacySection, noise: MechanismNoise) -> contribution.Clipping:
    """Return the configured clipping, in the norm in which the noise is scaled to the sensitivity."""
    if not privacy.private:
        return contribution.NoClipping()
    match privacy.clipping:
        case "fixed":
            return contribution.FixedClipping(privacy.clipping_norm, measured_in=noise.norm)
        case "adaptive":
            return contribution.AdaptiveClipping(privacy.clipping_norm)
        case _:
            assert_never(privacy.clipping)


def _participation(config: RunConfig) -> Participation:
    training = config.training
    clients = clients_of(config.data)
    is_of_clients = training.strategy != "dp-fedsgd"
    if (cohort := training.cohort) is not None:
        require(cohort <= clients, f"cohort is {cohort} of {clients} clients: accepted are 1 to {clients}")
    own_settings = {name: getattr(training, name.replace("-", "_")) for name in settings_of_participations()}
    return participation_of(
        ParticipationSettings(
            name=training.sampling,
            rate=sampling_rate(config),
            units=clients if is_of_clients else _records_or_users(config),
            cohort=cohort,
            own=own_settings,
        )
    )


def units_of(records: Records) -> int:
    """Return the number of users, the persons whom records are about; each record must have a user."""
    return int(users_of(records).max()) + 1


def _records_or_users(config: RunConfig) -> int:
    """Return the number of users in D if the claim is about users, else the number of records in D."""
    if config.privacy.adjacency.unit is not Unit.USER:
        return config.data.records
    users = config.data.users
    assert users is not None, "the configuration of a plan names the number of users"
    return users


def denominator_of(config: RunConfig) -> float:
    """Return the expected number of participants in a round; the server divides the sum of contributions by it.

    Participants are records or users with strategy `dp-fedsgd`, and clients with the other strategies. The
    configuration must have the number of clients.
    """
    match config.training.strategy:
        case "dp-fedavg" | "dp-sgd-clients":
            return float(_participation(config).mean_units(clients_of(config.data)))
        case "dp-fedsgd":
            return float(sampling_rate(config) * _records_or_users(config))
        case _:
            assert_never(config.training.strategy)


def _noise(config: RunConfig, multiplier: float) -> MechanismNoise:
    privacy = config.privacy
    participation = _participation(config)
    if not privacy.private:
        return NO_NOISE
    return noise_of(
        NoiseSettings(
            name=privacy.noise,
            multiplier=multiplier,
            scaling=privacy.sensitivity,
            clients=clients_of(config.data),
            rounds=rounds_of(config),
            separation=participation.known_separation,
        )
    )


def sampling_rate(config: RunConfig) -> Fraction:
    """Return the configured probability that a record or user takes part in a round, as an exact fraction.

    Raises `InputError` if `expected-batch` is larger than the number of records or users.
    """
    training = config.training
    noun = "users" if config.privacy.adjacency.unit is Unit.USER else "records"
    if training.expected_batch is None:
        return Fraction(str(training.sampling_rate or 1))
    batch = training.expected_batch
    units = _records_or_users(config)
    require(batch <= units, f"expected-batch is {batch} of {units} {noun}: accepted are 1 to {units}")
    return Fraction(batch, units)


def rounds_of(config: RunConfig) -> int:
    """Return the number of rounds, which the configuration states itself or through `epochs`.

    With `epochs`, a record or user takes part in at least `epochs` rounds on average.
    """
    training = config.training
    if training.epochs is None:
        assert training.rounds is not None, "the configuration fills in its default"
        return training.rounds
    return ceil(Fraction(str(training.epochs)) / sampling_rate(config))


def partition_parameters(data: DataSection) -> dict[str, bool | int | float | str]:
    """Return the parameters of the partition of records among clients, keyed by name with "_" in place of "-"."""
    return {name.replace("-", "_"): value for name, value in data.partition_parameters.items()}


def shards_of(config: RunConfig, split: Split) -> tuple[Integers, ...]:
    """Return the shard of each client in D: the indices of its records, in the order of client numbers."""
    data = config.data
    inside = split.inside
    parameters = partition_parameters(data)
    if config.privacy.adjacency.unit is Unit.USER:
        scheme = data.partition, parameters, data.seed
        return user_shards(inside, clients_of(data), *scheme, data.user_across_clients)
    return partition_records(inside.labels, clients_of(data), data.partition, parameters, data.seed, inside.owner)


def clients_of(data: DataSection) -> int:
    """Return the number of clients of a configuration; it must be set or filled in."""
    assert data.clients is not None, "the configuration of a plan names the number of clients"
    return data.clients
