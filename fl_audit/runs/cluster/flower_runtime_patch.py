"""Adaptation of Flower's simulation runtime, which makes it use our pool of client processes.

Flower's runtime starts Ray, registers the nodes and runs the ServerApp. The messages to clients bypass the runtime for
two reasons: to find one message, the runtime would search all messages, and it would make a separate Ray call for each.
Only this module changes internals of the runtime.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.server.superlink.fleet.vce import vce_api
from flwr.server.superlink.fleet.vce.backend import raybackend
from flwr.server.superlink.fleet.vce.backend.backend import BackendConfig
from flwr.simulation import run_simulation as run_simulation
from flwr.superlink.grid import InMemoryGrid as InMemoryGrid
from ray import cloudpickle

from fl_audit.clients.app import announce_calls
from fl_audit.runs.cluster.pool import ClientPool
from fl_audit.runs.cluster.pool_flower_grid import ClientPoolFlowerGrid
from fl_audit.strategies.errors import FederationError
from fl_audit.user_modules import PortableValue

_REPLACED: tuple[tuple[Any, str], ...] = (
    (raybackend, "RayBackend"),
    (vce_api, "_register_nodes"),
    (vce_api, "add_messages_to_queue"),
)
_REGISTER = vce_api._register_nodes
_SECONDS_TO_BUILD = 300.0
"""Time limit for the start of a Ray, after which a run gives up."""


class PoolBackend(raybackend.RayBackend):
    """Flower's Ray backend with our pool of client processes, to which the server's grid sends messages directly.

    Parameters
    ----------
    backend_config
        Flower's configuration of the backend.
    built
        Function that is called once with the pool, or with the exception that prevented its start.
    """

    def __init__(self, backend_config: BackendConfig, built: Callable[[ClientPool | Exception], None]) -> None:
        self._built = built
        try:
            super().__init__(backend_config)
        except Exception as error:
            built(error)
            raise
        self.clients: ClientPool | None = None

    @property
    def num_workers(self) -> int:
        """Return 1, the number of Flower's worker threads, which never get a message."""
        return 1

    def is_worker_idle(self) -> bool:
        """Return True; Flower's interface requires this method, but it is never called."""
        return True

    def build(self, app_fn: Callable[[], ClientApp]) -> None:
        """Build the pool of client processes for the ClientApp that `app_fn` returns; processes start when needed."""
        try:
            # Workers would look for our modules in the user's directory first; see `PortableValue`.
            app, ahead = (PortableValue(one, cloudpickle.dumps) for one in (app_fn(), announce_calls))
            self.clients = ClientPool(app, self.client_resources, ahead)
        except Exception as error:
            self._built(error)
            raise
        self._built(self.clients)

    def process_message(self, message: Message, context: Context) -> tuple[Message, Context]:
        """Raise `AssertionError`, because messages go to the pool directly and must never reach this method."""
        raise AssertionError("messages go to the pool directly")

    def terminate(self) -> None:
        if self.clients is not None:
            self.clients.close()
        super().terminate()


class PatchedRuntime:
    """Functions that take the place of parts of Flower's runtime, so that messages go to our pool of client processes.

    Parameters
    ----------
    retries
        How often a client call is repeated if its process has died while the machine still runs.
    """

    def __init__(self, retries: int = 2) -> None:
        self._retries = retries
        self._nodes: list[int] | None = None
        self._are_known = threading.Event()
        self._grids = list[ClientPoolFlowerGrid]()
        self._is_built = threading.Event()
        self._found: ClientPool | Exception | None = None

    def build(self, config: BackendConfig) -> PoolBackend:
        """Return a Ray backend with the pool of client processes; replaces Flower's function for backends."""
        return PoolBackend(config, self._note)

    def _note(self, found: ClientPool | Exception) -> None:
        self._found = found
        self._is_built.set()

    def register(self, num_nodes: int, state_factory: Any) -> dict[int, int]:
        """Register nodes with Flower, remember them, and return the partition number of each node id.

        Parameters
        ----------
        num_nodes
            Number of nodes.
        state_factory
            Factory of the store in which Flower keeps nodes and messages.
        """
        found = _REGISTER(num_nodes, state_factory)
        self._note_nodes(found)
        return found

    def _note_nodes(self, partitions: Mapping[int, int]) -> None:
        self._nodes = sorted(partitions, key=partitions.__getitem__)
        self._are_known.set()

    def partitions(self) -> dict[int, int]:
        """Wait until all nodes are registered, and return a dict from node id to partition number.

        The dict is empty if the nodes are not registered within 300 seconds.
        """
        self._are_known.wait(_SECONDS_TO_BUILD)
        return {node: partition for partition, node in enumerate(self._nodes or ())}

    def hand_over(self, state: Any, queue: Any, nodes_mapping: Mapping[int, int], f_stop: threading.Event) -> None:
        """Store the nodes of a run, and wait for the end of the run.

        This method replaces the loop of Flower's runtime that passes on messages. If the run was started by Flower's
        own command, the nodes are not known before this call.

        Parameters
        ----------
        state
            Not used.
        queue
            Not used.
        nodes_mapping
            The partition number of each node id.
        f_stop
            Event that is set when the run ends.
        """
        self._note_nodes(nodes_mapping)
        f_stop.wait()

    def nodes_in_order(self) -> list[int] | None:
        """Return the node ids in the order of their partition numbers, or None while the nodes are not registered."""
        return self._nodes

    @property
    def failure(self) -> FederationError | None:
        """The error that prevented the start of the pool; None if there was none so far."""
        return FederationError(str(self._found)) if isinstance(self._found, Exception) else None

    def clients(self) -> ClientPool:
        """Return the pool of client processes, after waiting until it is built.

        Raises
        ------
        FederationError
            If the pool could not be built, or not within 300 seconds.
        """
        self._is_built.wait(_SECONDS_TO_BUILD)
        if isinstance(self._found, ClientPool):
            return self._found
        said = str(self._found) if self._found is not None else f"Ray did not start within {_SECONDS_TO_BUILD:.0f} s"
        raise FederationError(said)

    def grid(self, grid: InMemoryGrid, context: Context) -> ClientPoolFlowerGrid:
        """Return a grid through which a server sends messages to the pool of client processes.

        Parameters
        ----------
        grid
            The grid that Flower's runtime passes to the ServerApp.
        context
            The context that Flower's runtime passes to the ServerApp.
        """
        # Kept here: what it refers to in Ray must not be let go, in another thread, while Ray is being shut down.
        self._grids.append(ClientPoolFlowerGrid(grid, self, self._retries, context))
        return self._grids[-1]

    def end_calls(self) -> None:
        """Close the pool, which ends all client calls immediately."""
        if isinstance(self._found, ClientPool):
            self._found.close()


_IN_PLACE = list[PatchedRuntime]()
"""The current pool, as the last element."""


def grid_on_pool(grid: InMemoryGrid, context: Context) -> InMemoryGrid | ClientPoolFlowerGrid:
    """Return a grid that sends messages to the pool of client processes, or Flower's own grid if there is no pool.

    Parameters
    ----------
    grid
        The grid that Flower's runtime passes to the ServerApp.
    context
        Flower context of the ServerApp.
    """
    return _IN_PLACE[-1].grid(grid, context) if _IN_PLACE else grid


@contextmanager
def pool_in_place(retries: int) -> Iterator[PatchedRuntime]:
    """Make Flower's runtime use our pool of client processes while the block runs, and yield the patched runtime.

    Parameters
    ----------
    retries
        Number of times that a client call is repeated if its process dies, but not its machine.
    """
    replaced = tuple(getattr(module, name) for module, name in _REPLACED)
    try:
        yield put_pool_in_place(retries)
    finally:
        _put(*replaced)
        _IN_PLACE.pop()


def put_pool_in_place(retries: int = 2) -> PatchedRuntime:
    """Make Flower's runtime use our pool of client processes from now on, and return the patched runtime.

    Parameters
    ----------
    retries
        Number of repetitions of a client call whose process, but not its machine, has died.
    """
    pool = PatchedRuntime(retries)
    _IN_PLACE.append(pool)
    _put(pool.build, pool.register, pool.hand_over)
    return pool


def _put(*values: Any) -> None:
    for (module, name), value in zip(_REPLACED, values, strict=True):
        setattr(module, name, value)
