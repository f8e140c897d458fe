"""Other hosts on this machine: network namespaces, for root where there is `ip`."""

import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


class NoHostsError(Exception):
    """No hosts can be made here; it says why."""


@dataclass
class Host:
    """A host of its own network."""

    name: str  # of its namespace
    address: str  # its own address
    gateway: str  # the address of this machine in that network
    is_cut_off: bool = False

    def command(self, *words: str) -> list[str]:
        """Return a command as it is started on that host."""
        return ["ip", "netns", "exec", self.name, *words]

    def cut_off(self) -> None:
        """Let nothing through any more, in either direction."""
        _do("ip", "link", "set", f"{self.name}h", "down")
        self.is_cut_off = True

    def join(self) -> None:
        """Let everything through again."""
        _do("ip", "link", "set", f"{self.name}h", "up")
        self.is_cut_off = False


def _do(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True)


@contextmanager
def other_hosts(count: int) -> Iterator[Sequence[Host]]:
    """Make hosts that reach this machine and each other.

    Raises
    ------
    NoHostsError
        If that cannot be done.
    """
    if os.name != "posix" or os.geteuid() != 0 or shutil.which("ip") is None:
        raise NoHostsError("other hosts are network namespaces, which need root and `ip`")
    made: list[Host] = []
    third = secrets.randbelow(200) + 20
    try:
        for number in range(count):
            name, network = f"fla{secrets.token_hex(3)}", f"10.{third}.{number}"
            probe = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True)
            if probe.returncode:
                raise NoHostsError(f"no network namespaces here: {probe.stderr.strip()}")
            host = Host(name, f"{network}.2", f"{network}.1")
            made.append(host)
            _do("ip", "link", "add", f"{name}h", "type", "veth", "peer", "name", "uplink", "netns", name)
            _do("ip", "addr", "add", f"{host.gateway}/24", "dev", f"{name}h")
            _do("ip", "link", "set", f"{name}h", "up")
            # Machines of a cluster reach each other: what one needs may lie on any other.
            Path(f"/proc/sys/net/ipv4/conf/{name}h/forwarding").write_text("1")
            for words in (
                ("addr", "add", f"{host.address}/24", "dev", "uplink"),
                ("link", "set", "uplink", "up"),
                ("link", "set", "lo", "up"),
                ("route", "add", "default", "via", host.gateway),
            ):
                _do(*host.command("ip", *words))
        yield tuple(made)
    finally:
        for host in made:
            subprocess.run(["ip", "netns", "del", host.name], capture_output=True)
