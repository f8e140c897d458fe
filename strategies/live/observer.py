"""An observer of releases around any strategy, of either of Flower's interfaces, whose behaviour does not change.

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

from fl_audit.audits.canaries.observer_store import TrainingObserver
from fl_audit.audits.canaries.stored_rounds import NOTE, CanaryReply, read_note
from fl_audit.errors import InputError
from fl_audit.strategies.black_box.legacy_adapter import layers_of

_OTHERWISE = {"FedMedian": 1.0, "FedTrimmedAvg": 1.0, "Bulyan": 1.0, "QFedAvg": None}
"""Weight of a reply over the heaviest in those of Flower's strategies that count no examples; None is not known."""
_Said = Mapping[int, CanaryReply | None]  # the notes of canaries, by the place of their reply


def watched(strategy: object, watch: TrainingObserver) -> Any:
    """Return a strategy of the same interface and behaviour whose releases are observed.

    Parameters
    ----------
    strategy
        A Flower strategy, of the new interface or the old one.
    watch
        The observer that stores the releases.

    Raises
    ------
    InputError
        If the object is not a Flower strategy.
    """
    if isinstance(strategy, Strategy):
        return ObservedStrategy(strategy, watch)
    if isinstance(strategy, OldStrategy):
        return ObservedLegacyStrategy(strategy, watch)
    raise InputError(f"strategy is a {type(strategy).__name__}: accepted are Flower's strategies, of either interface")


class _Watched:
    """The common part of observed strategies: they behave as the strategy, and its releases are recorded."""

    def __init__(self, strategy: Any, watch: TrainingObserver) -> None:
        self.strategy, self.watch = strategy, watch
        self._before: Any = None

    def _aggregated(
        self, number: int, said: _Said, replies: Sequence[Any], made: Callable[[], Any], run: int | None, others: int
    ) -> Any:
        """Return the strategy's result on the replies, and store the notes of the canaries."""
        # The strategy's clipping norm, as Flower's strategies have it; adaptive ones change it in a round that has not
        # ended.
        named = getattr(self.strategy, "clipping_norm", None)
        norm = float(named) if isinstance(named, int | float) and 0 < named < float("inf") else None
        released, metrics = made()
        if released is not None and self._before is not None:
            # The update of a canary whose note says nothing may hide noise like any.
            others -= sum(note is not None for note in said.values())
            before, after, present = _arrays(self._before), _arrays(released), _weighed(self.strategy, said, replies)
            self.watch.note(number, before, after, present, others, norm, run)
        return released, metrics


class ObservedStrategy(_Watched, Strategy):
    """A strategy of the new interface under observation."""

    # The clients that the strategy asks, and its messages.
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
        """Return the strategy's result on the replies, after taking the notes of canaries out of them."""
        answered = list(replies)
        said = {
            place: read_note(one.content.config_records.pop(NOTE).get(NOTE), str(one.metadata.src_node_id))
            for place, one in enumerate(answered)
            if one.has_content() and NOTE in one.content.config_records
        }
        run, others = next((one.metadata.run_id for one in answered), None), sum(one.has_content() for one in answered)
        made = partial(self.strategy.aggregate_train, server_round, answered)
        return self._aggregated(server_round, said, answered, made, run, others)


class ObservedLegacyStrategy(_Watched, OldStrategy):
    """A strategy of the old interface under observation."""

    initialize_parameters = property(lambda self: self.strategy.initialize_parameters)
    configure_evaluate = property(lambda self: self.strategy.configure_evaluate)
    aggregate_evaluate = property(lambda self: self.strategy.aggregate_evaluate)
    evaluate = property(lambda self: self.strategy.evaluate)

    def configure_fit(self, server_round: int, parameters: Parameters, client_manager: Any) -> Any:
        self._before = parameters
        return self.strategy.configure_fit(server_round, parameters, client_manager)

    def aggregate_fit(self, server_round: int, results: Any, failures: Any) -> Any:
        """Return the strategy's result on the replies, after taking the notes of canaries out of them."""
        said = {
            place: read_note(found.metrics.pop(NOTE), one.cid)
            for place, (one, found) in enumerate(results)
            if NOTE in found.metrics
        }
        run = next((getattr(one, "run_id", None) for one, _ in results), None)
        made = partial(self.strategy.aggregate_fit, server_round, results, failures)
        return self._aggregated(server_round, said, results, made, run, len(results))


def _arrays(model: Mapping[str, Array] | Parameters) -> Iterator[NDArray[Any]]:
    """Yield the tensors when they are asked for, because reading them may fail."""
    if isinstance(model, Parameters):
        yield from parameters_to_ndarrays(model)
    else:
        yield from (array.numpy() for array in model.values())


def _weighed(strategy: object, said: _Said, replies: Sequence[Any]) -> Iterator[CanaryReply]:
    """Yield the canary notes in replies, each with its weight over the heaviest one; to be called after averaging.

    Only then are the weights final, because a wrapper may have made them equal.
    """
    layers = [*layers_of(strategy)]
    key = next((one.weighted_by_key for one in reversed(layers) if hasattr(one, "weighted_by_key")), "num-examples")
    weights = [_weight(one, key) for one in replies]
    heaviest = max(weights, default=0.0)
    way = getattr(layers[-1], "aggregate_train", None) or getattr(layers[-1], "aggregate_fit", None)
    where, what = getattr(way, "__module__", ""), getattr(way, "__qualname__", "")
    known = _OTHERWISE if where.startswith("flwr.") else {}
    for place, note in said.items():
        share = weights[place] / heaviest if heaviest > 0 else None
        if note is not None:
            yield replace(note, weight=known.get(what.partition(".")[0], share))


def _weight(reply: Any, key: str) -> float:
    """Return the weight in a reply, under a key in the new interface; 0 where it has none."""
    if isinstance(reply, Message):
        records = reply.content.metric_records.values() if reply.has_content() else ()
        named = next((one.get(key) for one in records), None)
    else:
        named = reply[1].num_examples
    return float(named) if isinstance(named, int | float) and 0 <= named < float("inf") else 0.0
