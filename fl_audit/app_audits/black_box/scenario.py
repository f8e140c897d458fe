"""A scenario (the conditions of black-box trials) and its parts: contributions, environment, model and rounds."""

from dataclasses import dataclass, replace
from enum import Enum

from fl_audit.adjacency import Relation, Unit

RECORDS_OF_OTHERS = 3
"""Number of records of a client besides the target record, for claims about records; their gradients are equal."""


class Direction(Enum):
    """Direction of an update in the space of a model's parameters.

    NOWHERE is the update of an absent target: exactly zero, as long as the strategy bears it. Some strategies fail on
    an update of exactly ZERO; in trials of these, and for other clients, NOWHERE is a negligible update, whose norm is
    a millionth of the clipping norm. FIRST and SECOND are orthogonal. EVERY_TENSOR has the same norm in each tensor.
    SCALAR changes only scalars, COUNTER integers, SWITCH booleans, and RUNNING running statistics.
    """

    NOWHERE = "almost nowhere"
    ZERO = "nowhere"
    FIRST = "first"
    SECOND = "second"
    EVERY_TENSOR = "every tensor"
    SCALAR = "scalar"
    COUNTER = "counter"
    SWITCH = "switch"
    RUNNING = "running statistics"


class ReplyFault(Enum):
    """Form of a client's reply: valid (PLAIN), missing, or malformed in one way."""

    PLAIN = "plain"
    MISSING = "missing"
    NOT_A_NUMBER = "not a number"
    PERMUTED = "permuted keys"
    HALF = "half precision"
    MISSHAPED = "wrong shape"


class ModelKind(Enum):
    """Kind of model that a scenario trains: the app's own, or a small built-in one.

    Each built-in model except PLAIN has one peculiarity, such as integers, half precision or many parameters. The
    parameters of NON_ZERO are three times as long as the clipping norm; those of the others start at zero, where a
    model and an update of it are the same.
    """

    PLAIN = "plain"
    NON_ZERO = "whose parameters are not zero at the start"
    WITH_SCALAR = "with a parameter without axes"
    WITH_BUFFERS = "with the buffers of a batch normalisation"
    WITH_SWITCHES = "with a mask of switches"
    HALF = "in half precision"
    LARGE = "of 10,100 parameters"
    OWN = "the app's own"


class OtherContributions(Enum):
    """Directions of the updates of all clients except the target's.

    With IDENTICAL, all clients send the same update. With SPREAD, their directions are random. With PAIRS, directions
    are random, and two clients of a pair have opposite directions. With MEDIAN, half of the clients have one direction
    and half have the opposite one, so that the target decides the median. With LENGTHS, all have one direction, and
    half of them send updates of a tenth of the clipping norm, so that the target decides the median of the lengths.
    """

    IDENTICAL = "all others contribute the same"
    SPREAD = "the others point everywhere"
    PAIRS = "the others come in opposing pairs"
    LENGTHS = "half of the others send short updates and half long ones, so that the target decides the median length"
    MEDIAN = "half of the others pull one way and half the other way, so that the target decides"


@dataclass(frozen=True)
class OtherClientsAndModel:
    """Environment of a scenario: updates and number of the other clients, and the model."""

    name: str = ""  # name of the environment; empty for the default one
    # Directions of the other clients' updates; with IDENTICAL all send the one update that the scenario names.
    others: OtherContributions = OtherContributions.IDENTICAL
    clients: int | None = None  # number of clients; None for the number in the audited system
    model: ModelKind | None = None  # kind of model; None for the scenario's own

    @property
    def words(self) -> str:
        """Description of all properties that differ from the default environment; empty for the default environment."""
        phrases = ["" if self.others is OtherContributions.IDENTICAL else self.others.value]
        phrases += [
            f"{self.clients} clients" if self.clients else "",
            f"a model {self.model.value}" if self.model else "",
        ]
        return "; ".join(phrase for phrase in phrases if phrase)


FEW = 4
MANY = 20
"""Numbers of clients of environments with few and with many clients."""
STAGES = (
    OtherClientsAndModel("others spread", OtherContributions.SPREAD),
    OtherClientsAndModel("others in pairs", OtherContributions.PAIRS),
    OtherClientsAndModel("around a median", OtherContributions.MEDIAN),
    OtherClientsAndModel("around a median, few", OtherContributions.MEDIAN, FEW),
    OtherClientsAndModel("around a median, many", OtherContributions.MEDIAN, MANY),
    OtherClientsAndModel("others spread, many", OtherContributions.SPREAD, MANY),
    OtherClientsAndModel("large model", model=ModelKind.LARGE),
    OtherClientsAndModel("own model", model=ModelKind.OWN),
    OtherClientsAndModel("own model, around a median", OtherContributions.MEDIAN, model=ModelKind.OWN),
    OtherClientsAndModel("lengths around a median", OtherContributions.LENGTHS),
    OtherClientsAndModel("lengths around a median, many", OtherContributions.LENGTHS, MANY),
    OtherClientsAndModel("non-zero model", model=ModelKind.NON_ZERO),
)
"""Environments other than the default one, in which the simplest scenarios are run again."""


class UpdateSignSchedule(Enum):
    """Change of the target's update over the rounds: none, alternating signs, the first round only, or small at first.

    With GROWING, the update of the first round is a hundred-thousandth of that of later rounds.
    """

    STEADY = "steady"
    ALTERNATING = "alternating"
    ONCE = "once"
    GROWING = "growing"


@dataclass(frozen=True)
class ClientContribution:
    """A client's reply in a trial: its update, number of examples and metrics, and whether the reply is malformed."""

    direction: Direction = Direction.NOWHERE  # direction of the update
    length: float = 1.0  # L2 norm of the update, as a multiple of the clipping norm; negative reverses the direction
    examples: int = 10  # number of examples that the client reports
    loss: float = 1.0  # value of every metric that the client reports after training
    evaluation: float = 1.0  # value of every metric that the client reports after an evaluation
    form: ReplyFault = ReplyFault.PLAIN  # form of the reply: valid, missing, or malformed in one way


@dataclass(frozen=True)
class Scenario:
    """Scenario of black-box trials: what clients send with the target (D) and without it (D'), and the model.

    A scenario also says which claims it can test. `scenario_texts` describes it in words.
    """

    name: str  # name of the scenario
    # Contribution of the target's client under D; for claims about records, the gradient of the target record.
    present: ClientContribution
    # Contribution of the target's client under D'; for claims about records, the gradient of the replacement, if any.
    absent: ClientContribution = ClientContribution()
    others: ClientContribution = ClientContribution(Direction.SECOND)  # contribution of every other client
    model: ModelKind = ModelKind.PLAIN  # kind of model
    schedule: UpdateSignSchedule = UpdateSignSchedule.STEADY  # sign of the target's update over the rounds
    relation: Relation | None = None  # adjacency relation of the claims that the scenario tests; None for both
    units: tuple[Unit, ...] = (Unit.CLIENT,)  # privacy units of the claims that the scenario tests
    is_malformed: bool = False  # whether a reply is malformed, so that the mechanism may refuse it
    is_beyond: bool = False  # whether the norm of an update exceeds the clipping norm
    least_rounds: int = 1  # smallest number of rounds for which the scenario makes sense
    stage: OtherClientsAndModel = OtherClientsAndModel()  # the other clients and the model

    @property
    def differs_in_metrics(self) -> bool:
        """Whether the target's client differs under D and D' in metrics that it reports, and in nothing else."""
        likeness = replace(self.present, loss=self.absent.loss, evaluation=self.absent.evaluation)
        return self.present != self.absent and likeness == self.absent

    @property
    def differs_in_examples(self) -> bool:
        """Whether the target's client differs under D and D' in its number of examples, and in nothing else."""
        likeness = replace(self.present, examples=self.absent.examples)
        return self.present != self.absent and likeness == self.absent

    @property
    def plain_name(self) -> str:
        """Name of the scenario without the name of its environment."""
        return self.name.removesuffix(f", {self.stage.name}")

    def in_environment(self, stage: OtherClientsAndModel) -> "Scenario":
        """Return a copy of this scenario in the environment `stage`, whose name is appended to the scenario's name."""
        name = f"{self.name}, {stage.name}"
        return replace(self, name=name, stage=stage, model=stage.model or self.model)


OF_FEW_TENSORS = (Direction.SCALAR, Direction.COUNTER, Direction.SWITCH, Direction.RUNNING)
"""Directions of updates that change only scalar, integer, boolean or running-statistics tensors."""
