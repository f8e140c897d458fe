"""The ClientApp of an audit run for Flower's own command.

Flower imports this module before it starts Ray. Ray then admits only its own processes, and all of these
processes end when this process ends.
"""

import fl_audit.runs  # noqa: F401  # sets the environment before Ray is imported
from fl_audit.clients.app import app as client_app
from fl_audit.runs.cluster.embedded_ray import restrict_later_ray
from fl_audit.runs.process_guard import nothing_outlives_this_process

__all__ = ["client_app"]

nothing_outlives_this_process(restrict_later_ray())
