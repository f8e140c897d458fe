"""The machines of a Ray cluster: their room for client calls, and the size of their object stores."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import ray

_VIEWED_SHARE = 0.2
"""Share of a node's object store that replies may take up until the server has read them."""


@dataclass(frozen=True)
class RayMachine:
    """A machine of the Ray cluster."""

    identity: str  # Ray's id of the machine
    address: str  # IP address or host name
    slots: int  # number of client calls that the machine can run at the same time


def living_nodes(share: Mapping[str, float]) -> dict[str, RayMachine]:
    """Return the living machines of the Ray cluster that have room for a client, by Ray's id of the machine."""
    alive = [(row["NodeID"], row["NodeManagerAddress"], row["Resources"]) for row in alive_rows()]
    machines = [RayMachine(identity, address, _slots(resources, share)) for identity, address, resources in alive]
    return {node.identity: node for node in machines if node.slots > 0}


def alive_rows() -> list[dict[str, Any]]:
    """Return Ray's descriptions of the living machines of the cluster."""
    rows: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    return [row for row in rows if row["Alive"]]


def _slots(resources: Mapping[str, float], share: Mapping[str, float]) -> int:
    """Return how many client calls a machine can run at the same time.

    `resources` are the resources of the machine, and `share` those that one call takes.
    """
    needed = {"CPU": share["num_cpus"], "GPU": share.get("num_gpus", 0.0)}
    return int(min(resources.get(name, 0.0) // amount for name, amount in needed.items() if amount > 0))


def viewed_bytes() -> int:
    """Return how many bytes in Ray's object store this process may read in place at a time, without copying them."""
    stores = [row["Resources"].get("object_store_memory", 0.0) for row in alive_rows()]
    return int(_VIEWED_SHARE * min(stores, default=0.0))
