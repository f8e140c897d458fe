"""Flower grid that stops waiting for replies after a failure or a time limit, and the discovery of clients."""

import time
from collections.abc import Callable, Iterable, Sequence
from itertools import islice

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from fl_audit.errors import FederationError
from fl_audit.federation.loaded_federation import LoadedFederation
from fl_audit.message_keys import Key, MessageRecordName, NonTrainingQuery
from fl_audit.strategies.contributors import ClientRoles
from fl_audit.strategies.flower_grids import DelegatingGrid, sent_ids
from fl_audit.strategies.reply_checks import reason_line

_REGISTRATION_SECONDS = 60.0
_START_SECONDS = 120.0  # time limit of a client's first call, which includes the start of its process and imports
_MOST_ASKED = 256
"""Largest number of clients that load their data before the first round; further clients load theirs in it."""
_POLL_SECONDS = 0.02
_LONGEST_WAIT_SECONDS = 0.1
"""Interval of the check for interruption while `wait_for_replies` of a grid blocks."""
_UNDER_WAY = 256
"""Largest number of messages without a reply on a grid that has to be polled.

Flower's message store searches all of them at every poll.
"""
_GRACE_SECONDS = 5.0
"""Extra seconds of the server beyond a client's own time limit, so that the client can end its call first."""


class ReplyTimeoutGrid(DelegatingGrid):
    """Flower grid that gives up if no reply arrives within the time limit of one client call.

    The total time is not limited: if all clients work, some reply arrives in time, no matter how many calls are queued.
    """

    def __init__(self, grid: Grid, time_limit: float, is_interrupted: Callable[[], bool] = lambda: False) -> None:
        super().__init__(grid)
        self._patience = time_limit + _GRACE_SECONDS
        self.is_interrupted = is_interrupted

    def nodes_in_order(self) -> Sequence[int] | None:
        """Return the node ID of each partition, in order of partitions; None if the engine does not know them."""
        known_nodes = getattr(self.grid, "nodes_in_order", None)
        return None if known_nodes is None else known_nodes()

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        """Send messages and return the replies: all of them, or those so far after a failed call or an interruption.

        Waiting also ends if no further reply arrives within the time limit of this grid. `timeout` is not used.
        """
        unsent = list(messages)
        waiting = set[str]()
        wait = getattr(self.grid, "wait_for_replies", None)
        most_messages = _UNDER_WAY if wait is None else len(unsent)
        replies: list[Message] = []
        last_sign = time.monotonic()
        while unsent or waiting:
            if unsent and len(waiting) < most_messages:
                room = most_messages - len(waiting)
                waiting.update(sent_ids(self.grid, unsent[:room]))
                del unsent[:room]
            arrived = list(self.grid.pull_messages(waiting))
            if arrived:
                last_sign = time.monotonic()
                replies += arrived
                waiting -= {reply.metadata.reply_to_message_id for reply in arrived}
                if any(reply.has_error() for reply in arrived):
                    break
            elif self.is_interrupted() or time.monotonic() - last_sign > self._patience:
                break
            elif waiting and wait is not None:
                wait(_LONGEST_WAIT_SECONDS)
            elif waiting:
                time.sleep(_POLL_SECONDS)
        return replies


def discover_clients(grid: ReplyTimeoutGrid, federation: LoadedFederation) -> ClientRoles:
    """Return the roster of clients, i.e. their nodes and records, once all clients have registered.

    A client's number is its partition. If the engine does not know the partitions, every client is asked for its own.
    Otherwise only clients that will be needed early are asked, so that they load their data.
    """
    expected = federation.public.nodes
    deadline = time.monotonic() + _REGISTRATION_SECONDS
    while len(nodes := list(grid.get_node_ids())) < expected and time.monotonic() < deadline:
        if grid.is_interrupted():
            raise FederationError("the run was interrupted while its clients started")
        time.sleep(0.05)
    if len(nodes) != expected:
        raise FederationError(f"{len(nodes)} clients registered, the configuration names {expected}")
    known_nodes = grid.nodes_in_order()
    if known_nodes is None:
        answers = _ask(grid, federation, nodes)
        known_nodes = [answers[partition] for partition in sorted(answers)]
        if sorted(answers) != list(range(expected)):
            problem = f"clients hold partitions {sorted(answers)}"
            raise FederationError(f"{problem}, the configuration names 0 to {expected - 1}")
    else:
        _ask(grid, federation, [known_nodes[client] for client in _clients_asked_early(federation)])
    shards = tuple(federation.units_of(client) for client in range(len(federation.shards)))
    return ClientRoles(known_nodes, federation.holders, federation.insider, shards, federation.units)


def _clients_asked_early(federation: LoadedFederation) -> list[int]:
    """Return the clients that are asked to load their data before round 1, at most `_MOST_ASKED`.

    The insider comes first, then holders of targets (at most `_MOST_ASKED` / 2), then other clients of round 1.
    """
    cohort = federation.public.cohort(1)
    first_clients = {federation.insider, *islice(federation.holders, _MOST_ASKED // 2)}
    other_clients = range(federation.public.nodes) if cohort is None else cohort.tolist()
    return [
        *first_clients,
        *islice((client for client in other_clients if client not in first_clients), _MOST_ASKED - len(first_clients)),
    ]


def _ask(grid: ReplyTimeoutGrid, federation: LoadedFederation, nodes: list[int]) -> dict[int, int]:
    """Ask nodes for their partitions, and return the node ID of each partition, keyed by partition."""
    config = RecordDict({MessageRecordName.CONFIG: ConfigRecord({Key.FEDERATION: federation.public.to_json()})})
    questions = [Message(config, node, f"query.{NonTrainingQuery.IDENTIFY}") for node in nodes]
    nodes_by_partition = {}
    for reply in ReplyTimeoutGrid(grid.grid, _START_SECONDS, grid.is_interrupted).send_and_receive(questions):
        if reply.has_error():
            raise FederationError(f"a client could not start: {reason_line(reply.error.reason)}")
        answer = reply.content.config_records.get(MessageRecordName.CONFIG)
        if answer is None or Key.PARTITION not in answer:
            raise FederationError("a client did not say which partition it holds")
        nodes_by_partition[int(str(answer[Key.PARTITION]))] = reply.metadata.src_node_id
    return nodes_by_partition
