"""The command line: `fl-audit`."""

import json
import sys
from collections.abc import Callable
from datetime import datetime
from importlib import resources
from pathlib import Path
from typing import Annotated, NoReturn

import typer

import experiments  # noqa: F401  # sets the environment before Flower is imported
from experiments.cli.check import check
from experiments.cli.compare import compare
from experiments.cli.epsilon_star import epsilon_star
from experiments.cli.evidence import bound
from experiments.cli.export import export
from experiments.cli.init import init
from experiments.cli.interrupts import goes_on_with, options, without_seed
from experiments.cli.promise import account, calibrate
from experiments.cli.reproduce import reproduce
from experiments.cli.settings import settings
from experiments.cli.strategy import strategy
from experiments.cli.sweep import sweep
from experiments.names import Engine
from fl_audit.errors import InputError
from fl_audit.user_modules import search_last

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode=None,
)

VIOLATED = 4
"""Exit status of a run whose promise is violated, where that is asked for; others are in `_fail` and `interrupts`."""

ConfigArgument = Annotated[Path, typer.Argument(metavar="CONFIG.toml", help="Configuration of the run.")]
DirectoryArgument = Annotated[Path, typer.Argument(metavar="DIR", help="Directory of a run.")]
OutOption = Annotated[
    Path | None, typer.Option("--out", metavar="DIR", help="Run directory; must be new.  [default: runs/NAME-TIME]")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Replace a setting of the file; may be repeated."),
]
ResumeOption = Annotated[bool, typer.Option("--resume", help="Go on with the interrupted run in --out.")]
EngineOption = Annotated[
    str, typer.Option("--engine", metavar="ray|local", help="Flower's runtime on Ray, or this process.")
]
AddressOption = Annotated[
    str | None, typer.Option("--ray-address", metavar="ADDRESS", help="Address of a running Ray cluster (HOST:PORT).")
]
DeviceOption = Annotated[
    str | None, typer.Option("--device", metavar="cpu|cuda", help="What clients compute on.  [default: run.device]")
]
FailOption = Annotated[
    bool, typer.Option("--fail-on-violation", help="End with status 4 if the verdict is violated: for CI.")
]
DataDirOption = Annotated[
    Path | None, typer.Option("--data-dir", metavar="DIR", help="Data directory.  [default: FL_AUDIT_DATA]")
]


def _tell_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"fl-audit {version('fl_audit')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_tell_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Simulate differentially private federated learning, and audit what an insider can tell."""


@app.command()
def demo(
    out: OutOption = None, set_: SetOption = None, engine: EngineOption = "ray", fail_on_violation: FailOption = False
) -> None:
    """Run the main job on built-in data: ten clients, an insider, a verdict, a report."""
    with resources.as_file(resources.files("experiments") / "configs" / "demo.toml") as path:
        verdict = _run(path, out, set_ or [], False, engine, None, None)
    _end_if_violated(verdict, fail_on_violation)


@app.command()
def run(
    config: ConfigArgument,
    set_: SetOption = None,
    out: OutOption = None,
    resume: ResumeOption = False,
    engine: EngineOption = "ray",
    ray_address: AddressOption = None,
    device: DeviceOption = None,
    data_dir: DataDirOption = None,
    fail_on_violation: FailOption = False,
) -> None:
    """Carry out the audit that a configuration describes."""
    overrides = [*(set_ or []), *([] if device is None else [f"run.device={device}"])]
    verdict = _run(config, out, overrides, resume, engine, ray_address, data_dir)
    _end_if_violated(verdict, fail_on_violation)


def _end_if_violated(verdict: str, is_failure: bool) -> None:
    from fl_audit.evidence.belief.verdict import Verdict

    if is_failure and verdict == Verdict.VIOLATED:
        raise typer.Exit(VIOLATED)


@app.command()
def replay(directory: DirectoryArgument, as_json: Annotated[bool, typer.Option("--json")] = False) -> None:
    """Recompute the insider's log-odds and measured noise of the kept worlds from DIR/public alone."""
    from experiments.runs.replay import replay as recompute

    result = recompute(directory)
    if as_json:
        rows = {
            "worlds": result.worlds.tolist(),
            "log_odds": result.log_odds[:, -1].tolist(),
            "noise_ratio": result.noise_ratio.tolist(),
        }
        print(json.dumps(rows))
        return
    print("world  log-odds of D against D' after the last round  measured over promised noise")
    for world, log_odds, ratio in zip(result.worlds, result.log_odds[:, -1], result.noise_ratio, strict=True):
        print(f"{world:5d}  {log_odds:+43.9f}  {ratio:28.6f}")


@app.command()
def report(directory: DirectoryArgument) -> None:
    """Write DIR/report.html and DIR/report.pdf again from the stored results."""
    from experiments.runs.run import rebuild_report

    rebuild_report(directory)
    _tell_report(directory)


for _command in (
    init,
    check,
    settings,
    calibrate,
    account,
    bound,
    epsilon_star,
    strategy,
    compare,
    export,
    reproduce,
    sweep,
):
    app.command()(_command)


@app.command()
def datasets(data_dir: DataDirOption = None) -> None:
    """List the data sets that a configuration can name."""
    from rich.console import Console
    from rich.table import Table

    from fl_audit.data.catalogue import available, is_found

    directory = str(data_dir.absolute()) if data_dir else None
    table = Table("name", "what it is", "here")
    for entry in available():
        found = "found" if is_found(entry.name, directory) else "needs files"
        table.add_row(entry.name, entry.description, found if entry.needs_files else "built in")
    Console().print(table)


def _run(
    config: Path,
    out: Path | None,
    overrides: list[str],
    resume: bool,
    engine: str,
    ray_address: str | None,
    data_dir: Path | None,
) -> str:
    """Carry out a run, print its summary, and return the verdict."""
    from experiments.runs.config_file import load_config

    if engine not in list(Engine):
        raise InputError(f"--engine {engine!r}: accepted are {' and '.join(Engine)}")
    if ray_address is not None and engine != Engine.RAY:
        raise InputError(f"--ray-address {ray_address!r} with --engine {engine}: it goes with --engine ray")
    if resume and out is None:
        raise InputError("--resume without --out: name the directory of the interrupted run")
    directory = out or Path("runs") / f"{config.stem}-{datetime.now():%Y%m%d-%H%M%S}"
    # A mistake in the configuration is answered before what takes seconds to import.
    settings = load_config(config, overrides, str(data_dir) if data_dir else None)
    from rich.console import Console

    from experiments.runs.plan import resolve
    from experiments.runs.progress import at_work, progress_bar
    from experiments.runs.run import require_playable, run_audit
    from experiments.runs.run_directory import RunDirectory
    from fl_audit.data.catalogue import load_source
    from fl_audit.data.columns import column_lines
    from fl_audit.report.page.console import summary_table

    def way_on() -> list[str] | None:
        if not RunDirectory(directory).is_begun:
            return None
        flags = options(engine=engine, ray_address=ray_address, data_dir=data_dir, out=directory)
        return ["run", str(config), *without_seed(overrides), *flags, "--resume"]

    with goes_on_with(way_on):
        with at_work(f"loading the data, choosing the neighbour: {settings.audit.neighbour}"):
            plan = resolve(settings)
        if plan.public.weights is not None:
            with at_work(f"passing records through the frozen core of {plan.public.model}"):
                require_playable(plan)
        for line in column_lines(load_source(plan.public.data).columns):
            print(f"column {line}")
        contents = run_audit(plan, directory, Engine(engine), ray_address, resume, progress_bar)
    Console().print(summary_table(contents))
    _tell_report(directory)
    return str(contents.summary["verdict"])


def _tell_report(directory: Path) -> None:
    from fl_audit.report.page.pdf import hindrance

    print(f"report: {directory / 'report.html'}")
    print(f"no PDF was written: {hindrance()}" if hindrance() else f"the same as PDF: {directory / 'report.pdf'}")


def _fail(message: str, status: int) -> NoReturn:
    print(f"fl-audit: {message}", file=sys.stderr)
    sys.exit(status)


def guarded(command: Callable[[], object]) -> None:
    """Turn what a user or a federation did wrong into one line; other errors keep their traceback."""
    from strategies.errors import FederationError

    try:
        command()
    except InputError as error:
        _fail(str(error), 2)
    except FederationError as error:
        _fail(f"the run stopped: {error}", 3)
    except OSError as error:
        # A file that the user named or a full disk; an error without a file name is ours, and keeps its traceback.
        if error.filename is None:
            raise
        _fail(f"{error.filename}: {error.strerror}", 2)


def main() -> None:
    """Run the command line."""
    # A model of one's own, `package.module:factory`, is looked for where the user stands.
    search_last(Path.cwd())
    guarded(app)


if __name__ == "__main__":
    main()
