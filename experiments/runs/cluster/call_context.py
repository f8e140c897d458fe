"""What client calls bring along: the federation, the modules of the user, and the shard of the client that is called.

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
from fl_audit.federation.federation import Federation
from fl_audit.federation.loaded_federation import LoadedFederation, load_federation
from fl_audit.federation.serialization import sent_federation, sent_shard
from fl_audit.protocol import Key, Query, Record
from fl_audit.user_modules import Portable, sent_modules

_TARGETS, _INSIDERS = 1, 2
"""Compartments: of those who are told a secret bit, and of those who must not see it."""


def compartment_of(message: Message, context: Context) -> int:
    """Return whom a client may share a process with: insiders and holders of secret bits keep to themselves.

    Objects of a call that has ended can live on in its process, where a later call finds them.
    """
    if (text := _federation_of_message(message)) is None:
        return ORDINARY
    holders, insiders = _apart(text)
    client = _client(context)
    return (_TARGETS if client in holders else 0) + (_INSIDERS if client in insiders else 0)


Piece = tuple[Hashable, Callable[[], Callable[[], None]]]
"""What tells a piece of call context from others, and what packs it: what is packed is called in a process, once."""


def parts_of(message: Message, context: Context) -> list[Piece]:
    """Return what a process needs for a call, in the order in which it is to be unpacked.

    Parameters
    ----------
    message, context
        The call, and the context of the client that is called.
    """
    if (text := _federation_of_message(message)) is None:
        return []
    federation, compartment, client = _federation(text), compartment_of(message, context), _client(context)
    knows_all, knows_differing = bool(compartment & _INSIDERS), bool(compartment & _TARGETS)
    found: list[Piece] = [
        ((text, "modules"), lambda: sent_modules([federation.public.model])),
        ((text, "federation", compartment), lambda: sent_federation(federation, knows_all, knows_differing)),
    ]
    if message.metadata.message_type != f"query.{Query.IDENTIFY}" and not federation.public.is_canary(client):
        found.append(((text, "shard", client), lambda: sent_shard(federation, client)))
    return found


class CallContext:
    """Puts what calls need into the object store, when it is first needed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._references: dict[Hashable, Any] = {}

    def of(self, message: Message, context: Context) -> list[Any]:
        """Return references to what a process needs for a call, in the order in which it is to be unpacked."""
        return [self._reference(*piece) for piece in parts_of(message, context)]

    def _reference(self, key: Hashable, packed: Callable[[], Callable[[], None]]) -> Any:
        with self._lock:
            if key not in self._references:
                with room_is_told():
                    self._references[key] = ray.put(Portable(packed(), cloudpickle.dumps))
            return self._references[key]


def _federation_of_message(message: Message) -> str | None:
    """Return the public federation that a message brings, as JSON; None if it is of another app."""
    config = message.content.get(Record.CONFIG) if message.has_content() else None
    return str(config[Key.FEDERATION]) if isinstance(config, ConfigRecord) and Key.FEDERATION in config else None


def _client(context: Context) -> int:
    return int(context.node_config["partition-id"])


@lru_cache(maxsize=4)
def _federation(text: str) -> LoadedFederation:
    return load_federation(Federation.from_json(text))


@lru_cache(maxsize=4)
def _apart(text: str) -> tuple[frozenset[int], frozenset[int]]:
    """Return who holds targets of a federation, and who attacks in it."""
    federation = _federation(text)
    canaries = range(federation.public.clients, federation.public.nodes)
    attacks = federation.public.with_insider or federation.public.ascent > 0
    return frozenset((*federation.holders, *canaries)), frozenset(federation.insiders if attacks else ())
