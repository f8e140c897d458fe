"""The context of client calls: the federation, the user's modules, and the shards of the called clients.

Federation and modules are put into Ray's object store once, and fetched by the processes that need them. A shard is
sent with the first call of its client in a process. Only the driver's machine needs the data files and the modules.
"""

import pickle
import threading
from collections.abc import Callable, Hashable, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import ray
from flwr.app import ConfigRecord, Context, Message
from ray import cloudpickle

from fl_audit.audits.registry import audit_of
from fl_audit.experiments.runs.cluster.pool import ORDINARY, room_is_told
from fl_audit.federation.federation import Federation
from fl_audit.federation.loaded_federation import LoadedFederation, load_federation
from fl_audit.federation.serialization import sent_federation, sent_shard
from fl_audit.protocol import Key, MessageRecord, NonTrainingQuery
from fl_audit.user_modules import PortableValue, sent_modules

_TARGETS, _INSIDERS = 1, 2
"""Compartments of clients that know a secret bit, and of clients that must not see it."""


def compartment_of(message: Message, context: Context) -> int:
    """Return the compartment of a client; only clients of the same compartment may share a process.

    Clients that know secret bits are separated from insiders, because objects of a finished call may survive in its
    process, where a later call could find them.
    """
    if (text := _federation_of_message(message)) is None:
        return ORDINARY
    holders, insiders = _apart(text)
    client = _client(context)
    return (_TARGETS if client in holders else 0) + (_INSIDERS if client in insiders else 0)


_SHARD = "shard"
Piece = tuple[Hashable, Callable[[], Callable[[], None]]]
"""The identity of a piece of call context, and the function that packs it to be called in a process, once."""


def parts_of(message: Message, context: Context) -> list[Piece]:
    """Return the pieces of context that a process needs for a call, in the order of unpacking.

    Parameters
    ----------
    message
        Message of the call.
    context
        Context of the client that is called.
    """
    if (text := _federation_of_message(message)) is None:
        return []
    federation, compartment, client = _federation(text), compartment_of(message, context), _client(context)
    knows_all, knows_differing = bool(compartment & _INSIDERS), bool(compartment & _TARGETS)
    found: list[Piece] = [
        ((text, "modules"), lambda: sent_modules([federation.public.model])),
        ((text, "federation", compartment), lambda: sent_federation(federation, knows_all, knows_differing)),
    ]
    if message.metadata.message_type != f"query.{NonTrainingQuery.IDENTIFY}" and not federation.public.is_canary(
        client
    ):
        found.append(((text, _SHARD, client), lambda: sent_shard(federation, client)))
    return found


def weight_of(message: Message, context: Context) -> int:
    """Return a measure of the work of a call: the number of records of the called client, at least 1.

    Parameters
    ----------
    message
        Message of the call.
    context
        Context of the client that is called.
    """
    if (text := _federation_of_message(message)) is None:
        return 1
    federation, client = _federation(text), _client(context)
    return 1 if federation.public.is_canary(client) else max(1, len(federation.shards[client]))


@dataclass(frozen=True)
class PackedContext:
    """The parts of the context of some calls that their process has not received yet."""

    references: list[Any]  # references to functions that load shared context, in the order of their calls
    # A pickle of functions that bring what these clients alone need, and the arrays of these functions; or nothing.
    own: tuple[bytes, list[Any]] | None
    keys: frozenset[Hashable]  # identity of the context among other call context


class CallContext:
    """Packs the context of calls: shared parts for the object store (once), and shards to send with the calls."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._references: dict[Hashable, Any] = {}

    def of(self, calls: Sequence[tuple[Message, Context]], has: Set[Hashable]) -> PackedContext:
        """Return the context that a process needs for calls and does not have yet.

        Parameters
        ----------
        calls
            Message and context of each call.
        has
            Keys of the pieces that the process has received with earlier calls.
        """
        needed = {key: packed for call in calls for key, packed in parts_of(*call) if key not in has}
        own = [packed() for key, packed in needed.items() if _is_own(key)]
        references = [self._reference(key, packed) for key, packed in needed.items() if not _is_own(key)]
        # Their process was given a federation before, so it has what these are made of.
        buffers = list[pickle.PickleBuffer]()
        pickled = pickle.dumps(own, protocol=5, buffer_callback=buffers.append)
        arrays = [np.frombuffer(one.raw(), np.uint8) for one in buffers]
        return PackedContext(references, (pickled, arrays) if own else None, frozenset(needed))

    def _reference(self, key: Hashable, packed: Callable[[], Callable[[], None]]) -> Any:
        with self._lock:
            if key not in self._references:
                with room_is_told():
                    self._references[key] = ray.put(PortableValue(packed(), cloudpickle.dumps))
            return self._references[key]


def _is_own(key: Hashable) -> bool:
    return isinstance(key, tuple) and key[1] == _SHARD


def _federation_of_message(message: Message) -> str | None:
    """Return the JSON text of the public federation in a message; None if the message belongs to another app."""
    config = message.content.get(MessageRecord.CONFIG) if message.has_content() else None
    return str(config[Key.FEDERATION]) if isinstance(config, ConfigRecord) and Key.FEDERATION in config else None


def _client(context: Context) -> int:
    return int(context.node_config["partition-id"])


@lru_cache(maxsize=4)
def _federation(text: str) -> LoadedFederation:
    return load_federation(Federation.from_json(text))


@lru_cache(maxsize=4)
def _apart(text: str) -> tuple[frozenset[int], frozenset[int]]:
    """Return the clients of a federation that know secret bits (holders of targets, canaries), and the insiders."""
    federation = _federation(text)
    canaries = range(federation.public.clients, federation.public.nodes)
    attacks = audit_of(federation.public).knows_records(federation.public)
    return frozenset((*federation.holders, *canaries)), frozenset(federation.insiders if attacks else ())
