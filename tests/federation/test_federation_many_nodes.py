"""Large federations: messages are looked for only where they wait, and only so many are under way at once."""

from collections.abc import Iterable

import pytest
from flwr.app import Message, RecordDict
from flwr.clientapp import ClientApp

from experiments.runs.engines import look_only_where_messages_wait
from experiments.runs.local_engine import LocalGrid
from server import watched_grid
from server.watched_grid import WatchedGrid


class _Store:
    """A store that notes for which nodes it was really asked."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.asked: list[int] = []

    def store_message_ins(self, message: Message) -> str | None:
        """Keep a message."""
        self.messages.append(message)
        return "kept"

    def get_message_ins(self, node_id: int, limit: int | None, *, run_id: int | None = None) -> list[Message]:
        """Hand over the first messages to a node."""
        self.asked.append(node_id)
        found = [message for message in self.messages if message.metadata.dst_node_id == node_id][:limit]
        self.messages = [message for message in self.messages if not any(message is one for one in found)]
        return found


class _CountingGrid(LocalGrid):
    """A grid that notes how many messages came at a time."""

    pushed: tuple[int, ...] = ()

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        """Note how many there are."""
        listed = list(messages)
        self.pushed = (*self.pushed, len(listed))
        return super().push_messages(listed)


def _grid(clients: int) -> _CountingGrid:
    app = ClientApp()

    @app.query("ask")
    def answer(message: Message, context: object) -> Message:
        return Message(RecordDict(), reply_to=message)

    return _CountingGrid(app, clients, time_limit=60.0)


def test_a_store_is_asked_only_about_nodes_that_were_written_to() -> None:
    """Every message is handed over once, in order, and nodes without one cost nothing."""
    nodes = list(_grid(4).get_node_ids())
    store = _Store()
    look_only_where_messages_wait(store)
    sent = [Message(RecordDict(), node, "query.ask") for node in (nodes[1], nodes[3], nodes[1])]
    for message in sent:
        assert store.store_message_ins(message) == "kept"
    turns = [[store.get_message_ins(node_id=node, limit=1) for node in nodes] for _ in range(3)]
    handed_over = [message for turn in turns for found in turn for message in found]
    assert list(map(id, handed_over)) == list(map(id, (sent[0], sent[1], sent[2])))
    assert store.asked == [nodes[1], nodes[3], nodes[1]]


def test_only_so_many_messages_are_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """All are answered all the same."""
    monkeypatch.setattr(watched_grid, "_UNDER_WAY", 4)
    grid = _grid(10)
    messages = [Message(RecordDict(), node, "query.ask") for node in grid.get_node_ids()]
    replies = WatchedGrid(grid, 60.0).send_and_receive(messages)
    assert sorted(reply.metadata.src_node_id for reply in replies) == sorted(grid.get_node_ids())
    assert grid.pushed == (4, 4, 2)
