"""The strategies of Flower that the setting `aggregation` names, without an import of Flower, which takes a second."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class NamedAggregation:
    """A strategy of Flower that can be named in a configuration."""

    strategy: str  # name of its class in `flwr.serverapp.strategy`
    # Setting of [training] that gives the value of an argument, keyed by the name of the argument.
    arguments: Mapping[str, str] = field(default_factory=dict)
    # Whether it compares the models of single clients, so that nothing is left to it where noise hides them.
    compares_clients: bool = False
    is_adaptive: bool = False  # whether its steps have about the size of the learning rate, whatever the updates are


_SERVER_STEP = {"eta": "learning-rate"}

AGGREGATIONS: dict[str, NamedAggregation] = {
    "fedavg": NamedAggregation("FedAvg"),
    "fedavgm": NamedAggregation("FedAvgM", {"server_learning_rate": "learning-rate", "server_momentum": "momentum"}),
    "fedadam": NamedAggregation("FedAdam", _SERVER_STEP, is_adaptive=True),
    "fedyogi": NamedAggregation("FedYogi", _SERVER_STEP, is_adaptive=True),
    "fedadagrad": NamedAggregation("FedAdagrad", _SERVER_STEP, is_adaptive=True),
    "fedprox": NamedAggregation("FedProx", {"proximal_mu": "proximal-mu"}),
    "median": NamedAggregation("FedMedian", compares_clients=True),
    "trimmed-mean": NamedAggregation("FedTrimmedAvg", compares_clients=True),
    "krum": NamedAggregation("Krum", compares_clients=True),
    "multi-krum": NamedAggregation("MultiKrum", compares_clients=True),
    "bulyan": NamedAggregation("Bulyan", compares_clients=True),
}
"""The accepted names, each with one line; arguments that no setting gives have Flower's defaults."""
