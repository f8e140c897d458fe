"""Review of an app's directory in a subprocess, on a copy of the directory, without network and with a time limit.

The subprocess calls the functions of `isolated_review`.
"""

import shutil
import site
import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from fl_audit.app_audits.launchers.app_bundle import bundle_hash
from fl_audit.app_audits.launchers.isolated_process import run_isolated, temporary_directory
from fl_audit.app_audits.silent_trackers import TRACKERS_OFF
from fl_audit.app_audits.temporary_directories import DIRECTORY_PREFIX
from fl_audit.app_audits.trial_options import ReviewOptions
from fl_audit.errors import InputError
from fl_audit.words import capital

_REVIEW = "fl_audit.app_audits.launchers.isolated_review:review_app"
_START = "fl_audit.app_audits.launchers.isolated_review:start_app"
_OF_START = 1 / 3  # share of the time limit in which the first fresh start of the app must end
_OF_FIRST_START = 4.0  # a second start may take as many times the time of the first one, on a machine that is busy
_LEAST_START = 30.0  # seconds in which an app may start, at most half of the time limit: imports alone take some
_LEFT_OUT = shutil.ignore_patterns(".git", ".venv", "venv", "node_modules", "__pycache__", "wandb", "mlruns")
_LARGEST = 20_000_000  # bytes of a file that is copied: what is larger is data
_SWITCHES = TRACKERS_OFF | {
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "FLWR_TELEMETRY_ENABLED": "0",
    "CUDA_VISIBLE_DEVICES": "",
    "OMP_NUM_THREADS": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
}
"""Environment variables that keep trackers and hubs quiet, and the trials on their processors."""


def reviewed(app: Path, options: ReviewOptions, out: Path | None = None) -> dict[str, Any]:
    """Review a Flower app in a subprocess, and return the review as JSON values, keyed by name."""
    if not app.is_dir():
        raise InputError(f"{app} is no directory: accepted is the directory of a Flower app")
    began = time.monotonic()
    with temporary_directory() as path:
        environment = _environment(path)
        bundle = bundle_hash(app, path / "bundle")
        traces = _fresh_starts(app, options, path, environment)
        # The copy keeps the name of the directory, because this may be the name of the app.
        copy = _copied(app, path / "copy")
        review_options = replace(options, seconds=options.seconds - (time.monotonic() - began))
        request = {
            "out": out and str(out.absolute()),
            "options": asdict(review_options),
            "traces": traces,
            "bundle": bundle,
        }
        with (path / "log").open("wb") as log:
            answer_values, ended, is_late = run_isolated(
                _REVIEW, request, path, review_options.seconds, copy, environment, log
            )
        last = _last_line(path)
    if answer_values is None and is_late:
        raise InputError(
            f"{app} was not reviewed within {options.seconds / 60:.3g} minutes: no trial was played until then, "
            "and the "
            f"last thing said was {last!r}; accepted is more --minutes"
        )
    if answer_values is None:
        raise InputError(f"the process that reviewed {app} {ended}: {last}")
    if "error" in answer_values:
        raise InputError(answer_values["error"].replace(str(copy), str(app)))
    if ended:
        early = f"the review {ended}: this is what was judged until then, and no page was written"
        answer_values["remarks"].append(early)
        answer_values["lines"].append(["Stopped early", f"{capital(early)}."])
    return answer_values


def _fresh_starts(app: Path, options: ReviewOptions, path: Path, environment: Mapping[str, str]) -> list[Any]:
    """Return the trace of a start of the app in another process, or of two of its clients; [] without a claim."""

    def start(name: str, of_clients: bool, limit: float) -> dict[str, Any] | None:
        copy = _copied(app, path / name)
        request = {"options": asdict(options), "of_clients": of_clients}
        with (path / f"log of {name}").open("wb") as log:
            values, ended, _ = run_isolated(_START, request, path, limit, copy, environment, log)
        shutil.rmtree(path / name, ignore_errors=True)
        failure = f"the process of a start {ended}" if values is None else str(values.get("error", ""))
        trace: dict[str, Any] | None = {"failure": failure} if failure or values is None else values["trace"]
        return trace

    began = time.monotonic()
    server = start("start", False, start_limit(options.seconds))
    if server is None:
        return []
    if server.get("awaits_clients"):
        limit = start_limit(options.seconds, time.monotonic() - began)
        return [start(f"clients {number}", True, limit) for number in (1, 2)]
    return [server]


def start_limit(seconds: float, first_seconds: float = 0.0) -> float:
    """Return the seconds in which a fresh start of an app must end.

    `seconds`: Time limit of the whole review.

    `first_seconds`: Time that the first start took; 0 before it. It counts four times, up to half of the time limit.
    """
    limit = max(_OF_START * seconds, min(_LEAST_START, seconds / 2))
    return max(limit, min(_OF_FIRST_START * first_seconds, seconds / 2))


def _copied(app: Path, path: Path) -> Path:
    copy = path / (app.resolve().name or "app")
    shutil.copytree(app, copy, symlinks=True, ignore=_ignored)
    return copy


def _environment(path: Path) -> dict[str, str]:
    home = path / "home"
    home.mkdir()
    # Writes to the home directory go to another one; packages of the user stay in place.
    environment = _SWITCHES | {"HOME": str(home), "PYTHONUSERBASE": site.getuserbase() or ""}
    return environment | {"MLFLOW_TRACKING_URI": f"file:{path / 'mlflow'}", "WANDB_DIR": str(home)}


def _ignored(directory: str, names: list[str]) -> set[str]:
    paths = {name: Path(directory, name) for name in names}
    large = {name for name, path in paths.items() if path.is_file() and path.stat().st_size > _LARGEST}
    # Pipes, sockets and devices cannot be copied, and an app has them for its time alone.
    odd = {name for name, path in paths.items() if path.exists() and not (path.is_file() or path.is_dir())}
    # If temporary files are kept in the app's directory, the copy is not copied into itself.
    rooms = {name for name in names if name.startswith(DIRECTORY_PREFIX)}
    return large | odd | rooms | set(_LEFT_OUT(directory, names))


def _last_line(path: Path) -> str:
    lines = (path / "log").read_text(encoding="utf-8", errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing")
