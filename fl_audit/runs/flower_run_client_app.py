"""The ClientApp of an audit run for Flower's own command.

Flower imports this module before it starts Ray. The import has three effects. Ray then admits only its own processes,
all of these processes end when this process ends, and Flower's simulation uses our pool of client processes.
"""

import fl_audit.runs  # noqa: F401  # sets the environment before Ray is imported
from fl_audit.clients.app import app as client_app
from fl_audit.runs.cluster.flower_runtime_patch import put_pool_in_place
from fl_audit.runs.cluster.ray_connection import restrict_later_ray
from fl_audit.runs.process_guard import nothing_outlives_this_process

__all__ = ["client_app"]

nothing_outlives_this_process(restrict_later_ray())
put_pool_in_place()
