"""Two engines for one app: Flower's simulation runtime on Ray, and the same app objects in this process.

Everything of Flower that is deprecated or not public stands in this module.
"""

import io
import logging
import os
import signal
import socket
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from enum import StrEnum
from queue import Empty, Queue
from types import FrameType
from typing import Any

import psutil
from flwr.app import Context, Error, Message, RecordDict, UserConfig
from flwr.app.typing import ConfigRecordValues
from flwr.clientapp import ClientApp
from flwr.common.constant import ErrorCode
from flwr.server.superlink.fleet.vce.backend.backend import BackendConfig
from flwr.serverapp import Grid, ServerApp
from flwr.simulation import run_simulation
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity

from fl_audit.device import Device
from fl_audit.errors import InputError

_LOCAL_RUN_ID = 1
_SERVER_NODE_ID = 1
_ACTORS_ON_A_CARD = 4
"""Client processes that share a graphics card unless the configuration says otherwise."""
_PATIENCE_AFTER_FAILURE = 4.0
"""Seconds that Flower's runtime gets to end by itself after the server gave up."""


class Engine(StrEnum):
    """Where the clients run."""

    RAY = "ray"
    LOCAL = "local"


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
    """

    address: str | None = None
    actors: int = 0
    threads: int = 1
    device: Device = Device.CPU

    def backend_config(self) -> BackendConfig:
        """Return Flower's backend configuration."""
        init: dict[str, ConfigRecordValues] = {"log_to_driver": False, "logging_level": logging.ERROR}
        # "local" keeps Ray from joining a cluster that happens to run here or that RAY_ADDRESS names.
        init["address"] = self.address or "local"
        if self.address is None:
            init["include_dashboard"] = False
            init["num_cpus"] = (self.actors or max(1, len(os.sched_getaffinity(0)) // self.threads)) * self.threads
        share = 0.0 if self.device is Device.CPU else 1 / (self.actors or _ACTORS_ON_A_CARD)
        return {"init_args": init, "client_resources": {"num_cpus": self.threads, "num_gpus": share}}


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
    quiet_flower()
    failed, ended = threading.Event(), threading.Event()
    end_clients = _end_own_clients if options.address is None else _end_cluster_clients
    watchdog = threading.Thread(target=_end_what_hangs, args=(failed, ended, end_clients), daemon=True)
    watchdog.start()
    try:
        # Ray prints its own long account of a client process that died; the run says it in one line.
        with redirect_stdout(io.StringIO()), _interrupt_sets(failed, interrupted):
            run_simulation(_noticing(server_app, failed), client_app, clients, backend_config=options.backend_config())
    finally:
        ended.set()
        failed.set()
        watchdog.join()


def _noticing(server_app: ServerApp, failed: threading.Event) -> ServerApp:
    """Wrap an app so that its failure is known before Flower's runtime has ended."""
    wrapped = ServerApp()

    @wrapped.main()
    def main(grid: Grid, context: Context) -> None:
        ended_well = False
        try:
            server_app(grid=grid, context=context)
            ended_well = True
        finally:
            if not ended_well:
                failed.set()

    return wrapped


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


def _end_what_hangs(failed: threading.Event, ended: threading.Event, end_clients: Callable[[], None]) -> None:
    """End client processes that still run a while after the server gave up.

    Flower's workers wait for a client call without a limit, so a client that hangs would keep the run from ending.
    """
    failed.wait()
    if not ended.wait(_PATIENCE_AFTER_FAILURE):
        end_clients()


def _end_own_clients() -> None:
    """End the client processes of the embedded Ray, which are descendants of this process."""
    for process in psutil.Process().children(recursive=True):
        try:
            if " ".join(process.cmdline()).startswith("ray::"):
                process.kill()
        except psutil.Error:
            continue


def _end_cluster_clients() -> None:
    """End this run's client processes on a cluster, wherever they are; Flower keeps their handles to itself."""
    import ray
    from ray._private.state import actors

    worker: Any = ray._private.worker.global_worker
    job = ray.get_runtime_context().get_job_id()
    for identity, actor in actors().items():
        if actor["JobID"] == job and actor["State"] != "DEAD":
            worker.core_worker.kill_actor(ray.ActorID.from_hex(identity), True)


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


def quiet_flower() -> None:
    """Keep Flower's log off the terminal: what matters of it is raised or shown by the run itself."""
    logging.getLogger("flwr").setLevel(logging.CRITICAL + 1)


class LocalGrid(Grid):
    """A grid that calls the ClientApp in this process, one message after the other.

    Parameters
    ----------
    client_app
        The app of every client.
    clients
        Number of clients; node ids are 2 and up.
    time_limit
        Seconds that one call may take.
    """

    def __init__(self, client_app: ClientApp, clients: int, time_limit: float) -> None:
        self._time_limit = time_limit
        self._contexts = {
            node: Context(
                run_id=_LOCAL_RUN_ID,
                node_id=node,
                node_config=UserConfig({"partition-id": node - 2, "num-partitions": clients}),
                state=RecordDict(),
                run_config=UserConfig(),
            )
            for node in range(2, clients + 2)
        }
        self._replies: dict[str, Message] = {}
        self._worker = _Worker(client_app)

    def set_run(self, run: Run) -> None:
        """Do nothing: there is one run."""

    @property
    def run(self) -> Run:
        """There is no run record."""
        raise InputError("the local engine keeps no run record")

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        """Create a message."""
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self) -> Iterable[int]:
        """Return the node ids."""
        return list(self._contexts)

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        """Have every message answered now; after a failure the rest of them is not sent."""
        ids = []
        for message in messages:
            identity = str(uuid.uuid4())
            message.metadata.__dict__["_message_id"] = identity
            ids.append(identity)
            reply = self._answer(message)
            reply.metadata.__dict__["_message_id"] = str(uuid.uuid4())
            self._replies[identity] = reply
            if reply.has_error():
                break
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        """Return the replies that are there."""
        return [self._replies.pop(identity) for identity in list(message_ids) if identity in self._replies]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        """Send messages and return their replies."""
        return self.pull_messages(self.push_messages(messages))

    def _answer(self, message: Message) -> Message:
        outcome = self._worker.call(message, self._contexts[message.metadata.dst_node_id], self._time_limit)
        match outcome:
            case Message():
                return outcome
            case None:
                reason = f"no answer within its time limit of {self._time_limit:g} s"
                return Message(Error(code=ErrorCode.UNKNOWN, reason=reason), reply_to=message)
            case error:
                return Message(
                    Error(code=ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason=f"Message: {error}"), reply_to=message
                )


class _Worker:
    """One thread that runs client calls, so that a call can be given up; a daemon, so that it keeps nobody alive."""

    def __init__(self, client_app: ClientApp) -> None:
        self._client_app = client_app
        self._calls: Queue[tuple[Message, Context]] = Queue()
        self._outcomes: Queue[Message | Exception] = Queue()
        threading.Thread(target=self._serve, daemon=True).start()

    def call(self, message: Message, context: Context, seconds: float) -> Message | Exception | None:
        """Return the reply, what the client raised, or None after `seconds`."""
        self._calls.put((message, context))
        try:
            return self._outcomes.get(timeout=seconds)
        except Empty:
            return None

    def _serve(self) -> None:
        while True:
            message, context = self._calls.get()
            try:
                self._outcomes.put(self._client_app(message=message, context=context))
            except Exception as error:  # whatever a client raises becomes an error reply, as under Flower's runtime
                self._outcomes.put(error)


def run_locally(server_app: ServerApp, client_app: ClientApp, clients: int, time_limit: float) -> None:
    """Run the app in this process.

    Raises
    ------
    FederationError
        What the server raised.
    """
    quiet_flower()
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, _LOCAL_RUN_ID, _SERVER_NODE_ID
    context = Context(
        run_id=_LOCAL_RUN_ID,
        node_id=_SERVER_NODE_ID,
        node_config=UserConfig(),
        state=RecordDict(),
        run_config=UserConfig(),
    )
    server_app(grid=LocalGrid(client_app, clients, time_limit), context=context)
