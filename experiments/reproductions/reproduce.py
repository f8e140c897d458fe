"""From a name to CSV files, pictures and one page."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from experiments.engines import Engine
from experiments.progress import RunsProgress, no_runs_progress
from experiments.reproductions.bernau2021.runs import Findings, play
from experiments.reproductions.bernau2021.settings import Extent, Setting
from experiments.reproductions.bernau2021.sources import DataFound, find_data
from experiments.reproductions.catalogue import Item, chosen_items
from experiments.reproductions.items import ItemResult
from experiments.reproductions.page import PageFacts, render_page
from fl_audit.errors import require
from fl_audit.report.style import to_png
from fl_audit.whole_files import whole_file

NO_DATA = "none of its data sets is there"


@dataclass(frozen=True)
class Reproduction:
    """What was made.

    Parameters
    ----------
    results
        Each item that was made, with its result.
    left_out
        Titles of the items that no data set is there for.
    remarks
        One line for every data set that is replaced or left out.
    page
        The page.
    """

    results: tuple[tuple[Item, ItemResult], ...]
    left_out: tuple[str, ...]
    remarks: tuple[str, ...]
    page: Path


def reproduce(
    name: str,
    directory: Path,
    data_dir: Path | None = None,
    extent: Extent = Extent.FULL,
    engine: Engine | None = None,
    progress: RunsProgress = no_runs_progress,
    announce: Callable[[str], None] = lambda line: None,
) -> Reproduction:
    """Compute a table or figure of a paper, or all of them, and set it beside what is printed.

    Parameters
    ----------
    name
        One of `item_names()`.
    directory
        Where everything goes: a CSV file and a PNG of every item, NAME.html, and the runs under `runs/` (the quick
        form: `runs-quick/`). Runs that are finished there are not computed again, interrupted ones go on.
    data_dir
        Data directory; None means that of the environment.
    extent
        As published, or quick.
    engine
        Where the clients run; None means what suits each data set.
    progress
        Shows how far all runs together are.
    announce
        Is told at once, in a line, which data set is replaced or left out.

    Raises
    ------
    InputError
        If there is no such name, a file stands in the way, or no item can be made for lack of data.
    FederationError
        If a federation had to stop; what was finished is kept.
    """
    items = chosen_items(name)
    require(not directory.exists() or directory.is_dir(), f"--out {directory} is a file: accepted is a directory")
    found = find_data(data_dir, dict.fromkeys(study for item in items for study in item.studies))
    for remark in found.remarks:
        announce(remark)
    makeable = tuple(item for item in items if not item.studies or item.data_of(found.data))
    require(bool(makeable), f"{name} cannot be made, {NO_DATA}: {'; '.join(found.remarks)}")
    wanted = [setting for item in makeable for setting in item.settings(item.data_of(found.data))]
    runs = play(wanted, extent, data_dir, directory / runs_folder(extent), engine, progress)
    results = tuple((item, item.build(item.data_of(found.data), runs)) for item in makeable)
    left_out = tuple(f"{item.title}: left out, {NO_DATA}" for item in items if item not in makeable)
    page = _write(directory, name, results, left_out, found, runs, extent)
    return Reproduction(results, left_out, found.remarks, page)


def runs_folder(extent: Extent) -> str:
    """Return the folder of the runs: apart for the quick form, whose runs are no part of the full one."""
    return "runs" if extent is Extent.FULL else f"runs-{extent}"


def _write(
    directory: Path,
    name: str,
    results: tuple[tuple[Item, ItemResult], ...],
    left_out: tuple[str, ...],
    found: DataFound,
    runs: dict[Setting, Findings],
    extent: Extent,
) -> Path:
    """Draw everything first, then write each file whole."""
    pictures = {item.key: to_png(result.figure) for item, result in results}
    page = render_page(results, pictures, PageFacts(name, extent, found, left_out, tuple(runs.values())))
    for item, result in results:
        with whole_file(directory / f"{item.key}.csv") as file:
            result.frame.to_csv(file, index=False)
        with whole_file(directory / f"{item.key}.png") as file:
            file.write_bytes(pictures[item.key])
    path = directory / f"{name}.html"
    with whole_file(path) as file:
        file.write_text(page, encoding="utf-8")
    return path
