"""One review in this process, which ends with it: called by `review_process`."""

import json
import sys
from pathlib import Path
from typing import Any

from fl_audit.errors import InputError
from fl_audit.whole_files import whole_file

_CALLS = ("socket.connect", "socket.getaddrinfo", "socket.sendto")


def _without_network(event: str, arguments: tuple[Any, ...]) -> None:
    """Refuse what would leave this machine; sockets of its own are files."""
    if event in _CALLS and not isinstance(arguments[-1], (str, bytes)):
        raise ConnectionError("a review has no network")


def main(request: Path) -> None:
    """Review what a request names, and write what came of it."""
    asked = json.loads(request.read_text(encoding="utf-8"))
    sys.addaudithook(_without_network)
    found: dict[str, Any]
    try:
        found = _reviewed(Path.cwd(), asked)
    except InputError as error:
        found = {"error": str(error)}
    with whole_file(Path(asked["told"])) as file:
        file.write_text(json.dumps(found, allow_nan=False), encoding="utf-8")


def _reviewed(directory: Path, asked: dict[str, Any]) -> dict[str, Any]:
    from experiments.trials.page import write_page
    from strategies.review.options import ReviewOptions
    from strategies.review.review import review
    from strategies.review.words import found_in, headline, review_json, screen

    done = review(directory, ReviewOptions(**asked["wishes"]), lambda said: print(said, file=sys.stderr, flush=True))
    values = review_json(done)
    if asked["out"]:
        trials = [trial for trial in (done.trial, done.beside) if trial is not None]
        held = [(trial, found_in(trial)) for trial in trials]
        path = write_page(done.app, done.verdict, headline(done), screen(done), held, values, Path(asked["out"]))
        values["report"] = str(path)
    return values


if __name__ == "__main__":
    main(Path(sys.argv[1]))
