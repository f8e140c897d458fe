"""The local engine, which runs Flower's ServerApp and ClientApp in this process, without Flower's runtime."""

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import ceil
from queue import Queue
from typing import NamedTuple

from flwr.app import Context, Error, Message, RecordDict, UserConfig
from flwr.clientapp import ClientApp
from flwr.common.constant import ErrorCode
from flwr.serverapp import ServerApp
from flwr.supercore.run import Run

from fl_audit.errors import InputError
from fl_audit.runs.grid_messages import failed_reply, give_id
from fl_audit.runs.verbosity import settle_flower
from fl_audit.strategies.flower_grids import SingleRunGrid, make_messages_for

_RUN_ID = 1
_SERVER_NODE_ID = 1
_AHEAD = 8  # most messages that a thread takes at a time where they are read ahead: the stacked models stay in cache

AnnounceCalls = Callable[[Sequence[tuple[Message, Context]]], None]


class LocalFlowerGrid(SingleRunGrid):
    """A Flower grid that calls the ClientApp in threads of this process; a client answers one message at a time.

    Parameters
    ----------
    client_app
        The app with which every client answers messages.
    clients
        Number of clients; their node ids are 2 and up.
    time_limit
        Longest time of one client call, in seconds.
    actors
        Number of threads, and so of simultaneous client calls, at least 1.
    announce_calls
        Function that a thread calls with the messages that it has taken, before their first client call; or None.
    """

    def __init__(
        self,
        client_app: ClientApp,
        clients: int,
        time_limit: float,
        actors: int = 1,
        announce_calls: AnnounceCalls | None = None,
    ) -> None:
        make_messages_for(_RUN_ID, _SERVER_NODE_ID)
        self._time_limit = time_limit
        self._contexts = _Contexts(clients)
        self._replies: dict[str, Message] = {}
        self._workers = _Workers(client_app, actors, announce_calls)

    def close(self) -> None:
        """End all threads that call clients; a busy thread ends after its current client call."""
        self._workers.close()

    @property
    def run(self) -> Run:
        """Raise `InputError`, because the local engine has no record of its run."""
        raise InputError("the local engine keeps no run record")

    def get_node_ids(self) -> Iterable[int]:
        """Return the node ids of all clients."""
        return self.nodes_in_order()

    def nodes_in_order(self) -> range:
        """Return the node ids of all clients, in the order of their partition numbers."""
        return range(2, self._contexts.clients + 2)

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        """Send messages, wait until clients have answered all of them, and return the messages' ids in order.

        A failed call gets an error as its reply, and ends the wait. Messages that are not sent by then get no reply.
        Each message is addressed to a node id.
        """
        waiting = {give_id(message): message for message in messages}
        identities, exchange = list(waiting), _MessageExchange(waiting, self._contexts, self._time_limit)
        self._workers.run_exchange(exchange)
        for identity, outcome in exchange.outcomes.items():
            self._replies[identity] = self._reply(exchange.messages[identity], outcome)
            give_id(self._replies[identity])
        return identities

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        """Return the replies that have arrived to the messages with the given ids; each reply is returned only once."""
        return [self._replies.pop(identity) for identity in list(message_ids) if identity in self._replies]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        """Send messages, wait until clients have answered all of them, and return the replies.

        Parameters
        ----------
        messages
            Messages to clients, each addressed to a node id.
        timeout
            Not used, because every client call has its own time limit.
        """
        return self.pull_messages(self.push_messages(messages))

    def _reply(self, message: Message, outcome: Message | Exception | None) -> Message:
        match outcome:
            case Message():
                return outcome
            case None:
                error = Error(ErrorCode.UNKNOWN, f"no answer within its time limit of {self._time_limit:g} s")
                return Message(error, reply_to=message)
            case raised:
                return failed_reply(message, raised)


class _Contexts(dict[int, Context]):
    """The Flower context of each node, by node id; created when a node is first called."""

    def __init__(self, clients: int) -> None:
        super().__init__()
        self.clients = clients

    def __missing__(self, node: int) -> Context:
        config = UserConfig({"partition-id": node - 2, "num-partitions": self.clients})
        self[node] = Context(
            run_id=_RUN_ID, node_id=node, node_config=config, state=RecordDict(), run_config=UserConfig()
        )
        return self[node]


class _Call(NamedTuple):
    """A message to a client, the client's context, and the latest time for the reply by the monotonic clock."""

    identity: str
    message: Message
    context: Context
    deadline: float


class _MessageExchange:
    """The messages of one call of `push_messages`, and the outcomes that the threads have recorded for them."""

    def __init__(self, messages: Mapping[str, Message], contexts: Mapping[int, Context], time_limit: float) -> None:
        self.messages = messages
        self.outcomes: dict[str, Message | Exception | None] = {}
        self._contexts, self._time_limit = contexts, time_limit
        self._waiting = dict(messages)
        self._at_work: dict[int, _Call] = {}
        self._is_over = not messages
        self._changed = threading.Condition()

    def next_calls(self, most: int) -> list[_Call]:
        """Wait for messages to clients that are not busy; return at most `most` of them, one for each client.

        The list is empty if no messages are left or the exchange has ended.
        """
        with self._changed:
            while not self._is_over and self._waiting:
                taken = list[_Call]()
                for identity, message in list(self._waiting.items()):
                    node = message.metadata.dst_node_id
                    if len(taken) < most and node not in self._at_work:
                        # They are answered one after the other, and each may take its time.
                        deadline = time.monotonic() + (len(taken) + 1) * self._time_limit
                        call = _Call(identity, self._waiting.pop(identity), self._contexts[node], deadline)
                        self._at_work[node] = call
                        taken.append(call)
                if taken:
                    return taken
                self._changed.wait()
            return []

    def settle(self, call: _Call, outcome: Message | Exception | None) -> None:
        """Record the outcome of a client call: the reply, the client's exception, or None after the deadline.

        A late reply counts as missing. The exchange ends with its last outcome, or with the first failure. Outcomes
        after the end, and second outcomes of a call, are ignored.
        """
        with self._changed:
            node = call.message.metadata.dst_node_id
            if self._is_over or self._at_work.get(node) is not call:
                return
            if isinstance(outcome, Message) and time.monotonic() > call.deadline:
                outcome = None
            del self._at_work[node]
            self.outcomes[call.identity] = outcome
            is_failure = not isinstance(outcome, Message) or outcome.has_error()
            self._is_over = is_failure or not (self._waiting or self._at_work)
            if self._is_over:
                self._changed.notify_all()

    def wait(self) -> None:
        """Wait until all messages are answered, or one call has failed or passed its deadline."""
        while late := self._wait_for_next_deadline():
            self.settle(late, None)

    def give_up(self) -> None:
        """End the exchange: threads get no more messages from it, and further outcomes are ignored."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def _wait_for_next_deadline(self) -> _Call | None:
        """Return the first call that exceeds its deadline; None if all calls end, or one fails, before that."""
        with self._changed:
            while not self._is_over:
                first = min(self._at_work.values(), key=lambda call: call.deadline, default=None)
                left = self._time_limit if first is None else first.deadline - time.monotonic()
                if first is not None and left <= 0:
                    return first
                self._changed.wait(left)
            return None


class _Workers:
    """Threads that run client calls, and do not keep the process alive if a call never ends."""

    def __init__(self, client_app: ClientApp, threads: int, announce_calls: AnnounceCalls | None) -> None:
        self._threads = threads
        self._client_app = client_app
        self._announce_calls = announce_calls
        self._exchanges: Queue[_MessageExchange | None] = Queue()  # None ends the thread that takes it
        for _ in range(threads):
            threading.Thread(target=self._serve, daemon=True).start()

    def run_exchange(self, exchange: _MessageExchange) -> None:
        """Hand an exchange to the threads, and wait until it has ended."""
        for _ in range(self._threads):
            self._exchanges.put(exchange)
        try:
            exchange.wait()
        finally:
            exchange.give_up()  # an interrupt would leave the threads at work on it

    def close(self) -> None:
        """End all threads; a busy thread ends after its current client call."""
        for _ in range(self._threads):
            self._exchanges.put(None)

    def _serve(self) -> None:
        while (exchange := self._exchanges.get()) is not None:
            # A share of the messages for each thread, so that none is left with many while others have nothing to do.
            share = ceil(len(exchange.messages) / self._threads) if self._announce_calls else 1
            while calls := exchange.next_calls(min(share, _AHEAD)):
                for place, call in enumerate(calls):
                    exchange.settle(call, self._outcome(call, calls if place == 0 else []))

    def _outcome(self, call: _Call, taken: list[_Call]) -> Message | Exception:
        """Call a client, and return its reply or its exception.

        If `taken` holds calls, they are passed to `announce_calls` before the client is called.
        """
        try:
            if self._announce_calls is not None and taken:
                self._announce_calls([(one.message, one.context) for one in taken])
            return self._client_app(message=call.message, context=call.context)
        except SystemExit as ended:
            return RuntimeError(f"it ended itself with status {ended.code}")
        except Exception as error:  # any exception of a client becomes an error reply, as under Flower's runtime
            return error


def run_locally(
    server_app: ServerApp,
    client_app: ClientApp,
    clients: int,
    time_limit: float,
    actors: int = 1,
    announce_calls: AnnounceCalls | None = None,
) -> None:
    """Run a Flower app in this process, with client calls in threads.

    Raises `FederationError` if the server app raises it.

    Parameters
    ----------
    server_app
        The server's app, which gets a grid and so reaches the clients.
    client_app
        The app with which every client answers messages.
    clients
        Number of clients, each of which is a Flower node.
    time_limit
        Longest time of one client call, in seconds.
    actors
        Number of simultaneous client calls, at least 1.
    announce_calls
        Function that receives the messages, with their contexts, which a worker thread will process next. The thread
        calls it before its first client call. None for no function.
    """
    settle_flower()
    context = Context(
        run_id=_RUN_ID, node_id=_SERVER_NODE_ID, node_config=UserConfig(), state=RecordDict(), run_config=UserConfig()
    )
    grid = LocalFlowerGrid(client_app, clients, time_limit, actors, announce_calls)
    try:
        server_app(grid=grid, context=context)
    finally:
        grid.close()
