"""Tools for the commands of validations: the choice of items by name, and the number of false alarms to expect."""

from collections.abc import Mapping
from typing import TypeVar

from scipy.stats import binom

from fl_audit.errors import InputError

T = TypeVar("T")


def selected_values(names: str | None, values_by_name: Mapping[str, T], noun: str) -> list[T]:
    """Return the values for a comma-separated list of names, in its order; None as the list returns all values.

    `what` is a noun for one of the values, for the error message about a name that is not known.
    """
    chosen_names = list(values_by_name) if names is None else names.split(",")
    for name in chosen_names:
        if name not in values_by_name:
            raise InputError(f"{noun} is {name!r}: accepted are {', '.join(values_by_name)}")
    return [values_by_name[name] for name in chosen_names]


def allowed(audits: int) -> int:
    """Return the accepted number of false alarms in `audits` audits: the 99 % quantile of Binomial(audits, 0.05)."""
    return int(binom.ppf(0.99, audits, 0.05))
