"""Re-evaluation of published pages by the current rules, from published numbers and without runs.

Runs take hours, while the rules by which results are evaluated change more often. `Paper.rejudge` of a paper returns
the tables and figures that can be recomputed from its published numbers. The sections of all others stay as they are.
"""

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd

from fl_audit.errors import require
from fl_audit.experiments.reproductions.claims import PaperClaim, restored, verdicts_said
from fl_audit.experiments.reproductions.item_results import ItemResult
from fl_audit.experiments.reproductions.page import differences_html
from fl_audit.experiments.reproductions.papers import ComputeExtent, Paper, PaperItem, PublishedReproduction
from fl_audit.experiments.reproductions.published_page_sections import (
    CLAIMS_ITEM,
    CSV_DIGITS,
    LEFT_OUT,
    Record,
    compact_svg,
    section_of,
)
from fl_audit.experiments.reproductions.shared_notes import with_own_notes, with_shared_notes
from fl_audit.experiments.runs.provenance import commit_of_sources
from fl_audit.report.figure_style import to_svg

_SECTIONS = re.compile(r"(?m)^(?=## )")
_SUMMED = re.compile(r"Of \d+ claims of the text[^<.]*\.")
_PLAYED_BEFORE = ("extent", "run_commits", "trials", "minutes", "commit", "made")


def republished(paper: Paper[Any], records: Sequence[Record], docs: Path) -> tuple[list[Record], dict[Path, bytes]]:
    """Return the published records of a paper, re-evaluated by the current rules, and the contents of changed files.

    A record holds the published results of one table, figure or list of claims. If the paper has no rules for a new
    evaluation, the records are returned unchanged, and no file has changed.

    Parameters
    ----------
    paper
        The paper, with the rules by which its claims are judged.
    records
        Its published records.
    docs
        Directory of the documentation, which contains the page of the paper.

    Raises
    ------
    InputError
        If the page has no section for one of the records.
    """
    if paper.rejudge is None or not records:
        return list(records), {}
    own = {record["item"]: record for record in records}
    tables = {key: pd.read_csv(docs / paper.key / f"{key}.csv") for key in own}
    claims = tuple(restored(claim) for claim in own.get(CLAIMS_ITEM, {"claims": ()})["claims"])
    results = paper.rejudge(PublishedReproduction(claims, tables))
    judged = results[CLAIMS_ITEM].claims if CLAIMS_ITEM in results else claims
    page = docs / f"{paper.key}.md"
    head, *parts = _SECTIONS.split(page.read_text(encoding="utf-8"))
    sections = with_own_notes({part.splitlines()[0].removeprefix("## "): part.rstrip("\n") for part in parts})
    made, files = list[Record](), dict[Path, bytes]()
    for item in paper.items:
        if item.key in results:
            old, result = own.get(item.key), results[item.key]
            record = _record(paper, item, result, old)
            files |= _files(docs / paper.key / item.key, result)
            sections[item.title] = _section(record, _is_redrawn(result), sections.get(item.title))
        elif item.key in own:
            require(item.title in sections, f"{page} has no section {item.title!r}: accepted is one for each item")
            record, sections[item.title] = _with_claims(own[item.key], judged, sections[item.title])
        else:
            continue
        made.append({key: one for key, one in record.items() if key not in LEFT_OUT})
    shown = with_shared_notes([sections[item.title] for item in paper.items if item.title in sections])
    files[page] = ("\n\n".join([head.rstrip("\n"), *shown]) + "\n").encode()
    return made, files


def _record(paper: Paper[Any], item: PaperItem, result: ItemResult, old: Record | None) -> dict[str, Any]:
    """Return the record of a re-evaluated result; facts about its runs come from the published record `old`."""
    now, commit = datetime.now(UTC).date().isoformat(), commit_of_sources()
    played = {
        "extent": str(ComputeExtent.FULL),
        "run_commits": [],
        "trials": 0,
        "minutes": 0.0,
        "commit": commit,
        "made": now,
    }
    if old is not None:
        played = {name: old[name] for name in _PLAYED_BEFORE} | {"judged": f"{commit} on {now}"}
    return {
        "schema": 1 if old is None else old["schema"],
        "paper": paper.key,
        "item": item.key,
        "settings": paper.digest(ComputeExtent.FULL) if old is None else old["settings"],
        **played,
        "title": item.title,
        "caption": result.caption,
        "played": result.played,
        "differences": differences_html(result),
        "claims": [claim.to_json() for claim in result.claims],
    }


def _is_redrawn(result: ItemResult) -> bool:
    return bool(result.figure.axes)


def _files(place: Path, result: ItemResult) -> dict[Path, bytes]:
    files = {place.with_suffix(".csv"): result.frame.to_csv(index=False, float_format=f"%.{CSV_DIGITS}g").encode()}
    if _is_redrawn(result):
        files[place.with_suffix(".svg")] = compact_svg(to_svg(result.figure)).encode()
    return files


def _section(record: Record, is_redrawn: bool, old: str | None) -> str:
    """Return a result's section of the page, made from its stored record.

    If the image is not drawn again, the caption is taken from `old`, the section as it was published.
    """
    if not is_redrawn and old is not None:
        caption = next(line for line in old.splitlines() if " [All rows](" in line)
        record = {**record, "caption": caption.partition(" [All rows](")[0], "is_escaped": True}
    return section_of(record)


def _with_claims(record: Record, judged: Iterable[PaperClaim], section: str) -> tuple[dict[str, Any], str]:
    """Return a record and its section, with the re-evaluated claims `judged` in place of the record's claims.

    Claims are matched by data set and quantity; a claim without a match is dropped. The section's sentence that counts
    the claims is rewritten.
    """
    by_place = {(one.where, one.quantity): one for one in judged}
    own = [by_place[claim["where"], claim["quantity"]] for claim in record["claims"]
           if (claim["where"], claim["quantity"]) in by_place]  # fmt: skip
    if not record["claims"]:
        return dict(record), section
    told = [{**claim.to_json(), "second_look": ""} for claim in own]
    return {**record, "claims": told}, _SUMMED.sub(lambda _: verdicts_said(own), section)
