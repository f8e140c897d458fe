"""The local engine: the app objects of Flower in this process, without its runtime."""

import threading
import time
import uuid
from collections.abc import Iterable, Mapping
from queue import Empty, Queue
from typing import NamedTuple

from flwr.app import Context, Error, Message, RecordDict, UserConfig
from flwr.clientapp import ClientApp
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid, ServerApp
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity

from experiments.runs.engines import quiet_flower
from fl_audit.errors import InputError

_RUN_ID = 1
_SERVER_NODE_ID = 1


class LocalGrid(Grid):
    """A grid that calls the ClientApp in threads of this process; a client has one message at a time.

    Parameters
    ----------
    client_app
        The app of every client.
    clients
        Number of clients; node ids are 2 and up.
    time_limit
        Seconds that one call may take.
    actors
        Calls that run at the same time, at least 1.
    """

    def __init__(self, client_app: ClientApp, clients: int, time_limit: float, actors: int = 1) -> None:
        # Flower lets nobody make a message who is no task of a run.
        TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, _RUN_ID, _SERVER_NODE_ID
        self._time_limit = time_limit
        self._contexts = {
            node: Context(
                run_id=_RUN_ID,
                node_id=node,
                node_config=UserConfig({"partition-id": node - 2, "num-partitions": clients}),
                state=RecordDict(),
                run_config=UserConfig(),
            )
            for node in range(2, clients + 2)
        }
        self._replies: dict[str, Message] = {}
        self._calls = _Calls(client_app, actors)

    def set_run(self, run: Run) -> None:
        """Do nothing: there is one run."""

    @property
    def run(self) -> Run:
        """There is no run record."""
        raise InputError("the local engine keeps no run record")

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        """Create a message."""
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self) -> Iterable[int]:
        """Return the node ids."""
        return list(self._contexts)

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        """Have every message answered now; after a failure the rest of them is not sent."""
        waiting = {str(uuid.uuid4()): message for message in messages}
        for identity, message in waiting.items():
            message.metadata.__dict__["_message_id"] = identity
        identities, under_way = list(waiting), dict[str, _Call]()
        while waiting or under_way:
            self._begin(waiting, under_way)
            identity, outcome = self._calls.next_outcome(under_way)
            reply = self._reply(under_way.pop(identity).message, outcome)
            reply.metadata.__dict__["_message_id"] = str(uuid.uuid4())
            self._replies[identity] = reply
            if reply.has_error():
                break
        return identities

    def _begin(self, waiting: dict[str, Message], under_way: dict[str, "_Call"]) -> None:
        """Begin calls while threads are free, in order, but pass over clients that have a message."""
        for identity, message in list(waiting.items()):
            if len(under_way) == self._calls.threads:
                return
            node = message.metadata.dst_node_id
            if node not in (call.message.metadata.dst_node_id for call in under_way.values()):
                call = _Call(waiting.pop(identity), self._contexts[node], time.monotonic() + self._time_limit)
                under_way[identity] = call
                self._calls.begin(identity, call)

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        """Return the replies that are there."""
        return [self._replies.pop(identity) for identity in list(message_ids) if identity in self._replies]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        """Send messages and return their replies."""
        return self.pull_messages(self.push_messages(messages))

    def _reply(self, message: Message, outcome: Message | Exception | None) -> Message:
        match outcome:
            case Message():
                return outcome
            case None:
                reason = f"no answer within its time limit of {self._time_limit:g} s"
                return Message(Error(code=ErrorCode.UNKNOWN, reason=reason), reply_to=message)
            case error:
                return Message(
                    Error(code=ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason=f"Message: {error}"), reply_to=message
                )


class _Call(NamedTuple):
    """A message to a client, and when its answer is too late (by the monotonic clock)."""

    message: Message
    context: Context
    deadline: float


class _Calls:
    """Threads that run client calls, so that a call can be given up; daemons, so that they keep nobody alive."""

    def __init__(self, client_app: ClientApp, threads: int) -> None:
        self.threads = threads
        self._client_app = client_app
        self._begun: Queue[tuple[str, _Call]] = Queue()
        self._outcomes: Queue[tuple[str, Message | Exception]] = Queue()
        for _ in range(threads):
            threading.Thread(target=self._serve, daemon=True).start()

    def begin(self, identity: str, call: _Call) -> None:
        """Run a call in the next free thread."""
        self._begun.put((identity, call))

    def next_outcome(self, under_way: Mapping[str, _Call]) -> tuple[str, Message | Exception | None]:
        """Wait for one of some calls: its reply, what the client raised, or None if its time is over."""
        first = min(under_way, key=lambda identity: under_way[identity].deadline)
        while True:
            try:
                found = self._outcomes.get(timeout=max(0.0, under_way[first].deadline - time.monotonic()))
            except Empty:
                return first, None
            # What was given up in an exchange before may end at any time.
            if found[0] in under_way:
                return found

    def _serve(self) -> None:
        while True:
            identity, call = self._begun.get()
            try:
                self._outcomes.put((identity, self._client_app(message=call.message, context=call.context)))
            except Exception as error:  # whatever a client raises becomes an error reply, as under Flower's runtime
                self._outcomes.put((identity, error))


def run_locally(server_app: ServerApp, client_app: ClientApp, clients: int, time_limit: float, actors: int = 1) -> None:
    """Run the app in this process, with so many client calls at the same time.

    Raises
    ------
    FederationError
        What the server raised.
    """
    quiet_flower()
    context = Context(
        run_id=_RUN_ID,
        node_id=_SERVER_NODE_ID,
        node_config=UserConfig(),
        state=RecordDict(),
        run_config=UserConfig(),
    )
    server_app(grid=LocalGrid(client_app, clients, time_limit, actors), context=context)
