"""To which strategy games belong: a digest of its code and its settings."""

import inspect
from hashlib import sha256

from flwr.server.strategy import Strategy as OldStrategy
from flwr.serverapp.strategy import Strategy


def fingerprint(strategy: object) -> str:
    """Return a digest of a strategy, with those that it wraps: their code, and the numbers and switches they hold.

    Texts are left out, since many name files by the time of a run; so is what clients run, which is not known here.

    Parameters
    ----------
    strategy
        A strategy of either of Flower's interfaces.
    """
    return sha256("\n".join(_lines(strategy)).encode()).hexdigest()[:12]


def _lines(strategy: object) -> list[str]:
    lines = [_source(kind) for kind in type(strategy).__mro__[:-1]]
    for name, value in sorted(vars(strategy).items()):
        if isinstance(value, (Strategy, OldStrategy)):
            lines += [name, *_lines(value)]
        elif isinstance(value, (bool, int, float)):
            lines.append(f"{name} = {value!r}")
    return lines


def _source(kind: type) -> str:
    try:
        return inspect.getsource(kind)
    except (OSError, TypeError):  # made by hand, or compiled
        return kind.__qualname__
