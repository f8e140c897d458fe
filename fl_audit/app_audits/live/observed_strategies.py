"""Wrappers for Flower strategies of either interface that pass each release to an observer, and change nothing else.

The observer scores releases for canaries, artificial contributions that an audit's canary clients send::

    strategy = watched(strategy, TrainingObserver(Path("canaries"), directions=11, canaries=3))
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.common import Parameters, parameters_to_ndarrays
from flwr.server.strategy import Strategy as OldStrategy
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy
from numpy.typing import NDArray

from fl_audit.app_audits.black_box.legacy_adapter import layers_of
from fl_audit.app_audits.live.observer_store import TrainingObserver
from fl_audit.app_audits.live.reported_canary_properties import NOTE, ReportedCanaryProperties, read_note
from fl_audit.errors import InputError

_OTHERWISE = {"FedMedian": 1.0, "FedTrimmedAvg": 1.0, "Bulyan": 1.0, "QFedAvg": None}
"""Weight of each reply relative to the largest, for Flower strategies that ignore example counts; None if unknown."""
_Said = Mapping[int, ReportedCanaryProperties | None]
"""Notes of canary clients, keyed by index of the reply; None for an unreadable note."""


def watched(strategy: object, observer: TrainingObserver) -> Any:
    """Return a strategy that works exactly as the given one, and passes its releases to an observer."""
    if isinstance(strategy, Strategy):
        return ObservedStrategy(strategy, observer)
    if isinstance(strategy, OldStrategy):
        return ObservedLegacyStrategy(strategy, observer)
    raise InputError(f"strategy is a {type(strategy).__name__}: accepted are Flower's strategies, of either interface")


class _ObservedStrategyBase:
    """Base class of strategies that delegate to another strategy, and pass its releases to an observer."""

    def __init__(self, strategy: Any, observer: TrainingObserver) -> None:
        self.strategy = strategy
        self.watch = observer
        self._before: Any = None

    def _aggregated(
        self,
        number: int,
        notes: _Said,
        replies: Sequence[Any],
        aggregate: Callable[[], Any],
        run: int | None,
        valid_replies: int,
    ) -> Any:
        """Return the wrapped strategy's result (`made()`), and pass the models before and after it to the observer.

        `notes` has the canaries' notes by index in `replies`; a note is None if it could not be read. `valid_replies`
        is the number of valid replies, including those of canaries.
        """
        # Read before aggregation, in which Flower's adaptive wrappers change their clipping norm.
        named_norm = getattr(self.strategy, "clipping_norm", None)
        norm = float(named_norm) if isinstance(named_norm, int | float) and 0 < named_norm < float("inf") else None
        released, metrics = aggregate()
        if released is not None and self._before is not None:
            # A canary whose note cannot be read counts as one of the other clients.
            other_replies = valid_replies - sum(note is not None for note in notes.values())
            before = _arrays(self._before)
            after = _arrays(released)
            present = _weighed(self.strategy, notes, replies)
            self.watch.store_scores(number, before, after, present, other_replies, norm, run)
        return released, metrics


class ObservedStrategy(_ObservedStrategyBase, Strategy):
    """A wrapper around a strategy of Flower's new interface that passes releases to an observer."""

    # Delegated unchanged.
    summary = property(lambda self: self.strategy.summary)
    configure_evaluate = property(lambda self: self.strategy.configure_evaluate)
    aggregate_evaluate = property(lambda self: self.strategy.aggregate_evaluate)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        self._before = dict(arrays)
        return self.strategy.configure_train(server_round, arrays, config, grid)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Remove canary clients' notes from the replies, and return the wrapped strategy's result on the replies."""
        answered = list(replies)
        properties = {
            index: read_note(message.content.config_records.pop(NOTE).get(NOTE), str(message.metadata.src_node_id))
            for index, message in enumerate(answered)
            if message.has_content() and NOTE in message.content.config_records
        }
        run = next((message.metadata.run_id for message in answered), None)
        other_replies = sum(message.has_content() for message in answered)
        aggregate = partial(self.strategy.aggregate_train, server_round, answered)
        return self._aggregated(server_round, properties, answered, aggregate, run, other_replies)


class ObservedLegacyStrategy(_ObservedStrategyBase, OldStrategy):
    """A wrapper around a strategy of Flower's old interface that passes releases to an observer."""

    initialize_parameters = property(lambda self: self.strategy.initialize_parameters)
    configure_evaluate = property(lambda self: self.strategy.configure_evaluate)
    aggregate_evaluate = property(lambda self: self.strategy.aggregate_evaluate)
    evaluate = property(lambda self: self.strategy.evaluate)

    def configure_fit(self, server_round: int, parameters: Parameters, client_manager: Any) -> Any:
        self._before = parameters
        return self.strategy.configure_fit(server_round, parameters, client_manager)

    def aggregate_fit(self, server_round: int, results: Any, failures: Any) -> Any:
        """Remove canary clients' notes from the replies, and return the wrapped strategy's result on the replies."""
        properties = {
            index: read_note(reply.metrics.pop(NOTE), proxy.cid)
            for index, (proxy, reply) in enumerate(results)
            if NOTE in reply.metrics
        }
        run = next((getattr(proxy, "run_id", None) for proxy, _ in results), None)
        aggregate = partial(self.strategy.aggregate_fit, server_round, results, failures)
        return self._aggregated(server_round, properties, results, aggregate, run, len(results))


def _arrays(model: Mapping[str, Array] | Parameters) -> Iterator[NDArray[Any]]:
    """Yield the tensors of a model.

    Each tensor is decoded only when it is needed. So an error of decoding occurs in the observer, which handles it.
    """
    if isinstance(model, Parameters):
        yield from parameters_to_ndarrays(model)
    else:
        yield from (array.numpy() for array in model.values())


def _weighed(strategy: object, notes: _Said, replies: Sequence[Any]) -> Iterator[ReportedCanaryProperties]:
    """Yield what each canary client reports about its canary, with the weight of its reply in the average.

    Unreadable reports are left out. Weights are relative to the largest one. The function must be called after the
    averaging, because wrappers of the strategy may change weights before the averaging.
    """
    layers = [*layers_of(strategy)]
    key = next(
        (layer.weighted_by_key for layer in reversed(layers) if hasattr(layer, "weighted_by_key")), "num-examples"
    )
    weights = [_weight(reply, key) for reply in replies]
    heaviest = max(weights, default=0.0)
    aggregate = getattr(layers[-1], "aggregate_train", None) or getattr(layers[-1], "aggregate_fit", None)
    where = getattr(aggregate, "__module__", "")
    qualified_name = getattr(aggregate, "__qualname__", "")
    defaults = _OTHERWISE if where.startswith("flwr.") else {}
    for name, note in notes.items():
        share = weights[name] / heaviest if heaviest > 0 else None
        if note is not None:
            yield replace(note, weight=defaults.get(qualified_name.partition(".")[0], share))


def _weight(reply: Any, key: str) -> float:
    """Return the weight of a client in the average, as its reply of either Flower interface states it.

    The result is 0 if the reply states no finite weight of at least 0.
    """
    if isinstance(reply, Message):
        records = reply.content.metric_records.values() if reply.has_content() else ()
        weight_value = next((record.get(key) for record in records), None)
    else:
        weight_value = reply[1].num_examples
    return float(weight_value) if isinstance(weight_value, int | float) and 0 <= weight_value < float("inf") else 0.0
