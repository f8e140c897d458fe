"""Program that a review runs in a fresh process: it starts the app, or its clients alone, and sends what came out."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from fl_audit.app_audits.launchers.isolated_process import answer
from fl_audit.app_audits.launchers.refused_network import refuse_network
from fl_audit.app_audits.review.fresh_starts import trace_of_clients
from fl_audit.app_audits.review.options import ReviewOptions
from fl_audit.app_audits.review.review import trace_start


def _started(request: dict[str, Any], _: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Start the app in the working directory, and return the trace of its start; None if it claims nothing."""
    refuse_network()
    wishes = ReviewOptions(**request["wishes"])
    trace = trace_of_clients(Path.cwd()) if request["of_clients"] else trace_start(Path.cwd(), wishes)
    return {"trace": None if trace is None else trace.to_json()}


if __name__ == "__main__":
    answer(_started)
