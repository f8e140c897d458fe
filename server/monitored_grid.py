"""A grid that stops waiting at the first failure, or when no client replies any more; and the discovery of clients."""

import time
from collections.abc import Callable, Iterable, Sequence
from itertools import islice

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from fl_audit.federation.loaded_federation import LoadedFederation
from fl_audit.protocol import Key, MessageRecord, NonTrainingQuery
from fl_audit.strategies.contributors import ClientRoster
from fl_audit.strategies.errors import FederationError
from fl_audit.strategies.flower_grids import DelegatingGrid
from fl_audit.strategies.replies import reason_line

_REGISTRATION_SECONDS = 60.0
_START_SECONDS = 120.0  # time limit of the first call of a client: its process starts and imports first
_MOST_ASKED = 256
"""Largest number of clients that get ready before the first round; on larger clusters the others start in it."""
_POLL_SECONDS = 0.02
_LONGEST_WAIT_SECONDS = 0.1
"""Interval at which a grid that wakes its waiter is asked whether the run was interrupted."""
_UNDER_WAY = 256
"""Largest number of messages that wait for replies at once, on a grid that has to be polled: Flower's store looks
through all of them again and again.
"""
_GRACE_SECONDS = 5.0
"""Extra time of the server beyond a client's own time limit, so that the client ends itself first where it can."""


class MonitoredGrid(DelegatingGrid):
    """Flower's grid, with a limit on silence instead of one on the whole exchange.

    As long as a call is under way, a reply comes within the time limit of one call, however many calls are queued.
    """

    def __init__(self, grid: Grid, time_limit: float, is_interrupted: Callable[[], bool] = lambda: False) -> None:
        super().__init__(grid)
        self._patience = time_limit + _GRACE_SECONDS
        self.is_interrupted = is_interrupted

    def nodes_in_order(self) -> Sequence[int] | None:
        """Return the node of each partition if the engine knows all of them; None if they have to be asked."""
        known = getattr(self.grid, "nodes_in_order", None)
        return None if known is None else known()

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        """Send messages and return the replies: all, or those up to the first failure or to too long a silence."""
        unsent, waiting = list(messages), set[str]()
        wait = getattr(self.grid, "wait_for_replies", None)
        most = _UNDER_WAY if wait is None else len(unsent)
        replies: list[Message] = []
        last_sign = time.monotonic()
        while unsent or waiting:
            if unsent and len(waiting) < most:
                room = most - len(waiting)
                waiting.update(self.grid.push_messages(unsent[:room]))
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


def discover_clients(grid: MonitoredGrid, federation: LoadedFederation) -> ClientRoster:
    """Wait until all clients have registered, learn the partition of each, and let them get ready.

    If the engine does not know the partitions, each client is asked; otherwise only the clients that are needed first.

    Parameters
    ----------
    grid
        The grid that reaches the clients.
    federation
        The federation, which states the number of clients.

    Raises
    ------
    FederationError
        If clients are missing, cannot start, or hold other partitions than the configuration names.
    """
    expected, deadline = federation.public.nodes, time.monotonic() + _REGISTRATION_SECONDS
    while len(nodes := list(grid.get_node_ids())) < expected and time.monotonic() < deadline:
        if grid.is_interrupted():
            raise FederationError("the run was interrupted while its clients started")
        time.sleep(0.05)
    if len(nodes) != expected:
        raise FederationError(f"{len(nodes)} clients registered, the configuration names {expected}")
    known = grid.nodes_in_order()
    if known is None:
        answers = _ask(grid, federation, nodes)
        known = [answers[partition] for partition in sorted(answers)]
        if sorted(answers) != list(range(expected)):
            held = f"clients hold partitions {sorted(answers)}"
            raise FederationError(f"{held}, the configuration names 0 to {expected - 1}")
    else:
        _ask(grid, federation, [known[client] for client in _first_needed(federation)])
    colluders = {insider: federation.colluders(insider) for insider in federation.insiders}
    shards = tuple(federation.units_of(client) for client in range(len(federation.shards)))
    return ClientRoster(known, federation.holders, colluders, shards, federation.units)


def _first_needed(federation: LoadedFederation) -> list[int]:
    """Return clients whose processes should be ready before the first round: attackers, holders, and some others."""
    cohort = federation.public.cohort(1)
    apart = {*federation.insiders, *islice(federation.holders, _MOST_ASKED // 2)}
    others = range(federation.public.nodes) if cohort is None else cohort.tolist()
    return [*apart, *islice((one for one in others if one not in apart), _MOST_ASKED - len(apart))]


def _ask(grid: MonitoredGrid, federation: LoadedFederation, nodes: list[int]) -> dict[int, int]:
    """Ask nodes for their partitions, and return the nodes by partition."""
    config = RecordDict({MessageRecord.CONFIG: ConfigRecord({Key.FEDERATION: federation.public.to_json()})})
    questions = [Message(config, node, f"query.{NonTrainingQuery.IDENTIFY}") for node in nodes]
    found = {}
    for reply in MonitoredGrid(grid.grid, _START_SECONDS, grid.is_interrupted).send_and_receive(questions):
        if reply.has_error():
            raise FederationError(f"a client could not start: {reason_line(reply.error.reason)}")
        answer = reply.content.config_records.get(MessageRecord.CONFIG)
        if answer is None or Key.PARTITION not in answer:
            raise FederationError("a client did not say which partition it holds")
        found[int(str(answer[Key.PARTITION]))] = reply.metadata.src_node_id
    return found
