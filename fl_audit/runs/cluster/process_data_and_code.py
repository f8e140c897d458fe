"""Call context: the data and code that a process needs to answer client calls, beside the messages.

The context consists of the federation, the user's modules, and the records of the called clients (their shards). The
federation and the modules are put into Ray's object store once, and each process fetches them from there. A shard is
sent with the first call of its client in a process. Only the driver's machine needs the data files and the modules.
"""

import pickle
import threading
from collections.abc import Callable, Hashable, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
import ray
from flwr.app import ConfigRecord, Context, Message
from ray import cloudpickle

from fl_audit.audits.registry import audit_of
from fl_audit.federation.federation import Federation
from fl_audit.federation.loaded_federation import LoadedFederation, load_federation
from fl_audit.federation.serialization import sent_federation, sent_shard
from fl_audit.message_keys import Key, MessageRecordName, NonTrainingQuery
from fl_audit.runs.cluster.call_errors import call_error_if_full
from fl_audit.runs.cluster.pool import ORDINARY
from fl_audit.sent_modules import make_importable, sent_modules
from fl_audit.user_modules import PortableValue

_TARGETS = 1
_INSIDERS = 2
"""Compartments of clients that know a secret bit, and of clients that must not see it."""


def compartment_of(message: Message, context: Context) -> int:
    """Return the compartment of a client, 0 to 3; only clients of the same compartment may share a process.

    The separation keeps secrets from insiders (clients that attack): objects of a finished call may survive in a
    process, where a later call could find them.
    """
    if (text := _federation_of_message(message)) is None:
        return ORDINARY
    holders, insiders = _apart(text)
    client = _client(context)
    return (_TARGETS if client in holders else 0) + (_INSIDERS if client in insiders else 0)


_SHARD = "shard"
Piece = tuple[Hashable, Callable[[], Callable[[], None]]]
"""A piece of call context: its key, and a function that packs it as a function for the process to call once."""


def parts_of(message: Message, context: Context) -> list[Piece]:
    """Return the pieces of data and code that a process needs for a client call, in the order of unpacking.

    A piece is a pair of a key and a function that packs the data or code. The list is empty for messages that do not
    belong to a federation.
    """
    if (text := _federation_of_message(message)) is None:
        return []
    federation = _federation(text)
    compartment = compartment_of(message, context)
    client = _client(context)
    knows_all = bool(compartment & _INSIDERS)
    knows_differing = bool(compartment & _TARGETS)
    pieces: list[Piece] = [
        ((text, "modules"), lambda: partial(make_importable, sent_modules([federation.public.model]))),
        ((text, "federation", compartment), lambda: sent_federation(federation, knows_all, knows_differing)),
    ]
    if message.metadata.message_type != f"query.{NonTrainingQuery.IDENTIFY}" and not federation.public.is_canary(
        client
    ):
        pieces.append(((text, _SHARD, client), lambda: sent_shard(federation, client)))
    return pieces


def weight_of(message: Message, context: Context) -> int:
    """Return an estimate of the work of a client call: the number of records of the client, at least 1."""
    if (text := _federation_of_message(message)) is None:
        return 1
    federation = _federation(text)
    client = _client(context)
    return 1 if federation.public.is_canary(client) else max(1, len(federation.shards[client]))


@dataclass(frozen=True)
class UnsentCallContext:
    """Data and code that a process needs for some client calls and has not received yet."""

    references: list[Any]  # Ray's references to functions that load shared pieces, in the order in which to call them
    # A pickle of functions that load the pieces of these clients alone, and the functions' arrays; or None.
    own: tuple[bytes, list[Any]] | None
    keys: frozenset[Hashable]  # keys of all these pieces


class CallContextPacker:
    """Packs the data and code that processes need for client calls in addition to the messages.

    Data and code that many clients need are put into Ray's object store once. A client's records are sent with its
    call.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._references: dict[Hashable, Any] = {}

    def of(self, calls: Sequence[tuple[Message, Context]], has: Set[Hashable]) -> UnsentCallContext:
        """Return the packed data and code that a process needs for client calls and has not received yet."""
        needed = {key: packed for call in calls for key, packed in parts_of(*call) if key not in has}
        own_packers = [packed() for key, packed in needed.items() if _is_own(key)]
        references = [self._reference(key, packed) for key, packed in needed.items() if not _is_own(key)]
        # The process loads the shared pieces first. They bring all classes and modules that the shards need, so plain
        # pickle suffices for the shards.
        buffers = list[pickle.PickleBuffer]()
        pickled = pickle.dumps(own_packers, protocol=5, buffer_callback=buffers.append)
        arrays = [np.frombuffer(buffer.raw(), np.uint8) for buffer in buffers]
        return UnsentCallContext(references, (pickled, arrays) if own_packers else None, frozenset(needed))

    def _reference(self, key: Hashable, packed: Callable[[], Callable[[], None]]) -> Any:
        with self._lock:
            if key not in self._references:
                with call_error_if_full():
                    self._references[key] = ray.put(PortableValue(packed(), cloudpickle.dumps))
            return self._references[key]


def _is_own(key: Hashable) -> bool:
    return isinstance(key, tuple) and key[1] == _SHARD


def _federation_of_message(message: Message) -> str | None:
    """Return the JSON text of the federation in a message; None for a message of another app."""
    config = message.content.get(MessageRecordName.CONFIG) if message.has_content() else None
    return str(config[Key.FEDERATION]) if isinstance(config, ConfigRecord) and Key.FEDERATION in config else None


def _client(context: Context) -> int:
    return int(context.node_config["partition-id"])


@lru_cache(maxsize=4)
def _federation(text: str) -> LoadedFederation:
    return load_federation(Federation.from_json(text))


@lru_cache(maxsize=4)
def _apart(text: str) -> tuple[frozenset[int], frozenset[int]]:
    """Return two sets of client numbers: clients that know secret bits, and clients that attack.

    The secret bits are known to holders of targets and to clients with canaries. `text` is the federation as JSON.
    """
    federation = _federation(text)
    canaries = range(federation.public.clients, federation.public.nodes)
    attacks = audit_of(federation.public).knows_records(federation.public)
    return frozenset((*federation.holders, *canaries)), frozenset([federation.insider] if attacks else ())
