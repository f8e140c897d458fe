"""Program that a review runs in a subprocess: it reviews the app in its working directory, without network."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fl_audit.app_audits.audit_results import review_result
from fl_audit.app_audits.launchers.isolated_process import answer
from fl_audit.app_audits.launchers.refused_network import refuse_network
from fl_audit.app_audits.page import write_app_page
from fl_audit.app_audits.review.fresh_starts import StartTrace
from fl_audit.app_audits.review.options import ReviewOptions
from fl_audit.app_audits.review.review import review
from fl_audit.app_audits.review.review_messages import found_in


def _review(request: dict[str, Any], tell: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Review the app in the working directory; `request` holds the options, and `tell` receives preliminary results."""
    refuse_network()
    done = review(
        Path.cwd(),
        ReviewOptions(**request["wishes"]),
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


if __name__ == "__main__":
    answer(_review)
