"""Names of the papers, tables and figures that can be reproduced, available without importing a paper's module."""

from difflib import get_close_matches

from fl_audit.errors import InputError
from fl_audit.words import name_list

ITEMS = {
    "bernau2019": ("table2", "table3", "fig3", "fig4", "fig5", "fig6", "fig7", "adversaries", "claims"),
    "bernau2021": ("table1", "table2", "table3", *(f"fig{number}" for number in range(1, 10)), "claims"),
    "negoescu2023": (*(f"fig{number}" for number in range(1, 7)), "claims"),
}
"""The papers, in the order of their years, and the last part of the name of each of their items."""


def item_names() -> tuple[str, ...]:
    """Return all names that can be reproduced: papers, such as "bernau2019", and items, such as "bernau2019-table2"."""
    return tuple(name for paper, items in ITEMS.items() for name in (paper, *(f"{paper}-{item}" for item in items)))


def require_known(name: str) -> None:
    """Raise an `InputError` if a name is not in `item_names()`."""
    if name in item_names():
        return
    nearest = get_close_matches(name, item_names(), n=1, cutoff=0.0)[0]
    raise InputError(f"{name!r} is no reproduction: nearest is {nearest!r}, accepted are {name_list(item_names())}")
