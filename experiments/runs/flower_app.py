"""The same app for Flower's own command: `flwr run . --run-config 'config="CONFIG.toml" out="DIR"'`."""

from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

import experiments  # noqa: F401  # sets the environment before Ray is imported
from experiments.runs.config_file import load_config
from experiments.runs.plan import resolve
from experiments.runs.run import finish, play_on, require_playable
from experiments.runs.run_directory import RunDirectory
from fl_audit.errors import require

server_app = ServerApp()


@server_app.main()
def main(grid: Grid, context: Context) -> None:
    """Carry out the run that the run configuration names, on Flower's grid."""
    settings = {key: str(context.run_config.get(key, "")) for key in ("config", "out")}
    require(
        all(settings.values()), 'flwr run needs --run-config \'config="CONFIG.toml" out="DIR"\', both absolute paths'
    )
    plan, run = resolve(load_config(Path(settings["config"]))), RunDirectory(Path(settings["out"]))
    require_playable(plan)
    plan = run.open(plan, resume=run.is_begun)
    with run.locked():
        play_on(grid, plan, run)
        finish(plan, run)
