"""The commands that carry out a run (`demo`, `run`) and that evaluate a stored run again (`replay`, `report`)."""

import json
from datetime import datetime
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fl_audit.cli import options
from fl_audit.cli.interrupts import flags_of, printing_continuation, without_seed
from fl_audit.data.catalogue import load_source
from fl_audit.device import Device
from fl_audit.errors import InputError, require
from fl_audit.runs.config_file import load_config
from fl_audit.runs.engine_names import Engine
from fl_audit.runs.expected_errors import VIOLATED
from fl_audit.runs.option_declarations import option, switch
from fl_audit.runs.progress import at_work
from fl_audit.runs.run_directory_checks import is_begun, require_run
from fl_audit.runs.run_start import carry_out, require_startable
from fl_audit.runs.terminal import console
from fl_audit.runs.verbosity import is_quiet

if TYPE_CHECKING:
    from fl_audit.federation.run_plan import RunPlan
    from fl_audit.report.report_elements import ReportContents

OutOption = Annotated[Path | None, option("DIR", "Run directory; must be new.  [default: runs/NAME-TIME]")]


def demo(
    out: OutOption = None,
    set_: options.SetOption = None,
    engine: options.EngineOption = Engine.RAY.value,
    fail_on_violation: options.FailOption = False,
    as_json: options.JsonOption = False,
) -> None:
    """Run the main job on built-in data: ten clients, an insider, a verdict, a report.

    The main job is an audit, which compares what an insider learns with the claimed guarantee.
    """
    with resources.as_file(resources.files("fl_audit.experiments") / "configs" / "demo.toml") as path:
        run(path, set_, out, engine=engine, fail_on_violation=fail_on_violation, as_json=as_json)


def run(
    config: options.ConfigArgument,
    set_: options.SetOption = None,
    out: OutOption = None,
    resume: Annotated[bool, switch("--resume", "Go on with the interrupted run in --out.")] = False,
    engine: options.EngineOption = Engine.RAY.value,
    ray_address: options.AddressOption = None,
    device: Annotated[
        str | None, option("cpu|cuda", "What clients compute on.  [default: run.device]", among=Device)
    ] = None,
    data_dir: options.DataDirOption = None,
    without_privacy: Annotated[
        bool,
        switch(
            "--without-privacy",
            "Play the same training without privacy too, in OUT-without-privacy; the report shows its accuracy.",
        ),
    ] = False,
    fail_on_violation: options.FailOption = False,
    as_json: options.JsonOption = False,
) -> None:
    """Carry out the audit that a configuration describes.

    With --json, the command prints the content of summary.json, with the paths of the run directory and of its report.
    """
    overrides = [*(set_ or []), *([] if device is None else [f"run.device={device}"])]
    chosen = options.engine_for(engine, ray_address)
    if resume and out is None:
        raise InputError("--resume without --out: name the directory of the interrupted run")
    directory = out or Path("runs") / f"{config.stem}-{datetime.now():%Y%m%d-%H%M%S}"
    settings = load_config(config, overrides, str(data_dir) if data_dir else None)
    require_startable(settings, directory, resume, without_privacy)

    def way_on() -> list[str] | None:
        if not is_begun(directory):
            return None
        flags = flags_of(engine=engine, ray_address=ray_address, data_dir=data_dir, out=directory)
        flags += ["--without-privacy"] * without_privacy
        return ["run", str(config), *without_seed(overrides), *flags, "--resume"]

    with printing_continuation(way_on):
        on_plan = (lambda plan: None) if as_json or is_quiet() else _tell_data
        contents = carry_out(settings, directory, chosen, ray_address, resume, without_privacy, on_plan)
    _print(contents, directory, as_json)
    options.end_if_violated(contents.summary["verdict"], fail_on_violation)


def replay(directory: options.DirectoryArgument, as_json: options.JsonOption = False) -> None:
    """Recompute the insider's log-odds and measured noise of the kept trials from DIR/public alone.

    Kept trials are those whose releases the run has stored. The command prints to how many digits the log-odds agree
    with those of the run, and ends with status 4 if they do not agree.
    """

    require_run(directory)

    from fl_audit.runs.replay import replay

    result = replay(directory)
    match = result.agreement(directory)
    if as_json:
        rows = {
            "trials": result.trials.tolist(),
            "log_odds": result.log_odds[:, -1].tolist(),
            "noise_ratio": result.noise_ratio.tolist(),
            "agrees": None if match is None else match.agrees,
            "digits": None if match is None else match.digits,
        }
        print(json.dumps(rows))
    else:
        print("trial  log-odds of D against D' after the last round  measured over claimed noise")
        for trial, log_odds, ratio in zip(result.trials, result.log_odds[:, -1], result.noise_ratio, strict=True):
            print(f"{trial:5d}  {log_odds:+43.9f}  {ratio:28.6f}")
        print(match or f"{directory} has no results of the run to compare with")
    if match is not None and not match.agrees:
        raise typer.Exit(VIOLATED)


def report(
    directory: options.DirectoryArgument,
    without_privacy: Annotated[
        Path | None, option("DIR", "The same training with private = false: its accuracy is shown beside, from now on.")
    ] = None,
    appendix: Annotated[
        bool, switch("--appendix", "Have report.pdf hold the appendix too, and not the page alone.")
    ] = False,
    fail_on_violation: options.FailOption = False,
) -> None:
    """Write DIR/report.html and DIR/report.pdf again from the stored results.

    Of another audit than a run, such as of a strategy or a released model, the stored result is printed.
    """
    if (directory / "summary.json").is_file() and not is_begun(directory):
        require(without_privacy is None and not appendix, f"{directory} is no run: accepted is the directory alone")
        from fl_audit.verdict.audit_result import read_result  # it takes a second

        result = read_result(directory)
        page = directory / "report.html"
        options.ResultOptions().show(result.to_json() | {"report": str(page) if page.is_file() else None})
        options.end_if_violated(str(result.verdict), fail_on_violation)
        return
    for run_directory in (directory, without_privacy):
        if run_directory is not None:
            require_run(run_directory)
    with at_work("getting ready"):
        from fl_audit.runs.run_report import rebuild_report

    contents = rebuild_report(directory, without_privacy, appendix)
    _tell_report(directory)
    options.end_if_violated(contents.summary["verdict"], fail_on_violation)


def _tell_data(plan: "RunPlan") -> None:
    """Print the warnings about guarantee and data and, for a table, the use of each column."""

    source = load_source(plan.federation.data)
    if source.columns:
        print(f"data: {source.description}")

    from fl_audit.data.column_encoding import column_lines

    for line in column_lines(source.columns):
        print(f"column {line}")

    from fl_audit.runs.plan_warnings import plan_warnings_of

    for caution in plan_warnings_of(plan):
        print(f"look at: {caution.text}")


def _print(contents: "ReportContents", directory: Path, as_json: bool) -> None:

    if as_json:
        paths = {"directory": str(directory), "report": str(directory / "report.html")}
        options.print_json(contents.summary | paths)
        return

    from fl_audit.audits.page.first_screen import summary_table
    from fl_audit.runs.stored_models import MODEL

    console().print(summary_table(contents))
    print(f"model: {directory / MODEL}")
    _tell_report(directory)


def _tell_report(directory: Path) -> None:
    from fl_audit.audits.page.report_files import why_no_pdf

    hindrance = why_no_pdf()
    print(f"report: {directory / 'report.html'}")
    print(f"no PDF was written: {hindrance}" if hindrance else f"the same as PDF: {directory / 'report.pdf'}")
