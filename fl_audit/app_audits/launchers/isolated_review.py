"""Review of the app in the working directory, and starts of this app, in subprocesses without network."""

import sys
from pathlib import Path
from typing import Any

from fl_audit.app_audits.audit_results import review_result
from fl_audit.app_audits.launchers.isolated_process import Tell
from fl_audit.app_audits.page import write_app_page
from fl_audit.app_audits.review.fresh_starts import StartTrace, trace_of_clients
from fl_audit.app_audits.review.review import review, trace_start
from fl_audit.app_audits.review.review_messages import found_in
from fl_audit.app_audits.trial_options import ReviewOptions

_REFUSED = ("socket.connect", "socket.getaddrinfo", "socket.sendto")


def start_app(request: dict[str, Any], _: Tell) -> dict[str, Any]:
    """Start the app, or its clients alone, and return the trace of the start; None if it claims nothing."""
    sys.addaudithook(_refuse_network)
    options = ReviewOptions(**request["options"])
    trace = trace_of_clients(Path.cwd()) if request["of_clients"] else trace_start(Path.cwd(), options)
    return {"trace": None if trace is None else trace.to_json()}


def review_app(request: dict[str, Any], tell: Tell) -> dict[str, Any]:
    """Review the app in the working directory; `request` holds the options, and `tell` receives preliminary results."""
    sys.addaudithook(_refuse_network)
    done = review(
        Path.cwd(),
        ReviewOptions(**request["options"]),
        lambda message: print(message, file=sys.stderr, flush=True),
        lambda so_far: tell(review_result(so_far).to_json()),
        tuple(StartTrace(**trace) for trace in request["traces"]),
    )
    result = review_result(done, request["bundle"])
    if not request["out"]:
        return result.to_json()
    audits = [(audit, found_in(audit)) for audit in (done.result, done.beside) if audit is not None]
    page = write_app_page(result, audits, not done.unseen, Path(request["out"]))
    return result.to_json() | {"report": str(page)}


def _refuse_network(event: str, arguments: tuple[Any, ...]) -> None:
    """Raise `ConnectionError` at a network operation, except on local (Unix) sockets; see `sys.addaudithook`."""
    if event in _REFUSED and not isinstance(arguments[-1], (str, bytes)):
        raise ConnectionError("a review has no network")
