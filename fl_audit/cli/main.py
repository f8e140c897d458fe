"""The program `fl-audit`: its commands, its options, and the exit status of errors."""

import sys
from pathlib import Path
from typing import Annotated

import click
import typer

import fl_audit.runs  # sets the environment before Ray is imported
from fl_audit.cli.lazy_commands import LazyGroup
from fl_audit.errors import InputError
from fl_audit.name_lists import name_list
from fl_audit.runs import verbosity
from fl_audit.runs.exit_statuses import INTERRUPTED, WRONG_INPUT
from fl_audit.runs.expected_errors import guarded
from fl_audit.runs.option_declarations import option, switch
from fl_audit.user_modules import search_last

_STATUSES = """\b
Exit status:
  0    done; of run, demo and report: whatever the verdict is
  2    wrong input, said in one line; nothing was written
  3    the run stopped, said in one line; what was finished is kept
  4    violated, with --fail-on-violation; of replay and verify: it does not agree
  5    of account --ledger: the budget is spent
  130  interrupted; the line says which command goes on, if any does
"""

_HERE, _PROGRAM = "fl_audit.cli", "fl-audit"


class Commands(LazyGroup):
    """The group of all commands, with the module of each command."""

    places = {  # noqa: RUF012
        "demo": f"{_HERE}.single_run_commands",
        "init": f"{_HERE}.configuration_commands",
        "check": f"{_HERE}.check",
        "run": f"{_HERE}.single_run_commands",
        "replay": f"{_HERE}.single_run_commands",
        "report": f"{_HERE}.single_run_commands",
        "compare": f"{_HERE}.finished_run_commands",
        "export": f"{_HERE}.finished_run_commands",
        "sweep": f"{_HERE}.many_run_commands",
        "settings": f"{_HERE}.configuration_commands",
        "datasets": f"{_HERE}.datasets",
        "sign": f"{_HERE}.sign",
        "verify": f"{_HERE}.sign",
        "calibrate": f"{_HERE}.guarantee",
        "account": f"{_HERE}.guarantee",
        "bound": f"{_HERE}.offline_bounds",
        "epsilon-star": f"{_HERE}.offline_bounds",
        "strategy": f"{_HERE}.black_box_commands",
        "review": f"{_HERE}.black_box_commands",
        "training": f"{_HERE}.training",
        "live": f"{_HERE}.black_box_commands",
        "reproduce": f"{_HERE}.many_run_commands",
    }


app = typer.Typer(
    cls=Commands, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None, epilog=_STATUSES
)


def _tell_version(wanted: bool) -> None:
    if wanted:
        print(f"fl-audit {fl_audit.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    quiet: Annotated[bool, switch("--quiet", "Print result lines and errors, and nothing else.")] = False,
    log_level: Annotated[
        str | None,
        option(
            "LEVEL",
            f"Log to standard error what goes on, Flower's log with it: {', '.join(verbosity.LEVELS)}.",
            among=verbosity.LEVELS,
        ),
    ] = None,
    version: Annotated[
        bool, option(None, "Print the version and exit.", names=("--version",), callback=_tell_version, is_eager=True)
    ] = False,
) -> None:
    """Simulate differentially private federated learning, and audit what an insider can tell."""
    if log_level is not None and log_level not in verbosity.LEVELS:
        raise InputError(f"--log-level {log_level!r}: accepted are {name_list(verbosity.LEVELS)}")
    verbosity.set_verbosity(quiet, log_level)


def main() -> None:
    """Run the program `fl-audit` with the arguments of the command line."""
    verbosity.protect_terminal()
    # A model of one's own, `package.module:factory`, is looked for where the user stands.
    search_last(Path.cwd())
    guarded(_run)


def _run() -> None:
    """Run the command of the command line; raise `InputError` for words that it does not take."""
    try:
        status = app(standalone_mode=False, prog_name=_PROGRAM)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        sys.exit(WRONG_INPUT)
    except click.UsageError as error:
        command = _PROGRAM if error.ctx is None else error.ctx.command_path
        said = " ".join(error.format_message().split()).rstrip(".")
        raise InputError(f"{said}: see {command} --help") from error
    except click.Abort:
        sys.exit(INTERRUPTED)
    sys.exit(status if isinstance(status, int) else 0)


if __name__ == "__main__":
    main()
