"""The ServerApp of an audit run for Flower's own command: `flwr run . --run-config 'config="CONFIG.toml" out="DIR"'`.

The verdict and the path of the report are printed to the log, which `--stream` shows. After an exception, Flower lists
the run as failed (`flwr ls`), and the process of the run exits with an error status. `flwr run` itself only submits the
run and streams its log.
"""

import sys
import time
from pathlib import Path

import ray
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

import fl_audit.runs  # noqa: F401  # sets the environment before Ray is imported
from fl_audit.errors import FederationError, InputError, require
from fl_audit.runs.config_file import load_config
from fl_audit.runs.expected_errors import STOPPED, VIOLATED, WRONG_INPUT
from fl_audit.runs.planning import plan_run
from fl_audit.runs.run import run_audit_on_grid
from fl_audit.verdict.verdict import Verdict

server_app = ServerApp()

_GRID_OF_FLOWERS_SIMULATION = "InMemoryGrid"
_SECONDS_FOR_RAY = 120.0
_SECONDS_BETWEEN_LOOKS = 0.05


class VerdictViolatedError(RuntimeError):
    """Raised if the verdict is violated and `fail-on-violation` is set in Flower's run configuration."""


@server_app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the audit that Flower's run configuration names, on Flower's grid.

    The run configuration has the keys `config` (path of the configuration file) and `out` (path of the run directory).
    """
    try:
        _carry_out(grid, context)
    except (InputError, FederationError, VerdictViolatedError) as error:
        # In one line, with the status that `fl-audit run` would have; Flower logs a traceback.
        status = {InputError: WRONG_INPUT, FederationError: STOPPED, VerdictViolatedError: VIOLATED}[type(error)]
        print(f"fl-audit: failed with status {status}: {error}", file=sys.stderr, flush=True)
        raise


def _carry_out(grid: Grid, context: Context) -> None:
    if type(grid).__name__ == _GRID_OF_FLOWERS_SIMULATION:
        _wait_for_ray()
    config, out = (str(context.run_config.get(key, "")) for key in ("config", "out"))
    require(bool(config and out), 'flwr run needs --run-config \'config="CONFIG.toml" out="DIR"\', both absolute paths')
    plan = plan_run(load_config(Path(config)))
    directory = Path(out)
    verdict = str(run_audit_on_grid(plan, directory, grid).summary["verdict"])
    print(f"fl-audit: verdict: {verdict}", flush=True)
    print(f"fl-audit: report: {directory / 'report.html'}", flush=True)
    if context.run_config.get("fail-on-violation") and verdict == Verdict.VIOLATED:
        raise VerdictViolatedError("the verdict is violated")


def _wait_for_ray() -> None:
    """Wait until Flower has started Ray; the start of Ray forks, which fails while this thread multiplies matrices."""
    deadline = time.monotonic() + _SECONDS_FOR_RAY
    while not ray.is_initialized():
        if time.monotonic() > deadline:
            raise FederationError(f"Flower started no Ray on this machine within {_SECONDS_FOR_RAY:.0f} s")
        time.sleep(_SECONDS_BETWEEN_LOOKS)
