"""Flower's simulation runtime on the client pool; whatever of the runtime's insides is touched, is touched here."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache, partial
from typing import Any

from flwr.app import ConfigRecord, Context, Message
from flwr.clientapp import ClientApp
from flwr.server.superlink.fleet.vce import vce_api
from flwr.server.superlink.fleet.vce.backend import raybackend
from flwr.server.superlink.fleet.vce.backend.backend import BackendConfig

from experiments.runs.cluster.pool import ORDINARY, ClientPool
from fl_audit.game.game import load_game
from fl_audit.game.public import PublicGame
from fl_audit.protocol import Key, Record
from fl_audit.user_modules import Portable

_CALLS_PER_SLOT = 2
_FEWEST_CALLS, _MOST_CALLS = 16, 1024
"""Calls that Flower's runtime hands over at the same time, a thread each: it would take no more than 32, and fewer on
a head with few cores, however large the cluster is."""

_REPLACED: tuple[tuple[Any, str], ...] = ((raybackend, "RayBackend"), (vce_api, "ThreadPoolExecutor"))

_TARGETS, _INSIDERS = 1, 2
"""Compartments: of those who are told a secret bit, and of those who must not see it."""


class PoolBackend(raybackend.RayBackend):
    """Flower's Ray backend with another pool of processes.

    Parameters
    ----------
    backend_config
        As Flower's.
    retries
        As of `ClientPool`.
    """

    def __init__(self, backend_config: BackendConfig, retries: int = 2) -> None:
        super().__init__(backend_config)
        self._retries = retries
        self.clients: ClientPool | None = None

    @property
    def num_workers(self) -> int:
        """How many calls Flower hands over at the same time."""
        assert self.clients is not None
        return min(_MOST_CALLS, max(_FEWEST_CALLS, _CALLS_PER_SLOT * self.clients.capacity))

    def is_worker_idle(self) -> bool:
        """Flower never asks."""
        return True

    def build(self, app_fn: Callable[[], ClientApp]) -> None:
        """Start no process yet: they start when they are needed."""
        from ray import cloudpickle

        # Workers would look for our modules in the user's directory first; see `Portable`.
        self.clients = ClientPool(Portable(app_fn(), cloudpickle.dumps), self.client_resources, self._retries)

    def process_message(self, message: Message, context: Context) -> tuple[Message, Context]:
        """Run a client call."""
        assert self.clients is not None
        return self.clients.call(compartment_of(message, context), message, context)

    def terminate(self) -> None:
        """End all processes."""
        if self.clients is not None:
            self.clients.close()
        super().terminate()


def compartment_of(message: Message, context: Context) -> int:
    """Return whom a client may share a process with: insiders and holders of secret bits keep to themselves.

    Objects of a call that has ended can live on in its process, where a later call finds them.

    Parameters
    ----------
    message, context
        What the client is sent, and where Flower says which one it is.
    """
    config = message.content.get(Record.CONFIG) if message.has_content() else None
    if not isinstance(config, ConfigRecord) or Key.GAME not in config:
        return ORDINARY
    holders, insiders = _apart(str(config[Key.GAME]))
    client = int(context.node_config["partition-id"])
    return (_TARGETS if client in holders else 0) + (_INSIDERS if client in insiders else 0)


@lru_cache(maxsize=4)
def _apart(game_json: str) -> tuple[frozenset[int], frozenset[int]]:
    """Return who holds targets of a game, and who attacks in it."""
    game = load_game(PublicGame.from_json(game_json))
    nodes = range(game.public.nodes)
    holders = (client for client in nodes if game.public.is_canary(client) or game.targets_of(client))
    return frozenset(holders), frozenset(game.insiders if game.public.with_insider else ())


@contextmanager
def pool_in_place(retries: int) -> Iterator[Callable[[], None]]:
    """Have Flower's runtime use the client pool inside the block, which gets what ends all calls at once."""
    built: list[PoolBackend] = []
    replaced = tuple(getattr(module, name) for module, name in _REPLACED)

    def build(config: BackendConfig) -> PoolBackend:
        built.append(PoolBackend(config, retries))
        return built[-1]

    def end_calls() -> None:
        for backend in built:
            if backend.clients is not None:
                backend.clients.close()

    _put(build, partial(ThreadPoolExecutor, _MOST_CALLS))
    try:
        yield end_calls
    finally:
        _put(*replaced)


def put_pool_in_place() -> None:
    """Have Flower's runtime use the client pool from now on in this process."""
    _put(PoolBackend, partial(ThreadPoolExecutor, _MOST_CALLS))


def _put(*values: Any) -> None:
    for (module, name), value in zip(_REPLACED, values, strict=True):
        setattr(module, name, value)
