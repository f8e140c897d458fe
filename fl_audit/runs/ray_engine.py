"""The Ray engine, which runs a Flower app on Flower's simulation runtime; the other engine is in `local_engine`.

The engines use deprecated or private parts of Flower only in `ray_engine`, `local_engine`, `grid_messages`,
`cluster.flower_runtime_patch` and `cluster.pool_flower_grid`.
"""

import io
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from importlib import import_module
from types import FrameType
from typing import TYPE_CHECKING

from flwr.app import Context
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from fl_audit.device import Device
from fl_audit.runs.cluster import lazy_imports
from fl_audit.runs.cluster.ray_connection import RayOptions as RayOptions
from fl_audit.runs.cluster.ray_connection import calls_on_all_cores, ray_for
from fl_audit.runs.verbosity import settle_flower

if TYPE_CHECKING:
    from fl_audit.runs.cluster.flower_runtime_patch import PatchedRuntime
    from fl_audit.runs.config.run_section import RunSection


def local_calls(run: "RunSection") -> int:
    """Return the number of simultaneous client calls in the local engine, by section [run] of the configuration.

    The setting `actors` gives the number. If it is 0, there is one call per `threads` usable cores on the CPU, and one
    call on a graphics card.
    """
    if run.device is not Device.CPU:
        return max(1, run.actors)
    return run.actors or calls_on_all_cores(run.threads)


def run_on_ray(
    server_app: ServerApp,
    client_app: ClientApp,
    clients: int,
    options: RayOptions,
    interrupted: threading.Event | None = None,
) -> None:
    """Run a Flower app on Flower's simulation runtime, with client calls in Ray processes.

    If Ray was started for this run, Ray and all its processes are ended before the function returns.

    Parameters
    ----------
    server_app
        The server's app, which gets a grid and so reaches the clients.
    client_app
        The app with which every client answers messages.
    clients
        Number of clients, each of which is a Flower node.
    options
        Options of Ray.
    interrupted
        Event that is set on an interrupt (Ctrl-C), so that the ServerApp, in another thread, can stop waiting; or None.

    Raises
    ------
    FederationError
        If the server app raises it, or Ray cannot be started on this machine.
    InputError
        If the cluster cannot be joined, or one of its machines has another version of Python or Flower.
    RuntimeError
        If Flower's runtime itself fails.
    """
    settle_flower()
    # Flower's runtime takes a second or two to import, and so does Ray to start: at the same time.
    importing = threading.Thread(target=import_module, args=lazy_imports.PLACES, daemon=True)
    importing.start()
    # Ray prints its own long account of a client process that died; the run says it in one line.
    with redirect_stdout(io.StringIO()), ray_for(options):
        importing.join()
        with lazy_imports.flower_runtime_patch.pool_in_place(options.retries) as pool:
            ending = [pool.end_calls] if interrupted is None else [interrupted.set, pool.end_calls]
            with _interrupt_calls(ending):
                app = _noticing(server_app, pool)
                try:
                    lazy_imports.flower_runtime_patch.run_simulation(
                        app, client_app, clients, backend_config=options.backend_config()
                    )
                except RuntimeError as error:
                    if pool.failure is None:
                        raise
                    # Flower says no more than that its runtime crashed.
                    raise pool.failure from error


def _noticing(server_app: ServerApp, pool: "PatchedRuntime") -> ServerApp:
    """Return a ServerApp whose messages go to the pool of client processes, and whose failure ends all client calls."""
    wrapped = ServerApp()

    @wrapped.main()
    def main(grid: Grid, context: Context) -> None:
        assert isinstance(grid, lazy_imports.flower_runtime_patch.InMemoryGrid), (
            "Flower's simulation runtime has its grid in this process"
        )
        try:
            server_app(grid=pool.grid(grid, context), context=context)
        except BaseException:
            pool.end_calls()
            raise

    return wrapped


@contextmanager
def _interrupt_calls(ending: list[Callable[[], None]]) -> Iterator[None]:
    """Call the functions `ending` on an interrupt (Ctrl-C) during the block, each in a new thread."""
    previous = signal.getsignal(signal.SIGINT)
    # A process that was started in the background may ignore interrupts.
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
