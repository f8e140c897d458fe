"""A paper that can be reproduced: its data sets with the configuration of their runs, and its tables and figures.

A paper is data, and `reproduce` works on any: a base configuration, axes along which runs differ, numbers as printed,
claims, and one function for each table or figure (item) that makes it from the finished runs.
"""

import csv
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from math import nan
from pathlib import Path
from typing import Any

import pandas as pd

from fl_audit.adjacency import NeighbourPair
from fl_audit.experiments.papers.claims import PaperClaim
from fl_audit.experiments.papers.item_results import COLUMNS, ItemResult
from fl_audit.parquet_files import read_frame
from fl_audit.run_files import read_json
from fl_audit.runs.config import RunConfig, parse_config
from fl_audit.runs.engine_names import Engine
from fl_audit.runs.progress import RunsProgress, no_runs_progress
from fl_audit.runs.run_directory import RunDirectory, read_public

Settings = Mapping[str, Any]
"""Settings of a configuration, by `section.key`, and facts that are no settings, by a name without a dot.

Facts are the values of the axes along which the runs on a data set differ, and what else the paper states of it.
"""


def nested(settings: Settings) -> dict[str, dict[str, Any]]:
    """Return settings by section and key, without the facts among them."""
    values: dict[str, dict[str, Any]] = {}
    for key, value in settings.items():
        section, dot, name = key.partition(".")
        if dot:
            values.setdefault(section, {})[name] = value
    return values


class ComputeExtent(StrEnum):
    """The form of a reproduction: FULL has the size of the paper's experiment, and QUICK has few repetitions."""

    FULL = "full"
    QUICK = "quick"


@dataclass(frozen=True)
class ReproductionOptions:
    """Settings of a reproduction: directories, full or quick extent, engine and progress display."""

    directory: Path  # directory of all files
    data_dir: Path | None = None  # data directory; None means that of the environment
    extent: ComputeExtent = ComputeExtent.FULL  # full or quick
    engine: Engine | None = None  # engine of the clients; None means in this process, or in one for every core
    progress: RunsProgress = no_runs_progress  # shows the progress of all runs together
    # Called with a line of text as soon as a data set or item is replaced or left out.
    announce: Callable[[str], None] = field(default=lambda line: None)
    # Address of a running Ray cluster; None starts a Ray on this machine where one is needed.
    ray_address: str | None = None

    @property
    def runs(self) -> Path:
        """Directory of the runs; the full form cannot use runs of the quick form."""
        return self.directory / ("runs" if self.extent is ComputeExtent.FULL else f"runs-{self.extent}")


@dataclass(frozen=True)
class PaperDataset:
    """A data set of a paper, or one that stands in for it, with what all its runs have in common."""

    study: str  # the paper's data set that it is, or stands in for
    title: str  # name as shown, which says so if it stands in for another data set
    settings: Settings = field(hash=False)
    quick: Settings | None = field(default=None, hash=False)  # what the quick form sets; None leaves it out there
    stands_in: bool = False  # whether it is another data set than the paper's
    remark: str = ""  # what a page says wherever it is used

    def __getitem__(self, key: str) -> Any:
        """The value of a setting or fact."""
        return self.settings[key]

    @property
    def name(self) -> str:
        """Its name in the catalogue of data sets."""
        return str(self["data.name"])

    def in_form(self, extent: ComputeExtent) -> "PaperDataset | None":
        """Return it with the settings of the full or the quick form; None if the quick form leaves it out."""
        if extent is ComputeExtent.FULL:
            return self
        return None if self.quick is None else replace(self, settings={**self.settings, **self.quick})


@dataclass(frozen=True)
class PaperRun:
    """A run of a paper: one value of each axis on one data set."""

    data: PaperDataset
    name: str  # name of its directory
    label: str  # its name in tables
    settings: Settings = field(hash=False, repr=False)  # all settings of its configuration, and facts

    def __getitem__(self, key: str) -> Any:
        """The value of a setting or fact; None if there is none."""
        return self.settings.get(key)

    def values(self, data_dir: Path | None = None) -> dict[str, dict[str, Any]]:
        """Return the configuration as nested dictionaries that are not validated yet."""
        overrides = {} if data_dir is None else {"data.data-dir": str(data_dir.absolute())}
        return nested({**self.settings, **overrides})

    def config(self, data_dir: Path | None = None) -> RunConfig:
        """Return the validated configuration."""
        return parse_config(self.values(data_dir))


@dataclass(frozen=True, eq=False)
class StoredPaperRun:
    """A run that was carried out; what its directory holds is read when it is asked for."""

    run: PaperRun
    config: RunConfig
    path: Path  # its directory

    @cached_property
    def summary(self) -> Mapping[str, Any]:
        """Contents of `summary.json`."""
        summary: Mapping[str, Any] = read_json(RunDirectory(self.path).summary)
        return summary

    @cached_property
    def trials(self) -> pd.DataFrame:
        """Table of the trials."""
        return read_frame(self.path / "trials.parquet")

    @cached_property
    def rounds(self) -> pd.DataFrame:
        """Table of the rounds of all trials."""
        return read_frame(self.path / "rounds.parquet")

    @cached_property
    def pair(self) -> NeighbourPair:
        """Difference of D and D'."""
        return read_public(self.path)[0].pair

    @property
    def repetitions(self) -> int:
        """Number of trials."""
        return len(self.trials)


@dataclass(frozen=True)
class StoredPaperRuns:
    """The data sets that are there, and all finished runs, from which tables and figures are made."""

    data: tuple[PaperDataset, ...]  # data sets that the table or figure shows
    runs: Mapping[PaperRun, StoredPaperRun]  # all runs of this reproduction, also on other data sets
    extent: ComputeExtent = ComputeExtent.FULL

    def __getitem__(self, run: PaperRun) -> StoredPaperRun:
        """The results of a run."""
        return self.runs[run]

    @property
    def stands_in(self) -> bool:
        """Whether one of the data sets stands in for one of the paper."""
        return any(data.stands_in for data in self.data)


@dataclass(frozen=True)
class PaperItem:
    """A table or figure of a paper."""

    key: str  # the last part of its name on the command line, and the name of its files
    title: str  # its number in the paper and its subject
    build: Callable[[StoredPaperRuns], ItemResult]  # makes it; called only if a data set is there, or none is needed
    studies: tuple[str, ...] = ()  # data sets of the paper that it shows; empty if it needs no data
    runs: Callable[[PaperDataset], Iterable[PaperRun]] = lambda data: ()  # the runs that it shows of a data set
    claims: Callable[[StoredPaperRuns], Iterable[PaperClaim]] = lambda finished: ()  # claims of the text that it tests
    needs_data: bool = True  # whether it is left out if none of its data sets is there

    def can_be_made(self, data: Iterable[PaperDataset]) -> bool:
        """Return whether it can be made from some data sets."""
        return not (self.studies and self.needs_data) or bool(self.shown(data))

    def shown(self, data: Iterable[PaperDataset]) -> tuple[PaperDataset, ...]:
        """Return, in their order, those of some data sets that it shows."""
        return tuple(dataset for dataset in data if dataset.study in self.studies)


@dataclass(frozen=True)
class PageNotes:
    """Texts of a paper's page besides its tables and figures."""

    training: str = ""  # a paragraph on all runs
    columns: tuple[str, ...] = ()  # columns of the table of runs
    numbers: tuple[int, ...] = ()  # positions of the columns that hold numbers
    rows: tuple[tuple[str, ...], ...] = ()  # a row for each run
    opening: str = ""  # the paragraph with which the page opens; empty for the usual one, which counts printed numbers
    warnings: tuple[str, ...] = ()  # warnings to read before any number


ItemResults = tuple[tuple[PaperItem, ItemResult], ...]


@dataclass(frozen=True, eq=False)
class Paper:
    """A paper that can be reproduced: its data sets, runs and items."""

    key: str  # name of the whole paper, and the first part of the name of each of its items
    heading: str  # authors and year, as in running text
    reference: str  # the full reference
    items: tuple[PaperItem, ...]  # every table and figure that shows results, in the order of the paper
    # By data set of the paper, what may be used for it, best first, each in one or several versions.
    candidates: Mapping[str, Sequence[Sequence[PaperDataset]]]
    runs: Callable[[PaperDataset], Iterable[PaperRun]]  # all runs on a data set
    notes: Callable[[StoredPaperRuns, ItemResults], PageNotes]  # what its page says of the runs
    constants: Callable[[ComputeExtent], Any] = lambda extent: None  # settings of its simulations

    def configurations(self, extent: ComputeExtent) -> dict[str, Any]:
        """Return the configurations of all runs on all data sets that may be used, by the run's name."""
        versions = (
            dataset.in_form(extent) for groups in self.candidates.values() for group in groups for dataset in group
        )
        return {run.name: run.values() for data in versions if data is not None for run in self.runs(data)}

    def digest(self, extent: ComputeExtent) -> str:
        """Return a hash of the settings of all runs, in the full or quick form, by which changes are noticed."""
        constants = self.constants(extent)
        everything = [COLUMNS, self.configurations(extent), *(() if constants is None else (constants,))]
        text = json.dumps(everything, sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def name_of(self, item: PaperItem) -> str:
        """Return the name of a table or figure on the command line."""
        return f"{self.key}-{item.key}"


@dataclass(frozen=True)
class PaperResults:
    """The results of reproducing tables and figures of one paper."""

    results: ItemResults  # each item that could be made, with its result
    left_out: tuple[str, ...] = ()  # a line for every item that could not be made because data are missing
    remarks: tuple[str, ...] = ()  # a line for every data set that is replaced or left out
    # Basis of the results, in a few words each: the data sets and the number of runs.
    basis: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()  # warnings to read before any number
    procedures_html: str = ""  # HTML that says what was trained or simulated
    # The paragraph with which the page opens; empty for the usual one, which counts published numbers.
    opening: str = ""


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
    """All numbers that a paper prints, by data set, setting and quantity, from its table `printed.csv`.

    What is shown in a figure only was read off it: its last digit is uncertain.
    """

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
