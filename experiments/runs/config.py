"""The configuration of a run: a TOML file, checked whole before anything is done."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, Strict, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from experiments.runs.config_errors import first_problem
from fl_audit.adjacency import Adjacency
from fl_audit.adversaries.membership.names import OF_ANY_UNIT, USUAL, Attack
from fl_audit.data.names import RANKED, Dissimilarity, NeighbourChoice, PartitionScheme
from fl_audit.device import Device
from fl_audit.errors import InputError
from fl_audit.game.names import InitialWeights, View
from fl_audit.learning.names import LocalOptimizer, OptimizerKind
from fl_audit.mechanisms.names import NoiseScaling
from fl_audit.mechanisms.standpoint import Place, TargetsParticipation
from fl_audit.privacy.names import Accountant

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

    `classes` chooses among the forms of `purchases`, `texas`, `skewed-purchases` and `lfw`; `generated-records` says
    how many records of `skewed-purchases` there are; `graph-nodes` how many nodes a graph of `collab` keeps.
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
    classes: Count | None = None
    generated_records: Count | None = None
    graph_nodes: Count | None = None
    records: Count = 1000
    test_records: Count = 1000
    population_records: Annotated[int, Field(ge=2, le=10**9)] = 1000
    clients: Count | None = None
    """2 and more; 1 where membership attacks, and no insider, are what the run is for: training in one place."""
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
    """Which model: a built-in name or `package.module:factory`. `seed` draws the initial weights, which are public.

    `initial = "pretrained"` begins in every world with the same weights, trained without privacy on records that serve
    for nothing else: the worst case for an observer of the final model.

    `weights` is the file that `vgg16` takes the weights of its frozen core from.
    """

    name: str = "logistic"
    weights: str | None = None
    initial: Choice[InitialWeights] = InitialWeights.DRAWN
    seed: Annotated[int, Field(ge=0, lt=2**64)] = 0


DEFAULT_ROUNDS = 30
Strategy = Literal["dp-fedsgd", "dp-fedavg", "dp-sgd-clients"]
OF_LOCAL_TRAINING = ("local-epochs", "local-steps", "local-batch", "local-learning-rate")
OF_CLIENTS = ("client-sampling-rate", "cohort")
OF_RECORDS = ("epochs", "sampling-rate", "expected-batch")
_NEEDS: dict[tuple[str, ...], tuple[Strategy, ...]] = {
    OF_LOCAL_TRAINING: ("dp-fedavg", "dp-sgd-clients"),
    OF_CLIENTS: ("dp-fedavg",),
    ("local-optimizer",): ("dp-fedavg",),
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
    local_optimizer: Choice[LocalOptimizer] | None = None
    """`adam` in place of plain SGD where clients train; it begins anew in every round."""
    early_stopping: Count | None = None
    """Evaluated releases without a smaller loss on the population sample that end the training of a world."""
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
OF_PIXELATION = ("pixelation-pixels", "pixelation-block")
OF_RANDOMISERS = ("record-epsilon", *OF_PIXELATION)
RANDOMISER_KEYS = ("randomiser", *OF_RANDOMISERS)
PROMISE_ONLY = (
    *PRIVACY_TARGETS,
    *("accountant", "clipping-norm", "sensitivity", "noise", "bands", "clipping", *OF_ADAPTIVE),
)
"""Settings that have no meaning where nothing is promised."""


def _given(section: BaseModel, names: Sequence[str]) -> list[str]:
    return [name for name in names if getattr(section, name.replace("-", "_")) is not None]


def _list(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"


def _named(section: BaseModel, names: Sequence[str]) -> str:
    return " and ".join(f"{name} = {getattr(section, name.replace('-', '_'))}" for name in names)


class PrivacySection(_Section):
    """What is promised: exactly one of the four targets; `private = false` clips nothing, adds no noise, promises none.

    `delta` is that of Epsilon* too. A `randomiser` goes with every promise and with none: it promises every record
    something by itself, by `record-epsilon`.
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
    randomiser: Literal["randomised-response", "randomised-edges", "pixelation"] | None = None
    """What owners do to their own records before anything is trained on them; None is nothing."""
    record_epsilon: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    """Epsilon of one bit, of one pair of nodes, or of `pixelation-pixels` changed pixels."""
    pixelation_pixels: Count | None = None
    """m, pixels in which neighbouring images may differ."""
    pixelation_block: Count | None = None
    """b, side in pixels of the blocks that are averaged; None is 1."""

    @model_validator(mode="after")
    def _of_a_randomiser(self) -> Self:
        if self.randomiser is None and (idle := _given(self, OF_RANDOMISERS)):
            raise ValueError(f"{_named(self, idle)} needs a randomiser, and randomiser is left out")
        needed = ["record-epsilon"] if self.randomiser is not None else []
        if self.randomiser == "pixelation":
            needed += ["pixelation-pixels"]
        elif idle := _given(self, OF_PIXELATION):
            raise ValueError(f"{_named(self, idle)} needs randomiser = pixelation, and randomiser is {self.randomiser}")
        if missing := [name for name in needed if name not in _given(self, needed)]:
            raise ValueError(f"randomiser = {self.randomiser} needs {missing[0]}, which is left out")
        if self.randomiser == "pixelation" and self.record_epsilon == 0:
            raise ValueError("record-epsilon = 0 with randomiser = pixelation: accepted are positive numbers")
        return self

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


FEWEST_SHADOWS = 24
"""With so many worlds a target has two others where it is in, and two where it is out, but for one in 28,000."""


FEWEST_KNOWN = 60
"""Half of so many targets holds fewer than two members, or fewer than two others, once in 17 million times."""


class LossSource(StrEnum):
    """Where members' losses are when Epsilon* is found: in one place, or with their owners."""

    POOLED = "pooled"
    FEDERATED = "federated"


class AuditSection(_Section):
    """What the insider sees, which neighbour it asks about, and how often the game is played.

    `insider = false` trains the worlds without asking it: Epsilon*, membership and accuracy remain.

    With `game = "membership"` many `targets` are in with probability 1/2 in each world, every world's model is attacked
    by `attacks`, and all other worlds are its shadow models.
    """

    worlds: Count = 200
    game: Literal["identifiability", "membership"] = "identifiability"
    targets: Annotated[int, Field(ge=2, le=10**9)] | None = None
    """Units that are in or out in the game of membership; None is 200, or all there are."""
    attacks: Annotated[tuple[Choice[Attack], ...], Strict(False)] | None = None
    """Who attacks in the game of membership; None is everybody who can, but `attribute`."""
    attribute: str | Annotated[int, Field(ge=0, le=10**9)] | None = None
    """Column that attack `attribute` guesses, by its name or number from 0.

    None is the column of two values whose rarer value is most common among the records outside D.
    """
    queries: Annotated[int, Field(ge=1, le=1000)] | None = None
    """How many times `lira` asks about each target, in ways that vary its records; None is 1."""
    insider: bool = True
    """Left out, it is false where records are randomised, and in the game of membership where its log-odds are unknown.
    """
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
    def _of_membership(self) -> Self:
        idle = _given(self, ("targets", "attacks", "attribute", "queries"))
        if idle and self.game != "membership":
            raise ValueError(f"{_named(self, idle)} needs game = membership, and game is {self.game}")
        attacks = self.attacks or ()
        for name, attack in (("attribute", Attack.ATTRIBUTE), ("queries", Attack.LIRA)):
            if _given(self, (name,)) and attack not in attacks:
                raise ValueError(f"{_named(self, (name,))} needs {attack} among attacks, and they are {_list(attacks)}")
        if self.worlds < FEWEST_SHADOWS and any(attack.has_shadows for attack in attacks):
            raise ValueError(
                f"worlds = {self.worlds} are too few to be shadow models of each other: accepted with "
                f"{', '.join(attack for attack in attacks if attack.has_shadows)} are {FEWEST_SHADOWS} and more"
            )
        if (self.targets or FEWEST_KNOWN) < FEWEST_KNOWN and any(attack.sees_weights for attack in attacks):
            raise ValueError(
                f"targets = {self.targets} are too few to learn from half of them: accepted with "
                f"{', '.join(attack for attack in attacks if attack.sees_weights)} are {FEWEST_KNOWN} and more"
            )
        return self

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
        if not isinstance(values, dict):
            return values
        return _with_game_defaults(_with_randomiser_defaults(_with_strategy_defaults(values)))

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


def _with_randomiser_defaults(values: dict[str, Any]) -> dict[str, Any]:
    """Fill in that nobody weighs what owners draw in secret, where they randomise their records."""
    audit, privacy = values.get("audit", {}), values.get("privacy", {})
    if not isinstance(audit, dict) or not isinstance(privacy, dict) or privacy.get("randomiser") is None:
        return values
    return values | {"audit": {"insider": False} | audit}


def _with_game_defaults(values: dict[str, Any]) -> dict[str, Any]:
    """Fill in what the game of membership decides: what is protected comes or goes, and who can attack does."""
    audit, privacy, training = (values.get(name, {}) for name in ("audit", "privacy", "training"))
    if not all(isinstance(one, dict) for one in (audit, privacy, training)) or audit.get("game") != "membership":
        return values
    is_private, of_records = privacy.get("private") is not False, training.get("strategy", "dp-fedsgd") == "dp-fedsgd"
    known = is_private and privacy.get("noise", "central") == "central" and privacy.get("clipping", "fixed") == "fixed"
    of_unit = str(Adjacency.ADD_REMOVE_RECORD if of_records else Adjacency.ADD_REMOVE_CLIENT)
    relation = privacy.get("adjacency", of_unit)
    attacks = [str(one) for one in (USUAL if str(relation).endswith("record") else OF_ANY_UNIT)]
    filled = {"insider": known, "membership": False, "attacks": attacks}
    return values | {"audit": filled | audit, "privacy": {"adjacency": relation} | privacy}


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
