"""A paper that can be reproduced: its tables and figures (items), the options of a reproduction, and its results."""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Generic, TypeVar

from fl_audit.errors import InputError
from fl_audit.experiments.papers.item_results import COLUMNS, ItemResult
from fl_audit.runs.engine_names import Engine
from fl_audit.runs.progress import RunsProgress, no_runs_progress


class ComputeExtent(StrEnum):
    """The form of a reproduction: FULL has the size of the paper's experiment, and QUICK has few repetitions."""

    FULL = "full"
    QUICK = "quick"


@dataclass(frozen=True)
class ReproductionOptions:
    """Settings of a reproduction: directories, full or quick extent, engine, progress display and time limit."""

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
class PaperItem:
    """A table or figure of a paper."""

    key: str  # the last part of its name on the command line, and the name of its files
    title: str  # its number in the paper and its subject


ItemT = TypeVar("ItemT", bound=PaperItem)


@dataclass(frozen=True)
class PaperResults:
    """The results of reproducing tables and figures of one paper."""

    results: tuple[tuple[PaperItem, ItemResult], ...]  # each item that could be made, with its result
    left_out: tuple[str, ...] = ()  # a line for every item that could not be made because data are missing
    remarks: tuple[str, ...] = ()  # a line for every data set that is replaced or left out
    # Basis of the results, in a few words each, such as the data sets and the number of runs.
    basis: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()  # warnings to read before any number
    played: str = ""  # HTML that says what was trained or simulated
    # The paragraph with which the page opens; empty for the usual one, which counts published numbers.
    opening: str = ""


@dataclass(frozen=True)
class Paper(Generic[ItemT]):
    """A paper that can be reproduced: its items, and functions that compute them."""

    key: str  # name of the whole paper, and the first part of the name of each of its items
    heading: str  # authors and year, as in running text
    reference: str  # the full reference
    items: tuple[ItemT, ...]  # every table and figure that shows results, in the order of the paper
    # Computes the given items. Items whose data are missing are left out, and the result names them.
    make: Callable[[Sequence[ItemT], ReproductionOptions], PaperResults]
    # Returns all settings of the paper's runs on every data set, as values for JSON.
    settings: Callable[[ComputeExtent], Any]

    def digest(self, extent: ComputeExtent) -> str:
        """Return a hash of the settings of all runs, in the full or quick form, by which changes are noticed."""
        text = json.dumps([COLUMNS, self.settings(extent)], sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def name_of(self, item: PaperItem) -> str:
        """Return the name of a table or figure on the command line."""
        return f"{self.key}-{item.key}"


class NoDataError(InputError):
    """Raised if a data set that a table or figure needs is missing; tables and figures without it can still be made."""
