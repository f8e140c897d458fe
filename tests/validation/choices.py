"""Tools for the commands of validations: the choice of items by name, and the number of false alarms to expect."""

from collections.abc import Mapping
from typing import TypeVar

from scipy.stats import binom

from fl_audit.errors import InputError

T = TypeVar("T")


def named(names: str | None, known: Mapping[str, T], what: str) -> list[T]:
    """Return the values for a comma-separated list of names, in its order; None as the list returns all values.

    `what` is a noun for one of the values, for the error message about a name that is not known.
    """
    wanted = list(known) if names is None else names.split(",")
    for name in wanted:
        if name not in known:
            raise InputError(f"{what} is {name!r}: accepted are {', '.join(known)}")
    return [known[name] for name in wanted]


def allowed(audits: int) -> int:
    """Return the accepted number of false alarms in `audits` audits: the 99 % quantile of Binomial(audits, 0.05)."""
    return int(binom.ppf(0.99, audits, 0.05))
