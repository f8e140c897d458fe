"""The one exception that means: the user's input, not the program, is wrong."""


class InputError(ValueError):
    """Input that cannot be used, said in one line: what was wrong, the value, what is accepted.

    The command line prints its message without a traceback and exits with status 2.
    """


def require(condition: bool, message: str) -> None:
    """Raise `InputError` with `message` unless `condition` holds."""
    if not condition:
        raise InputError(message)


def in_percent(number: float) -> str:
    """Return what a share should have been, as the end of a message, where it seems to have been given in percent."""
    return f"; {number:g} % is {number / 100:g}" if 1 < number < 100 and number == int(number) else ""
