"""The command `simulate`, which plays a whole Flower app on the engines of this software."""

from pathlib import Path
from typing import Annotated

from fl_audit.cli.options import AddressOption, EngineOption, engine_for
from fl_audit.errors import require
from fl_audit.runs.engine_names import Engine
from fl_audit.runs.option_declarations import argument, option
from fl_audit.words import plural


def simulate(
    app_dir: Annotated[Path, argument("APP_DIR", "Directory of a Flower app: its pyproject.toml has [tool.flwr.app].")],
    run_config: Annotated[
        list[str] | None,
        option("KEY=VALUE", "Values of the app's run configuration, or a TOML file, as flwr run takes them."),
    ] = None,
    clients: Annotated[int | None, option("N", "Clients of the app.  [default: its file's, or 10]")] = None,
    engine: EngineOption = Engine.RAY.value,
    ray_address: AddressOption = None,
) -> None:
    """Play a whole Flower app, unchanged, with its clients in processes of Ray or in threads.

    It takes the place of flwr run for a simulation: no SuperLink is started and nothing is installed. Flower's log goes
    to standard error, and files that the app writes go where the command was given.
    """
    chosen = engine_for(engine, ray_address)
    require(clients is None or clients >= 1, f"--clients {clients}: accepted are whole numbers from 1")

    from fl_audit.app_audits.app_simulation import simulate_app

    played = simulate_app(app_dir, chosen, run_config or [], clients, ray_address)
    number = plural(played.clients, "client")
    print(f"{played.app.name}: played with {number} on engine {played.engine} in {played.seconds:.1f} s")
    if played.failed_calls:
        calls = plural(played.failed_calls.total(), "call")
        error = next(iter(played.failed_calls))
        print(f"warning: {calls} of clients failed, and the app was given no reply of them; the first: {error}")
