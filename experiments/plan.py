"""From a configuration to what is promised and what is played."""

from collections.abc import Callable
from dataclasses import dataclass

from experiments.config import PRIVACY_TARGETS, DataSection, RunConfig
from fl_audit.data.catalogue import DataSpec, load_source
from fl_audit.data.neighbours import NeighbourPair, choose_neighbour
from fl_audit.data.split import select_records
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
    promise = promised(config)
    privacy, training = config.privacy, config.training
    law = ReleaseLaw(
        relation=privacy.adjacency,
        clipping_norm=privacy.clipping_norm,
        noise_multiplier=promise.noise_multiplier,
        scaling=privacy.sensitivity,
        denominator=config.data.records,
        optimizer=ServerOptimizer(training.optimizer, training.learning_rate, momentum=training.momentum),
        source=privacy.noise,
    )
    return AuditPlan(config, promise, _public_game(config, law))


def promised(config: RunConfig) -> Guarantee:
    """Calibrate the noise to the promise of a configuration and return all that it then promises."""
    privacy, rounds = config.privacy, config.training.rounds
    name = next(name for name in PRIVACY_TARGETS if getattr(privacy, name.replace("-", "_")) is not None)
    target = _TARGETS[name](getattr(privacy, name.replace("-", "_")))
    noise_multiplier = noise_multiplier_for(target, privacy.accountant, rounds, privacy.delta, privacy.prior)
    return guarantee(privacy.accountant, noise_multiplier, rounds, privacy.delta, privacy.prior)


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
        pair=_pair(config),
        model=config.model.name,
        law=law,
        rounds=config.training.rounds,
        view=audit.view,
        threads=config.run.threads,
    )


def _pair(config: RunConfig) -> NeighbourPair:
    """Choose where D and D' differ; the search over a large data set takes a while and is done here only."""
    data, audit = config.data, config.audit
    split = select_records(load_source(data_spec(data)), data.records, data.test_records, data.seed)
    return choose_neighbour(
        config.privacy.adjacency, split.inside, split.outside, audit.neighbour, audit.dissimilarity, data.seed
    )


def data_spec(data: DataSection) -> DataSpec:
    """Return which data a section names."""
    options = {name.replace("_", "-"): getattr(data, name) for name in _DATA_OPTIONS}
    return DataSpec(
        data.name, data.data_dir, tuple((key, value) for key, value in options.items() if value is not None)
    )
