"""From a configuration to what is promised and what is played."""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from math import ceil

from experiments.runs.config import PRIVACY_TARGETS, DataSection, RunConfig
from fl_audit.adjacency import NeighbourPair
from fl_audit.data.catalogue import DataSpec, load_source
from fl_audit.data.files import data_directory
from fl_audit.data.neighbours import choose_neighbour
from fl_audit.data.partition import owners_of
from fl_audit.data.split import Split, select_records, used_sizes
from fl_audit.errors import require
from fl_audit.game.public import PublicGame
from fl_audit.learning.models import ModelSpec
from fl_audit.learning.optimizers import ServerOptimizer
from fl_audit.learning.stacked import StackedModel
from fl_audit.mechanisms.clipping import FixedClipping, NoClipping
from fl_audit.mechanisms.contribution import Contribution, RecordGradients
from fl_audit.mechanisms.law import ReleaseLaw, require_weighable
from fl_audit.mechanisms.noise import CentralGaussian, Noise, NoiseScaling, NoNoise
from fl_audit.mechanisms.participation import participation_of
from fl_audit.privacy.beliefs import Sensitivities
from fl_audit.privacy.calibration import noise_multiplier_for
from fl_audit.privacy.claim import Claim
from fl_audit.privacy.events import ReleaseEvent, gaussian_rounds
from fl_audit.privacy.guarantee import Guarantee, guarantee
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
    privacy, training, rate = config.privacy, config.training, sampling_rate(config)
    if config.audit.insider:
        require_weighable(privacy.private, float(rate))
    law = ReleaseLaw(
        adjacency=privacy.adjacency,
        clipping=FixedClipping(privacy.clipping_norm) if privacy.private else NoClipping(),
        participation=participation_of(float(rate)),
        noise=_noise(config),
        denominator=float(rate * config.data.records),
        optimizer=ServerOptimizer(training.optimizer, training.learning_rate, momentum=training.momentum),
        contribution=_contribution(config),
    )
    split = _split(config)
    config = _with_clients(config, split)
    public = _public_game(config, law, split, pair or _pair(config, split))
    return AuditPlan(_sized(config), guarantee_of(law, config), public)


def _contribution(config: RunConfig) -> Contribution:
    match config.training.strategy:
        case "dp-fedsgd":
            return RecordGradients()


def _noise(config: RunConfig) -> Noise:
    privacy = config.privacy
    if not privacy.private:
        return NoNoise()
    match privacy.noise:
        case "central":
            return CentralGaussian(_calibrated(config), privacy.sensitivity)


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
    return guarantee(_claim(config, law.events(rounds_of(config))))


def _calibrated(config: RunConfig) -> float:
    """Return the noise multiplier that the promise of a configuration needs."""
    privacy = config.privacy
    name = next(name for name in PRIVACY_TARGETS if getattr(privacy, name.replace("-", "_")) is not None)
    target = _TARGETS[name](getattr(privacy, name.replace("-", "_")))
    at_unit_noise = gaussian_rounds(1.0, rounds_of(config), float(sampling_rate(config)))
    return noise_multiplier_for(target, _claim(config, at_unit_noise))


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
    by_work = int(_WORK_A_ROUND / (float(sampling_rate(config) * config.data.records) * model.scalars_per_example))
    by_message = int(_MESSAGE_SCALARS / model.layout.size)
    worlds = max(1, min(by_message, max(_FEWEST_WORLDS, min(_MOST_WORLDS, by_work))))
    return config.model_copy(update={"run": config.run.model_copy(update={"worlds_per_batch": worlds})})


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
    assert data.clients is not None, "a resolved configuration names the number of clients"
    # The game says how many records are used, where a configuration names the most that are wanted.
    used = used_sizes(split, data.population_records, pair.replacement is not None)
    return PublicGame(
        data=data_spec(data),
        data_seed=data.seed,
        records=data.records,
        test_records=used.test,
        population_records=used.population,
        clients=data.clients,
        partition=data.partition,
        partition_parameters=tuple(
            sorted((name.replace("-", "_"), value) for name, value in data.partition_parameters.items())
        ),
        pair=pair,
        model=config.model.name,
        law=law,
        rounds=rounds_of(config),
        view=audit.view,
        threads=config.run.threads,
        device=config.run.device,
        with_insider=audit.insider,
    )


def _pair(config: RunConfig, split: Split) -> NeighbourPair:
    """Choose where D and D' differ; the search over a large data set takes a while and is done here only."""
    data, audit = config.data, config.audit
    return choose_neighbour(
        config.privacy.adjacency,
        split.inside,
        split.outside,
        audit.neighbour,
        audit.dissimilarity,
        data.seed,
        audit.neighbour_rank or 1,
    )


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
