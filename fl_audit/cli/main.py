"""The program `fl-audit`: its commands, its options, and the exit status of errors."""

import sys
from pathlib import Path
from typing import Annotated

import click
import typer

import fl_audit.runs  # sets the environment before Ray is imported
from fl_audit.cli.lazy_commands import LazyGroup
from fl_audit.errors import InputError
from fl_audit.runs import verbosity
from fl_audit.runs.expected_errors import guarded
from fl_audit.runs.option_declarations import option, switch
from fl_audit.user_modules import search_last
from fl_audit.words import name_list

_STATUSES = """\b
Exit status:
  0    done; of run, demo and report: whatever the verdict is
  2    wrong input, said in one line; nothing was written
  3    the run stopped, said in one line; what was finished is kept
  4    violated, with --fail-on-violation; of replay and verify: it does not agree; of gate: a rule is not met
  5    of account --ledger: the budget is spent
  130  interrupted; the line says which command goes on, if any does
"""

_HERE = "fl_audit.cli"


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
        "gate": f"{_HERE}.sign",
        "calibrate": f"{_HERE}.guarantee",
        "account": f"{_HERE}.guarantee",
        "bound": f"{_HERE}.offline_bounds",
        "epsilon-star": f"{_HERE}.offline_bounds",
        "strategy": f"{_HERE}.black_box_commands",
        "review": f"{_HERE}.black_box_commands",
        "training": f"{_HERE}.training",
        "simulate": f"{_HERE}.simulate",
        "live": f"{_HERE}.black_box_commands",
        "release": f"{_HERE}.release",
        "reproduce": f"{_HERE}.many_run_commands",
    }


app = typer.Typer(
    cls=Commands, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None, epilog=_STATUSES
)


def _tell_version(is_asked: bool) -> None:
    if is_asked:
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
    guarded(_run_command)


def _run_command() -> None:
    """Run the command that the command line names; raise `InputError` if the command line has no such form."""
    try:
        status = app(standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        status = error.exit_code
    except click.ClickException as error:
        raise InputError(usage_error_text(error)) from error
    except click.Abort:
        from fl_audit.cli.interrupts import end_as_interrupted

        end_as_interrupted()
    sys.exit(status or 0)


def usage_error_text(error: click.ClickException) -> str:
    """Return one line about a command line that the program does not take, with accepted values and where help is."""
    text = error.format_message().rstrip(".")
    if not isinstance(error, click.UsageError) or error.ctx is None:
        return text
    if isinstance(error, click.MissingParameter) and error.param is not None:
        words = [item.value for item in error.param.shell_complete(error.ctx, "")]
        text += f": accepted are {name_list(words)}" if words and isinstance(error.param, click.Option) else ""
    return f"{text}{' See' if text.endswith('?') else '; see'} {error.ctx.command_path} --help"


if __name__ == "__main__":
    main()
