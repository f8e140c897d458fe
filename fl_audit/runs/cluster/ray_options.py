"""Options of the Ray in which clients run."""

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psutil

from fl_audit.device import Device

if TYPE_CHECKING:
    from fl_audit.runs.config.run_section import RunSection

_ACTORS_ON_A_CARD = 4
"""Client processes that share a graphics card unless the configuration says otherwise."""


@dataclass(frozen=True)
class RayOptions:
    """Options of Ray, in which the clients run: Ray is either a running cluster, or started for this run."""

    # Address of a running cluster; None starts a Ray on this machine for the length of the run.
    address: str | None = None
    actors: int = 0  # client processes on an embedded Ray; 0 means one for every core (and thread count)
    threads: int = 1  # cores that one client takes
    device: Device = Device.CPU  # device of the clients; all client processes of a machine share its graphics card

    @classmethod
    def of(cls, run: "RunSection", address: str | None) -> "RayOptions":
        """Return the options of Ray in the settings of a run, together with the address of a cluster."""
        return cls(address, run.actors, run.threads, run.device)

    def head_arguments(self) -> dict[str, Any]:
        """Return the arguments of `ray.init` that start an embedded Ray with these options."""
        cores = (self.actors or calls_on_all_cores(self.threads)) * self.threads
        # "local" keeps Ray from joining a cluster that happens to run here or that RAY_ADDRESS names.
        return {"address": "local", "num_cpus": cores, "include_dashboard": False}

    def share(self) -> dict[str, float]:
        """Return the cores and the share of a graphics card of one client, by Ray's names "num_cpus" and "num_gpus"."""
        gpus = 0.0 if self.device is Device.CPU else 1 / (self.actors or _ACTORS_ON_A_CARD)
        return {"num_cpus": self.threads, "num_gpus": gpus}


def usable_cores() -> int:
    """Return the number of cores that this process may use; all cores if the system sets no limit."""
    process = psutil.Process()
    return len(process.cpu_affinity() or ()) if hasattr(process, "cpu_affinity") else os.cpu_count() or 1


def calls_on_all_cores(threads: int) -> int:
    """Return how many client calls of `threads` cores each fit on the usable cores of this machine, at least 1."""
    return max(1, usable_cores() // threads)
