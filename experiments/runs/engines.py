"""Two engines for one app: Flower's simulation runtime on Ray, which is here, and `local_engine`.

Everything of Flower that is deprecated or not public stands in these two modules and in `cluster.backend`.
"""

import io
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from importlib import import_module
from types import FrameType
from typing import TYPE_CHECKING, Any, Protocol

from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from experiments.names import Engine as Engine
from experiments.runs.cluster.access import RayOptions as RayOptions
from experiments.runs.cluster.access import ray_for
from experiments.talk import settle_flower

if TYPE_CHECKING:
    from experiments.runs.cluster.backend import PoolInPlace

_RUNTIME = "experiments.runs.cluster.backend"


def run_on_ray(
    server_app: ServerApp,
    client_app: ClientApp,
    clients: int,
    options: RayOptions,
    interrupted: threading.Event | None = None,
) -> None:
    """Run the app on Flower's simulation runtime; every client call is a call of a Ray actor.

    An interrupt (Ctrl-C) sets `interrupted`, so that the server, in a thread of its own, can stop waiting.

    Parameters
    ----------
    server_app
        The server's side of the app.
    client_app
        The clients' side of the app.
    clients
        Number of clients.
    options
        Which Ray, and how much of it a client takes.
    interrupted
        Set from outside to end the run; None if nobody will.

    Raises
    ------
    FederationError
        What the server raised. No process of an embedded Ray outlives this call.
    InputError
        If Ray cannot be started, or joined.
    """
    settle_flower()
    # Flower's runtime takes a second or two to import, and so does Ray to start: at the same time.
    importing = threading.Thread(target=import_module, args=(_RUNTIME,), daemon=True)
    importing.start()
    # Ray prints its own long account of a client process that died; the run says it in one line.
    with redirect_stdout(io.StringIO()), ray_for(options):
        importing.join()
        _run_simulation(server_app, client_app, clients, options, interrupted)


def _run_simulation(
    server_app: ServerApp, client_app: ClientApp, clients: int, options: RayOptions, interrupted: threading.Event | None
) -> None:
    from flwr.simulation import run_simulation

    from experiments.runs.cluster.backend import pool_in_place

    with pool_in_place(options.retries) as pool:
        ending = [pool.end_calls] if interrupted is None else [interrupted.set, pool.end_calls]
        with _interrupt_calls(ending):
            app = _noticing(server_app, pool)
            run_simulation(app, client_app, clients, backend_config=options.backend_config())


def _noticing(server_app: ServerApp, pool: "PoolInPlace") -> ServerApp:
    """Wrap an app so that its failure ends all calls: Flower's runtime would wait for a client that hangs.

    The app's grid can tell which node holds which partition.
    """
    wrapped = ServerApp()

    @wrapped.main()
    def main(grid: Grid, context: Context) -> None:
        from flwr.superlink.grid import InMemoryGrid

        ended_well = False
        if isinstance(grid, InMemoryGrid):
            look_only_where_messages_wait(grid.state)
            replaced: Any = grid
            replaced.nodes_in_order = pool.nodes_in_order
        try:
            server_app(grid=grid, context=context)
            ended_well = True
        finally:
            if not ended_well:
                pool.end_calls()

    return wrapped


class MessageStore(Protocol):
    """Where Flower's runtime keeps messages until a node takes them."""

    def store_message_ins(self, message: Message) -> str | None:
        """Keep a message, and return its identity if it is accepted."""

    def get_message_ins(self, node_id: int, limit: int | None, *, run_id: int | None = None) -> list[Message]:
        """Hand over the messages to a node that it has not had yet.

        Parameters
        ----------
        node_id
            The node.
        limit
            How many messages at most; None for all.
        run_id
            The run; None for all.
        """


def look_only_where_messages_wait(store: MessageStore) -> None:
    """Let a store answer at once for nodes to which nobody has written.

    Flower's runtime asks for the messages to each node, ten times a second, and for each its store checks all messages
    there are. With a thousand nodes that takes longer than the clients' work, and with ten thousand, forever.
    """
    keep, hand_over = store.store_message_ins, store.get_message_ins
    written: Counter[int] = Counter()
    lock = threading.Lock()

    def kept(message: Message) -> str | None:
        # Counted before it is there: a node with a message is never passed over for longer than one turn.
        with lock:
            written[message.metadata.dst_node_id] += 1
        return keep(message)

    def handed_over(node_id: int, limit: int | None, *, run_id: int | None = None) -> list[Message]:
        if node_id not in written:
            return []
        found = hand_over(node_id, limit, run_id=run_id)
        with lock:
            written[node_id] -= len(found)
            if written[node_id] <= 0:
                del written[node_id]
        return found

    replaced: Any = store
    replaced.store_message_ins, replaced.get_message_ins = kept, handed_over


@contextmanager
def _interrupt_calls(ending: list[Callable[[], None]]) -> Iterator[None]:
    """Let an interrupt (Ctrl-C) end what waits, so that nothing keeps the run from ending."""
    previous = signal.getsignal(signal.SIGINT)
    # Whoever started this process in the background may have had it ignore interrupts.
    if threading.current_thread() is not threading.main_thread() or previous is signal.SIG_IGN:
        yield
        return

    def note(number: int, frame: FrameType | None) -> None:
        for end in ending:
            # A thread of its own, since the interrupted one may hold the locks that are needed.
            threading.Thread(target=end, daemon=True).start()
        if callable(previous):
            previous(number, frame)

    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
