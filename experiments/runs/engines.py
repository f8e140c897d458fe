"""Two engines for one app: Flower's simulation runtime on Ray, which is here, and `local_engine`.

Everything of Flower that is deprecated or not public stands in these two modules and in `cluster.backend`.
"""

import io
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from importlib import import_module
from types import FrameType
from typing import TYPE_CHECKING, Any

from flwr.app import Context
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from fl_audit.experiments.names import Engine as Engine
from fl_audit.experiments.runs.cluster.access import RayOptions as RayOptions
from fl_audit.experiments.runs.cluster.access import ray_for
from fl_audit.experiments.verbosity import settle_flower

if TYPE_CHECKING:
    from fl_audit.experiments.runs.cluster.backend import PoolInPlace

_RUNTIME = "fl_audit.experiments.runs.cluster.backend"


def run_on_ray(
    server_app: ServerApp,
    client_app: ClientApp,
    clients: int,
    options: RayOptions,
    interrupted: threading.Event | None = None,
) -> None:
    """Run the app on Flower's simulation runtime; every client call is a call of a Ray actor.

    An interrupt (Ctrl-C) sets `interrupted`, so that the server, in a thread of its own, can stop waiting. No process
    of an embedded Ray outlives this call.

    Parameters
    ----------
    server_app, client_app, clients
        The server's side of the app, the clients', and how many clients there are.
    options, interrupted
        Which Ray, and how much of it a client takes; and an event that is set from outside to end the run, or None if
        nobody will.

    Raises
    ------
    FederationError
        What the server raised, or that no Ray can be started here.
    InputError
        If the cluster cannot be joined, or a node of it has another Python or Flower.
    """
    settle_flower()
    # Flower's runtime takes a second or two to import, and so does Ray to start: at the same time.
    importing = threading.Thread(target=import_module, args=(_RUNTIME,), daemon=True)
    importing.start()
    # Ray prints its own long account of a client process that died; the run says it in one line.
    with redirect_stdout(io.StringIO()), ray_for(options):
        importing.join()
        from flwr.simulation import run_simulation

        from fl_audit.experiments.runs.cluster.backend import pool_in_place

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

        if isinstance(grid, InMemoryGrid):
            pool.watch(grid.state)
            replaced: Any = grid
            replaced.nodes_in_order = pool.nodes_in_order
        try:
            server_app(grid=grid, context=context)
        except BaseException:
            pool.end_calls()
            raise

    return wrapped


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
