"""From a configuration to what is promised and what is played."""

from collections.abc import Callable
from dataclasses import dataclass

from experiments.config import PRIVACY_TARGETS, DataSection, RunConfig
from fl_audit.data.catalogue import DataSpec
from fl_audit.game import PublicGame
from fl_audit.learning.optimizers import ServerOptimizer
from fl_audit.privacy.calibration import (
    AdvantageTarget,
    BeliefTarget,
    EpsilonTarget,
    Guarantee,
    NoiseMultiplierTarget,
    Target,
    guarantee,
    noise_multiplier_for,
)
from fl_audit.privacy.release import ReleaseLaw

_TARGETS: dict[str, Callable[[float], Target]] = {
    "belief": BeliefTarget,
    "epsilon": EpsilonTarget,
    "advantage": AdvantageTarget,
    "noise-multiplier": NoiseMultiplierTarget,
}
_DATA_OPTIONS = ("path", "test_path", "label", "images", "labels", "test_images", "test_labels")


@dataclass(frozen=True)
class AuditPlan:
    """A resolved configuration.

    Parameters
    ----------
    config
        What the user wrote, defaults filled in.
    guarantee
        What is promised.
    public
        The game that is played.
    """

    config: RunConfig
    guarantee: Guarantee
    public: PublicGame


def resolve(config: RunConfig) -> AuditPlan:
    """Calibrate the noise to the promise and lay out the game.

    Parameters
    ----------
    config
        The configuration.

    Raises
    ------
    InputError
        If the promise cannot be kept or the game cannot be played.
    """
    privacy, training = config.privacy, config.training
    name = next(name for name in PRIVACY_TARGETS if getattr(privacy, name.replace("-", "_")) is not None)
    target = _TARGETS[name](getattr(privacy, name.replace("-", "_")))
    noise_multiplier = noise_multiplier_for(target, privacy.accountant, training.rounds, privacy.delta, privacy.prior)
    promise = guarantee(privacy.accountant, noise_multiplier, training.rounds, privacy.delta, privacy.prior)
    law = ReleaseLaw(
        relation=privacy.adjacency,
        clipping_norm=privacy.clipping_norm,
        noise_multiplier=noise_multiplier,
        scaling=privacy.sensitivity,
        denominator=config.data.records,
        optimizer=ServerOptimizer(training.optimizer, training.learning_rate, momentum=training.momentum),
        source=privacy.noise,
    )
    return AuditPlan(config, promise, _public_game(config, law))


def _public_game(config: RunConfig, law: ReleaseLaw) -> PublicGame:
    data, audit = config.data, config.audit
    return PublicGame(
        data=data_spec(data),
        data_seed=data.seed,
        records=data.records,
        test_records=data.test_records,
        population_records=data.population_records,
        clients=data.clients,
        partition=data.partition,
        partition_parameters=tuple(
            sorted((name.replace("-", "_"), value) for name, value in data.partition_parameters.items())
        ),
        neighbour=audit.neighbour,
        dissimilarity=audit.dissimilarity,
        model=config.model.name,
        law=law,
        rounds=config.training.rounds,
        view=audit.view,
        threads=config.run.threads,
    )


def data_spec(data: DataSection) -> DataSpec:
    """Return which data a section names."""
    options = {name.replace("_", "-"): getattr(data, name) for name in _DATA_OPTIONS}
    return DataSpec(
        data.name, data.data_dir, tuple((key, value) for key, value in options.items() if value is not None)
    )
