"""The client app under Flower's own command, where Flower itself starts Ray, in the process that imports this module.

Flower imports this module before it starts Ray. The import restricts that Ray to its own processes, makes them end with
this process, and replaces Flower's actor pool by the pool of client processes.
"""

import fl_audit.experiments  # noqa: F401  # sets the environment before Ray is imported
from fl_audit.clients.app import app as client_app
from fl_audit.experiments.runs.cluster.access import close_a_ray_to_come
from fl_audit.experiments.runs.cluster.backend import put_pool_in_place
from fl_audit.experiments.runs.process_guard import nothing_outlives_this_process

__all__ = ["client_app"]

nothing_outlives_this_process(close_a_ray_to_come())
put_pool_in_place()
