"""What client calls bring along: the game, the modules of the user, and the shard of the client that is called.

It lies in Ray's object store, once, and is fetched by the processes that need it: no machine but the driver's needs the
data or the modules.
"""

import threading
from collections.abc import Callable, Hashable
from functools import lru_cache
from typing import Any

import ray
from flwr.app import ConfigRecord, Context, Message
from ray import cloudpickle

from fl_audit.experiments.runs.cluster.pool import ORDINARY, room_is_told
from fl_audit.federation.game import Game, load_game
from fl_audit.federation.public import PublicGame
from fl_audit.federation.travelling import sent_game, sent_shard
from fl_audit.protocol import Key, Query, Record
from fl_audit.user_modules import Portable, sent_modules

_TARGETS, _INSIDERS = 1, 2
"""Compartments: of those who are told a secret bit, and of those who must not see it."""


def compartment_of(message: Message, context: Context) -> int:
    """Return whom a client may share a process with: insiders and holders of secret bits keep to themselves.

    Objects of a call that has ended can live on in its process, where a later call finds them.
    """
    if (text := _game_of(message)) is None:
        return ORDINARY
    holders, insiders = _apart(text)
    client = _client(context)
    return (_TARGETS if client in holders else 0) + (_INSIDERS if client in insiders else 0)


Piece = tuple[Hashable, Callable[[], Callable[[], None]]]
"""What tells a piece of luggage from others, and what packs it: what is packed is called in a process, once."""


def pieces_of(message: Message, context: Context) -> list[Piece]:
    """Return what a process needs for a call, in the order in which it is to be unpacked.

    Parameters
    ----------
    message, context
        The call, and the context of the client that is called.
    """
    if (text := _game_of(message)) is None:
        return []
    game, compartment, client = _game(text), compartment_of(message, context), _client(context)
    knows_all, knows_differing = bool(compartment & _INSIDERS), bool(compartment & _TARGETS)
    found: list[Piece] = [
        ((text, "modules"), lambda: sent_modules([game.public.model])),
        ((text, "game", compartment), lambda: sent_game(game, knows_all, knows_differing)),
    ]
    if message.metadata.message_type != f"query.{Query.IDENTIFY}" and not game.public.is_canary(client):
        found.append(((text, "shard", client), lambda: sent_shard(game, client)))
    return found


class Luggage:
    """Puts what calls need into the object store, when it is first needed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._references: dict[Hashable, Any] = {}

    def of(self, message: Message, context: Context) -> list[Any]:
        """Return references to what a process needs for a call, in the order in which it is to be unpacked."""
        return [self._reference(*piece) for piece in pieces_of(message, context)]

    def _reference(self, key: Hashable, packed: Callable[[], Callable[[], None]]) -> Any:
        with self._lock:
            if key not in self._references:
                with room_is_told():
                    self._references[key] = ray.put(Portable(packed(), cloudpickle.dumps))
            return self._references[key]


def _game_of(message: Message) -> str | None:
    """Return the public game that a message brings, as JSON; None if it is of another app."""
    config = message.content.get(Record.CONFIG) if message.has_content() else None
    return str(config[Key.GAME]) if isinstance(config, ConfigRecord) and Key.GAME in config else None


def _client(context: Context) -> int:
    return int(context.node_config["partition-id"])


@lru_cache(maxsize=4)
def _game(text: str) -> Game:
    return load_game(PublicGame.from_json(text))


@lru_cache(maxsize=4)
def _apart(text: str) -> tuple[frozenset[int], frozenset[int]]:
    """Return who holds targets of a game, and who attacks in it."""
    game = _game(text)
    canaries = range(game.public.clients, game.public.nodes)
    attacks = game.public.with_insider or game.public.ascent > 0
    return frozenset((*game.holders, *canaries)), frozenset(game.insiders if attacks else ())
