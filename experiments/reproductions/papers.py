"""What the reproductions know of a paper: its name, its tables and figures, and a function that makes some of them."""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from html import escape
from pathlib import Path
from typing import Any, Generic, TypeVar

from experiments.reproductions.items import COLUMNS, ItemResult
from experiments.runs.engines import Engine
from experiments.runs.progress import RunsProgress, no_runs_progress
from fl_audit.errors import InputError


class Extent(StrEnum):
    """How much is computed: all that the paper did, or a quick form with few repetitions and wide intervals."""

    FULL = "full"
    QUICK = "quick"


MINUTES = 65.0
"""Within which worlds are added, unless another number is named; a first part of everything is played in any case."""


@dataclass(frozen=True)
class Context:
    """Everything besides the paper that the making of a table or figure may depend on."""

    directory: Path  # where all files are written
    data_dir: Path | None = None  # data directory; None means that of the environment
    extent: Extent = Extent.FULL  # full or quick
    engine: Engine | None = None  # where clients run; None means in this process, or in one for every core
    progress: RunsProgress = no_runs_progress  # shows the progress of all runs together
    # Called with a line of text as soon as a data set or item is replaced or left out.
    announce: Callable[[str], None] = field(default=lambda line: None)
    minutes: float = MINUTES  # within which worlds are added where claims lack them, on all cores
    # Address of a running Ray cluster; None starts a Ray on this machine where one is needed.
    ray_address: str | None = None

    @property
    def runs(self) -> Path:
        """Where runs are kept; the quick form has a directory of its own, as its runs are no part of the full form."""
        return self.directory / ("runs" if self.extent is Extent.FULL else f"runs-{self.extent}")


@dataclass(frozen=True)
class Item:
    """A table or figure of a paper."""

    key: str  # the last part of its name on the command line, and the name of its files
    title: str  # its number in the paper and its subject


ItemT = TypeVar("ItemT", bound=Item)


@dataclass(frozen=True)
class MadeItems:
    """What a paper made of the items that were asked for."""

    results: tuple[tuple[Item, ItemResult], ...]  # each item that could be made, with its result
    left_out: tuple[str, ...] = ()  # a line for every item that could not be made because data are missing
    remarks: tuple[str, ...] = ()  # a line for every data set that is replaced or left out
    # What the results rest on, in a few words each, such as the data sets and the number of runs.
    basis: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()  # what a reader has to know before reading any number
    played: str = ""  # HTML that says what was trained or simulated
    # The paragraph with which the page opens; empty for the usual one, which counts published numbers.
    opening: str = ""


@dataclass(frozen=True)
class Paper(Generic[ItemT]):
    """A paper that can be reproduced."""

    key: str  # name of the whole paper, and the first part of the name of each of its items
    heading: str  # authors and year, as in running text
    reference: str  # the full reference
    items: tuple[ItemT, ...]  # every table and figure that shows results, in the order of the paper
    # Makes some of the items. Those whose data are missing are left out, and the result names them.
    make: Callable[[Sequence[ItemT], Context], MadeItems]
    # Returns all that is set for its runs, on every data set, as JSON would have it: what published numbers rest on.
    settings: Callable[[Extent], Any]

    def digest(self, extent: Extent) -> str:
        """Return a short digest of all settings, full or quick: numbers with another one are no longer ours."""
        text = json.dumps([COLUMNS, self.settings(extent)], sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def name_of(self, item: Item) -> str:
        """Return the item's name on the command line."""
        return f"{self.key}-{item.key}"


class NoDataError(InputError):
    """A data set that an item needs is missing; the other items of the paper can still be made."""


@dataclass(frozen=True)
class SingleItem(Item):
    """An item that is made on its own; what several such items need is shared through files under `Context.runs`."""

    build: Callable[[Context], ItemResult]  # makes the item; raises `NoDataError` if a data set is missing


def make_each(items: Sequence[SingleItem], context: Context) -> MadeItems:
    """Make items one after the other, and list on the page what was trained or simulated for each.

    Parameters
    ----------
    items, context
        What to make; what the items may depend on besides the paper.
    """
    results: list[tuple[Item, ItemResult]] = []
    left_out: list[str] = []
    data: list[str] = []
    for item in items:
        try:
            results.append((item, item.build(context)))
        except NoDataError as error:
            left_out.append(f"{item.title}: left out, {error}")
        else:
            data.extend(results[-1][1].data)
    played = "\n".join(
        f"<li><strong>{escape(item.title)}.</strong> {escape(result.played)}</li>"
        for item, result in results
        if result.played
    )
    return MadeItems(
        tuple(results),
        tuple(left_out),
        basis=(", ".join(dict.fromkeys(data)) or "no data needed",),
        played=f"<ul>\n{played}\n</ul>",
    )
