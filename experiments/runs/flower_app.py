"""The same app for Flower's own command: `flwr run . --run-config 'config="CONFIG.toml" out="DIR"'`.

Verdict and report are printed into the log that `--stream` shows. Whatever raises here makes Flower call the run failed
(`flwr ls`), and the process that plays it end with a code; `flwr run` itself has ended by then, or only looks on.
"""

import sys
import time
from pathlib import Path

import ray
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from flwr.superlink.grid import InMemoryGrid

import fl_audit.experiments  # noqa: F401  # sets the environment before Ray is imported
from fl_audit.errors import InputError, require
from fl_audit.experiments.names import STOPPED, VIOLATED, WRONG_INPUT
from fl_audit.experiments.runs.audit_plan import resolve
from fl_audit.experiments.runs.cluster.backend import grid_on_pool
from fl_audit.experiments.runs.config_file import load_config
from fl_audit.experiments.runs.run import finish, play_on, require_playable
from fl_audit.experiments.runs.run_directory import RunDirectory
from fl_audit.strategies.errors import FederationError
from fl_audit.verdict.verdict import Verdict

server_app = ServerApp()

_SECONDS_FOR_RAY = 120.0
_SECONDS_BETWEEN_LOOKS = 0.05


class VerdictViolatedError(RuntimeError):
    """The verdict is violated, and the run configuration counts this as a failure."""


@server_app.main()
def main(grid: Grid, context: Context) -> None:
    """Carry out the run that the run configuration names, on Flower's grid.

    Raises
    ------
    InputError
        If configuration or directory cannot be used.
    FederationError
        If the federation had to stop; what was finished is kept.
    VerdictViolatedError
        If the verdict is violated, where `fail-on-violation` is set.
    """
    try:
        _carry_out(grid, context)
    except (InputError, FederationError, VerdictViolatedError) as error:
        # In one line, with the status that `fl-audit run` would have; Flower logs a traceback.
        status = {InputError: WRONG_INPUT, FederationError: STOPPED, VerdictViolatedError: VIOLATED}[type(error)]
        print(f"fl-audit: failed with status {status}: {error}", file=sys.stderr, flush=True)
        raise


def _carry_out(grid: Grid, context: Context) -> None:
    if isinstance(grid, InMemoryGrid):
        _wait_for_ray()
        grid = grid_on_pool(grid, context)
    config, out = (str(context.run_config.get(key, "")) for key in ("config", "out"))
    require(bool(config and out), 'flwr run needs --run-config \'config="CONFIG.toml" out="DIR"\', both absolute paths')
    plan, run = resolve(load_config(Path(config))), RunDirectory(Path(out))
    require_playable(plan)
    with run.opened(plan, resume=run.is_begun) as plan:
        play_on(grid, plan, run)
        verdict = str(finish(plan, run).summary["verdict"])
    print(f"fl-audit: verdict: {verdict}", flush=True)
    print(f"fl-audit: report: {run.path / 'report.html'}", flush=True)
    if context.run_config.get("fail-on-violation") and verdict == Verdict.VIOLATED:
        raise VerdictViolatedError("the verdict is violated")


def _wait_for_ray() -> None:
    """Wait until Flower's simulation has started its Ray, in another thread, while this app begins.

    Flower's process forks to start it, and OpenBLAS then waits for its own threads. If this thread multiplies matrices
    at that moment, as in the choice of the neighbour, both wait for each other, and the run never ends.

    Raises
    ------
    FederationError
        If there is no Ray in time.
    """
    deadline = time.monotonic() + _SECONDS_FOR_RAY
    while not ray.is_initialized():
        if time.monotonic() > deadline:
            raise FederationError(f"Flower started no Ray on this machine within {_SECONDS_FOR_RAY:.0f} s")
        time.sleep(_SECONDS_BETWEEN_LOOKS)
