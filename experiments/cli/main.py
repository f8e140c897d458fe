"""The command line: `fl-audit`."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, NoReturn

import typer

import fl_audit.experiments  # noqa: F401  # sets the environment before Flower is imported
from fl_audit.errors import InputError
from fl_audit.experiments import talk
from fl_audit.experiments.cli import options
from fl_audit.experiments.cli.check import check
from fl_audit.experiments.cli.compare import compare, export
from fl_audit.experiments.cli.evidence import bound, epsilon_star
from fl_audit.experiments.cli.init import init, settings
from fl_audit.experiments.cli.options import PlainCommand, PlainGroup, option, switch
from fl_audit.experiments.cli.promise import account, calibrate
from fl_audit.experiments.cli.run import demo, replay, report, run
from fl_audit.experiments.cli.sign import sign, verify
from fl_audit.experiments.cli.strategy import live, review, strategy
from fl_audit.experiments.cli.sweep import reproduce, sweep
from fl_audit.experiments.cli.training import training
from fl_audit.experiments.names import STOPPED, WRONG_INPUT
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

app = typer.Typer(
    cls=PlainGroup, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None, epilog=_STATUSES
)


def _tell_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"fl-audit {version('fl_audit')}")
        raise typer.Exit


@app.callback()
def _options(
    quiet: Annotated[bool, switch("--quiet", "Print result lines and errors, and nothing else.")] = False,
    log_level: Annotated[
        str | None,
        option(
            "LEVEL",
            f"Log to standard error what goes on, Flower's log with it: {', '.join(talk.LEVELS)}.",
            among=talk.LEVELS,
        ),
    ] = None,
    version: Annotated[
        bool, option(None, "Print the version and exit.", names=("--version",), callback=_tell_version, is_eager=True)
    ] = False,
) -> None:
    """Simulate differentially private federated learning, and audit what an insider can tell."""
    if log_level is not None and log_level not in talk.LEVELS:
        raise InputError(f"--log-level {log_level!r}: accepted are {', '.join(talk.LEVELS)}")
    talk.choose(quiet, log_level)


def datasets(data_dir: options.DataDirOption = None, as_json: options.JsonOption = False) -> None:
    """List the data sets that a configuration can name."""
    from fl_audit.data.catalogue import available, is_found

    directory = str(data_dir.absolute()) if data_dir else None
    found = {entry: is_found(entry.name, directory) for entry in available()}
    if as_json:
        rows = [entry._asdict() | {"found": is_here} for entry, is_here in found.items()]
        options.print_json({"datasets": rows})
        return
    cells = []
    for entry, is_here in found.items():
        here = "built in" if not entry.needs_files else "found" if is_here else "needs files"
        cells.append((entry.name, entry.description, here))
    options.print_table(("name", "what it is", "here"), cells)


_COMMANDS = (
    *(demo, init, check, run, replay, report, compare, export, sweep, settings, datasets),
    *(sign, verify, calibrate, account, bound, epsilon_star),
    *(strategy, review, training, live, reproduce),
)
for _command in _COMMANDS:
    # The list of commands would cut a sentence short where there is no shorter one.
    app.command(cls=PlainCommand, short_help=(_command.__doc__ or "").partition("\n")[0])(_command)


_LONGEST_LINE, _LONGEST_END = 1500, 300


def _fail(message: str, status: int) -> NoReturn:
    said = talk.printable(message)
    if len(said) > _LONGEST_LINE:  # a file's cell or a name may be longer than any line that is read
        said = f"{said[: _LONGEST_LINE - _LONGEST_END]} ... {said[-_LONGEST_END:]}"
    print(f"fl-audit: {said}", file=sys.stderr)
    sys.exit(status)


def guarded(command: Callable[[], object]) -> None:
    """Turn what a user or a federation did wrong into one line; other errors keep their traceback."""
    from fl_audit.strategies.errors import FederationError

    try:
        command()
    except InputError as error:
        _fail(str(error), WRONG_INPUT)
    except FederationError as error:
        _fail(f"the run stopped: {error}", STOPPED)
    except OSError as error:
        # A file that the user named or a full disk; an error without a file name is ours, and keeps its traceback.
        if error.filename is None:
            raise
        _fail(f"{error.filename}: {error.strerror}", WRONG_INPUT)


def main() -> None:
    """Run the command line."""
    talk.protect_terminal()
    # A model of one's own, `package.module:factory`, is looked for where the user stands.
    search_last(Path.cwd())
    guarded(app)


if __name__ == "__main__":
    main()
