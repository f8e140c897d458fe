"""The Ray engine, which runs a Flower app with client calls in processes of Ray; the other engine is `local_engine`."""

import io
from collections import Counter
from contextlib import redirect_stdout
from functools import partial
from typing import TYPE_CHECKING

from flwr.app import UserConfig
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from ray import cloudpickle

from fl_audit.clients.app import announce_calls
from fl_audit.device import Device
from fl_audit.errors import FederationError
from fl_audit.runs.cluster.call_errors import CallError
from fl_audit.runs.cluster.call_scheduling import CallScheduler
from fl_audit.runs.cluster.pool import ClientPool
from fl_audit.runs.cluster.ray_connection import ray_for
from fl_audit.runs.cluster.ray_options import RayOptions, calls_on_all_cores
from fl_audit.runs.local_engine import run_on
from fl_audit.strategies.simulated_grid import SimulatedGrid
from fl_audit.user_modules import PortableValue

if TYPE_CHECKING:
    from fl_audit.runs.config.run_section import RunSection


def local_calls(run: "RunSection") -> int:
    """Return the number of simultaneous client calls in the local engine, by section [run] of the configuration.

    The setting `actors` gives the number. If it is 0, there is one call per `threads` usable cores on the CPU, and one
    call on a graphics card.
    """
    if run.device is not Device.CPU:
        return max(1, run.actors)
    return run.actors or calls_on_all_cores(run.threads)


def run_on_ray(
    server_app: ServerApp,
    client_app: ClientApp,
    clients: int,
    options: RayOptions,
    run_config: UserConfig | None = None,
) -> Counter[str]:
    """Run a Flower app in this process, with client calls in Ray processes; return the failed calls by their errors.

    If Ray was started for this run, Ray and all its processes are ended before the function returns.

    `run_config`: Run configuration in the contexts of the server and of the clients. None for an empty one.
    """
    # Ray prints its own long account of a client process that died; the run says it in one line.
    with redirect_stdout(io.StringIO()), ray_for(options):
        # Workers would look for our modules in the user's directory first; see `PortableValue`.
        app, ahead = (PortableValue(portable, cloudpickle.dumps) for portable in (client_app, announce_calls))
        try:
            pool = ClientPool(app, options.share(), ahead, is_shared=options.address is not None)
        except CallError as error:
            raise FederationError(str(error)) from error
        # The grid lives longer than Ray: what it refers to in Ray must not be let go while Ray is being shut down.
        grid = SimulatedGrid(clients, partial(CallScheduler, pool), run_config)
        return run_on(grid, server_app)
