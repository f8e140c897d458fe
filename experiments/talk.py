"""How much a program says beside its results: chosen once by whoever starts it, and asked by what would say it."""

import logging
import sys

LEVELS = ("debug", "info", "warning", "error")
LOG = logging.getLogger("fl_audit")  # what goes on, for `--log-level`: this program's own log

_FLOWER = logging.getLogger("flwr")
_chosen = {"quiet": False, "log": False}


def choose(quiet: bool, level: str | None) -> None:
    """Choose what is said.

    Parameters
    ----------
    quiet, level
        Whether nothing but results and errors is said, and from which of `LEVELS` on logs of this program and of Flower
        go to standard error; None logs nothing.
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
    """Return whether nothing but results and errors is to be said."""
    return _chosen["quiet"]


def tell(line: str) -> None:
    """Say on standard error what a user should know while a run goes on."""
    LOG.warning(line)
    if not is_quiet():
        print(f"fl-audit: {line}", file=sys.stderr, flush=True)


def printable(text: str) -> str:
    """Return a text without what would act on a terminal, such as control characters in the name of a file.

    Examples
    --------
    >>> printable("a\\x1b[31mb\\n")
    'a\\\\x1b[31mb\\\\n'
    """
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def settle_flower() -> None:
    """Keep Flower's log off the terminal, unless logs are wanted: what matters of it is raised or shown by the run."""
    _FLOWER.setLevel(LOG.level if _chosen["log"] else logging.CRITICAL + 1)
