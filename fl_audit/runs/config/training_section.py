"""Section [training]: strategy, rounds, sampling, local training and the server's optimizer."""

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, Strict, model_validator
from pydantic_core import PydanticCustomError

from fl_audit.learning.metric_names import Metric
from fl_audit.learning.training_enums import LocalOptimizer, ServerOptimizerKind
from fl_audit.mechanisms.participations.registry import PARTICIPATIONS, REFUSED, accepted_instead, foreign_settings
from fl_audit.runs.config.config_section import ConfigSection
from fl_audit.runs.config.setting_types import Choice, Count, NamesInSchema, OneOr, RegisteredOrOwn, Size
from fl_audit.strategies.aggregation_registry import AGGREGATIONS

MOST_ROUNDS = 10**6
"""Largest number of rounds: more are a typing error, and would never end."""
DEFAULT_ROUNDS = 30
USUAL_LEARNING_RATES = (0.005, 1.0)
"""Step size of the server if none is given: with gradients of records, and where clients train."""
USUAL_MOMENTUM = 0.9
"""Share of the last step that is kept if none is given."""
Strategy = Literal["dp-fedsgd", "dp-fedavg", "dp-sgd-clients"]
OF_LOCAL_TRAINING = ("local-epochs", "local-steps", "local-batch", "local-learning-rate")
OF_CLIENTS = ("cohort",)
OF_RECORDS = ("epochs", "expected-batch")
_NEEDS: dict[tuple[str, ...], tuple[Strategy, ...]] = {
    OF_LOCAL_TRAINING: ("dp-fedavg", "dp-sgd-clients"),
    OF_CLIENTS: ("dp-fedavg",),
    ("sampling-rate",): ("dp-fedsgd", "dp-fedavg"),
    ("local-optimizer",): ("dp-fedavg",),
    ("proximal-mu",): ("dp-fedavg",),
    ("learning-rate-decay",): ("dp-fedsgd", "dp-fedavg"),
    OF_RECORDS: ("dp-fedsgd",),
}
"""Settings of training for some strategies only: local training, samples of clients, and those of records."""
_AT_MOST_ONE = (
    ("rounds", "epochs"),
    ("sampling-rate", "expected-batch"),
    ("sampling-rate", "cohort"),
    ("local-epochs", "local-steps"),
)


def _sampling(value: str) -> str:
    if value not in PARTICIPATIONS:
        kind = "refused_sampling" if value in REFUSED else "sampling"
        raise PydanticCustomError(kind, "{accepted}", {"accepted": accepted_instead(value)})
    return value


class TrainingSection(ConfigSection):
    """Section [training]: strategy, rounds, sampling, local training and the server's optimizer.

    With `dp-fedavg`, clients train for `local-epochs` or `local-steps` in a round; with `dp-sgd-clients`, they do so by
    DP-SGD, with Opacus.
    """

    strategy: Strategy = "dp-fedsgd"
    """Clients send clipped gradients (`dp-fedsgd`) or updates (`dp-fedavg`), or private updates (`dp-sgd-clients`)."""
    rounds: Annotated[int, Field(ge=1, le=MOST_ROUNDS)] | None = None
    """Number of releases of the server; left out, 30, or the number that `epochs` gives."""
    epochs: Annotated[float, Field(gt=0, le=10**9)] | None = None
    """Instead of rounds: mean number of rounds in which a record takes part, with `dp-fedsgd`."""
    sampling_rate: Annotated[float, Field(ge=1e-20, le=1)] | None = None
    """Probability with which a record or user (`dp-fedsgd`) or a client (`dp-fedavg`) takes part in a round; left out,
    1, or by `expected-batch`."""
    expected_batch: Count | None = None
    """Instead of `sampling-rate`: mean number of records in a round."""
    sampling: Annotated[str, AfterValidator(_sampling), NamesInSchema(lambda: PARTICIPATIONS)] | None = None
    """Rule that decides who takes part in a round; left out, by the other settings: everybody where there are none."""
    cohort: Count | None = None
    """Number of clients in a round, in a public order, with `dp-fedavg`; left out, all."""
    local_epochs: Count | None = None
    """Passes of a client over its own records in a round, where clients train; left out, 1, or `local-steps`."""
    local_steps: Count | None = None
    """Instead of `local-epochs`: steps of a client in a round."""
    local_batch: Count | None = None
    """Records of a local step, where clients train (with `dp-sgd-clients` on average); left out, 10."""
    local_learning_rate: Size | None = None
    """Step size of local training, where clients train; left out, 0.1."""
    local_optimizer: Choice[LocalOptimizer] | None = None
    """Rule of local training, with `dp-fedavg`; it starts anew in every round. Left out, `sgd`."""
    proximal_mu: Annotated[float, Field(ge=0, le=1e20)] | None = None
    """Weight of FedProx's proximal term in the loss of a client's local training, with `dp-fedavg`; left out, 0."""
    learning_rate_decay: Annotated[float, Field(gt=0, le=1)] | Literal["cosine"] | None = None
    """Factor of the step size after every round, or `cosine` for half a period of a cosine over all rounds. It applies
    to `local-learning-rate` with `dp-fedavg`, and to `learning-rate` with `dp-fedsgd`. Left out, step sizes are
    constant.
    """
    class_weights: Annotated[tuple[Size, ...], Strict(False), Field(min_length=2)] | None = None
    """Public weights of the classes, in their order, by which the loss of a record is multiplied in training. The mean
    of a batch divides by its number of records. Left out, 1. Membership audits and Epsilon* use the plain
    cross-entropy.
    """
    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of a label that is spread evenly over all classes in the loss of training. Membership audits and Epsilon*
    use the plain cross-entropy.
    """
    aggregation: Annotated[str, RegisteredOrOwn(AGGREGATIONS, "aggregation")] | None = None
    """Flower strategy that makes the next model, by name or as `package.module:factory`; left out, `optimizer` does.
    Without privacy it gets the clients' models; with a claim it gets the released mean alone.
    """
    early_stopping: Count | None = None
    """Evaluated releases without a smaller loss on the population sample that end training; left out, none do."""
    metrics: Annotated[tuple[OneOr[Metric], ...], Strict(False), Field(min_length=1)] | None = None
    """Metrics of every evaluated release on the test records, the headline first. Left out, those that suit the labels;
    in an audit of many trials accuracy and headline alone. `package.module:function` of one's own is called with the
    outputs of a model (n, classes) and the labels (n,).
    """
    client_metrics: bool = False
    """Whether metrics are computed on the training records too, together and by client; they are not private."""
    learning_rate: Size = 0.005
    """Step size of the server; left out, 0.005, and where clients train 1 (0.01 with `adam`, `yogi` and `adagrad`)."""
    optimizer: Choice[ServerOptimizerKind] = ServerOptimizerKind.SGD
    """Rule by which the server moves the model."""
    momentum: Annotated[float, Field(ge=0, lt=1)] = USUAL_MOMENTUM
    """Share of the last step that `momentum` keeps."""

    @model_validator(mode="before")
    @classmethod
    def _default_rounds(cls, values: Any) -> Any:
        """Fill in 30 rounds if neither rounds nor epochs are given."""
        is_open = isinstance(values, dict) and not {"rounds", "epochs"} & values.keys()
        return values | {"rounds": DEFAULT_ROUNDS} if is_open else values

    @model_validator(mode="after")
    def _goes_together(self) -> Self:
        for names in _AT_MOST_ONE:
            keys_given = self.given_keys(names)
            if len(keys_given) > 1:
                raise ValueError(f"{self.named(keys_given)} are both given: accepted is at most one of the two")
        for setting, rule in foreign_settings(self.sampling).items():
            if self.given_keys([setting]):
                raise ValueError(f"{self.named([setting])} needs sampling = {rule}, and sampling is {self.sampling}")
        for settings, strategies in _NEEDS.items():
            if (idle := self.given_keys(settings)) and self.strategy not in strategies:
                needed = " or ".join(strategies)
                raise ValueError(f"{self.named(idle)} needs strategy = {needed}, and strategy is {self.strategy}")
        self._server_step_goes_together()
        return self

    def _server_step_goes_together(self) -> None:
        """Raise `ValueError` if a setting has no effect on the optimizer, or on the aggregation in its place."""
        if self.aggregation is None:
            if self.optimizer is not ServerOptimizerKind.MOMENTUM and self.momentum != USUAL_MOMENTUM:
                needed = f"{self.named(['momentum'])} needs optimizer = {ServerOptimizerKind.MOMENTUM}"
                raise ValueError(f"{needed}, and optimizer is {self.optimizer}")
            return
        aggregation = AGGREGATIONS.get(self.aggregation)
        used = set() if aggregation is None else set(aggregation.arguments.values())
        if self.learning_rate_decay is not None and self.strategy == "dp-fedsgd":
            effect = f"{self.named(['learning-rate-decay'])} has no effect with aggregation = {self.aggregation}"
            raise ValueError(f"{effect}, which makes the server's step: leave it out")
        expected = {
            "optimizer": (ServerOptimizerKind.SGD,),
            "momentum": (USUAL_MOMENTUM,),
            "learning-rate": USUAL_LEARNING_RATES,
        }
        for setting, usual in expected.items():
            if setting not in used and getattr(self, setting.replace("-", "_")) not in usual:
                effect = f"{self.named([setting])} has no effect with aggregation = {self.aggregation}"
                raise ValueError(f"{effect}, which makes the server's step: leave it out")
        if "proximal-mu" in used and self.proximal_mu is None:
            raise ValueError(f"aggregation = {self.aggregation} needs proximal-mu, which is left out")
