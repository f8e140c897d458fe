"""Two engines for one app: Flower's simulation runtime on Ray, which is here, and `local_engine`.

Everything of Flower that is deprecated or not public stands in these two modules.
"""

import io
import logging
import os
import re
import signal
import socket
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass
from types import FrameType
from typing import Any, Protocol

import psutil
from flwr.app import Context, Message
from flwr.app.typing import ConfigRecordValues
from flwr.clientapp import ClientApp
from flwr.server.superlink.fleet.vce.backend.backend import BackendConfig
from flwr.serverapp import Grid, ServerApp
from flwr.simulation import run_simulation
from flwr.superlink.grid import InMemoryGrid

from experiments.names import Engine as Engine
from experiments.runs.guard import environment, nothing_outlives
from experiments.talk import settle_flower
from fl_audit.device import Device
from fl_audit.errors import InputError
from fl_audit.user_modules import Portable

_ACTORS_ON_A_CARD = 4
"""Client processes that share a graphics card unless the configuration says otherwise."""
_PATIENCE_AFTER_FAILURE, _PATIENCE_BETWEEN_KILLS = 4.0, 1.0
"""Seconds that Flower's runtime gets to end by itself after the server gave up, and after clients were ended."""

_CLIENT_PROCESS = re.compile(r"^ray::(ClientAppActor|IDLE)|default_worker\.py")
"""Command lines of a process of Ray that is a client, will be one, or is only being started."""


@dataclass(frozen=True)
class RayOptions:
    """Which Ray the clients run on.

    Parameters
    ----------
    address
        Address of a running cluster; None starts a Ray on this machine for the length of the run.
    actors
        Client processes on an embedded Ray; 0 means one for every core (and thread count).
    threads
        Cores that one client takes.
    device
        What clients compute on; all client processes of a machine share its graphics card.
    retries
        How often a client call is made again, on a new process, after the process that it ran on has died.
    """

    address: str | None = None
    actors: int = 0
    threads: int = 1
    device: Device = Device.CPU
    retries: int = 2

    def backend_config(self) -> BackendConfig:
        """Return Flower's backend configuration."""
        init: dict[str, ConfigRecordValues] = {"log_to_driver": False, "logging_level": logging.ERROR}
        # "local" keeps Ray from joining a cluster that happens to run here or that RAY_ADDRESS names.
        init["address"] = self.address or "local"
        if self.address is None:
            init["include_dashboard"] = False
            init["num_cpus"] = (self.actors or max(1, usable_cores() // self.threads)) * self.threads
        # Flower hands the resources of a client to Ray as options of its actor, so what Ray does about a process that
        # dies can be said there: a new one takes its place, without limit, and each call is made again so many times.
        again = {"max_restarts": -1, "max_task_retries": self.retries} if self.retries else {}
        return {"init_args": init, "client_resources": {**self.share(), **again}}

    def share(self) -> dict[str, float]:
        """Return how much of a machine one client takes, as Ray counts it."""
        gpus = 0.0 if self.device is Device.CPU else 1 / (self.actors or _ACTORS_ON_A_CARD)
        return {"num_cpus": self.threads, "num_gpus": gpus}


def usable_cores() -> int:
    """Return how many cores this process may use; where the system tells no such thing, how many there are."""
    process = psutil.Process()
    return len(process.cpu_affinity() or ()) if hasattr(process, "cpu_affinity") else os.cpu_count() or 1


def run_on_ray(
    server_app: ServerApp,
    client_app: ClientApp,
    clients: int,
    options: RayOptions,
    interrupted: threading.Event | None = None,
) -> None:
    """Run the app on Flower's simulation runtime; every client call is a call of a Ray actor.

    An interrupt (Ctrl-C) sets `interrupted`, so that the server, in a thread of its own, can stop waiting.

    Raises
    ------
    FederationError
        What the server raised. No process of an embedded Ray outlives this call.
    """
    from ray import cloudpickle

    settle_flower()
    # Workers would look for our modules in the user's directory first; see `Portable`.
    portable: Any = Portable(client_app, cloudpickle.dumps)
    failed, ended = threading.Event(), threading.Event()
    is_embedded = options.address is None
    watchdog = threading.Thread(target=_end_what_hangs, args=(failed, ended, is_embedded), daemon=True)
    watchdog.start()
    try:
        # Ray prints its own long account of a client process that died; the run says it in one line.
        with redirect_stdout(io.StringIO()), _interrupt_sets(failed, interrupted), embedded_ray(options):
            run_simulation(_noticing(server_app, failed), portable, clients, backend_config=options.backend_config())
    finally:
        ended.set()
        failed.set()
        watchdog.join()


@contextmanager
def embedded_ray(options: RayOptions) -> Iterator[None]:
    """Run a block with a Ray on this machine, no process of which outlives it; nothing is done where a cluster runs.

    Flower takes a Ray that is there. One that it started itself would have a runtime environment, for which every run
    pays: workers that Ray starts before anybody asks are without it, so nobody could use them.
    """
    if options.address is not None:
        yield
        return
    import ray

    init: dict[str, Any] = dict(options.backend_config()["init_args"])
    # Processes of Ray look for modules where this one does.
    paths = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    with nothing_outlives(), environment({"PYTHONPATH": paths}):
        ray.init(**init)
        try:
            yield
        finally:
            ray.shutdown()


def _noticing(server_app: ServerApp, failed: threading.Event) -> ServerApp:
    """Wrap an app so that its failure is known before Flower's runtime has ended."""
    wrapped = ServerApp()

    @wrapped.main()
    def main(grid: Grid, context: Context) -> None:
        ended_well = False
        if isinstance(grid, InMemoryGrid):
            look_only_where_messages_wait(grid.state)
        try:
            server_app(grid=grid, context=context)
            ended_well = True
        finally:
            if not ended_well:
                failed.set()

    return wrapped


class MessageStore(Protocol):
    """Where Flower's runtime keeps messages until a node takes them."""

    def store_message_ins(self, message: Message) -> str | None:
        """Keep a message, and return its identity if it is accepted."""

    def get_message_ins(self, node_id: int, limit: int | None, *, run_id: int | None = None) -> list[Message]:
        """Hand over the messages to a node that it has not had yet."""


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
def _interrupt_sets(*events: threading.Event | None) -> Iterator[None]:
    """Let an interrupt (Ctrl-C) set events, so that nothing that waits keeps the run from ending."""
    previous = signal.getsignal(signal.SIGINT)
    # Whoever started this process in the background may have had it ignore interrupts.
    if threading.current_thread() is not threading.main_thread() or previous is signal.SIG_IGN:
        yield
        return

    def note(number: int, frame: FrameType | None) -> None:
        for event in events:
            if event is not None:
                event.set()
        if callable(previous):
            previous(number, frame)

    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


def _end_what_hangs(failed: threading.Event, ended: threading.Event, is_embedded: bool) -> None:
    """End client processes that still run a while after the server gave up.

    Flower's workers wait for a client call without a limit, so a client that hangs would keep the run from ending. A
    process that is only being started cannot be ended yet, so this goes on until the run has ended.
    """
    failed.wait()
    patience = _PATIENCE_AFTER_FAILURE
    while not ended.wait(patience):
        _end_clients()
        if is_embedded:
            _kill_client_processes()
        patience = _PATIENCE_BETWEEN_KILLS


def _end_clients() -> None:
    """Tell Ray to end this run's client processes, wherever they are, and to start none in their place.

    Flower keeps their handles to itself.
    """
    import ray
    from ray._private.state import actors

    if not ray.is_initialized():
        return
    # Whatever goes wrong here, Ray is not there any more.
    with suppress(Exception):
        worker: Any = ray._private.worker.global_worker
        job = ray.get_runtime_context().get_job_id()
        for identity, actor in actors().items():
            if actor["JobID"] == job and actor["State"] != "DEAD":
                worker.core_worker.kill_actor(ray.ActorID.from_hex(identity), True)


def _kill_client_processes() -> None:
    """Kill the client processes of the embedded Ray, which are descendants of this process: one may be frozen.

    Ray's own helpers are left alone: without them Ray ends, and with it, at once, the process that started it.
    """
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if _CLIENT_PROCESS.search(" ".join(process.cmdline())):
                process.kill()


def refuse_unreachable(address: str | None) -> None:
    """Refuse an address nobody listens at; Ray itself would try for minutes.

    Raises
    ------
    InputError
        If no cluster answers there.
    """
    if address is None or address.startswith(("ray://", "auto")):
        return
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except (OSError, ValueError) as error:
        raise InputError(
            f"--ray-address {address}: no Ray cluster answers there: accepted is HOST:PORT of a node "
            "started with 'ray start --head'"
        ) from error
