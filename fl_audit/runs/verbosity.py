"""Verbosity of this process: which messages, beside results, are printed, logged or given to a function."""

import codecs
import io
import logging
import sys
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO, cast

LEVELS = ("debug", "info", "warning", "error")
_LAYOUT = "\n\t\u200c\u200d"  # the last two join letters or keep them apart
_READABLE = "fl-audit-readable"
_ASCII = {"\N{NO-BREAK SPACE}": " ", "\N{EN DASH}": "-", "\N{EM DASH}": "-"}
LOG = logging.getLogger("fl_audit")  # this program's own log, for `--log-level`

LOG.addHandler(logging.NullHandler())  # without one, Python would print warnings of a program that has chosen nothing

Listener = Callable[[str], None]
"""A function that receives the lines of progress of a run, instead of standard error; also from threads of the run."""

_FLOWER = logging.getLogger("flwr")
_chosen = {"quiet": False, "log": False, "flower": False}
_listeners: list[Listener] = []


def set_verbosity(quiet: bool, level: str | None) -> None:
    """Set the verbosity of this process.

    `level`: None prints no log messages.
    """
    _chosen.update(quiet=quiet, log=level is not None)
    for handler in LOG.handlers[:]:
        LOG.removeHandler(handler)
    LOG.propagate = False
    LOG.setLevel(logging.CRITICAL + 1 if level is None else level.upper())
    if level is not None:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        LOG.addHandler(handler)


def is_quiet() -> bool:
    """Return whether only results and errors are printed."""
    return _chosen["quiet"]


@contextmanager
def with_verbosity(listener: Listener | None, quiet: bool) -> Iterator[None]:
    """Set the verbosity while the block runs, and restore the former verbosity afterwards."""
    before = dict(_chosen)
    _chosen["quiet"] = quiet
    _listeners.extend([] if listener is None else [listener])
    try:
        yield
    finally:
        _chosen.update(before)
        if listener is not None:
            _listeners.pop()


def has_listener() -> bool:
    """Return whether progress messages go to a function instead of standard error."""
    return bool(_listeners)


def say(line: str) -> None:
    """Give a line to the function that receives progress messages; print it to standard error if there is none."""
    if _listeners:
        _listeners[-1](line)
    else:
        print(line, file=sys.stderr, flush=True)


def tell(line: str) -> None:
    """Give the user a message during a run, unless the verbosity is quiet; the message is also logged as a warning."""
    LOG.warning(line)
    if not is_quiet():
        say(line if has_listener() else f"fl-audit: {line}")


def printable(text: str) -> str:
    """Return a text in which all control characters are escaped, so that a file name cannot control the terminal.

    Examples
    --------
    >>> printable("a\\x1b[31mb\\n")
    'a\\\\x1b[31mb\\\\n'
    """
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode() for character in text
    )


def plain(text: str) -> str:
    """Return a text in which control characters are escaped, except for line breaks and tabs.

    Examples
    --------
    >>> plain("20 % of \\x1b[2J")
    '20 % of \\\\x1b[2J'
    """
    return (
        text
        if text.isprintable()
        else "".join(character if _is_plain(character) else printable(character) for character in text)
    )


def _is_plain(character: str) -> bool:
    return character.isprintable() or character in _LAYOUT or unicodedata.category(character) == "Zs"


class EscapingStream(io.TextIOBase):
    """A text stream that escapes control characters, except for line breaks and tabs.

    Column names, labels and file names come from other people. The terminal would obey control characters in them.

    Parameters
    ----------
    stream
        The stream to which the escaped text is written.
    """

    def __init__(self, stream: TextIO) -> None:
        self.rich_proxied_file = stream  # rich writes here, with the colours that are its own
        self._stream = stream

    def write(self, text: str) -> int:
        """Write a text with escaped control characters, and return the length of the given text."""
        self._stream.write(plain(text))
        return len(text)

    def flush(self) -> None:
        self._stream.flush()

    def isatty(self) -> bool:
        return self._stream.isatty()

    def fileno(self) -> int:
        return self._stream.fileno()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def protect_terminal() -> None:
    """Make standard output and standard error escape control characters, which could change the terminal, from now on.

    Characters that the encoding of the output lacks are replaced as well.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None or isinstance(stream, EscapingStream):
            continue
        if isinstance(stream, io.TextIOWrapper):
            codecs.register_error(_READABLE, _readable)
            stream.reconfigure(errors=_READABLE)
        setattr(sys, name, cast(TextIO, EscapingStream(stream)))


def _readable(error: UnicodeError) -> tuple[str, int]:
    """Return what to write instead of characters that the encoding lacks, and the position after them; for `codecs`."""
    assert isinstance(error, UnicodeEncodeError)
    unreadable = error.object[error.start : error.end]
    return "".join(_ASCII.get(character) or printable(ascii(character)[1:-1]) for character in unreadable), error.end


def show_flower() -> None:
    """Have `settle_flower` show Flower's log of a user's app, without colours, unless the verbosity is quiet."""
    _chosen["flower"] = True
    for handler in _FLOWER.handlers:
        if hasattr(handler, "colored"):  # of Flower's own handler
            handler.colored = False


def settle_flower() -> None:
    """Hide Flower's log messages, unless `show_flower` was called or the user has chosen a log level.

    The chosen log level then applies to Flower as well.
    """
    level = logging.INFO if _chosen["flower"] and not _chosen["quiet"] else logging.CRITICAL + 1
    _FLOWER.setLevel(LOG.level if _chosen["log"] else level)
