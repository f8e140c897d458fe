"""The local engine: the app objects of Flower in this process, without its runtime."""

import threading
import uuid
from collections.abc import Iterable
from queue import Empty, Queue

from flwr.app import Context, Error, Message, RecordDict, UserConfig
from flwr.clientapp import ClientApp
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid, ServerApp
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity

from experiments.engines import quiet_flower
from fl_audit.errors import InputError

_RUN_ID = 1
_SERVER_NODE_ID = 1


class LocalGrid(Grid):
    """A grid that calls the ClientApp in this process, one message after the other.

    Parameters
    ----------
    client_app
        The app of every client.
    clients
        Number of clients; node ids are 2 and up.
    time_limit
        Seconds that one call may take.
    """

    def __init__(self, client_app: ClientApp, clients: int, time_limit: float) -> None:
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
        self._worker = _Worker(client_app)

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
        ids = []
        for message in messages:
            identity = str(uuid.uuid4())
            message.metadata.__dict__["_message_id"] = identity
            ids.append(identity)
            reply = self._answer(message)
            reply.metadata.__dict__["_message_id"] = str(uuid.uuid4())
            self._replies[identity] = reply
            if reply.has_error():
                break
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        """Return the replies that are there."""
        return [self._replies.pop(identity) for identity in list(message_ids) if identity in self._replies]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        """Send messages and return their replies."""
        return self.pull_messages(self.push_messages(messages))

    def _answer(self, message: Message) -> Message:
        outcome = self._worker.call(message, self._contexts[message.metadata.dst_node_id], self._time_limit)
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


class _Worker:
    """One thread that runs client calls, so that a call can be given up; a daemon, so that it keeps nobody alive."""

    def __init__(self, client_app: ClientApp) -> None:
        self._client_app = client_app
        self._calls: Queue[tuple[Message, Context]] = Queue()
        self._outcomes: Queue[Message | Exception] = Queue()
        threading.Thread(target=self._serve, daemon=True).start()

    def call(self, message: Message, context: Context, seconds: float) -> Message | Exception | None:
        """Return the reply, what the client raised, or None after `seconds`."""
        self._calls.put((message, context))
        try:
            return self._outcomes.get(timeout=seconds)
        except Empty:
            return None

    def _serve(self) -> None:
        while True:
            message, context = self._calls.get()
            try:
                self._outcomes.put(self._client_app(message=message, context=context))
            except Exception as error:  # whatever a client raises becomes an error reply, as under Flower's runtime
                self._outcomes.put(error)


def run_locally(server_app: ServerApp, client_app: ClientApp, clients: int, time_limit: float) -> None:
    """Run the app in this process.

    Raises
    ------
    FederationError
        What the server raised.
    """
    quiet_flower()
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, _RUN_ID, _SERVER_NODE_ID
    context = Context(
        run_id=_RUN_ID,
        node_id=_SERVER_NODE_ID,
        node_config=UserConfig(),
        state=RecordDict(),
        run_config=UserConfig(),
    )
    server_app(grid=LocalGrid(client_app, clients, time_limit), context=context)
