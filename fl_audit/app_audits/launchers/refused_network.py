"""Refusal of network operations in a process that runs other people's code."""

import sys
from typing import Any

_REFUSED = ("socket.connect", "socket.getaddrinfo", "socket.sendto")


def refuse_network() -> None:
    """Refuse network operations from now on in this process, except on local (Unix) sockets."""
    sys.addaudithook(_without_network)


def _without_network(event: str, arguments: tuple[Any, ...]) -> None:
    """Raise `ConnectionError` at a network operation; an audit hook, see `sys.addaudithook`."""
    if event in _REFUSED and not isinstance(arguments[-1], (str, bytes)):
        raise ConnectionError("a review has no network")
