"""Program that a review runs in a subprocess: it reviews the app in its working directory, without network."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fl_audit.app_audits.launchers.isolated_process import answer
from fl_audit.app_audits.launchers.refused_network import refuse_network
from fl_audit.app_audits.page import write_page
from fl_audit.app_audits.review.fresh_starts import StartTrace
from fl_audit.app_audits.review.options import ReviewOptions
from fl_audit.app_audits.review.review import review
from fl_audit.app_audits.review.review_messages import found_in, headline, report_lines_of_review, review_json


def _review(asked: dict[str, Any], tell: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Review the app in the working directory; `asked` holds the options, and `tell` receives preliminary results."""
    refuse_network()
    done = review(
        Path.cwd(),
        ReviewOptions(**asked["wishes"]),
        lambda said: print(said, file=sys.stderr, flush=True),
        lambda so_far: tell(review_json(so_far)),
        tuple(StartTrace(**trace) for trace in asked["traces"]),
    )
    values = review_json(done)
    if asked["out"]:
        results = [result for result in (done.result, done.beside) if result is not None]
        held = [(result, found_in(result)) for result in results]
        path = write_page(
            done.app, done.verdict, headline(done), report_lines_of_review(done), held, values, Path(asked["out"])
        )
        values["report"] = str(path)
    return values


if __name__ == "__main__":
    answer(_review)
