"""The machines of a Ray cluster: room for client calls, sizes of object stores, and versions of packages."""

import platform
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import metadata
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from fl_audit.errors import require
from fl_audit.words import phrase_list

_VIEWED_SHARE = 0.2
"""Share of a node's object store that replies may take up until the server has read them."""
_SECONDS_FOR_VERSIONS = 30.0
"""Time limit for all machines together, each of which starts processes to answer; a silent machine is skipped."""
_SECONDS_BETWEEN_LOOKS = 0.5
_SECONDS_TO_FETCH = 5.0
_PYTHON = "Python"
_PACKAGES = ("flwr", "numpy", "torch")
"""Packages on which messages, or the last bits of the trials, depend; Ray itself compares the versions of Ray."""
_QUESTIONS: Mapping[str, tuple[Callable[..., str], tuple[str, ...]]] = {
    _PYTHON: (platform.python_version, ()),
    **{package: (metadata.version, (package,)) for package in _PACKAGES},
}
"""Functions that a machine is asked to call; they belong to Python itself, whose every version finds them by name."""


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


Versions = Mapping[str, str]
"""The versions of Python and packages on a machine, by name; "" for a package that is not installed."""


def own_versions() -> Versions:
    """Return the versions that this process has."""
    return {name: question(*arguments) for name, (question, arguments) in _QUESTIONS.items()}


def differing_versions(versions: Versions) -> str:
    """Return what a machine has in another version than this process, as "Python 3.12.1 and no torch"; "" if nothing.

    Python 3.11.7 and 3.11.9 count as equal, and so do builds of the same version, as torch 2.13.0 and 2.13.0+cpu.
    """
    local_versions = own_versions()
    differing = [
        name for name in local_versions if _compared(name, versions[name]) != _compared(name, local_versions[name])
    ]
    return phrase_list([f"{name} {versions[name]}" if versions[name] else f"no {name}" for name in differing])


def _compared(name: str, version: str) -> str:
    return version.rpartition(".")[0] if name == _PYTHON else version.partition("+")[0]


def versions_of(nodes: Iterable[str], is_over: Callable[[], bool] = lambda: False) -> dict[str, Versions]:
    """Return the versions of Python and packages on each machine, by Ray's node id.

    A machine that does not answer within 30 seconds is left out.
    """
    references = {node: {name: _ask(node, *question) for name, question in _QUESTIONS.items()} for node in nodes}
    waiting = [reference for of_node in references.values() for reference in of_node.values()]
    count = len(waiting)
    answered = list[Any]()
    deadline = time.monotonic() + _SECONDS_FOR_VERSIONS
    while len(answered) < count and time.monotonic() < deadline and not is_over():
        answered, _ = ray.wait(waiting, num_returns=count, timeout=_SECONDS_BETWEEN_LOOKS)
    versions = dict[str, Versions]()
    for node, of_node in references.items():
        if all(reference in answered for reference in of_node.values()):
            answers = {name: _answer(reference) for name, reference in of_node.items()}
            versions[node] = {name: answer for name, answer in answers.items() if answer is not None}
    return {node: of_node for node, of_node in versions.items() if len(of_node) == len(_QUESTIONS)}


def require_alike(address: str) -> None:
    """Raise `InputError` if a node of the joined Ray cluster has other versions than this process.

    The message names the address of the cluster.
    """
    addresses = {row["NodeID"]: row["NodeManagerAddress"] for row in alive_rows() if row["Resources"].get("CPU")}
    differences = {addresses[node]: differing_versions(versions) for node, versions in versions_of(addresses).items()}
    different = [f"node {host} has {difference}" for host, difference in differences.items() if difference]
    accepted = phrase_list([f"{name} {version}" for name, version in own_versions().items()])
    require(
        not different, f"--ray-address {address}: {'; '.join(different)}: accepted are nodes with {accepted}, as here"
    )


def _ask(identity: str, question: Any, arguments: tuple[str, ...]) -> Any:
    there = NodeAffinitySchedulingStrategy(node_id=identity, soft=False)
    remote: Any = ray.remote
    return remote(num_cpus=0, max_retries=0, scheduling_strategy=there)(question).remote(*arguments)


def _answer(reference: Any) -> str | None:
    """Return the answer of a machine: a version, "" if the package is not installed, None if the machine is lost."""
    try:
        return str(ray.get(reference, timeout=_SECONDS_TO_FETCH))
    except metadata.PackageNotFoundError:
        return ""
    except RayError:
        return None
