"""Replay of somebody else's client app, with given contributions in the place of those that its training computes.

An app may round, clamp or project what its training returns. It is called again with a noised contribution, to see what
it makes of it.
"""

import copy
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from flwr.app import Context, Message, RecordDict, UserConfig
from flwr.clientapp import ClientApp

from fl_audit.message_keys import MessageRecordName


class _Replay(threading.local):
    """The reply that this thread gives in the place of training, and whether it was asked for."""

    content: RecordDict | None = None
    is_used: bool = False


_REPLAY = _Replay()


def given_reply(message: Message) -> Message | None:
    """Return the reply to a training message that a replay gives in the place of training; None outside a replay."""
    if _REPLAY.content is None:
        return None
    _REPLAY.is_used = True
    return Message(copy.deepcopy(_REPLAY.content), reply_to=message)


@contextmanager
def _giving(content: RecordDict) -> Iterator[_Replay]:
    _REPLAY.content, _REPLAY.is_used = content, False
    try:
        yield _REPLAY
    finally:
        _REPLAY.content = None


@dataclass(frozen=True)
class ClientReplay:
    """A client app that is called again in this process, as a client that has not been called before."""

    app: ClientApp
    train: Callable[[Message, Context], Message]  # training of an honest client
    clients: int  # number of clients

    def honest_reply(self, message: Message, client: int) -> RecordDict:
        """Return what an honest client replies to a training message, which holds its noised contribution."""
        return self.train(copy.deepcopy(message), self._context(client)).content

    def sent(self, message: Message, client: int, honest_reply: RecordDict) -> RecordDict | None:
        """Return what the app makes of an honest client's reply; None if it does not train by our training."""
        with _giving(honest_reply) as replay:
            reply = self.app(message=copy.deepcopy(message), context=self._context(client))
            return reply.content if replay.is_used and MessageRecordName.ARRAYS in reply.content else None

    def _context(self, client: int) -> Context:
        config = UserConfig({"partition-id": client, "num-partitions": self.clients})
        return Context(run_id=1, node_id=client, node_config=config, state=RecordDict(), run_config=UserConfig())
