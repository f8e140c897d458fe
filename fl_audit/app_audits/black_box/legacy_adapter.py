"""Adapter from Flower's old strategy interface (`configure_fit`, `aggregate_fit`) to its new one."""

from collections.abc import Iterable, Iterator
from typing import Any, NoReturn

import flwr.server.strategy as old_flower
import flwr.serverapp.strategy as new_flower
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.common import Code, EvaluateRes, FitRes, Parameters, Status, ndarrays_to_parameters, parameters_to_ndarrays
from flwr.server.client_manager import SimpleClientManager
from flwr.server.client_proxy import ClientProxy
from flwr.server.strategy import Strategy as OldStrategy
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from fl_audit.app_audits.black_box.metric_lookups import numbers_of, plain_numbers
from fl_audit.app_audits.black_box.trial_messages import Arrays, arrays_of
from fl_audit.errors import InputError

_WEIGHT = "num-examples"
_SERVER_SIDE_DP = (
    new_flower.DifferentialPrivacyServerSideFixedClipping,
    new_flower.DifferentialPrivacyServerSideAdaptiveClipping,
    old_flower.DifferentialPrivacyServerSideFixedClipping,
    old_flower.DifferentialPrivacyServerSideAdaptiveClipping,
)
_DONE = Status(Code.OK, "")


def adapted_strategy(strategy: object) -> Strategy:
    """Return a strategy with Flower's new interface: the given one, or an adapter around one with the old interface."""
    if isinstance(strategy, Strategy):
        return strategy
    if isinstance(strategy, OldStrategy):
        return LegacyAdapter(strategy)
    raise InputError(f"strategy is a {type(strategy).__name__}: accepted are Flower's strategies, of either interface")


def layers_of(strategy: object) -> Iterator[object]:
    """Yield a strategy, then the strategy that it wraps, and so on, from the outermost to the innermost."""
    layers = list[object]()
    while strategy is not None and not any(strategy is layer for layer in layers):
        layers.append(strategy)
        yield strategy
        inside = vars(strategy)
        strategy = next((inside[name] for name in ("old", "strategy", "_strategy", "_inner") if name in inside), None)


def clips_and_adds_noise(strategy: Strategy) -> bool:
    """Return True if a strategy is, or wraps, one of Flower's wrappers that clip and add noise on the server."""
    return any(isinstance(layer, _SERVER_SIDE_DP) for layer in layers_of(strategy))


def initial_model(strategy_found: object) -> Arrays | None:
    """Return the initial tensors of a strategy of Flower's old interface, keyed by position ("000", ...).

    None if the strategy has another interface or no initial parameters.
    """
    strategy = strategy_found.old if isinstance(strategy_found, LegacyAdapter) else strategy_found
    if not isinstance(strategy, OldStrategy):
        return None
    parameters = getattr(strategy, "initial_parameters", None)
    return by_position(parameters) if isinstance(parameters, Parameters) else None


def by_position(parameters: Parameters) -> Arrays:
    """Return the tensors of Flower's old `Parameters`, keyed by position as three digits ("000", "001", ...)."""
    # With three digits, the order by name is the order by position.
    return {f"{index:03d}": value for index, value in enumerate(parameters_to_ndarrays(parameters))}


class LegacyAdapter(Strategy):
    """Adapter that gives a strategy of Flower's old interface the new interface.

    Tensors have no names in the old interface, so they are matched by their order.
    """

    def __init__(self, old: OldStrategy) -> None:
        self.old, self._names, self._asked = old, list[str](), dict[int, ClientProxy]()

    def summary(self) -> None:
        """Do nothing, because the old interface has no summary."""

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return a message to train for each client that the old strategy's `configure_fit` chooses."""
        instructions = self.old.configure_fit(server_round, self._sent(arrays), manager_of(grid))
        return self._messages(instructions, config, "train")

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Return the model and metrics that the old strategy's `aggregate_fit` makes from the replies.

        Replies with an error, and missing replies, are passed to it as failures.
        """
        answered, failures = self._answered(replies)
        fitted = [
            (proxy, FitRes(_DONE, _parameters(next(iter(content.array_records.values()))), weight, numbers))
            for proxy, content, weight, numbers in answered
        ]
        released, metrics = self.old.aggregate_fit(server_round, fitted, failures)
        return None if released is None else self._record(released), _metrics(metrics)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return a message to evaluate for each client that the old strategy's `configure_evaluate` chooses."""
        instructions = self.old.configure_evaluate(server_round, self._sent(arrays), manager_of(grid))
        return self._messages(instructions, config, "evaluate")

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Return the metrics, with the loss as `loss`, that the old strategy's `aggregate_evaluate` computes."""
        answered, failures = self._answered(replies)
        evaluated = []
        for proxy, _, weight, numbers in answered:
            evaluated.append((proxy, EvaluateRes(_DONE, float(numbers.get("loss", 0.0)), weight, numbers)))
        loss, metrics = self.old.aggregate_evaluate(server_round, evaluated, failures)
        return _metrics(metrics | ({} if loss is None else {"loss": loss}))

    def _sent(self, arrays: ArrayRecord) -> Parameters:
        self._names = list(arrays)
        return _parameters(arrays)

    def _record(self, parameters: Parameters) -> ArrayRecord:
        values = parameters_to_ndarrays(parameters)
        return ArrayRecord({name: Array(value) for name, value in zip(self._names, values, strict=True)})

    def _messages(self, instructions: list[tuple[ClientProxy, Any]], config: ConfigRecord, kind: str) -> list[Message]:
        self._asked, messages = {proxy.node_id: proxy for proxy, _ in instructions}, []
        for proxy, instruction in instructions:
            record = ConfigRecord({**config, **instruction.config})
            content = RecordDict({"arrays": self._record(instruction.parameters), "config": record})
            messages.append(Message(content, proxy.node_id, kind))
        return messages

    def _answered(self, replies: Iterable[Message]) -> tuple[list[tuple[ClientProxy, RecordDict, int, Any]], list[Any]]:
        """Return two lists: one of valid replies as (client, content, example count, metrics), and one of errors.

        A client that did not answer counts as an error.
        """
        answered = []
        failures = list[Any]()
        silent = dict(self._asked)
        for reply in replies:
            proxy = silent.pop(reply.metadata.src_node_id)
            if reply.has_error():
                failures.append(RuntimeError(reply.error.reason))
                continue
            numbers = numbers_of(reply.content.metric_records.values())
            weight = numbers.get(_WEIGHT, 1)
            numbers.pop(_WEIGHT, None)
            answered.append((proxy, reply.content, int(weight) if isinstance(weight, (int, float)) else 1, numbers))
        return answered, failures + [RuntimeError(f"client {node} did not answer") for node in silent]


class _Proxy(ClientProxy):
    """A Flower client proxy with only a node ID, by which a strategy can select it; calls of its methods fail."""

    def __init__(self, node: int) -> None:
        super().__init__(str(node))
        self.node_id = node

    def _refuse(self, *_: object) -> NoReturn:
        raise NotImplementedError("a strategy that speaks with its clients by itself cannot be played")

    get_properties = get_parameters = fit = evaluate = reconnect = _refuse  # type: ignore[assignment]


def manager_of(grid: Grid) -> SimpleClientManager:
    """Return a Flower client manager with one proxy for each node, from which old strategies select clients."""
    manager = SimpleClientManager()
    for node in sorted(grid.get_node_ids()):
        manager.register(_Proxy(node))
    return manager


def _parameters(record: ArrayRecord) -> Parameters:
    return ndarrays_to_parameters(list(arrays_of(record).values()))


def _metrics(metrics: dict[str, Any]) -> MetricRecord | None:
    # A MetricRecord of the new interface can hold only numbers and lists of numbers.
    return MetricRecord(dict(pair for name, value in metrics.items() for pair in _plain(name, value)))


def _plain(name: str, value: Any) -> Iterable[tuple[str, Any]]:
    return [(name, value)] if isinstance(value, (int, float)) else plain_numbers(name, value)
