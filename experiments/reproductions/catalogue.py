"""The papers, tables and figures that can be reproduced, by name."""

from difflib import get_close_matches
from typing import Any

from experiments.reproductions.bernau2019.paper import PAPER as BERNAU_2019
from experiments.reproductions.bernau2021.paper import PAPER as BERNAU_2021
from experiments.reproductions.negoescu2023.paper import PAPER as NEGOESCU_2023
from experiments.reproductions.papers import Item, Paper
from fl_audit.errors import InputError

PAPERS: tuple[Paper[Any], ...] = (BERNAU_2019, BERNAU_2021, NEGOESCU_2023)
"""The papers, in the order of their years."""


def item_names() -> tuple[str, ...]:
    """Return all names that can be reproduced: every paper, followed by its items."""
    return tuple(name for paper in PAPERS for name in (paper.key, *map(paper.name_of, paper.items)))


def chosen_items(name: str) -> tuple[Paper[Any], tuple[Item, ...]]:
    """Return the paper that a name belongs to, and the items that the name stands for: a single one, or all.

    Raises
    ------
    InputError
        If there is no such name.
    """
    for paper in PAPERS:
        found = tuple(item for item in paper.items if name in (paper.key, paper.name_of(item)))
        if found:
            return paper, found
    nearest = get_close_matches(name, item_names(), n=1, cutoff=0.0)[0]
    raise InputError(f"{name!r} is no reproduction: nearest is {nearest!r}, accepted are {', '.join(item_names())}")
