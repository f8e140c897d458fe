"""Whether a machine of a cluster has the Python and the Flower of the driver: calls fail oddly otherwise."""

import platform
import time
from collections.abc import Callable, Iterable
from importlib import metadata
from typing import Any, NamedTuple

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from fl_audit.errors import require

_SECONDS_TO_ANSWER = 30.0
"""For all machines together: each starts a process to answer. One that has fallen silent is passed over."""
_SECONDS_BETWEEN_LOOKS = 0.5
_SECONDS_TO_FETCH = 5.0
_ASKED = ((platform.python_version, ()), (metadata.version, ("flwr",)))
"""What a machine is asked. These are functions of Python itself, which any version of it finds by their names."""


class Versions(NamedTuple):
    """What a machine has."""

    python: str  # "3.11.7"
    flower: str  # "no" where it has none

    def __str__(self) -> str:
        return f"Python {self.python} and flwr {self.flower}"

    @property
    def is_ours(self) -> bool:
        """Whether that machine and this process understand each other: the third number of Python does not matter."""
        own = own_versions()
        return (self.python.rpartition(".")[0], self.flower) == (own.python.rpartition(".")[0], own.flower)


def own_versions() -> Versions:
    """Return the versions of this process."""
    return Versions(platform.python_version(), metadata.version("flwr"))


def versions_of(nodes: Iterable[str], is_over: Callable[[], bool] = lambda: False) -> dict[str, Versions]:
    """Return what machines have, by Ray's names of them; of a machine that is lost nothing.

    Parameters
    ----------
    nodes, is_over
        Ray's names of the machines, and whether nobody waits for the answers any more.
    """
    asked = {node: [_ask(node, *one) for one in _ASKED] for node in nodes}
    every = [one for answers in asked.values() for one in answers]
    there, left, deadline = list[Any](), every, time.monotonic() + _SECONDS_TO_ANSWER
    while left and time.monotonic() < deadline and not is_over():
        there, left = ray.wait(every, num_returns=len(every), timeout=_SECONDS_BETWEEN_LOOKS)
    found = {node: [_answer(one) if one in there else None for one in answers] for node, answers in asked.items()}
    return {node: Versions(*map(str, answers)) for node, answers in found.items() if None not in answers}


def require_alike(address: str) -> None:
    """Refuse a cluster, by the address that the user named, with a machine that has another Python or Flower."""
    rows: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    used = {row["NodeID"]: row["NodeManagerAddress"] for row in rows if row["Alive"] and row["Resources"].get("CPU")}
    others = [f"node {used[node]} has {one}" for node, one in versions_of(used).items() if not one.is_ours]
    said = f"{'; '.join(others)}: accepted are nodes with {own_versions()}, as here"
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
