"""Ray as a run starts or joins it, and who else may: nobody gets into a Ray that a run has started.

Ray's ports listen on all interfaces of a machine, and whoever may speak to them runs code as the user. Ray's token
authentication closes them: the token of an embedded Ray is drawn for one block, and stands nowhere but in the
environment of the processes of that block.
"""

import logging
import os
import secrets
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psutil
from flwr.app.typing import ConfigRecordValues

from experiments import talk
from experiments.runs.guard import environment, nothing_outlives
from fl_audit.device import Device
from fl_audit.errors import InputError, require
from strategies.errors import FederationError

if TYPE_CHECKING:
    # At run time this import takes more than half a second, of which a run without Ray needs nothing.
    from flwr.server.superlink.fleet.vce.backend.backend import BackendConfig

    from experiments.runs.config.run import RunSection

_ACTORS_ON_A_CARD = 4
"""Client processes that share a graphics card unless the configuration says otherwise."""
_SECONDS_TO_ANSWER = 5.0
_ASKED = "/ray.rpc.NodeInfoGcsService/GetAllNodeInfo"
"""What is asked of a cluster to learn whether it wants a token, without one and then with ours."""

_ahead: list["RayOptions"] = []
"""Of a Ray that was started before the run that takes it; Flower ends it with that run."""
_EARLY = {"RAY_preload_python_modules": "clients.app"}
"""Has processes that Ray starts in advance import what clients need, while this process still gets ready."""


@dataclass(frozen=True)
class RayOptions:
    """Which Ray the clients run on."""

    # Address of a running cluster; None starts a Ray on this machine for the length of the run.
    address: str | None = None
    actors: int = 0  # client processes on an embedded Ray; 0 means one for every core (and thread count)
    threads: int = 1  # cores that one client takes
    device: Device = Device.CPU  # what clients compute on; all client processes of a machine share its graphics card
    # How often a client call is made again, on a new process, after the process that it ran on has died.
    retries: int = 2

    @classmethod
    def of(cls, run: "RunSection", address: str | None) -> "RayOptions":
        """Return what the settings of a run say.

        Parameters
        ----------
        run, address
            The settings, and the address of a running cluster, or None.
        """
        return cls(address, run.actors, run.threads, run.device, run.client_retries)

    def backend_config(self) -> "BackendConfig":
        """Return Flower's backend configuration."""
        init: dict[str, ConfigRecordValues] = {"log_to_driver": False, "logging_level": logging.ERROR}
        # "local" keeps Ray from joining a cluster that happens to run here or that RAY_ADDRESS names.
        init["address"] = self.address or "local"
        if self.address is None:
            init["include_dashboard"] = False
            init["num_cpus"] = (self.actors or max(1, usable_cores() // self.threads)) * self.threads
        return {"init_args": init, "client_resources": dict(self.share())}

    def share(self) -> dict[str, float]:
        """Return how much of a machine one client takes, as Ray counts it."""
        gpus = 0.0 if self.device is Device.CPU else 1 / (self.actors or _ACTORS_ON_A_CARD)
        return {"num_cpus": self.threads, "num_gpus": gpus}


def usable_cores() -> int:
    """Return how many cores this process may use; where the system tells no such thing, how many there are."""
    process = psutil.Process()
    return len(process.cpu_affinity() or ()) if hasattr(process, "cpu_affinity") else os.cpu_count() or 1


def new_token() -> dict[str, str]:
    """Return the environment in which Ray lets nobody in who does not have the same environment."""
    return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}


def close_a_ray_to_come() -> None:
    """Have a Ray that this process starts later, by itself, ask for a token that only its own processes know.

    Nothing is changed where the user has said how Ray authenticates, or names a cluster that runs already.
    """
    if not {"RAY_AUTH_MODE", "RAY_ADDRESS"} & os.environ.keys():
        os.environ.update(new_token())
        _read_environment_anew()


@contextmanager
def ray_for(options: RayOptions) -> Iterator[None]:
    """Run a block with Ray: one of its own, no process of which outlives the block, or the cluster at an address.

    Flower takes a Ray that is there. One that it started itself would have a runtime environment, for which every run
    pays: workers that Ray starts before anybody asks are without it, so nobody could use them.

    Raises
    ------
    InputError
        If the cluster cannot be joined, or a node of it has another Python or Flower.
    FederationError
        If no Ray can be started here.
    """
    import ray

    if _ahead and ray.is_initialized():
        yield
        return
    if options.address is not None:
        _join(options)
        try:
            from experiments.runs.cluster.versions import require_alike

            require_alike(options.address)
            yield
        finally:
            ray.shutdown()
        return
    # Processes of Ray look for modules where this one does.
    paths = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    try:
        with nothing_outlives(), environment({"PYTHONPATH": paths, **_EARLY, **new_token()}), _no_helpers():
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
    """Have a Ray of its own ready for the first run in the block: it starts while the program still gets ready.

    Raises
    ------
    FederationError
        If no Ray can be started here.
    """
    with ray_for(options):
        _ahead.append(options)
        try:
            yield
        finally:
            _ahead.clear()


@contextmanager
def _no_helpers() -> Iterator[None]:
    """Have Ray start without the processes that serve people and autoscaling: they take seconds, and listen."""
    from ray._private import node, services

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
    """Have this process forget whether and by which token Ray authenticates: Ray reads its environment only once."""
    import ray

    inside: Any = ray._raylet
    inside.Config.initialize("")
    inside.AuthenticationTokenLoader.instance().reset_cache()


def _init(options: RayOptions, failure: Callable[[str], Exception]) -> None:
    import ray

    init: dict[str, Any] = dict(options.backend_config()["init_args"])
    try:
        ray.init(**init)
    except Exception as error:  # Ray raises anything down to Exception itself
        said = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise failure(said) from error
    logging.getLogger("ray").setLevel(logging.ERROR)


def _join(options: RayOptions) -> None:
    """Join the cluster at an address, and say so where it lets anybody in."""
    assert options.address is not None
    _read_environment_anew()
    if not _asks_for_token(options.address):
        talk.tell(
            f"the Ray cluster at {options.address} asks for no token: whoever reaches its ports can read this run and "
            "run programs as you; start every node of it with RAY_AUTH_MODE=token and the same RAY_AUTH_TOKEN, and "
            "this command too"
        )
    _init(options, lambda said: InputError(f"Ray at {options.address} cannot be used: {said}"))


def _asks_for_token(address: str) -> bool:
    """Return whether a cluster wants a token.

    Raises
    ------
    InputError
        If it does, and the environment of this process names none or a wrong one.
    """
    import ray

    if address.startswith(("ray://", "auto")) or _lets_in(address, None):
        return False
    hint = "set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN to the token that its nodes were started with"
    inside: Any = ray._raylet
    loader, mode = inside.AuthenticationTokenLoader.instance(), inside.get_authentication_mode()
    has_token = mode == inside.AuthenticationMode.TOKEN and loader.has_token(ignore_auth_mode=True)
    require(has_token, f"--ray-address {address}: this Ray cluster asks for a token: {hint}")
    token = loader.get_raw_token(ignore_auth_mode=True)
    require(_lets_in(address, token), f"--ray-address {address}: this Ray cluster refuses the token: {hint}")
    return True


def _lets_in(address: str, token: str | None) -> bool:
    """Return whether a cluster answers somebody with a token, or with none."""
    import grpc

    metadata = None if token is None else (("authorization", f"Bearer {token}"),)
    with grpc.insecure_channel(address) as channel:
        try:
            channel.unary_unary(_ASKED)(b"", timeout=_SECONDS_TO_ANSWER, metadata=metadata)
        except grpc.RpcError as error:
            return bool(error.code() is not grpc.StatusCode.UNAUTHENTICATED)
    return True


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
        socket.create_connection((host, int(port)), timeout=_SECONDS_TO_ANSWER).close()
    except (OSError, ValueError, OverflowError) as error:
        raise InputError(
            f"--ray-address {address}: no Ray cluster answers there: accepted is HOST:PORT of a node "
            "started with 'ray start --head'"
        ) from error
