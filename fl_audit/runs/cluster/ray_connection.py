"""Access-controlled Ray: starts an embedded Ray for one run alone, or joins a running cluster.

Ray's ports listen on all network interfaces, and anyone who can connect can run code as the user. Therefore Ray's token
authentication is used: the token of an embedded Ray is drawn at random, and exists only in the environment variables of
its processes. Ray makes its sockets and logs writable for everybody. They are therefore put into a directory that only
this user can enter.
"""

import logging
import os
import secrets
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import psutil
import ray
from flwr.app.typing import ConfigRecordValues
from ray._private import node, services
from ray._private.services import canonicalize_bootstrap_address_or_die

from fl_audit.device import Device
from fl_audit.errors import InputError, first_line, require
from fl_audit.runs import verbosity
from fl_audit.runs.cluster.machine_versions import require_alike
from fl_audit.runs.process_guard import environment, nothing_outlives
from fl_audit.strategies.errors import FederationError

if TYPE_CHECKING:
    from flwr.server.superlink.fleet.vce.backend.backend import BackendConfig

    from fl_audit.runs.config.run_section import RunSection


_PLACE = "RAY_TMPDIR"
"""Environment variable with the directory in which Ray makes its own."""
_PREFIX, _LONGEST_PLACE = "fl-audit-", 16
_ACTORS_ON_A_CARD = 4
"""Client processes that share a graphics card unless the configuration says otherwise."""
_SECONDS_TO_ANSWER = 5.0
_ASKED = "/ray.rpc.NodeInfoGcsService/GetAllNodeInfo"
"""The request that shows whether a cluster wants a token, sent without a token and then with ours."""

_ahead: list["RayOptions"] = []
"""Options of a Ray that was started before its run; Flower ends it with that run."""
_EARLY = {"RAY_preload_python_modules": "fl_audit.runs.cluster.worker_preimports"}
"""Lets processes that Ray starts in advance import what clients need, while this process still gets ready."""


@dataclass(frozen=True)
class RayOptions:
    """Options of Ray, in which the clients run: Ray is either a running cluster, or started for this run."""

    # Address of a running cluster; None starts a Ray on this machine for the length of the run.
    address: str | None = None
    actors: int = 0  # client processes on an embedded Ray; 0 means one for every core (and thread count)
    threads: int = 1  # cores that one client takes
    device: Device = Device.CPU  # device of the clients; all client processes of a machine share its graphics card

    @classmethod
    def of(cls, run: "RunSection", address: str | None) -> "RayOptions":
        """Return the options of Ray in the settings of a run, together with the address of a cluster."""
        return cls(address, run.actors, run.threads, run.device)

    def backend_config(self) -> "BackendConfig":
        """Return the options of Ray in the form of Flower's backend configuration."""
        init: dict[str, ConfigRecordValues] = {"log_to_driver": False, "logging_level": logging.ERROR}
        # "local" keeps Ray from joining a cluster that happens to run here or that RAY_ADDRESS names.
        init["address"] = self.address or "local"
        if self.address is None:
            init["include_dashboard"] = False
            init["num_cpus"] = (self.actors or calls_on_all_cores(self.threads)) * self.threads
        return {"init_args": init, "client_resources": dict(self.share())}

    def share(self) -> dict[str, float]:
        """Return the cores and the share of a graphics card of one client, by Ray's names "num_cpus" and "num_gpus"."""
        gpus = 0.0 if self.device is Device.CPU else 1 / (self.actors or _ACTORS_ON_A_CARD)
        return {"num_cpus": self.threads, "num_gpus": gpus}


def usable_cores() -> int:
    """Return the number of cores that this process may use; all cores if the system sets no limit."""
    process = psutil.Process()
    return len(process.cpu_affinity() or ()) if hasattr(process, "cpu_affinity") else os.cpu_count() or 1


def calls_on_all_cores(threads: int) -> int:
    """Return how many client calls of `threads` cores each fit on the usable cores of this machine, at least 1."""
    return max(1, usable_cores() // threads)


def new_token() -> dict[str, str]:
    """Return two environment variables, by name, which make Ray admit only processes with the same random token."""
    return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}


def private_directory() -> Path:
    """Create a directory for Ray's sockets and logs that only this user may enter, and return its path.

    Its parent is the first suitable one of RAY_TMPDIR, the system's temporary directory and /tmp. A suitable parent is
    writable, and its path has at most 16 characters. Ray appends some 70 characters to the path, and some systems limit
    the path of a socket to 103 characters.
    """
    places = (os.environ.get(_PLACE, ""), tempfile.gettempdir(), "/tmp")
    short = [place for place in places if len(place) <= _LONGEST_PLACE and os.access(place, os.W_OK)]
    return Path(tempfile.mkdtemp(prefix=_PREFIX, dir=next(iter(short), None)))


def restrict_later_ray() -> Path | None:
    """Set environment variables so that a Ray that this process starts later admits only its own processes.

    A random token is set, unless the user has configured Ray's authentication.
    """
    if "RAY_ADDRESS" in os.environ:
        return None
    if "RAY_AUTH_MODE" not in os.environ:
        os.environ.update(new_token())
        _read_environment_anew()
    if Path(os.environ.get(_PLACE, "")).name.startswith(_PREFIX):
        return None  # this is a process of the Ray that was closed so
    directory = private_directory()
    os.environ[_PLACE] = str(directory)
    return directory


@contextmanager
def ray_for(options: RayOptions) -> Iterator[None]:
    """Run a `with` block either with an embedded Ray, which ends with the block, or connected to a running cluster.

    Flower uses the Ray that is running. If Flower had to start Ray itself, every run would begin more slowly.
    """
    if _ahead and ray.is_initialized():
        yield
        return
    if options.address is not None:
        _join(options)
        try:
            require_alike(options.address)
            yield
        finally:
            ray.shutdown()
        return
    # The processes of Ray search for modules in the same directories as this process.
    paths = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    place = private_directory()
    closed = {"PYTHONPATH": paths, **_EARLY, **new_token(), _PLACE: str(place)}
    try:
        with nothing_outlives(place), environment(closed), _no_helpers():
            _read_environment_anew()
            _init(options, lambda said: FederationError(f"Ray did not start on this machine: {said}"))
            try:
                yield
            finally:
                ray.shutdown()
    finally:
        _read_environment_anew()


@contextmanager
def ray_ahead(options: RayOptions) -> Iterator[None]:
    """Start Ray at the beginning of the block, so that the first run in the block does not have to wait for Ray.

    Flower shuts this Ray down at the end of the first run, so a later run starts its own. Raises `FederationError` if
    Ray does not start on this machine.
    """
    with ray_for(options):
        _ahead.append(options)
        try:
            yield
        finally:
            _ahead.clear()


@contextmanager
def _no_helpers() -> Iterator[None]:
    """In a `with` block, Ray starts without its dashboard, autoscaler and log monitor.

    Each of the three takes seconds to start or listens on a port.
    """
    nothing = lambda *_, **__: None  # noqa: E731
    unserved = lambda *_, **__: (None, None)  # noqa: E731
    places: tuple[tuple[Any, str, Any], ...] = (
        (services, "start_api_server", unserved),
        (node.Node, "start_monitor", nothing),
        (node.Node, "start_log_monitor", nothing),
    )
    before = [getattr(owner, name) for owner, name, _ in places]
    for owner, name, instead in places:
        setattr(owner, name, instead)
    try:
        yield
    finally:
        for (owner, name, _), original in zip(places, before, strict=True):
            setattr(owner, name, original)


def _read_environment_anew() -> None:
    """Make Ray read its authentication settings from the environment again; by itself, Ray reads them only once."""
    inside: Any = ray._raylet
    inside.Config.initialize("")
    inside.AuthenticationTokenLoader.instance().reset_cache()


def _init(options: RayOptions, failure: Callable[[str], Exception]) -> None:
    init: dict[str, Any] = dict(options.backend_config()["init_args"])
    try:
        ray.init(**init)
    except Exception as error:  # Ray raises anything down to Exception itself
        raise failure(first_line(error)) from error
    logging.getLogger("ray").setLevel(logging.ERROR)


def _join(options: RayOptions) -> None:
    """Connect to a running cluster, and warn the user if it requires no token."""
    assert options.address is not None
    _read_environment_anew()
    if not _asks_for_token(options.address):
        verbosity.tell(
            f"the Ray cluster at {options.address} asks for no token: whoever reaches its ports can read this run and "
            "run programs as you; start every node of it with RAY_AUTH_MODE=token and the same RAY_AUTH_TOKEN, and "
            "this command too"
        )
    _init(options, lambda said: InputError(f"Ray at {options.address} cannot be used: {said}"))


def _asks_for_token(address: str) -> bool:
    """Return whether a cluster requires a token; raise `InputError` if this process does not have the right token."""
    if _may_accept_token(address, None):
        return False
    hint = "set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN to the token that its nodes were started with"
    inside: Any = ray._raylet
    loader, mode = inside.AuthenticationTokenLoader.instance(), inside.get_authentication_mode()
    has_token = mode == inside.AuthenticationMode.TOKEN and loader.has_token(ignore_auth_mode=True)
    require(has_token, f"--ray-address {address}: this Ray cluster asks for a token: {hint}")
    token = loader.get_raw_token(ignore_auth_mode=True)
    require(_may_accept_token(address, token), f"--ray-address {address}: this Ray cluster refuses the token: {hint}")
    return True


def _may_accept_token(address: str, token: str | None) -> bool:
    """Return False if a Ray cluster rejects a request because of its token, or because it has none.

    The result is True in all other cases, even if the cluster does not answer.
    """
    metadata = None if token is None else (("authorization", f"Bearer {token}"),)
    with grpc.insecure_channel(address) as channel:
        try:
            channel.unary_unary(_ASKED)(b"", timeout=_SECONDS_TO_ANSWER, metadata=metadata)
        except grpc.RpcError as error:
            return bool(error.code() is not grpc.StatusCode.UNAUTHENTICATED)
    return True


def cluster_at(address: str | None) -> str | None:
    """Check that a Ray cluster answers and admits this process, and return its address as HOST:PORT.

    Ray itself would try to connect for minutes, and would notice a wrong token only after the run has begun.

    `address`: None is returned unchecked.
    """
    if address is None:
        return None
    found = _address_here() if address == "auto" else address
    accepted = "accepted is HOST:PORT of a node started with 'ray start --head', or auto on that machine"
    require(not found.startswith("ray://"), f"--ray-address {address}: Ray Client cannot carry a run: {accepted}")
    host, _, port = found.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=_SECONDS_TO_ANSWER).close()
    except (OSError, ValueError, OverflowError) as error:
        raise InputError(f"--ray-address {address}: no Ray cluster answers there: {accepted}") from error
    _read_environment_anew()
    _asks_for_token(found)
    return found


def _address_here() -> str:
    """Return HOST:PORT of the only Ray cluster on this machine."""
    try:
        return str(canonicalize_bootstrap_address_or_die("auto"))
    except (ConnectionError, ValueError) as error:
        raise InputError(
            "--ray-address auto: not exactly one Ray cluster runs on this machine: accepted is HOST:PORT of a node "
            "started with 'ray start --head'"
        ) from error
