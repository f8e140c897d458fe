"""Inspection of an app's own clients: they train in this process for up to two rounds, and their DP-SGD is recorded.

Only two clients run. For a message to any other client, the reply is a copy: the latest reply of one of the two clients
to a message of the same type. Messages to clients of Flower's old interface (`client_fn`, `NumPyClient`) are converted.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import flwr.compat.common.recorddict_compat as flower
import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Error, Message, MetricRecord, RecordDict, UserConfig
from flwr.clientapp import ClientApp
from flwr.common import EvaluateIns, FitIns, ndarrays_to_parameters, parameters_to_ndarrays
from flwr_datasets import FederatedDataset

from fl_audit.app_audits.black_box.worker_pool import TimeIsOverError, interrupted_after
from fl_audit.app_audits.console_output import no_news_from_flower
from fl_audit.app_audits.local_training.assessment import Assessment, assess
from fl_audit.app_audits.local_training.leave_one_out_replay import Edit, replays
from fl_audit.app_audits.local_training.patches import recorded
from fl_audit.app_audits.local_training.recorded_trainings import RecordedTrainings
from fl_audit.app_audits.local_training.recorder import Recorder
from fl_audit.app_audits.local_training.training_facts import (
    NOT_REPEATABLE,
    NotRepeatableError,
    RecordedTraining,
    StopReplay,
    TrainingOutputs,
)
from fl_audit.app_audits.review.app_loading import AppDescription, StubImportFinder, loaded
from fl_audit.app_audits.review.strategy_capture import CapturedStrategy
from fl_audit.errors import InputError, in_a_line
from fl_audit.generator_states import spared_generators
from fl_audit.strategies.flower_grids import make_messages_for
from fl_audit.strategies.simulated_grid import FIRST_NODE, RUN_ID, InProcessGrid
from fl_audit.user_modules import import_function

MOST_CLIENTS = 2
MOST_ROUNDS = 2
"""Largest number of clients that train, and of rounds; two of each show which values repeat."""
_OFFER = (
    "--client-data my_data:load_data puts a function of yours in the place of the app's own of that name, or of "
    "FederatedDataset.load_partition where the app has none; it gets a partition and the number of partitions"
)


def inspect_clients(
    app: AppDescription, captured: CapturedStrategy, nodes: int, data: str | None, seconds: float
) -> Assessment:
    """Train an app's clients in this process, and return an assessment of their DP-SGD.

    Raises `InputError` with the reason if the clients could not train.
    """
    try:
        client = loaded(app, app.client, StubImportFinder(app.directory))
        if isinstance(client, ClientApp):
            with spared_generators(), no_news_from_flower(), _own_data(app, data), interrupted_after(max(seconds, 0.1)):
                return _assessed(_InspectedClients(app, client, nodes), captured)
    except TimeIsOverError:
        raise InputError(f"clients did not finish {MOST_ROUNDS} rounds within {seconds:.0f} s") from None
    except (Exception, SystemExit) as error:
        offer = "" if data else f"; where their data are missing, {_OFFER}"
        raise InputError(f"clients could not train here ({in_a_line(error)}){offer}") from error
    raise InputError(f"{app.client} is a {type(client).__name__}, and no ClientApp")


@dataclass
class _InspectedClients:
    """Clients of an app under review: they answer the messages of the app's server, and their training is recorded."""

    app: AppDescription  # Flower app with the clients
    client: ClientApp  # its ClientApp
    nodes: int  # number of clients that the app sees
    trainings: dict[tuple[int, int], RecordedTraining] = field(default_factory=dict)  # keyed by partition and round
    first: Message | None = None  # first message that asked a client to train
    dataset: Any = None  # data set of the first recorded `PrivacyEngine`
    _contexts: dict[int, Context] = field(default_factory=dict)  # Flower context of each client, by partition
    _seats: dict[int, int] = field(default_factory=dict)  # partition of each client, by node ID
    _rounds: dict[int, int] = field(default_factory=dict)  # number of rounds that each client trained, by partition
    _last: dict[str, Message] = field(default_factory=dict)  # last reply, by type of message
    errors: list[str] = field(default_factory=list)  # one line for each exception of a client

    def answer(self, message: Message) -> Message | None:
        """Return the reply of the client that a message is sent to; an error reply if the client raises."""
        node = message.metadata.dst_node_id
        kind = message.metadata.message_type
        # Clients get their partitions in the order in which they are first asked.
        seat = self._seats.setdefault(node, len(self._seats))
        if seat >= MOST_CLIENTS and kind.split(".")[0] in self._last:
            return Message(deepcopy(self._last[kind.split(".")[0]].content), reply_to=message)
        if kind.startswith("train") and self.first is None:
            self.first = deepcopy(message)
        try:
            reply = self._answered(message, seat, kind)
        except Exception as error:
            self.errors.append(in_a_line(error))
            make_messages_for(RUN_ID, 1)
            return Message(Error(code=0, reason="client failed"), reply_to=message)
        self._last[kind.split(".")[0]] = reply
        return reply

    def _answered(self, message: Message, seat: int, kind: str) -> Message:
        context = self._contexts.setdefault(seat, self.context(seat))
        if not kind.startswith("train"):
            reply = self.call(message, context)
            self._evaluated(seat, reply)
            return reply
        recorder = Recorder()
        number = self._rounds.get(seat, 0) + 1
        self._rounds[seat] = number
        with recorded(recorder):
            reply = self.call(message, context)
        self.trainings[seat, number] = _training(recorder, reply, seat, number)
        if self.dataset is None:
            self.dataset = recorder.dataset
        return reply

    def call(self, message: Message, context: Context) -> Message:
        """Return the client app's reply, converted to Flower's new interface if needed."""
        make_messages_for(RUN_ID, message.metadata.dst_node_id)
        try:
            if is_of_old_interface(self.client):
                return of_old_message(self.client(old_message(message), context), message)
            return self.client(message, context)
        finally:
            make_messages_for(RUN_ID, 1)

    def context(self, seat: int) -> Context:
        config = UserConfig({"partition-id": seat, "num-partitions": self.nodes})
        return Context(
            run_id=RUN_ID,
            node_id=FIRST_NODE + seat,
            node_config=config,
            state=RecordDict(),
            run_config=UserConfig(self.app.config),
        )

    def train_first_again(self, recorder: Recorder) -> RecordedTraining:
        """Repeat the first training of the client that was asked first, and return the record of the repeated training.

        It is recorded as a training of round 1.
        """
        assert self.first is not None, "a client was asked to train"
        seat = self._seats[self.first.metadata.dst_node_id]
        with suppress(StopReplay), recorded(recorder):
            reply = self.call(deepcopy(self.first), self.context(seat))
            return _training(recorder, reply, seat, 1)
        return recorder.training(None, seat, 1)

    def _evaluated(self, seat: int, reply: Message) -> None:
        """Add the metrics in a reply to the record of the client's last training, if there is one."""
        number = self._rounds.get(seat, 0)
        training = self.trainings.get((seat, number))
        if training is not None and reply.has_content():
            outputs = replace(training.left, evaluation=_numbers(reply))
            self.trainings[seat, number] = replace(training, left=outputs)


def _assessed(clients: _InspectedClients, captured: CapturedStrategy) -> Assessment:
    rounds = min(captured.rounds, MOST_ROUNDS)
    start = captured.start.copied().copy_for_trial(rounds, np.random.default_rng())
    try:
        start.call_start(InProcessGrid(clients.nodes, clients.answer))
    except Exception as error:
        # A server may fail because its clients do; the clients' training so far has been recorded nevertheless.
        clients.errors.append(f"{in_a_line(error)} at the server")
    if not clients.trainings:
        why = clients.errors[0] if clients.errors else "no client was asked to train"
        raise InputError(why)
    trainings = tuple(clients.trainings.values())
    recorded = RecordedTrainings(trainings, captured.rounds)
    unseen = [f"{len(clients.errors)} messages, at which clients raised {clients.errors[0]}"] if clients.errors else []
    if not recorded.is_private:
        return assess(clients.app.name, recorded, unseen)
    repeated = (clients.trainings[min(clients.trainings)], clients.train_first_again(Recorder()))
    try:
        again = replays(_edited(clients), clients.dataset) if clients.dataset is not None else ()
    except NotRepeatableError:
        again = ()
        unseen = [*unseen, NOT_REPEATABLE]
    return assess(clients.app.name, replace(recorded, repeated=repeated, replays=again), unseen)


def _edited(clients: _InspectedClients) -> Callable[[Recorder, Edit], RecordedTraining]:
    def run(recorder: Recorder, edit: Edit) -> RecordedTraining:
        recorder.edit = edit
        return clients.train_first_again(recorder)

    return run


def _numbers(reply: Message) -> dict[str, float]:
    numbers: dict[str, float] = {}
    for record in reply.content.metric_records.values():
        numbers |= {name: float(value) for name, value in record.items() if isinstance(value, (int, float))}
    return numbers


def _training(recorder: Recorder, reply: Message, seat: int, number: int) -> RecordedTraining:
    if not reply.has_content():
        raise InputError(f"a client answered with an error ({reply.error.reason or reply.error.code})")
    arrays: dict[str, torch.Tensor] = {}
    for record in reply.content.array_records.values():
        arrays |= {name: torch.from_numpy(np.array(array.numpy())) for name, array in record.items()}
    outputs: TrainingOutputs = recorder.outputs_of(arrays, _numbers(reply))
    return recorder.training(outputs, seat, number)


@contextmanager
def _own_data(app: AppDescription, spec: str | None) -> Iterator[None]:
    """Let an app load its data, within a `with` block, by the function that the reviewer named as PACKAGE.MODULE:NAME.

    The function replaces the app's functions with the same name; if there are none, it replaces the loading methods of
    Flower's `FederatedDataset`. If `spec` is None, nothing is replaced.
    """
    if spec is None:
        yield
        return
    make = import_function(spec, "--client-data")
    name = spec.rpartition(":")[2]
    with ExitStack() as stack:
        count = 0
        for module in list(sys.modules.values()):
            file = getattr(module, "__file__", None) or ""
            if file and Path(file).is_relative_to(app.directory) and callable(vars(module).get(name)):
                stack.enter_context(patch.object(module, name, make))
                count += 1
        if not count:
            stack.enter_context(patch.object(FederatedDataset, "__init__", _without_source))
            stack.enter_context(patch.object(FederatedDataset, "load_partition", _partition_of(make)))
            stack.enter_context(patch.object(FederatedDataset, "load_split", lambda *_, **__: make(0, 1)))
        yield


def _without_source(self: Any, *_: Any, **kwargs: Any) -> None:
    self._partitioners_given = kwargs.get("partitioners") or {}


def _partition_of(make: Callable[..., Any]) -> Callable[..., Any]:
    def load_partition(self: Any, partition_id: int = 0, *_: Any, **__: Any) -> Any:
        sizes = [
            getattr(partitioner, "num_partitions", partitioner) for partitioner in self._partitioners_given.values()
        ]
        return make(partition_id, sizes[0] if sizes and isinstance(sizes[0], int) else partition_id + 1)

    return load_partition


def is_of_old_interface(client: ClientApp) -> bool:
    """Return True if a client app is built from a `client_fn`, which is Flower's old interface."""
    return getattr(client, "_call", None) is not None


def old_message(message: Message) -> Message:
    """Convert a message in place for a client of Flower's old interface, and return it."""
    arrays = next(iter(message.content.array_records.values()), ArrayRecord())
    parameters = ndarrays_to_parameters([array.numpy() for array in arrays.values()])
    config: dict[str, Any] = dict(next(iter(message.content.config_records.values()), ConfigRecord()))
    config.setdefault("current_round", config.get("server-round", 1))
    if message.metadata.message_type.startswith("train"):
        content = flower.fitins_to_recorddict(FitIns(parameters, config), keep_input=True)
    elif message.metadata.message_type.startswith("evaluate"):
        content = flower.evaluateins_to_recorddict(EvaluateIns(parameters, config), keep_input=True)
    else:
        raise InputError(f"clients of the old interface do not answer {message.metadata.message_type!r}")
    message.content = content
    return message


def of_old_message(reply: Message, message: Message) -> Message:
    """Return a client's reply in Flower's old interface, converted to the new one; an error reply is unchanged."""
    if not reply.has_content():
        return reply
    records: dict[str, Any] = {}
    if "fitres.num_examples" in reply.content.metric_records:
        fitted = flower.recorddict_to_fitres(reply.content, keep_input=True)
        arrays = parameters_to_ndarrays(fitted.parameters)
        records["arrays"] = ArrayRecord({f"{index:03d}": Array(value) for index, value in enumerate(arrays)})
        numbers = dict(fitted.metrics)
        count = fitted.num_examples
    else:
        evaluated = flower.recorddict_to_evaluateres(reply.content)
        numbers = {**evaluated.metrics, "loss": evaluated.loss}
        count = evaluated.num_examples
    plain = {name: float(value) for name, value in numbers.items() if isinstance(value, (int, float))}
    records["metrics"] = MetricRecord({**plain, "num-examples": int(count)})
    return Message(RecordDict(records), reply_to=message)
