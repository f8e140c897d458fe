"""The process of a review: an app's code runs in one of its own, in a copy, without network, for a limited time.

This module is the program of that process, too.
"""

import json
import os
import shutil
import signal
import site
import subprocess
import sys
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fl_audit.errors import InputError
from fl_audit.whole_files import whole_file
from strategies.review.options import ReviewOptions

_LEFT_OUT = shutil.ignore_patterns(".git", ".venv", "venv", "node_modules", "__pycache__", "wandb", "mlruns")
_LARGEST = 20_000_000  # bytes of a file that is copied: what is larger is data
_SWITCHES = {
    "WANDB_MODE": "disabled", "COMET_MODE": "disabled", "NEPTUNE_MODE": "debug", "CLEARML_OFFLINE_MODE": "1",
    "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "FLWR_TELEMETRY_ENABLED": "0",
    "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "PYTHONSAFEPATH": "1", "PYTHONDONTWRITEBYTECODE": "1",
}  # fmt: skip
"""What keeps known trackers and hubs quiet, and the games on the processors that they are given."""


def reviewed(app: Path, wishes: ReviewOptions, out: Path | None = None) -> dict[str, Any]:
    """Review an app in a process of its own, and return the review as JSON values.

    Parameters
    ----------
    app
        Directory of the app; it is copied, and stays as it is.
    wishes
        What the reviewer says besides.
    out
        Where `report.html` and `summary.json` are written; None for nowhere.

    Raises
    ------
    InputError
        If the app cannot be reviewed, or not within its time.
    """
    if not app.is_dir():
        raise InputError(f"{app} is no directory: accepted is the directory of a Flower app")
    with TemporaryDirectory(prefix="fl-audit-review-") as room:
        place = Path(room)
        # The app keeps its name where it is its directory's.
        copy = place / "copy" / (app.resolve().name or "app")
        shutil.copytree(app, copy, symlinks=True, ignore=_ignored)
        told, request = place / "told.json", place / "request.json"
        asked = {"told": str(told), "out": out and str(out.absolute()), "wishes": asdict(wishes)}
        request.write_text(json.dumps(asked), encoding="utf-8")
        status = _run(copy, request, place, wishes.seconds)
        if status is None:
            raise InputError(
                f"{app} was not reviewed within {wishes.seconds / 60:g} minutes, and the last thing said was "
                f"{_last_line(place)!r}: accepted is --quick, or more --minutes"
            )
        if not told.is_file():
            raise InputError(f"the process that reviewed {app} ended with status {status}: {_last_line(place)}")
        found: dict[str, Any] = json.loads(told.read_text(encoding="utf-8"))
    if "error" in found:
        raise InputError(found["error"].replace(str(copy), str(app)))
    return found


def _run(copy: Path, request: Path, place: Path, seconds: float) -> int | None:
    """Run a review; return its status, None if it took too long."""
    home = place / "home"
    home.mkdir()
    # What is written to the home directory is written to another one; packages of the user stay where they are.
    environment = os.environ | _SWITCHES | {"HOME": str(home), "PYTHONUSERBASE": site.getuserbase()}
    environment |= {"MLFLOW_TRACKING_URI": f"file:{place / 'mlflow'}", "WANDB_DIR": str(home)}
    environment["PYTHONPATH"] = os.pathsep.join(entry for entry in sys.path if entry)
    with (place / "log").open("wb") as log:
        command = [sys.executable, "-m", "experiments.trials.review_process", str(request)]
        child = subprocess.Popen(
            command, cwd=copy, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
        try:
            return child.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        finally:
            # Whoever it started ends with it.
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()


def _ignored(directory: str, names: list[str]) -> set[str]:
    paths = {name: Path(directory, name) for name in names}
    large = {name for name, path in paths.items() if path.is_file() and path.stat().st_size > _LARGEST}
    # Pipes, sockets and devices cannot be copied, and an app has them for its time alone.
    odd = {name for name, path in paths.items() if path.exists() and not (path.is_file() or path.is_dir())}
    return large | odd | set(_LEFT_OUT(directory, names))


def _last_line(place: Path) -> str:
    lines = (place / "log").read_text(encoding="utf-8", errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing")


_REFUSED = ("socket.connect", "socket.getaddrinfo", "socket.sendto")


def _without_network(event: str, arguments: tuple[Any, ...]) -> None:
    """Refuse what would leave this machine; sockets of its own are files."""
    if event in _REFUSED and not isinstance(arguments[-1], (str, bytes)):
        raise ConnectionError("a review has no network")


def _main(request: Path) -> None:
    """Review what a request names, in this process, and write what came of it."""
    asked = json.loads(request.read_text(encoding="utf-8"))
    sys.addaudithook(_without_network)
    try:
        found = _review(Path.cwd(), asked)
    except InputError as error:
        found = {"error": str(error)}
    with whole_file(Path(asked["told"])) as file:
        file.write_text(json.dumps(found, allow_nan=False), encoding="utf-8")


def _review(directory: Path, asked: dict[str, Any]) -> dict[str, Any]:
    from experiments.trials.page import write_page
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
    _main(Path(sys.argv[1]))
