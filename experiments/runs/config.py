"""The configuration of a run: a TOML file, checked whole before anything is done."""

import tomllib
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, Strict, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from experiments.runs.config_errors import first_problem, shown
from fl_audit.adjacency import Adjacency
from fl_audit.data.dissimilarity import Dissimilarity
from fl_audit.data.neighbours import RANKED, NeighbourChoice
from fl_audit.data.partition import PartitionScheme
from fl_audit.device import Device
from fl_audit.errors import InputError
from fl_audit.game.seen import View
from fl_audit.learning.optimizers import OptimizerKind
from fl_audit.mechanisms.noise import NoiseScaling
from fl_audit.mechanisms.standpoint import Place, TargetsParticipation
from fl_audit.privacy.accounting import Accountant

Scalar = bool | int | float | str
T = TypeVar("T")
Choice = Annotated[T, Strict(False)]
"""One of the values of an enumeration, which a file writes as a string."""
Share = Annotated[float, Field(gt=0, lt=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Words = Annotated[tuple[str, ...], Strict(False)]
Count = Annotated[int, Field(ge=1, le=10**9)]


def _kebab(name: str) -> str:
    return name.replace("_", "-")


class _Section(BaseModel):
    # Strict: a quoted number or a truth value where a number is meant is refused, never converted.
    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=_kebab, populate_by_name=False, strict=True)


DEFAULT_CLIENTS = 10


class DataSection(_Section):
    """Which records, who holds them. `path` to `test_labels` belong to `csv`, `npz` and `idx`, four of them to `csv`.

    `owner` names the column of a CSV table, or the array of an archive, that says whose each record is: with the
    partition `natural` every owner is a client. `clients`, left out, is then the number of owners, else 10.

    Of a CSV table, `drop` leaves out columns, `separator` stands between cells, `missing` names words that stand for a
    missing value and leaves out the records where one is missing, and a column may have up to `max-levels` words.
    """

    name: str = "digits"
    data_dir: str | None = None
    path: str | None = None
    test_path: str | None = None
    label: str | None = None
    owner: str | None = None
    drop: Words | None = None
    separator: str | None = None
    missing: Words | None = None
    max_levels: Count | None = None
    images: str | None = None
    labels: str | None = None
    test_images: str | None = None
    test_labels: str | None = None
    records: Count = 1000
    test_records: Count = 1000
    population_records: Annotated[int, Field(ge=2, le=10**9)] = 1000
    clients: Annotated[int, Field(ge=2, le=10**9)] | None = None
    partition: Choice[PartitionScheme] = PartitionScheme.IID
    partition_parameters: dict[str, Scalar] = Field(default_factory=dict)
    seed: Annotated[int, Field(ge=0, lt=2**64)] = 0

    @model_validator(mode="before")
    @classmethod
    def _default_clients(cls, values: Any) -> Any:
        """Fill in the default before the values are checked; with natural clients the data tell the number."""
        if not isinstance(values, dict) or "clients" in values or values.get("partition") == PartitionScheme.NATURAL:
            return values
        return values | {"clients": DEFAULT_CLIENTS}


class ModelSection(_Section):
    """Which model: a built-in name or `package.module:factory`. `seed` draws the initial weights, which are public."""

    name: str = "logistic"
    seed: Annotated[int, Field(ge=0, lt=2**64)] = 0


DEFAULT_ROUNDS = 30
Strategy = Literal["dp-fedsgd", "dp-fedavg", "dp-sgd-clients"]
OF_LOCAL_TRAINING = ("local-epochs", "local-steps", "local-batch", "local-learning-rate")
OF_CLIENTS = ("client-sampling-rate", "cohort")
OF_RECORDS = ("epochs", "sampling-rate", "expected-batch")
_NEEDS: dict[tuple[str, ...], tuple[Strategy, ...]] = {
    OF_LOCAL_TRAINING: ("dp-fedavg", "dp-sgd-clients"),
    OF_CLIENTS: ("dp-fedavg",),
    OF_RECORDS: ("dp-fedsgd",),
}
"""Settings of training that some strategies alone have: local training, samples of clients, and those of records."""
_AT_MOST_ONE = (
    ("rounds", "epochs"),
    ("sampling-rate", "expected-batch"),
    ("client-sampling-rate", "cohort"),
    ("local-epochs", "local-steps"),
)


class TrainingSection(_Section):
    """How the federation learns. `rounds`, left out, is 30 or follows from `epochs`, passes over the records of D.

    `dp-fedsgd`: clients send clipped gradients of their records. `dp-fedavg`: they train on their own records, for
    `local-epochs` or `local-steps`, and send clipped updates. `dp-sgd-clients`: they train so by DP-SGD, with Opacus,
    and send updates that are private already.
    """

    strategy: Strategy = "dp-fedsgd"
    rounds: Count | None = None
    epochs: Annotated[float, Field(gt=0, le=10**9)] | None = None
    sampling_rate: Annotated[float, Field(gt=0, le=1)] | None = None
    """Probability with which a record takes part in a round; None is 1, or follows from `expected-batch`."""
    expected_batch: Count | None = None
    """Records that take part in a round on average."""
    client_sampling_rate: Annotated[float, Field(gt=0, le=1)] | None = None
    """Probability with which a client takes part in a round, with `dp-fedavg`; None is 1."""
    cohort: Count | None = None
    """Clients of a round, in a public order, with `dp-fedavg`; None is all."""
    local_epochs: Count | None = None
    """Passes over its own records that a client makes in a round where clients train; None is 1, or `local-steps`."""
    local_steps: Count | None = None
    local_batch: Count | None = None
    """Records of a local step where clients train, with `dp-sgd-clients` on average; None is 10."""
    local_learning_rate: Positive | None = None
    """Step size of local training where clients train; None is 0.1."""
    learning_rate: Positive = 0.005
    """Step size of the server; left out where clients train it is 1, and 0.01 for Adam."""
    optimizer: Choice[OptimizerKind] = OptimizerKind.SGD
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9

    @model_validator(mode="before")
    @classmethod
    def _default_rounds(cls, values: Any) -> Any:
        """Fill in the default before the values are checked, so that a stored configuration names its rounds."""
        given = isinstance(values, dict) and ("rounds" in values or "epochs" in values)
        return values if given or not isinstance(values, dict) else values | {"rounds": DEFAULT_ROUNDS}

    @model_validator(mode="after")
    def _one_of_each(self) -> Self:
        for names in _AT_MOST_ONE:
            given = _given(self, names)
            if len(given) > 1:
                raise ValueError(f"{_named(self, given)} are both given: accepted is at most one of the two")
        return self

    @model_validator(mode="after")
    def _of_one_strategy(self) -> Self:
        for names, strategies in _NEEDS.items():
            idle = _given(self, names)
            if idle and self.strategy not in strategies:
                needed = " or ".join(strategies)
                raise ValueError(f"{_named(self, idle)} needs strategy = {needed}, and strategy is {self.strategy}")
        return self


PRIVACY_TARGETS = ("belief", "epsilon", "advantage", "noise-multiplier")
OF_ADAPTIVE = ("quantile", "quantile-noise", "clipping-learning-rate")
PROMISE_ONLY = (
    *PRIVACY_TARGETS,
    *("accountant", "clipping-norm", "sensitivity", "noise", "bands", "clipping", *OF_ADAPTIVE),
)
"""Settings that have no meaning where nothing is promised."""


def _given(section: BaseModel, names: Sequence[str]) -> list[str]:
    return [name for name in names if getattr(section, name.replace("-", "_")) is not None]


def _named(section: BaseModel, names: Sequence[str]) -> str:
    return " and ".join(f"{name} = {getattr(section, name.replace('-', '_'))}" for name in names)


class PrivacySection(_Section):
    """What is promised: exactly one of the four targets; `private = false` clips nothing, adds no noise, promises none.

    `delta` is that of Epsilon* too.
    """

    private: bool = True
    belief: Share | None = None
    epsilon: Positive | None = None
    advantage: Share | None = None
    noise_multiplier: Annotated[float, Field(ge=0.01, le=1e6)] | None = None
    delta: Share = 0.001
    prior: Share = 0.5
    accountant: Choice[Accountant] = Accountant.RDP_CLASSIC
    clipping_norm: Positive = 3.0
    sensitivity: Choice[NoiseScaling] = NoiseScaling.GLOBAL
    adjacency: Choice[Adjacency] = Adjacency.REPLACE_RECORD
    """Left out with `dp-fedavg` it is `add-remove-client`, with `dp-sgd-clients` `add-remove-record`."""
    noise: Literal["central", "distributed", "local", "banded", "tree", "inside-training"] = "central"
    """Left out with `dp-sgd-clients` it is `inside-training`, the one that goes with it."""
    bands: Count | None = None
    """Bands of `banded` noise; None is as many as rounds lie between two of a client's."""
    clipping: Literal["fixed", "adaptive"] = "fixed"
    quantile: Share | None = None
    """Share of clients whose update an adaptive norm is to leave whole; None is 0.5."""
    quantile_noise: Positive | None = None
    """Noise multiplier of the bits behind an adaptive norm, over that of the updates; None is 5."""
    clipping_learning_rate: Positive | None = None
    """How fast an adaptive norm moves; None is 0.2."""

    @model_validator(mode="after")
    def _of_one_kind(self) -> Self:
        if self.clipping != "adaptive" and (idle := _given(self, OF_ADAPTIVE)):
            raise ValueError(f"{_named(self, idle)} needs clipping = adaptive, and clipping is {self.clipping}")
        if self.noise != "banded" and self.bands is not None:
            raise ValueError(f"bands = {self.bands} needs noise = banded, and noise is {self.noise}")
        return self

    @model_validator(mode="after")
    def _exactly_one_target(self) -> Self:
        if not self.private:
            idle = [name for name in PROMISE_ONLY if name.replace("-", "_") in self.model_fields_set]
            if idle:
                raise ValueError(
                    f"{_named(self, idle)} given together with private = false, which promises nothing: leave out "
                    f"{'it' if len(idle) == 1 else 'these keys'}, or private = false"
                )
            return self
        given = _given(self, PRIVACY_TARGETS)
        if len(given) != 1:
            named = _named(self, given) or "none"
            raise ValueError(f"{named} given: accepted is exactly one of {', '.join(PRIVACY_TARGETS)}")
        return self


def _neighbour(value: Any) -> NeighbourChoice | int:
    if isinstance(value, str) and value in list(NeighbourChoice):
        return NeighbourChoice(value)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 10**9:
        return value
    accepted = f"accepted are {', '.join(NeighbourChoice)}, or the index of a record of D, from 0"
    raise PydanticCustomError("neighbour", "{accepted}", {"accepted": accepted})


def _loss_range(value: Any) -> Any:
    numbers = isinstance(value, list | tuple) and all(type(end) in (int, float) for end in value)
    if value is None:
        return None
    if numbers and len(value) == 2 and 0 <= value[0] < value[1] < float("inf"):
        return tuple(map(float, value))
    accepted = "accepted are two ascending finite numbers from 0, such as [0, 5]"
    raise PydanticCustomError("loss_range", "{accepted}", {"accepted": accepted})


class LossSource(StrEnum):
    """Where members' losses are when Epsilon* is found: in one place, or with their owners."""

    POOLED = "pooled"
    FEDERATED = "federated"


class AuditSection(_Section):
    """What the insider sees, which neighbour it asks about, and how often the game is played.

    `insider = false` trains the worlds without asking it: Epsilon*, membership and accuracy remain.
    """

    worlds: Count = 200
    insider: bool = True
    participation: Choice[TargetsParticipation] = TargetsParticipation.SECRET
    """Whether the insider sees in which rounds the target takes part, where rounds are sampled."""
    colluders: Annotated[int, Field(ge=0, le=10**9)] = 0
    """Clients who share their noise with the insider, where clients add the noise."""
    place: Choice[Place] = Place.CLIENT
    """Where the adversary sits: `server` is honest but curious, and sees every contribution by itself."""
    insiders: Count = 1
    """How many clients attack, each by itself."""
    view: Choice[View] = View.UPDATE
    neighbour: Annotated[NeighbourChoice | int, BeforeValidator(_neighbour)] = NeighbourChoice.MOST_DISSIMILAR
    neighbour_rank: Count | None = None
    """Rank among the most or least dissimilar neighbours; None is 1, and keeps older run directories valid."""
    dissimilarity: Choice[Dissimilarity] = Dissimilarity.EUCLIDEAN
    confidence: Annotated[float, Field(gt=0.5, lt=1)] = 0.95
    epsilon_star: bool = True
    epsilon_star_cut: Annotated[float, Field(ge=0, lt=0.5)] = 0.0
    """Error rates beyond it and 1 - it are left out of Epsilon*, as in the paper; 0 leaves out none."""
    epsilon_star_losses: Choice[LossSource] = LossSource.POOLED
    """`federated`: data owners answer summaries of their losses, none of which leaves them."""
    loss_range: Annotated[tuple[float, float] | None, BeforeValidator(_loss_range)] = None
    """Public range of losses, those beyond it clipped; left out, owners are asked for their extremes."""
    client_epsilon_star: bool = False
    """Whether clients tell the server Epsilon* of their own shards."""
    membership: bool = True
    evaluate_every: Count = 1

    @model_validator(mode="after")
    def _rank_of_something(self) -> Self:
        if self.neighbour_rank is not None and self.neighbour not in RANKED:
            raise ValueError(
                f"neighbour-rank = {self.neighbour_rank} needs neighbour = {' or '.join(RANKED)}, and neighbour is "
                f"{self.neighbour}"
            )
        return self

    @model_validator(mode="after")
    def _federated_for_something(self) -> Self:
        if self.epsilon_star_losses is LossSource.FEDERATED and not self.epsilon_star:
            raise ValueError("epsilon-star-losses = federated needs epsilon-star = true")
        if self.epsilon_star_losses is LossSource.POOLED:
            for name, given in (("loss-range", self.loss_range), ("client-epsilon-star", self.client_epsilon_star)):
                if given:
                    raise ValueError(f"{name} needs epsilon-star-losses = federated")
        return self


class RunSection(_Section):
    """How the run is carried out. `worlds-per-batch`, left out, fits the model.

    `seed` is the challenger's secret, of which bits, samples and noise are drawn; left out, it is drawn at random when
    the run begins. A call whose client process died is made again up to `client-retries` times, on a new process.

    Releases are kept where the insider plays, for nobody else weighs them again. `actors` client calls run at the same
    time: processes of an embedded Ray (0: one for every `threads` cores), threads of the local engine (0: one).
    """

    seed: Annotated[int, Field(ge=0, lt=2**64)] | None = None
    worlds_per_batch: Count | None = None
    batches_in_flight: Count = 2
    keep_releases: Annotated[int, Field(ge=0, le=10**9)] = 4
    keep_final_models: bool = True
    client_time_limit: Annotated[float, Field(gt=0, le=10**7)] = 600.0
    client_retries: Annotated[int, Field(ge=0, le=1000)] = 2
    threads: Annotated[int, Field(ge=1, le=256)] = 1
    device: Choice[Device] = Device.CPU
    actors: Annotated[int, Field(ge=0, le=10**6)] = 0


class RunConfig(_Section):
    """A whole configuration."""

    data: DataSection = Field(default_factory=DataSection)
    model: ModelSection = Field(default_factory=ModelSection)
    training: TrainingSection = Field(default_factory=TrainingSection)
    privacy: PrivacySection
    audit: AuditSection = Field(default_factory=AuditSection)
    run: RunSection = Field(default_factory=RunSection)

    @model_validator(mode="before")
    @classmethod
    def _defaults_of_the_strategy(cls, values: Any) -> Any:
        """Fill in what the strategy decides, so that a stored configuration names it."""
        return _with_strategy_defaults(values) if isinstance(values, dict) else values

    def as_dict(self) -> dict[str, Any]:
        """Return the configuration with all defaults filled in, as JSON values under the names of the file."""
        values = self.model_dump(mode="json", by_alias=True, exclude_none=True)
        if not self.privacy.private:
            values["privacy"] = {key: value for key, value in values["privacy"].items() if key not in PROMISE_ONLY}
        return values

    def as_public_dict(self) -> dict[str, Any]:
        """Return the same without the challenger's seed."""
        values = self.as_dict()
        values["run"].pop("seed", None)
        return values


_WHERE_CLIENTS_TRAIN = {"learning-rate": 1.0, "local-batch": 10, "local-learning-rate": 0.1}
_PRIVACY_OF = {
    "dp-fedavg": {"adjacency": str(Adjacency.ADD_REMOVE_CLIENT)},
    "dp-sgd-clients": {"adjacency": str(Adjacency.ADD_REMOVE_RECORD), "noise": "inside-training"},
}
"""What a configuration has that leaves these settings out, by its strategy."""
_ADAM_RATE = 0.01


def _with_strategy_defaults(values: dict[str, Any]) -> dict[str, Any]:
    training, privacy = values.get("training", {}), values.get("privacy", {})
    is_table = isinstance(training, dict) and isinstance(privacy, dict)
    strategy = training.get("strategy") if is_table else None
    if not isinstance(strategy, str) or strategy not in _PRIVACY_OF:
        return values
    adam = {"learning-rate": _ADAM_RATE} if training.get("optimizer") == "adam" else {}
    filled = _WHERE_CLIENTS_TRAIN | adam | training
    if "local-steps" not in training and "local-epochs" not in training:
        filled["local-epochs"] = 1
    of_strategy = _PRIVACY_OF[strategy]
    if privacy.get("private") is False:
        of_strategy = {name: value for name, value in of_strategy.items() if name not in PROMISE_ONLY}
    return values | {"training": filled, "privacy": of_strategy | privacy}


def load_config(path: Path, overrides: Sequence[str] = (), data_dir: str | None = None) -> RunConfig:
    """Read and check a configuration file.

    Parameters
    ----------
    path, overrides, data_dir
        As for `load_values`.

    Raises
    ------
    InputError
        If the file cannot be read, or a key or value is not accepted.
    """
    return parse_config(load_values(path, overrides, data_dir))


def load_values(path: Path, overrides: Sequence[str] = (), data_dir: str | None = None) -> dict[str, Any]:
    """Read the values of a configuration file, unchecked.

    Parameters
    ----------
    path
        TOML file. Relative paths inside it are relative to its directory.
    overrides
        Settings of the form `section.key=value` that replace those of the file; `section.key=` takes one away.
    data_dir
        Data directory that replaces that of the file.

    Raises
    ------
    InputError
        If the file cannot be read, is no TOML, or an override is written otherwise.
    """
    try:
        # Some editors begin a file with a byte-order mark, which TOML does not know.
        values = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise InputError(f"configuration {path} cannot be read: {error.strerror}") from error
    # ValueError: not only what is no TOML, but numbers of thousands of digits; RecursionError: lists in lists in lists
    except (ValueError, RecursionError) as error:
        raise InputError(f"configuration {path} is no valid TOML: {_first_sentence(error)}") from error
    for override in overrides:
        _apply(values, override)
    if data_dir is not None:
        values.setdefault("data", {})["data-dir"] = str(Path(data_dir).absolute())
    _anchor_paths(values.get("data"), path.absolute().parent)
    return values


_MISSING = f"it names what is promised ({', '.join(PRIVACY_TARGETS)})"


def parse_config(values: dict[str, Any]) -> RunConfig:
    """Check the values of a configuration.

    Raises
    ------
    InputError
        If a key or value is not accepted; the first one is named, an unknown key with the nearest known one.
    """
    try:
        return RunConfig.model_validate(values)
    except ValidationError as error:
        raise InputError(first_problem(error, RunConfig, _MISSING)) from None


def _apply(values: dict[str, Any], override: str) -> None:
    key, equals, text = override.partition("=")
    section, dot, name = key.strip().partition(".")
    if not equals or not dot or not name:
        raise InputError(f"--set {shown(override)}: accepted is section.key=value, such as audit.worlds=1000")
    table = values.setdefault(section, {})
    if not isinstance(table, dict):
        raise InputError(f"--set {shown(override)}: {section!r} is no section of the file")
    if not text.strip():
        table.pop(name, None)
        return
    try:
        table[name] = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        table[name] = text.strip()
    except (ValueError, RecursionError) as error:
        raise InputError(f"--set {shown(override)} is no valid TOML value: {_first_sentence(error)}") from error


def _first_sentence(error: Exception) -> str:
    """Return what an error says, without Python's advice to Python programmers."""
    return str(error).splitlines()[0].partition(";")[0] if str(error) else type(error).__name__


def _anchor_paths(data: Any, directory: Path) -> None:
    """Make the paths of the data section absolute, so that client processes elsewhere find the same files."""
    if not isinstance(data, dict):
        return
    for key in ("data-dir", "path", "test-path", "images", "labels", "test-images", "test-labels"):
        if isinstance(data.get(key), str):
            data[key] = str(directory / Path(data[key]).expanduser())
