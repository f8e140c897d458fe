"""The papers, tables and figures that can be reproduced, by name."""

from typing import Any

from experiments.reproductions.bernau2019.paper import PAPER as BERNAU_2019
from experiments.reproductions.bernau2021.paper import PAPER as BERNAU_2021
from experiments.reproductions.names import require_known
from experiments.reproductions.negoescu2023.paper import PAPER as NEGOESCU_2023
from experiments.reproductions.papers import Item, Paper

PAPERS: tuple[Paper[Any], ...] = (BERNAU_2019, BERNAU_2021, NEGOESCU_2023)  # the papers, in the order of their years


def chosen_items(name: str) -> tuple[Paper[Any], tuple[Item, ...]]:
    """Return the paper that a name belongs to, and the items that the name stands for: a single one, or all.

    Raises
    ------
    InputError
        If there is no such name.
    """
    require_known(name)
    paper = next(paper for paper in PAPERS if name == paper.key or name.startswith(f"{paper.key}-"))
    return paper, tuple(item for item in paper.items if name in (paper.key, paper.name_of(item)))
