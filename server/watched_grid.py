"""A grid that notices: it stops waiting at the first failure, and when nobody answers any more."""

import time
from collections.abc import Callable, Iterable, Sequence

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid
from flwr.supercore.run import Run

_POLL_SECONDS = 0.02
_UNDER_WAY = 256
"""Most messages that wait for their replies at once: Flower's runtime looks through all of them again and again. It
answers no more than 32 at a time."""
_GRACE_SECONDS = 5.0
"""How much longer than a client's own time limit the server waits: the client ends itself first where it can."""


class WatchedGrid(Grid):
    """Flower's grid, with a limit on silence instead of one on the whole exchange.

    As long as a call is under way, a reply comes within the time limit of one call, however many calls wait in line.

    Parameters
    ----------
    grid
        The grid of the engine.
    time_limit
        Seconds that one client call may take.
    interrupted
        Tells whether to stop waiting because the whole run is being ended.
    """

    def __init__(self, grid: Grid, time_limit: float, interrupted: Callable[[], bool] = lambda: False) -> None:
        self._grid = grid
        self._patience = time_limit + _GRACE_SECONDS
        self._interrupted = interrupted

    def patient(self, time_limit: float) -> "WatchedGrid":
        """Return the same grid with another time limit of one call."""
        return WatchedGrid(self._grid, time_limit, self._interrupted)

    @property
    def is_interrupted(self) -> bool:
        """Whether the whole run is being ended."""
        return self._interrupted()

    def nodes_in_order(self) -> Sequence[int] | None:
        """Return the node of each partition where the engine knows all of them; None where they have to be asked."""
        known = getattr(self._grid, "nodes_in_order", None)
        return None if known is None else known()

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        """Send messages and return the replies: all, or those up to the first failure or to a silence too long."""
        unsent, waiting = list(messages), set[str]()
        replies: list[Message] = []
        last_sign = time.monotonic()
        while unsent or waiting:
            if unsent and len(waiting) < _UNDER_WAY:
                room = _UNDER_WAY - len(waiting)
                waiting.update(self._grid.push_messages(unsent[:room]))
                del unsent[:room]
            arrived = list(self._grid.pull_messages(waiting))
            if arrived:
                last_sign = time.monotonic()
                replies += arrived
                waiting -= {reply.metadata.reply_to_message_id for reply in arrived}
                if any(reply.has_error() for reply in arrived):
                    break
            elif self._interrupted() or time.monotonic() - last_sign > self._patience:
                break
            elif waiting:
                time.sleep(_POLL_SECONDS)
        return replies

    def set_run(self, run: Run) -> None:
        """Pass on."""
        self._grid.set_run(run)

    @property
    def run(self) -> Run:
        """Pass on."""
        return self._grid.run

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        """Pass on."""
        return self._grid.create_message(content, message_type, dst_node_id, group_id, ttl)

    def get_node_ids(self) -> Iterable[int]:
        """Pass on."""
        return self._grid.get_node_ids()

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Pass on."""
        return self._grid.push_messages(messages)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Pass on."""
        return self._grid.pull_messages(message_ids)
