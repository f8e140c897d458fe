"""Tests of large federations: few messages are under way at a time on a polled grid, and all on one that wakes."""

from collections.abc import Iterable

import pytest
from flwr.app import Message, RecordDict
from flwr.clientapp import ClientApp

from fl_audit.runs.local_engine import LocalFlowerGrid
from fl_audit.server import reply_timeout_grid
from fl_audit.server.reply_timeout_grid import ReplyTimeoutGrid


class _CountingGrid(LocalFlowerGrid):
    """Grid that notes the number of messages that are sent at a time."""

    pushed: tuple[int, ...] = ()

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        listed = list(messages)
        self.pushed = (*self.pushed, len(listed))
        return super().push_messages(listed)


class _WakingGrid(_CountingGrid):
    """Grid that wakes the server when replies arrive."""

    def wait_for_replies(self, seconds: float) -> None:
        """Return at once, because all replies are there."""


def _app() -> ClientApp:
    app = ClientApp()

    @app.query("ask")
    def answer(message: Message, context: object) -> Message:
        return Message(RecordDict(), reply_to=message)

    return app


@pytest.mark.parametrize(("kind", "pushed"), [(_CountingGrid, (4, 4, 2)), (_WakingGrid, (10,))])
def test_only_so_many_messages_are_under_way_on_a_grid_that_is_asked(
    kind: type[_CountingGrid], pushed: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All messages are answered nevertheless."""
    monkeypatch.setattr(reply_timeout_grid, "_UNDER_WAY", 4)
    grid = kind(_app(), 10, time_limit=60.0)
    messages = [Message(RecordDict(), node, "query.ask") for node in grid.get_node_ids()]
    replies = ReplyTimeoutGrid(grid, 60.0).send_and_receive(messages)
    assert sorted(reply.metadata.src_node_id for reply in replies) == sorted(grid.get_node_ids())
    assert grid.pushed == pushed
