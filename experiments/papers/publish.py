"""Command that writes documentation pages from finished reproductions: tables and figures with printed and our numbers.

    python -m fl_audit.experiments.papers.publish RUNS

RUNS is a directory with the output of `fl-audit reproduce PAPER --out RUNS/...` for one or several papers.
"""

import argparse
import csv
import io
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path

import pandas as pd

from fl_audit.atomic_files import write_bytes
from fl_audit.errors import InputError, require
from fl_audit.experiments.papers.papers import ComputeExtent, Paper
from fl_audit.experiments.papers.published_page import (
    CSV_DIGITS,
    LEFT_OUT,
    Record,
    compact_svg,
    origins,
    section_of,
    with_shared_notes,
    with_shared_sentences,
)
from fl_audit.experiments.papers.reproduce import PAPERS, SCHEMA

DOCS = Path("docs") / "papers"
MADE = "published.json"
CLAIMS = "claims.csv"
CLAIM_COLUMNS = ("paper", "item", "claim", "verdict", "measured", "low", "high", "trials")
MOST_BYTES = 3_000_000  # of all files together
DIGITS = CSV_DIGITS
_QUICK = (
    "**Quick form.** These numbers come from few trials and short training: they show that everything works, and prove "
    "little. The full form takes hours."
)


def publish(runs: Path, docs: Path = DOCS) -> tuple[str, ...]:
    """Write a page for every paper with at least one finished table or figure, and the table of all papers' claims.

    Pages and claims of all other papers stay as they are. If a table or figure was made in a full and in a quick run,
    the full run is used.
    """
    records = _records(runs)
    require(bool(records), f"{runs} holds no finished reproduction: accepted is what 'fl-audit reproduce' wrote")
    old = [f"{path.name}: {why}" for path, record in records.items() if (why := _stale(record))]
    require(not old, f"reproduce again, of another version are {'; '.join(old)}")
    records_by_paper = _made(docs)
    files = dict[Path, bytes]()
    best = {paper: records_of_paper for paper in PAPERS if (records_of_paper := _best(paper, records))}
    for paper, records_of_paper in best.items():
        records_by_paper[paper.key] = [
            {key: value for key, value in record.items() if key not in LEFT_OUT} for _, record in records_of_paper
        ]
        files |= _page(paper, records_of_paper, docs)
    _write(records_by_paper, files, docs)
    return tuple(paper.key for paper in best)


def _write(records_by_paper: Mapping[str, Sequence[Record]], files: dict[Path, bytes], docs: Path) -> None:
    """Write `files`, and one JSON file of all records and one CSV file of all claims into the directory `docs`.

    `records_by_paper` holds the records of each paper. If all published files together are too large, `InputError` is
    raised before anything is written.
    """
    files[docs / MADE] = (json.dumps(records_by_paper, indent=1, ensure_ascii=False) + "\n").encode()
    files[docs / CLAIMS] = _claims_csv(record for records in records_by_paper.values() for record in records).encode()
    size = sum(map(len, files.values())) + sum(path.stat().st_size for path in _files(docs) if path not in files)
    require(size <= MOST_BYTES, f"the pages take {size:,} bytes: accepted are at most {MOST_BYTES:,}")
    for path, content in files.items():
        write_bytes(path, content)


def stale_pages(docs: Path = DOCS) -> list[str]:
    """Return a sentence on each published table or figure that was made with another version's schema or settings."""
    return [
        f"{key}-{record['item']}: {why}"
        for key, records in _made(docs).items()
        for record in records
        if (why := _stale(record))
    ]


def _stale(record: Record) -> str:
    """Return why a published record does not fit this version; empty if it fits."""
    if record["schema"] != SCHEMA:
        return f"schema {record['schema']}, here it is {SCHEMA}"
    paper = next((paper for paper in PAPERS if paper.key == record["paper"]), None)
    if paper is None or record["item"] not in {item.key for item in paper.items}:
        return "there is no such item"
    return "" if record["settings"] == paper.digest(ComputeExtent(record["extent"])) else "its settings are others"


def _records(runs: Path) -> dict[Path, Record]:
    """Return the records of all finished results below a directory, by the path of their JSON file."""
    paths = [path.with_suffix(".json") for path in sorted(runs.glob("**/*.svg"))]
    return {path: json.loads(path.read_text(encoding="utf-8")) for path in paths if path.exists()}


def _best(paper: Paper, records: Mapping[Path, Record]) -> list[tuple[Path, Record]]:
    """Return one record, with its path, of each table or figure of a paper, in the order of the paper.

    If there are several records, one of a full reproduction is preferred to one of a quick form.
    """
    paper_records = [(path, record) for path, record in records.items() if record["paper"] == paper.key]
    order = [item.key for item in paper.items]
    paper_records.sort(key=lambda paths: (order.index(paths[1]["item"]), paths[1]["extent"] != ComputeExtent.FULL))
    return [
        next(paths for paths in paper_records if paths[1]["item"] == key)
        for key in dict.fromkeys(paths[1]["item"] for paths in paper_records)
    ]


def _made(docs: Path) -> dict[str, list[Record]]:
    path = docs / MADE
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def _files(docs: Path) -> list[Path]:
    of_papers = (path for paper in PAPERS for path in (docs / f"{paper.key}.md", *(docs / paper.key).glob("*")))
    return [path for path in (docs / MADE, docs / CLAIMS, *of_papers) if path.is_file()]


def _page(paper: Paper, paper_records: Sequence[tuple[Path, Record]], docs: Path) -> dict[Path, bytes]:
    """Return the published files of a paper, as contents keyed by path: page, images and CSV files.

    `paper_records` has the records of the paper's tables and figures, each with the path of its file.
    """
    files: dict[Path, bytes] = {}
    phrases = [f"# {paper.heading}, again", paper.reference]
    if any(record["extent"] == ComputeExtent.QUICK for _, record in paper_records):
        phrases.append(f'!!! warning "Quick runs"\n    {_QUICK}')
    sentences = dict.fromkeys(line for _, record in paper_records for line in record["said"])
    phrases.append("\n".join(f"* {escape(line, quote=False)}" for line in sentences))
    missing = [item.title for item in paper.items if item.key not in {record["item"] for _, record in paper_records}]
    if missing:
        phrases.append(f"Not made: {'; '.join(missing)}.")
    phrases.append(origins([record for _, record in paper_records]))
    phrases += with_shared_notes(with_shared_sentences([section_of(record) for _, record in paper_records]))
    for path, record in paper_records:
        frame = pd.read_csv(path.with_suffix(".csv"))
        directory = docs / paper.key / record["item"]
        files[directory.with_suffix(".csv")] = frame.to_csv(index=False, float_format=f"%.{DIGITS}g").encode()
        files[directory.with_suffix(".svg")] = compact_svg(
            path.with_suffix(".svg").read_text(encoding="utf-8")
        ).encode()
    files[docs / f"{paper.key}.md"] = ("\n\n".join(phrase for phrase in phrases if phrase) + "\n").encode()
    return files


def _claims_csv(records: Iterable[Record]) -> str:
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(CLAIM_COLUMNS)
    written: set[tuple[str, str]] = set()  # the item of all claims repeats those of the figures
    for record in records:
        for claim in record["claims"]:
            statement = f"{claim['statement']} [{'; '.join(filter(None, (claim['where'], claim['quantity'])))}]"
            if (record["paper"], statement) in written:
                continue
            written.add((record["paper"], statement))
            numbers = (claim[name] for name in ("measured", "low", "high"))
            cells = ("" if number is None else f"{number:.{DIGITS}g}" for number in numbers)
            writer.writerow((record["paper"], record["item"], statement, claim["verdict"], *cells, claim["trials"]))
    return file.getvalue()


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the documentation pages from finished runs, as the command line asks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, help="where finished reproductions lie")
    parser.add_argument("--docs", type=Path, default=DOCS, help="where the pages are written")
    options = parser.parse_args(arguments)
    try:
        written = publish(options.runs, options.docs)
    except InputError as error:
        sys.exit(str(error))
    sys.stdout.write(f"pages of {', '.join(written)} in {options.docs}\n")


if __name__ == "__main__":
    main()
