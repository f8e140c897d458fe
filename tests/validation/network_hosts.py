"""Other hosts on this machine: network namespaces, for root where there is `ip`."""

import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass


class NoHostsError(Exception):
    """Raised with the reason if no hosts can be made here."""


@dataclass
class Host:
    """A host of its own, on one network with this machine and the other hosts."""

    name: str  # of its namespace
    address: str  # its own address
    gateway: str  # the address of this machine in that network
    switch: str  # the namespace of the bridge that joins the network
    is_cut_off: bool = False

    def command(self, *words: str) -> list[str]:
        """Return a command in the form that starts it on that host."""
        return _within(self.name, *words)

    def cut_off(self) -> None:
        """Stop all traffic, in either direction."""
        _do(*_within(self.switch, "ip", "link", "set", self.name, "down"))
        self.is_cut_off = True

    def join(self) -> None:
        """Let all traffic through again."""
        _do(*_within(self.switch, "ip", "link", "set", self.name, "up"))
        self.is_cut_off = False


def _within(namespace: str, *words: str) -> list[str]:
    return ["ip", "netns", "exec", namespace, *words]


def _do(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True)


def _namespace(namespaces: list[str]) -> str:
    name = f"fla{secrets.token_hex(3)}"
    probe = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True)
    if probe.returncode:
        raise NoHostsError(f"no network namespaces here: {probe.stderr.strip()}")
    namespaces.append(name)
    _do(*_within(name, "ip", "link", "set", "lo", "up"))
    return name


def _plug(switch: str, port: str, namespace: str | None, address: str) -> None:
    """Join this machine (no namespace) or a host to the bridge, by a cable with that address at its end."""
    end = f"{port}h"
    _do("ip", "link", "add", end, "type", "veth", "peer", "name", port, "netns", switch)
    _do(*_within(switch, "ip", "link", "set", port, "master", "bridge", "up"))
    before = [] if namespace is None else _within(namespace)
    if namespace is not None:
        _do("ip", "link", "set", end, "netns", namespace)
    for words in (("addr", "add", f"{address}/24", "dev", end), ("link", "set", end, "up")):
        _do(*before, "ip", *words)


@contextmanager
def other_hosts(count: int) -> Iterator[Sequence[Host]]:
    """Make hosts that reach this machine and each other.

    They are on a bridge in a namespace of its own, so that this machine's forwarding and firewall do not affect them.
    `NoHostsError` is raised if that cannot be done.
    """
    if os.name != "posix" or os.geteuid() != 0 or shutil.which("ip") is None:
        raise NoHostsError("other hosts are network namespaces, which need root and `ip`")
    namespaces: list[str] = []
    network = f"10.{secrets.randbelow(200) + 20}.{secrets.randbelow(250)}"
    try:
        switch = _namespace(namespaces)
        _do(*_within(switch, "ip", "link", "add", "bridge", "type", "bridge"))
        _do(*_within(switch, "ip", "link", "set", "bridge", "up"))
        _plug(switch, switch, None, f"{network}.1")
        hosts = []
        for number in range(count):
            name = _namespace(namespaces)
            _plug(switch, name, name, f"{network}.{number + 2}")
            # This machine's other addresses, which a server may name, are reached too.
            _do(*_within(name, "ip", "route", "add", "default", "via", f"{network}.1"))
            hosts.append(Host(name, f"{network}.{number + 2}", f"{network}.1", switch))
        yield tuple(hosts)
    finally:
        for name in namespaces:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)
