"""Reproduction of one table or figure, or of a whole paper, with CSV files, images and one HTML page."""

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fl_audit.array_types import finite
from fl_audit.atomic_files import write_bytes
from fl_audit.errors import require
from fl_audit.experiments.papers.bernau2019.paper import PAPER as BERNAU_2019
from fl_audit.experiments.papers.bernau2021.paper import PAPER as BERNAU_2021
from fl_audit.experiments.papers.item_results import ItemResult
from fl_audit.experiments.papers.negoescu2023.paper import PAPER as NEGOESCU_2023
from fl_audit.experiments.papers.page import differences_html, render_page
from fl_audit.experiments.papers.papers import Paper, PaperItem, PaperResults, ReproductionOptions
from fl_audit.experiments.papers.reproduction_names import require_known
from fl_audit.experiments.papers.runner import make
from fl_audit.report.figure_style import to_png, to_svg
from fl_audit.runs.provenance import commit_of_sources

SCHEMA = 1
"""Version of the record of a finished table or figure, from which a page can be made without its runs."""
_IN_BRACKETS = re.compile(r" \((?:[^()]|\([^()]*\))*\)")


PAPERS: tuple[Paper, ...] = (BERNAU_2019, BERNAU_2021, NEGOESCU_2023)  # the papers, in the order of their years


def chosen_items(name: str) -> tuple[Paper, tuple[PaperItem, ...]]:
    """Return a paper and the tables and figures to reproduce: all of a paper, or the one table or figure named
    `name`."""
    require_known(name)
    paper = next(paper for paper in PAPERS if name == paper.key or name.startswith(f"{paper.key}-"))
    return paper, tuple(item for item in paper.items if name in (paper.key, paper.name_of(item)))


def reproduce(name: str, options: ReproductionOptions) -> tuple[Paper, PaperResults, Path]:
    """Compute one or all tables and figures of a paper, and write them to files together with the printed numbers.

    The directory of the options receives a CSV file, a PNG, an SVG and a JSON record for every table or figure, and a
    page NAME.html. Runs are stored below it in `runs/` (quick form: `runs-quick/`): finished runs are read and
    interrupted ones continued.
    """
    paper, items = chosen_items(name)
    directory = options.directory
    require(not directory.exists() or directory.is_dir(), f"--out {directory} is a file: accepted is a directory")
    for other_paper in PAPERS:  # all papers would name their figures' files alike
        has_other_pages = other_paper is not paper and any(directory.glob(f"{other_paper.key}*.html"))
        require(
            not has_other_pages,
            f"--out {directory} holds {other_paper.key}: accepted is a directory of {paper.key}, or a new one",
        )
    paper_results = make(paper, items, options)
    missing = paper_results.remarks or paper_results.left_out
    require(bool(paper_results.results), f"{name} cannot be made, none of its data sets is there: {'; '.join(missing)}")
    return paper, paper_results, _write(options, name, paper, paper_results)


def _write(options: ReproductionOptions, name: str, paper: Paper, results: PaperResults) -> Path:
    """Write the page NAME.html, and the image, rows and record of each result; return the path of the page.

    Nothing is written before all results are rendered.
    """
    files = dict[str, bytes]()
    pictures = dict[str, bytes]()
    for item, result in results.results:
        record = _record_of(options, paper, results, item, result)
        # The layout of a second drawing begins with that of the first: their order is a matter of last digits.
        files[f"{item.key}.svg"] = to_svg(result.figure).encode()
        files[f"{item.key}.png"] = pictures[item.key] = to_png(result.figure)
        files[f"{item.key}.csv"] = result.frame.to_csv(index=False).encode()
        files[f"{item.key}.json"] = (json.dumps(record, indent=1, ensure_ascii=False) + "\n").encode()
    files[f"{name}.html"] = render_page(name, options.extent, paper, results, pictures).encode()
    for file_name, content in files.items():
        write_bytes(options.directory / file_name, content)
    return options.directory / f"{name}.html"


def _record_of(
    options: ReproductionOptions, paper: Paper, results: PaperResults, item: PaperItem, result: ItemResult
) -> Mapping[str, Any]:
    """Return the record of a finished table or figure as values for JSON."""
    spent = result.spent
    return {
        "schema": SCHEMA,
        "paper": paper.key,
        "item": item.key,
        "title": item.title,
        "caption": result.caption,
        "extent": str(options.extent),
        "settings": paper.digest(options.extent),
        "commit": commit_of_sources(),
        "run_commits": spent.commits,
        "trials": spent.trials,
        "minutes": finite(round(spent.minutes, 1)),
        "made": datetime.now(UTC).date().isoformat(),
        # Reasons in brackets name places of the machine that played.
        "said": (*results.warnings, *(_IN_BRACKETS.sub("", line) for line in (*results.remarks, *results.left_out))),
        "played": result.procedure,
        "differences": differences_html(result),
        "claims": [claim.to_json() for claim in result.claims],
    }
