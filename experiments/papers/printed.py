"""Numbers as a paper prints them, read from the paper's table `printed.csv`.

A row of the table has the place in the paper, the data set, the setting, the quantity and the number as printed. What
is shown in a figure only was read off it: its last digit is uncertain.
"""

import csv
from dataclasses import dataclass
from math import nan
from pathlib import Path

from fl_audit.experiments.papers.papers import PaperRun


@dataclass(frozen=True)
class PrintedNumber:
    """A number that a paper prints."""

    place: str  # where it stands, such as "Table 2"
    data: str  # the data set, by the paper's name; empty if there is none
    setting: str  # the setting without its data set
    quantity: str  # name of the number
    printed: str  # the number with all printed digits

    @property
    def value(self) -> float:
        """The number."""
        return float(self.printed)


class PrintedNumbers:
    """All numbers that a paper prints, by data set, setting and quantity."""

    def __init__(self, module: str) -> None:
        """Read the table that lies beside a module, given by its `__file__`."""
        with Path(module).with_name("printed.csv").open(encoding="utf-8", newline="") as file:
            self.rows = tuple(PrintedNumber(**row) for row in csv.DictReader(file))
        self._by_key = {(row.data, row.setting, row.quantity): row.value for row in self.rows}

    def __call__(self, data: str, setting: str, quantity: str) -> float:
        """Return a printed number; NaN if the paper prints none."""
        return self._by_key.get((data, setting, quantity), nan)

    def of(self, run: PaperRun, quantity: str) -> float:
        """Return the printed number of a run; NaN if the paper prints none."""
        return self(run.data.study, run.label.removeprefix(f"{run.data.title}, "), quantity)

    def at(self, item: str) -> tuple[PrintedNumber, ...]:
        """Return the numbers that stand at a place, in their order there."""
        return tuple(row for row in self.rows if row.place == item)
