"""Aggregation by a Flower strategy: it makes the next model of a trial from what the clients of the trial sent.

Each trial has a strategy of its own. It is called as Flower calls it, with Flower's messages: `configure_train` chooses
clients among those that take part, and `aggregate_train` gets their replies. Without a guarantee the replies hold the
models of single clients. Under a guarantee the strategy sees none of them: it gets one reply, with the model that the
released mean gives, so that whatever it does is post-processing of the release.
"""

import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NoReturn

import flwr.serverapp.strategy
import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import Strategy
from torch import Tensor

from fl_audit.adjacency import Unit
from fl_audit.array_packing import pack
from fl_audit.array_types import Integers
from fl_audit.errors import FederationError, InputError, in_a_line, require
from fl_audit.federation.federation import Federation
from fl_audit.federation.loaded_federation import LoadedFederation
from fl_audit.generator_states import seed_generators, spared_generators
from fl_audit.mechanisms.contribution import LocalTraining
from fl_audit.randomness import Purpose, generator
from fl_audit.strategies.aggregation_registry import AGGREGATIONS
from fl_audit.strategies.flower_grids import PullingGrid
from fl_audit.strategies.received_contributions import ReceivedContribution
from fl_audit.strategies.simulated_grid import FIRST_NODE
from fl_audit.user_modules import import_function

_AUDIT_IT = "a guarantee that a strategy makes by itself is audited with fl-audit strategy"
"""Remedy for a strategy that cannot be played under a claim of the run."""
_UNDERSTOOD = ("server-round", "proximal-mu")  # settings that a strategy may send to clients
_MOST_LOOKS = 20  # times that a strategy may look for clients before it is taken to wait for more of them
_GENERATORS = threading.Lock()
"""Lock for the global generators of Python, numpy and torch, from which strategies draw."""


_NOISY_STRATEGIES = tuple(
    getattr(flwr.serverapp.strategy, name) for name in dir(flwr.serverapp.strategy) if name.startswith("Differential")
)


def new_strategy(federation: Federation) -> Strategy:
    """Return a new Flower strategy of the kind that a federation names; raises `InputError` if it cannot be made."""
    name = federation.aggregation
    assert name is not None, "called only where an aggregation is named"
    if (aggregation := AGGREGATIONS.get(name)) is None:
        return own_strategy(name)
    values = _setting_values(federation)
    arguments = {argument: values[setting] for argument, setting in aggregation.arguments.items()}
    strategy: Strategy = getattr(flwr.serverapp.strategy, aggregation.strategy)(
        min_train_nodes=1, min_available_nodes=1, **arguments
    )
    return strategy


def own_strategy(name: str) -> Strategy:
    """Return a new strategy of the user's own, `package.module:factory`.

    Raises `InputError` if it is no strategy, or if it adds noise, which a run would not account for.
    """
    strategy: Strategy = import_function(name, "aggregation")()
    accepted = "accepted is a function without arguments that returns a Strategy of flwr.serverapp.strategy"
    require(isinstance(strategy, Strategy), f"aggregation {name!r} returned a {type(strategy).__name__}: {accepted}")
    has_noise = isinstance(strategy, _NOISY_STRATEGIES)
    unaccounted = f"aggregation {name!r} returned a {type(strategy).__name__}, whose noise a run would not account for"
    require(not has_noise, f"{unaccounted}: {_AUDIT_IT}")
    return strategy


def require_playable(federation: Federation, strategy: Strategy | None) -> None:
    """Raise `InputError` if the aggregation of a federation cannot be made, or cannot act on what it would get.

    `strategy`: The user's own strategy, if it was made already, so that its factory is not called again; else None.
    """
    if strategy is None:
        new_strategy(federation)
    name = federation.aggregation
    aggregation = AGGREGATIONS.get(name or "")
    blind = f"aggregation = {name!r} compares the models of single clients, and gets the released mean alone"
    sees_clients = federation.aggregates_clients or aggregation is None or not aggregation.compares_clients
    require(sees_clients, f"{blind}: accepted with it are private = false and strategy = dp-fedavg; {_AUDIT_IT}")
    adjacency = federation.mechanism.adjacency
    is_of_clients = not federation.aggregates_clients or adjacency.unit is Unit.CLIENT
    foreign = f"adjacency is {str(adjacency)!r} with aggregation = {name!r}, which gets the models of clients"
    require(is_of_clients, f"{foreign}: accepted are those of clients")
    has_canaries = federation.aggregates_clients and bool(federation.canaries)
    require(
        not has_canaries,
        f"canaries is {federation.canaries} with aggregation = {name!r} without a claim: leave one out",
    )


def proximal_weight(federation: Federation) -> float:
    """Return the weight of the proximal term with which clients train, at least 0."""
    contribution = federation.mechanism.contribution
    return contribution.schedule.proximal if isinstance(contribution, LocalTraining) else 0.0


def _setting_values(federation: Federation) -> dict[str, float]:
    optimizer = federation.mechanism.optimizer
    return {
        "learning-rate": optimizer.learning_rate,
        "momentum": optimizer.momentum,
        "proximal-mu": proximal_weight(federation),
    }


class _AvailableNodes(PullingGrid):
    """Grid on which a strategy finds the clients that take part in a round, and which sends no messages."""

    def __init__(self, nodes: Sequence[int]) -> None:
        self._nodes = nodes
        self._looks = 0

    def get_node_ids(self) -> Iterable[int]:
        self._looks += 1
        if self._looks > _MOST_LOOKS:
            raise FederationError(f"the strategy waits for more clients than the {len(self._nodes)} that take part")
        return list(self._nodes)

    @property
    def run(self) -> NoReturn:
        raise FederationError("the strategy asks for the run, of which a simulation keeps no record")

    def set_run(self, run: Any) -> None: ...

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def push_messages(self, messages: Iterable[Message]) -> NoReturn:
        raise FederationError("the strategy sends messages by itself; accepted are those that configure_train returns")

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> NoReturn:
        self.push_messages(messages)

    def _pulled(self, identities: Collection[str] | None) -> list[Message]:
        return []


@dataclass
class _TrialStrategy:
    """The strategy of one trial, with the settings that it sends to clients in every round."""

    trial: int  # number of the trial
    strategy: Strategy  # the strategy
    config: ConfigRecord = field(default_factory=ConfigRecord)  # settings for clients, which the strategy may change
    requests: dict[int, Message] = field(default_factory=dict)  # message to each client in this round, by client


class BatchAggregation:
    """The Flower strategies of a batch of trials, which make the models of the next round.

    Parameters
    ----------
    federation
        The federation, which names the kind of strategy.
    trials
        Numbers of the trials of the batch.
    seed
        Seed of the challenger, from which the draws of strategies follow.
    """

    def __init__(self, federation: LoadedFederation, trials: Sequence[int], seed: int) -> None:
        self._public = federation.public
        self._layout = federation.model.layout
        self._records = [len(shard) for shard in federation.shards]
        self._seed = seed
        self._trials = list[_TrialStrategy]()
        for trial in trials:
            with self._drawing(trial, 0, 0):
                self._trials.append(_TrialStrategy(trial, new_strategy(self._public)))

    def choose(
        self, server_round: int, models: Tensor, available: Mapping[int, Integers | None]
    ) -> dict[int, Integers | None]:
        """Return the clients that the strategies ask in a round, with the rows of the trials in which they do.

        Rows are None for all trials.

        Parameters
        ----------
        server_round
            Number of the round, from 1.
        models
            Models before the round, float32 (trials, parameters).
        available
            Clients that take part, by number, with the rows of their trials; None for all.
        """
        is_chosen = np.zeros((len(self._trials), self._public.clients), dtype=np.bool_)
        for client, rows in available.items():
            is_chosen[slice(None) if rows is None else rows, client] = True
        for row, trial in enumerate(self._trials):
            clients = np.flatnonzero(is_chosen[row]).tolist()
            trial.requests = self._configured(trial, server_round, models[row], clients) if clients else {}
            is_chosen[row] = False
            is_chosen[row, list(trial.requests)] = True
        chosen = np.flatnonzero(is_chosen.any(axis=0)).tolist()
        return {
            client: None if is_chosen[:, client].all() else np.flatnonzero(is_chosen[:, client]) for client in chosen
        }

    def of_clients(self, server_round: int, models: Tensor, updates: Mapping[int, ReceivedContribution]) -> Tensor:
        """Return the next models, float32 (trials, parameters), from the updates of single clients.

        Parameters
        ----------
        server_round
            Number of the round, from 1.
        models
            Models before the round, float32 (trials, parameters).
        updates
            The clients' updates, by client. An update is the model before training minus the model after it.
        """
        moved = models.clone()
        for row, trial in enumerate(self._trials):
            replies = list[Message]()
            for client, request in sorted(trial.requests.items()):
                update = updates[client].in_trial(row)
                assert update is not None, "a client that a strategy asks contributes to the trial"
                trained = models[row] - torch.tensor(update)
                replies.append(self._reply(trial, request, trained, self._records[client]))
            if replies:
                moved[row] = self._aggregated(trial, server_round, replies, models[row])
        return moved

    def of_mean(self, server_round: int, models: Tensor, mean: Tensor) -> Tensor:
        """Return the next models, float32 (trials, parameters), from the released mean of the updates or gradients.

        Parameters
        ----------
        server_round
            Number of the round, from 1.
        models
            Models before the round, float32 (trials, parameters).
        mean
            Released mean, float32 (trials, parameters).
        """
        moved = models.clone()
        clients = range(self._public.clients)
        for row, trial in enumerate(self._trials):
            requests = self._configured(trial, server_round, models[row], clients)
            if requests:
                reply = self._reply(trial, next(iter(requests.values())), models[row] - mean[row], 1)
                moved[row] = self._aggregated(trial, server_round, [reply], models[row])
        return moved

    def _configured(
        self, strategy: _TrialStrategy, server_round: int, model: Tensor, clients: Collection[int]
    ) -> dict[int, Message]:
        """Return the messages to clients that a strategy makes, by client; they must be what our clients understand."""
        arrays = self._arrays(model)
        nodes = [FIRST_NODE + client for client in clients]
        with self._drawing(strategy.trial, server_round, 0), self._named_errors(server_round, "configure_train"):
            messages = list(
                strategy.strategy.configure_train(server_round, arrays, strategy.config, _AvailableNodes(nodes))
            )
        requests = dict[int, Message]()
        checked = set[int]()  # contents that were looked at: most strategies send one content to all clients
        for message in messages:
            node = message.metadata.dst_node_id
            self._require(node in nodes, server_round, f"it sends a message to node {node}, which takes no part")
            self._require(node - FIRST_NODE not in requests, server_round, f"it sends two messages to node {node}")
            if id(message.content) not in checked:
                self._require_understood(message, arrays, server_round)
                checked.add(id(message.content))
            requests[node - FIRST_NODE] = message
        return requests

    def _require_understood(self, message: Message, arrays: ArrayRecord, server_round: int) -> None:
        kind = message.metadata.message_type
        self._require(kind == "train", server_round, f"it sends messages of type {kind!r}, and not train")
        records = list(message.content.array_records.values())
        is_model = len(records) == 1 and (records[0] is arrays or dict(records[0]) == dict(arrays))
        self._require(is_model, server_round, "it sends clients other arrays than the model")
        settings = {key: value for record in message.content.config_records.values() for key, value in record.items()}
        keys = [key for key in settings if key not in _UNDERSTOOD]
        accepted = "clients of this run follow [training] and understand server-round and proximal-mu alone"
        self._require(not keys, server_round, f"it sends clients the setting {(keys or [''])[0]!r}: {accepted}")
        proximal = proximal_weight(self._public)
        requested = settings.get("proximal-mu", proximal)
        problem = f"it sends clients proximal-mu = {requested!r}, and [training] has proximal-mu = {proximal:g}"
        self._require(requested == proximal, server_round, f"{problem}: accepted are equal values")

    def _reply(self, strategy: _TrialStrategy, request: Message, model: Tensor, records: int) -> Message:
        """Return the reply of a client to a strategy: its model, and its number of records as weight."""
        weight = getattr(strategy.strategy, "weighted_by_key", "num-examples")
        name = next(iter(request.content.array_records))
        content = RecordDict({name: self._arrays(model), "metrics": MetricRecord({weight: records})})
        return Message(content, reply_to=request)

    def _aggregated(
        self, strategy: _TrialStrategy, server_round: int, replies: Sequence[Message], before: Tensor
    ) -> Tensor:
        """Return the model that a strategy makes of replies, float32 (parameters,); `before` if it makes none."""
        with self._drawing(strategy.trial, server_round, 1), self._named_errors(server_round, "aggregate_train"):
            arrays, _ = strategy.strategy.aggregate_train(server_round, list(replies))
        if arrays is None:
            return before
        expected = dict(zip(self._layout.names, self._layout.shapes, strict=True))
        shapes = {name: tuple(array.shape) for name, array in arrays.items()}
        self._require(shapes == expected, server_round, "it returned arrays of other names or shapes than the model's")
        return self._layout.flatten({name: torch.from_numpy(array.numpy()) for name, array in arrays.items()})

    def _arrays(self, model: Tensor) -> ArrayRecord:
        tensors = self._layout.of_one(model)
        return ArrayRecord({name: Array(*pack(values.numpy())) for name, values in tensors.items()})

    def _require(self, condition: bool, server_round: int, problem: str) -> None:
        if not condition:
            raise FederationError(f"round {server_round}: aggregation {self._public.aggregation!r}: {problem}")

    @contextmanager
    def _named_errors(self, server_round: int, method: str) -> Iterator[None]:
        """Turn an exception of a strategy in a `with` block into a `FederationError` of one line."""
        try:
            yield
        except FederationError as error:
            self._require(False, server_round, str(error))
        except InputError:
            raise
        except Exception as error:  # a strategy of the user may raise anything
            self._require(False, server_round, f"{method} raised {in_a_line(error)}")

    @contextmanager
    def _drawing(self, trial: int, server_round: int, step: int) -> Iterator[None]:
        """Seed the global generators by trial and round for a `with` block, and restore their states after it."""
        with _GENERATORS, spared_generators():
            seed_generators(generator(self._seed, Purpose.AGGREGATION, trial=trial, round=server_round, client=step))
            yield
