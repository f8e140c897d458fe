"""Connections to Ray: to an embedded Ray, or to a running cluster, whose token is checked."""

import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import ray

from fl_audit.errors import FederationError, InputError, first_line, require
from fl_audit.ordinary_files import read_text_file
from fl_audit.runs import verbosity
from fl_audit.runs.cluster.embedded_ray import embedded_ray, read_credentials_anew, started_ahead
from fl_audit.runs.cluster.nodes import require_alike
from fl_audit.runs.cluster.ray_options import RayOptions

_SECONDS_TO_ANSWER = 5.0
_GUARDED_REQUEST = "/ray.rpc.NodeInfoGcsService/GetAllNodeInfo"
"""The request that shows whether a cluster wants a token, sent without a token and then with ours."""


@contextmanager
def ray_for(options: RayOptions) -> Iterator[None]:
    """Run a `with` block connected to a running cluster, or to an embedded Ray, which ends with the block.

    An embedded Ray that was started ahead of the run is used, and goes on after the block.
    """
    if (ahead := started_ahead()) is not None:
        with _joined_to(ahead.address):
            yield
    elif options.address is not None:
        with _joined_to_cluster(options.address):
            yield
    else:
        with embedded_ray(options) as embedded, _joined_to(embedded.address):
            yield


@contextmanager
def _joined_to(address: str) -> Iterator[None]:
    """Connect to an embedded Ray for the length of the block."""
    read_credentials_anew()
    with _connected(address, FederationError("Ray did not start on this machine")):
        yield


@contextmanager
def _joined_to_cluster(address: str) -> Iterator[None]:
    """Connect to a running cluster for the length of the block, and warn the user if it requires no token."""
    read_credentials_anew()
    if not _asks_for_token(address):
        verbosity.tell(
            f"the Ray cluster at {address} asks for no token: whoever reaches its ports can read this run and "
            "run programs as you; start every node of it with RAY_AUTH_MODE=token and the same RAY_AUTH_TOKEN, and "
            "this command too"
        )
    with _connected(address, InputError(f"Ray at {address} cannot be used")):
        require_alike(address)
        yield


@contextmanager
def _connected(address: str, failure: Exception) -> Iterator[None]:
    """Connect to the Ray at an address for the length of the block; raise `failure` with Ray's words if it refuses."""
    try:
        ray.init(address, log_to_driver=False, logging_level=logging.ERROR)
    except Exception as error:  # Ray raises anything down to Exception itself
        raise type(failure)(f"{failure}: {_words(error)}") from error
    logging.getLogger("ray").setLevel(logging.ERROR)
    try:
        yield
    finally:
        ray.shutdown()


def _words(error: Exception) -> str:
    """Return what Ray says of an error in one line: all lines if it compares versions, otherwise the first."""
    text = str(error)
    return " ".join(text.split()) if text.startswith("Version mismatch") else first_line(error)


def _asks_for_token(address: str) -> bool:
    """Return whether a cluster requires a token; raise `InputError` if this process does not have the right token."""
    if _may_accept_token(address, None):
        return False
    hint = "set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN to the token that its nodes were started with"
    token = _token_of_environment()
    require(token is not None, f"--ray-address {address}: this Ray cluster asks for a token: {hint}")
    require(_may_accept_token(address, token), f"--ray-address {address}: this Ray cluster refuses the token: {hint}")
    return True


def _token_of_environment() -> str | None:
    """Return the token with which Ray connects, from the places that Ray documents; None without authentication."""
    if os.environ.get("RAY_AUTH_MODE", "").lower() != "token":
        return None
    if token := os.environ.get("RAY_AUTH_TOKEN"):
        return token
    token_path = os.environ.get("RAY_AUTH_TOKEN_PATH")
    file = Path(token_path) if token_path else Path.home() / ".ray" / "auth_token"
    return read_text_file(file).strip() if file.is_file() else None


def _may_accept_token(address: str, token: str | None) -> bool:
    """Return False if a Ray cluster rejects a request because of its token, or because it has none.

    The result is True in all other cases, even if the cluster does not answer.
    """
    metadata = None if token is None else (("authorization", f"Bearer {token}"),)
    with grpc.insecure_channel(address) as channel:
        try:
            channel.unary_unary(_GUARDED_REQUEST)(b"", timeout=_SECONDS_TO_ANSWER, metadata=metadata)
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
    named_address = _address_here() if address == "auto" else address
    accepted = "accepted is HOST:PORT of a node started with 'ray start --head', or auto on that machine"
    require(
        not named_address.startswith("ray://"), f"--ray-address {address}: Ray Client cannot carry a run: {accepted}"
    )
    host, _, port = named_address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=_SECONDS_TO_ANSWER).close()
    except (OSError, ValueError, OverflowError) as error:
        raise InputError(f"--ray-address {address}: no Ray cluster answers there: {accepted}") from error
    read_credentials_anew()
    _asks_for_token(named_address)
    return named_address


def _address_here() -> str:
    """Return HOST:PORT of the only Ray cluster on this machine, which must admit this process."""
    read_credentials_anew()
    failure = InputError(
        "--ray-address auto: not exactly one Ray cluster runs on this machine and admits this process: accepted is "
        "HOST:PORT of a node started with 'ray start --head'"
    )
    with _connected("auto", failure):
        return str(ray.get_runtime_context().gcs_address)
