"""The Flower grid of a simulated federation: it owns messages, contexts and replies, and an executor calls the clients.

There are three executors: one answers inline (`InlineExecutor`), one in threads of this process
(`runs.local_engine`), and one in processes of Ray (`runs.cluster.call_scheduling`).
"""

import ast
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import wraps
from types import SimpleNamespace
from typing import Any, Protocol

from flwr.app import Context, Error, Message, Metadata, RecordDict, UserConfig

from fl_audit.strategies.flower_grids import PullingGrid, make_messages_for

RUN_ID, SERVER_NODE, FIRST_NODE = 1, 1, 2  # Flower's ids of the run, of the server, and of the first client
_UNKNOWN, _CLIENT_RAISED = 0, 2
"""Codes that Flower gives to errors in replies."""
_SECONDS_BETWEEN_LOOKS = 0.5
_FIRST_PYTHON_WITH_SAFE_PARSER = (3, 11, 8)
_PARSER = threading.RLock()

Outcome = Message | Exception | None
"""The outcome of a client call: the reply, the failure, or None for a client that gives no reply."""
Settle = Callable[[Sequence[tuple[str, Outcome]]], None]
"""A function that receives finished calls as pairs of message id and outcome; only the first of a call counts."""


class Executor(Protocol):
    """Calls clients, and reports the outcome of every call to the grid that it belongs to."""

    def add(self, messages: Mapping[str, Message]) -> None:
        """Schedule the calls of clients for messages, given by id."""

    def look(self) -> None:
        """Look after the calls: called by the thread that waits for replies, about every half second."""

    def close(self) -> None:
        """Begin no further call, and end the calls in progress where that is possible."""


class NodeContexts(dict[int, Context]):
    """The Flower context of each node, by node id; created when a node is first called.

    `run_config` is the run configuration in all contexts; None for an empty one.
    """

    def __init__(self, clients: int, run_config: UserConfig | None = None) -> None:
        super().__init__()
        self.clients = clients
        self.run_config = UserConfig() if run_config is None else run_config

    def __missing__(self, node: int) -> Context:
        config = UserConfig({"partition-id": node - FIRST_NODE, "num-partitions": self.clients})
        self[node] = Context(
            run_id=RUN_ID, node_id=node, node_config=config, state=RecordDict(), run_config=self.run_config
        )
        return self[node]


class SimulatedGrid(PullingGrid):
    """A Flower grid whose clients are called by an executor.

    Parameters
    ----------
    clients
        Number of clients; their node ids are 2 and up.
    executor
        Function that returns the executor for the contexts of the nodes and the function that takes outcomes.
    run_config
        Run configuration of an app; None for an empty one.

    Attributes
    ----------
    failed_calls
        Number of failed client calls, by the text of the error.
    """

    def __init__(
        self, clients: int, executor: Callable[[NodeContexts, Settle], Executor], run_config: UserConfig | None = None
    ) -> None:
        make_messages_for(RUN_ID, SERVER_NODE)
        _make_parsing_thread_safe()
        self.contexts = NodeContexts(clients, run_config)
        self.failed_calls = Counter[str]()
        self._changed = threading.Condition()
        self._messages: dict[str, Message] = {}
        self._replies: dict[str, Message] = {}
        self._looked = time.monotonic()
        self._executor = executor(self.contexts, self._settle)

    @property
    def run(self) -> Any:
        """The run's record, of which a simulation has the number alone."""
        return SimpleNamespace(run_id=RUN_ID)

    def set_run(self, run: Any) -> None:
        """Do nothing, because the grid has only one run."""

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        """Return a new message with the given content and destination."""
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self) -> Iterable[int]:
        """Return the node ids of all clients, in the order of their partition numbers."""
        return list(self.nodes_in_order())

    def nodes_in_order(self) -> range:
        """Return the node ids of all clients, in the order of their partition numbers."""
        return range(FIRST_NODE, FIRST_NODE + self.contexts.clients)

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        """Send messages, each addressed to a node id, and return a new message id for each, in the same order."""
        sent = {str(uuid.uuid4()): message for message in messages}
        sent = {identity: readdressed(message, message_id=identity) for identity, message in sent.items()}
        with self._changed:
            self._messages |= sent
        self._executor.add(sent)
        return list(sent)

    def wait_for_replies(self, seconds: float) -> None:
        """Wait up to the given seconds until there is a reply that `pull_messages` has not returned yet."""
        with self._changed:
            is_there = self._changed.wait_for(lambda: self._replies, min(seconds, _SECONDS_BETWEEN_LOOKS))
        if not is_there or time.monotonic() > self._looked + _SECONDS_BETWEEN_LOOKS:
            self._looked = time.monotonic()
            self._executor.look()

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        """Send messages to clients, and return the replies that arrive in time, in the order of the messages."""
        sent, replies = self.push_messages(messages), dict[str, Message]()
        deadline = float("inf") if timeout is None else time.monotonic() + timeout
        while self._is_awaited(sent) and (remaining := deadline - time.monotonic()) > 0:
            self.wait_for_replies(min(remaining, _SECONDS_BETWEEN_LOOKS))
            replies |= {reply.metadata.reply_to_message_id: reply for reply in self.pull_messages(set(sent))}
        replies |= {reply.metadata.reply_to_message_id: reply for reply in self.pull_messages(set(sent))}
        return [replies[identity] for identity in sent if identity in replies]

    def close(self) -> None:
        """End the calls of clients."""
        self._executor.close()

    def _is_awaited(self, identities: Collection[str]) -> bool:
        with self._changed:
            return any(identity in self._messages for identity in identities)

    def _pulled(self, identities: Collection[str] | None) -> list[Message]:
        with self._changed:
            # The loop over a set is over the replies that have arrived, which are fewer than those that are asked for.
            candidates = list(self._replies) if identities is None or isinstance(identities, set) else list(identities)
            answered = [identity for identity in candidates if identity in self._replies]
            return [
                self._replies.pop(identity) for identity in answered if identities is None or identity in identities
            ]

    def _settle(self, outcomes: Sequence[tuple[str, Outcome]]) -> None:
        """Store the replies for `pull_messages`; a failed call becomes an error reply, a second outcome is ignored."""
        with self._changed:
            # In one step: a message that is no longer awaited has its reply.
            pending = [(self._messages.pop(identity, None), outcome) for identity, outcome in outcomes]
            awaited = [(message, outcome) for message, outcome in pending if message is not None]
            self.failed_calls.update(_error_text(outcome) for _, outcome in awaited if isinstance(outcome, Exception))
            replies = [_reply(message, outcome) for message, outcome in awaited]
            self._replies |= {reply.metadata.reply_to_message_id: reply for reply in replies if reply is not None}
            self._changed.notify_all()


class InlineExecutor:
    """Calls one function for every message, at once and in the thread that sends it."""

    def __init__(self, answer: Callable[[Message], Message | None], settle: Settle) -> None:
        self._answer, self._settle = answer, settle

    def add(self, messages: Mapping[str, Message]) -> None:
        for identity, message in messages.items():
            self._settle([(identity, self._answer(message))])

    def look(self) -> None: ...

    def close(self) -> None: ...


class InProcessGrid(SimulatedGrid):
    """A grid whose clients are simulated inline by one function, which returns a message's reply or None."""

    def __init__(self, clients: int, answer: Callable[[Message], Message | None]) -> None:
        super().__init__(clients, lambda contexts, settle: InlineExecutor(answer, settle))


def readdressed(message: Message, **changes: Any) -> Message:
    """Return a message with the same content or error, and with other metadata."""
    old = message.metadata
    metadata: dict[str, Any] = {
        "run_id": old.run_id,
        "message_id": old.message_id,
        "src_node_id": old.src_node_id,
        "dst_node_id": old.dst_node_id,
        "reply_to_message_id": old.reply_to_message_id,
        "group_id": old.group_id,
        "created_at": old.created_at,
        "ttl": old.ttl,
        "message_type": old.message_type,
    }
    for name in ("src_task_id", "dst_task_id"):  # before 1.32 Flower has none
        if hasattr(old, name):
            metadata[name] = getattr(old, name)
    body: dict[str, Any] = {"error": message.error} if message.has_error() else {"content": message.content}
    make_message: Any = Message  # its declared signatures leave out the argument `metadata`
    copy: Message = make_message(metadata=Metadata(**metadata | changes), **body)
    return copy


def _error_text(error: Exception) -> str:
    """Return the message of an error in one line, or its type if it has none; the same on all executors."""
    return " ".join(str(error).split()) or type(error).__name__


def _reply(message: Message, outcome: Outcome) -> Message | None:
    """Return the reply to a message, under a new id; a failure becomes an error reply."""
    match outcome:
        case None:
            return None
        case TimeoutError():
            reply = Message(Error(_UNKNOWN, str(outcome)), reply_to=message)
        case Exception():
            reply = Message(Error(_CLIENT_RAISED, f"Message: {outcome}"), reply_to=message)
        case _:
            reply = outcome
    return readdressed(reply, message_id=str(uuid.uuid4()), reply_to_message_id=message.metadata.message_id)


def _make_parsing_thread_safe() -> None:
    """Replace `ast.parse` in this process by a function that one thread at a time carries out, where that is needed.

    In Python 3.11.0 to 3.11.7, `ast.parse` counts its depth of recursion in a variable that all threads share. If the
    garbage collector runs in it and another thread parses meanwhile, it raises "SystemError: AST constructor recursion
    depth mismatch" (python/cpython#106905). `numpy.load` parses the header of an array in this way, and Flower reads
    every array with it: clients in threads would fail now and then, and their replies would be missing.
    """
    parse = ast.parse
    if sys.version_info >= _FIRST_PYTHON_WITH_SAFE_PARSER or hasattr(parse, "__wrapped__"):
        return

    @wraps(parse)
    def locked_parse(*arguments: object, **named_arguments: object) -> ast.AST:
        with _PARSER:
            return parse(*arguments, **named_arguments)  # type: ignore[call-overload]

    ast.parse = locked_parse  # type: ignore[assignment]
