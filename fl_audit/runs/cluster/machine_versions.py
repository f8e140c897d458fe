"""The versions of Python and packages on the machines of a Ray cluster, which must be the same as in this process."""

import platform
import time
from collections.abc import Callable, Iterable, Mapping
from importlib import metadata
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from fl_audit.errors import require
from fl_audit.runs.cluster.nodes import alive_rows
from fl_audit.words import phrase_list

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
