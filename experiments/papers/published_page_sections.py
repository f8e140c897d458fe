"""Sections of published pages on one table or figure each: image, origin, differences, and the table of rows."""

import re
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

import pandas as pd

from fl_audit.experiments.papers.page import rows_html
from fl_audit.experiments.papers.papers import ComputeExtent
from fl_audit.plurals import plural
from fl_audit.report.formatting import capital

CSV_DIGITS = 6  # of every number in published CSV files
LEFT_OUT = ("title", "caption", "said", "played", "differences")  # of a record: what stands on the page
_ROWS_AT_ONCE = 60
CLAIMS_ITEM = "claims"
Record = Mapping[str, Any]
"""The record of a finished item."""


def compact_svg(svg: str) -> str:
    """Return an SVG image by matplotlib in a smaller form: with shared styles, and without indentation and unused ids.

    The image must stay in a file of its own, because its style sheet would affect other images on the same page.
    """
    bare = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    used = set(re.findall(r"#([\w-]+)", bare))
    bare = re.sub(r' id="([^"]*)"', lambda name: name[0] if name[1] in used else "", bare)
    bare = re.sub(r">\s+<", "><", re.sub(r"\s+", " ", bare))
    bare = re.sub(r' d="[^"]*"', lambda path: re.sub(r" ?\b([A-Za-z])\b ", r"\1", path[0]), bare)
    styles = {style: f"s{number}" for number, style in enumerate(dict.fromkeys(re.findall(r' style="([^"]*)"', bare)))}
    bare = re.sub(r' style="([^"]*)"', lambda style: f' class="{styles[style[1]]}"', bare)
    sheet = "".join(f".{name}{{{style}}}" for style, name in styles.items())
    return bare.replace("<defs>", f"<style>{sheet}</style><defs>", 1)


def section_of(record: Record) -> str:
    """Return the Markdown section of a stored record: image, origin, differences, and a link to its CSV file."""
    place = f"{record['paper']}/{record['item']}"
    title = escape(record["title"], quote=False)
    parts = (
        f"## {title}",
        f"![{title}]({place}.svg)",
        f"{escape(record['caption'], quote=False)} [All rows]({place}.csv).",
        _origin(record),
        escape(record["played"], quote=False),
        _one_block(f"<details><summary>Where ours differs, and why</summary>{record['differences']}</details>"),
    )
    return "\n\n".join(parts)


def rows_of(file: Path) -> str:
    """Return the rows of a table's or figure's CSV file as a collapsible HTML table.

    A table of claims is shown with all rows. Of other tables, the first rows that have a printed or theoretical number
    are shown. If no row has such a number, the first rows are shown.
    """
    frame = pd.read_csv(file)
    beside = frame[frame["published"].notna() | frame["theory"].notna()]
    shown = frame if file.stem == CLAIMS_ITEM else (frame if beside.empty else beside).head(_ROWS_AT_ONCE)
    table = rows_html(shown, len(frame), file.name, look="")
    return _one_block(f"<details><summary>What is printed, theory and ours</summary>{table}</details>")


def _origin(record: Record) -> str:
    minutes = "" if record["minutes"] is None else f", {record['minutes']:,} minutes"
    runs = (
        f"{plural(record['trials'], 'trial')}{minutes}, played at commit {' and '.join(record['run_commits']) or '?'}"
        if record["trials"] else "no runs"
    )  # fmt: skip
    form = "full form" if record["extent"] == ComputeExtent.FULL else "quick form"
    made = f"made at commit {record['commit'] or '?'} on {record['made']}"
    return f"*{capital(form)}; {runs}; {made}.*"


def _one_block(html: str) -> str:
    """Return HTML as one Markdown block: without empty lines, which would end the block.

    Attributes for styles and the heading "Where ours differs, and why" are removed as well.
    """
    plain = html.replace("<h3>Where ours differs, and why</h3>", "")
    bare = re.sub(r' (?:class|data-label|scope|tabindex|role|aria-label)="[^"]*"', "", plain)
    return "\n".join(line for line in bare.splitlines() if line.strip())
