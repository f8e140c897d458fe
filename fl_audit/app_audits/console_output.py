"""Output of an audit on standard error, and Flower's log, which would drown it."""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager


def say(line: str) -> None:
    """Print a line on standard error. The prefix `fl_audit: ` distinguishes it from the app's own output."""
    sys.stderr.write(f"fl_audit: {line}\n")
    sys.stderr.flush()


@contextmanager
def no_news_from_flower() -> Iterator[None]:
    """Switch off Flower's log within a `with` block; afterwards restore its level."""
    logger = logging.getLogger("flwr")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(level)
