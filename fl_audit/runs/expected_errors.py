"""The exit statuses of the commands, and programs that end with one of them and one line on an expected error."""

import sys
from collections.abc import Callable
from typing import NoReturn

from fl_audit.errors import FederationError, InputError
from fl_audit.runs import verbosity

WRONG_INPUT = 2
STOPPED = 3
VIOLATED = 4
OVER_BUDGET = 5
"""Exit statuses: nothing was written; the finished part is kept; the verdict, where a violation is a failure; a
training that would exceed its site's budget.
"""
_LONGEST_LINE = 1500
_LONGEST_END = 300


def _fail(message: str, status: int) -> NoReturn:
    text = verbosity.printable(message)
    if len(text) > _LONGEST_LINE:  # a file's cell or a name may be longer than any line that is read
        text = f"{text[: _LONGEST_LINE - _LONGEST_END]} ... {text[-_LONGEST_END:]}"
    print(f"fl-audit: {text}", file=sys.stderr)
    sys.exit(status)


def guarded(command: Callable[[], object]) -> None:
    """Run a command, and turn an expected error into one line on standard error and an exit status.

    Expected are `InputError`, `FederationError`, and an `OSError` that names a file. Other exceptions are not caught.
    """
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
