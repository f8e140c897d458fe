"""What can be reproduced, by name."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from experiments.reproductions.bernau2021.audits import audit_of_epsilon
from experiments.reproductions.bernau2021.beliefs import figure_6
from experiments.reproductions.bernau2021.expectations import table_3
from experiments.reproductions.bernau2021.identification import table_2
from experiments.reproductions.bernau2021.queries import figure_1, figure_2, figure_3
from experiments.reproductions.bernau2021.runs import Findings
from experiments.reproductions.bernau2021.sensitivities import figure_4, figure_5
from experiments.reproductions.bernau2021.settings import (
    DataSetting,
    Setting,
    Study,
    audit_settings,
    main_settings,
    neighbour_settings,
)
from experiments.reproductions.items import ItemResult
from fl_audit.errors import InputError

PAPER = "bernau2021"
"""Name of the whole paper, and the first part of the name of each of its items."""

Runs = Mapping[Setting, Findings]


@dataclass(frozen=True)
class Item:
    """A table or figure of the paper.

    Parameters
    ----------
    key
        Its own part of the name.
    title
        Number and subject.
    build
        Makes it from the data sets that are there and the runs on them; called only if there is a data set, or none
        is needed.
    settings
        The runs that it needs of some data sets.
    studies
        The data sets of the paper that it shows; empty if it needs no data.
    """

    key: str
    title: str
    build: Callable[[Sequence[DataSetting], Runs], ItemResult]
    settings: Callable[[Iterable[DataSetting]], tuple[Setting, ...]] = lambda data: ()
    studies: tuple[Study, ...] = ()

    @property
    def name(self) -> str:
        """Name on the command line."""
        return f"{PAPER}-{self.key}"

    def data_of(self, found: Iterable[DataSetting]) -> tuple[DataSetting, ...]:
        """Return those of the data sets found that the item shows."""
        return tuple(one for one in found if one.study in self.studies)


def _without_runs(build: Callable[[], ItemResult]) -> Callable[[Sequence[DataSetting], Runs], ItemResult]:
    return lambda data, runs: build()


def _audit(data: Sequence[DataSetting], runs: Runs) -> ItemResult:
    return audit_of_epsilon(data[0], runs)


_EVERY_STUDY = tuple(Study)

ITEMS = (
    Item("table2", "Table 2. Advantage and delta' at rho_beta = 0.9", table_2, main_settings, _EVERY_STUDY),
    Item("table3", "Table 3. epsilon and rho_alpha for rho_beta and delta", _without_runs(table_3)),
    Item("fig1", "Figure 1. The decision boundary of the adversary", _without_runs(figure_1)),
    Item("fig2", "Figure 2. Regions of error by epsilon", _without_runs(figure_2)),
    Item("fig3", "Figure 3. rho_beta and rho_alpha by epsilon and delta", _without_runs(figure_3)),
    Item("fig4", "Figure 4. Local sensitivity by neighbour", figure_4, neighbour_settings, _EVERY_STUDY),
    Item("fig5", "Figure 5. Sensitivities over the rounds", figure_5, main_settings, _EVERY_STUDY),
    Item("fig6", "Figure 6. Beliefs and test accuracy", figure_6, main_settings, _EVERY_STUDY),
    Item("fig7", "Figure 7. Audit of epsilon on MNIST", _audit, audit_settings, (Study.MNIST,)),
    Item("fig8", "Figure 8. Audit of epsilon on Purchase-100", _audit, audit_settings, (Study.PURCHASE,)),
    Item("fig9", "Figure 9. Audit of epsilon on Adult", _audit, audit_settings, (Study.ADULT,)),
)
"""Every table and figure with results, in the order of the paper's numbers."""


def item_names() -> tuple[str, ...]:
    """Return all names that can be reproduced."""
    return (PAPER, *(item.name for item in ITEMS))


def chosen_items(name: str) -> tuple[Item, ...]:
    """Return the items of a name: one, or all of the paper.

    Raises
    ------
    InputError
        If there is no such name.
    """
    if name == PAPER:
        return ITEMS
    found = tuple(item for item in ITEMS if item.name == name)
    if not found:
        nearest = get_close_matches(name, item_names(), n=1, cutoff=0.0)[0]
        raise InputError(f"{name!r} is no reproduction: nearest is {nearest!r}, accepted are {', '.join(item_names())}")
    return found
