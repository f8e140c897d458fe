"""Large federations: messages are handed over as they are written, and only so many are under way at once."""

import threading
from collections.abc import Iterable
from queue import Queue

import pytest
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp

from fl_audit.experiments.runs.cluster.backend import PoolInPlace
from fl_audit.experiments.runs.local_engine import LocalGrid
from fl_audit.server import monitored_grid
from fl_audit.server.monitored_grid import MonitoredGrid


class _Store:
    """A store that notes for which nodes it was really asked."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.asked: list[int] = []

    def store_message_ins(self, message: Message) -> str | None:
        """Keep a message, but those without content."""
        if not message.content.config_records:
            return None
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


def test_messages_are_handed_over_as_they_are_written() -> None:
    """Every message once, in order, at once; a node without one costs nothing, and one that is refused is not there."""
    nodes = list(_grid(4).get_node_ids())
    store, pool, ended, queue = _Store(), PoolInPlace(0), threading.Event(), Queue[Message]()
    pool.watch(store)
    handing_over = threading.Thread(target=pool.hand_over, args=(store, queue, {}, ended))
    handing_over.start()
    content = RecordDict({"config": ConfigRecord({"asked": 1})})
    sent = [Message(content, node, "query.ask") for node in (nodes[1], nodes[3], nodes[1])]
    assert store.store_message_ins(Message(RecordDict(), nodes[2], "query.ask")) is None
    assert [store.store_message_ins(message) for message in sent] == ["kept"] * 3
    assert [id(queue.get(timeout=10)) for _ in sent] == list(map(id, sent))
    ended.set()
    handing_over.join(10)
    assert not handing_over.is_alive()
    assert queue.empty()
    assert store.asked == [nodes[1], nodes[3], nodes[1]]


def test_only_so_many_messages_are_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """All are answered all the same."""
    monkeypatch.setattr(monitored_grid, "_UNDER_WAY", 4)
    grid = _grid(10)
    messages = [Message(RecordDict(), node, "query.ask") for node in grid.get_node_ids()]
    replies = MonitoredGrid(grid, 60.0).send_and_receive(messages)
    assert sorted(reply.metadata.src_node_id for reply in replies) == sorted(grid.get_node_ids())
    assert grid.pushed == (4, 4, 2)
