"""Tests of large federations: few messages are under way at a time on a polled grid, and all on one that wakes."""

from collections.abc import Iterable

import pytest
from flwr.app import Message, RecordDict

from fl_audit.server import reply_timeout_grid
from fl_audit.server.reply_timeout_grid import ReplyTimeoutGrid
from fl_audit.strategies.simulated_grid import InProcessGrid


class _WakingGrid(InProcessGrid):
    """Grid that notes the number of messages that are sent at a time, and wakes the server when replies arrive."""

    pushed: tuple[int, ...] = ()

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        listed = list(messages)
        self.pushed = (*self.pushed, len(listed))
        return super().push_messages(listed)


class _PolledGrid(_WakingGrid):
    """Grid that has to be asked for replies, as Flower's own grids are."""

    wait_for_replies = None  # type: ignore[assignment]


@pytest.mark.parametrize(("kind", "pushed"), [(_PolledGrid, (4, 4, 2)), (_WakingGrid, (10,))])
def test_only_so_many_messages_are_under_way_on_a_grid_that_is_asked(
    kind: type[_WakingGrid], pushed: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All messages are answered nevertheless."""
    monkeypatch.setattr(reply_timeout_grid, "_UNDER_WAY", 4)
    grid = kind(10, lambda message: Message(RecordDict(), reply_to=message))
    messages = [Message(RecordDict(), node, "query.ask") for node in grid.get_node_ids()]
    replies = ReplyTimeoutGrid(grid, 60.0).send_and_receive(messages)
    assert sorted(reply.metadata.src_node_id for reply in replies) == sorted(grid.get_node_ids())
    assert grid.pushed == pushed
