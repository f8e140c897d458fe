"""The versions of Python and Flower on the machines of a Ray cluster, which must be the same as in this process."""

import platform
import time
from collections.abc import Callable, Iterable
from importlib import metadata
from typing import Any, NamedTuple

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from fl_audit.errors import require
from fl_audit.runs.cluster.nodes import alive_rows

_SECONDS_FOR_VERSIONS = 30.0
"""Time limit for all machines together, each of which starts a process to answer; a silent machine is skipped."""
_SECONDS_BETWEEN_LOOKS = 0.5
_SECONDS_TO_FETCH = 5.0
_VERSIONS = ((platform.python_version, ()), (metadata.version, ("flwr",)))
"""Functions that a machine is asked to call; they belong to Python itself, whose every version finds them by name."""


class MachineVersions(NamedTuple):
    """The versions of Python and Flower that are installed on a machine."""

    python: str  # "3.11.7"
    flower: str  # "1.15.0", or "no" if Flower is not installed

    def __str__(self) -> str:
        return f"Python {self.python} and flwr {self.flower}"

    @property
    def is_ours(self) -> bool:
        """Whether Python and Flower have the versions of this process; Python 3.11.7 and 3.11.9 count as equal."""
        own = _own_versions()
        return (self.python.rpartition(".")[0], self.flower) == (own.python.rpartition(".")[0], own.flower)


def _own_versions() -> MachineVersions:
    return MachineVersions(platform.python_version(), metadata.version("flwr"))


def versions_of(nodes: Iterable[str], is_over: Callable[[], bool] = lambda: False) -> dict[str, MachineVersions]:
    """Return the versions of Python and Flower on each machine, by Ray's node id.

    A machine that does not answer within 30 seconds is left out.
    """
    asked = {node: [_ask(node, *one) for one in _VERSIONS] for node in nodes}
    every = [one for answers in asked.values() for one in answers]
    there, left, deadline = list[Any](), every, time.monotonic() + _SECONDS_FOR_VERSIONS
    while left and time.monotonic() < deadline and not is_over():
        there, left = ray.wait(every, num_returns=len(every), timeout=_SECONDS_BETWEEN_LOOKS)
    found = {node: [_answer(one) if one in there else None for one in answers] for node, answers in asked.items()}
    return {node: MachineVersions(*map(str, answers)) for node, answers in found.items() if None not in answers}


def require_alike(address: str) -> None:
    """Raise `InputError` if a node of the joined Ray cluster has other versions of Python or Flower than this process.

    The message names the address of the cluster.
    """
    used = {row["NodeID"]: row["NodeManagerAddress"] for row in alive_rows() if row["Resources"].get("CPU")}
    others = [f"node {used[node]} has {one}" for node, one in versions_of(used).items() if not one.is_ours]
    said = f"{'; '.join(others)}: accepted are nodes with {_own_versions()}, as here"
    require(not others, f"--ray-address {address}: {said}")


def _ask(identity: str, question: Any, arguments: tuple[str, ...]) -> Any:
    there = NodeAffinitySchedulingStrategy(node_id=identity, soft=False)
    remote: Any = ray.remote
    return remote(num_cpus=0, max_retries=0, scheduling_strategy=there)(question).remote(*arguments)


def _answer(reference: Any) -> str | None:
    try:
        return str(ray.get(reference, timeout=_SECONDS_TO_FETCH))
    except metadata.PackageNotFoundError:
        return "no"
    except RayError:
        return None
